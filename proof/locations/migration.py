"""Tables that are older than claims: a janitor claims their places, and creations and purges wait for it (P13)."""

from typing import Final, Literal

from proof.answers import BUSY, CONFLICT, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.locations.claims import overlapping
from proof.locations.owners import standing
from proof.locations.records import RULES, Claim, Options, claim_at, file_at, living, order_of, pointer_of
from proof.locations.removal import drop
from proof.locations.requests import create
from proof.locations.system import Owner, store_with
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, call, delete, get, listing, put
from proof.store import held

COMPLETE: Final = Cell[Literal["yes"]]("complete")
OUTER, INNER = Owner("K", "a", 0), Owner("L", "a/b", 0)


def claim_older(owners: tuple[Owner, ...]) -> Step[str]:
    """Claim every older place, also if two overlap; then write that all older places have claims."""
    for owner in owners:
        _, pointer = yield from get(pointer_of(owner.uuid))
        if pointer is not None and pointer.state != "killed":
            written = yield from put(claim_at(owner.address), owner.claim, ABSENT)
            if written.outcome == "unknown":
                return BUSY
    yield from put(COMPLETE, "yes", ABSENT)
    return OK


def create_later(address: str, claim: Claim, options: Options) -> Step[str]:
    """No request names a place before all older places have claims."""
    if "P13 create" in options.rules:
        _, complete = yield from get(COMPLETE)
        if complete is None:
            return BUSY
    return (yield from create(address, claim, options))


def purge_older(address: str, uuid: str, rules: Rules) -> Step[str]:
    """Wait for the claims; another living owner that overlaps blocks the order."""
    at, order = yield from get(order_of(uuid))
    _, pointer = yield from get(pointer_of(uuid))
    if order != "open" or pointer is None or pointer.state != "dropped":
        return SWEPT
    if "P13 purge" in rules:
        _, complete = yield from get(COMPLETE)
        if complete is None:
            return SWEPT
    if "P13 block" in rules:
        for one in (yield from call(overlapping, address, Claim(uuid, "", 0), Options(rules))):
            if (yield from call(standing, one.claim.uuid, one.claim.name, one.address, rules)) == "lives":
                yield from put(order_of(uuid), "blocked", at)
                return SWEPT
    for key in (yield from listing(f"file:{address}/")):
        version, _ = yield from get(Cell[str](key))
        if version:
            yield from delete(Cell[str](key), version)
    return SWEPT


def older(rules: Rules = RULES, *, creator: Owner | None = None, losable: int = 0) -> System:
    """Two tables that overlap. Their places are claimed while one is dropped and purged, or another is created."""
    store = {key: value for key, value in store_with(OUTER, INNER, has_files=True).items() if "claim:" not in key}
    actors = [Actor("janitor", claim_older, ((OUTER, INNER),))]
    if creator:
        actors.append(Actor("create", create_later, (creator.address, creator.claim, Options(rules))))
    else:
        actors.append(Actor("drop K", drop, (OUTER.address, OUTER.claim, rules, True)))
        actors += [Actor(f"purge K {run}", purge_older, (OUTER.address, OUTER.uuid, rules)) for run in (1, 2)]

    def judge(moment: Moment) -> None:
        if held(moment.store, file_at(INNER.address)) != INNER.uuid:
            raise Violation("a file of L, which lives, was deleted")
        if creator and creator.uuid in living(moment.store):
            raise Violation(f"{creator.uuid} at {creator.address} and K at a overlap")
        if creator and moment.results[1] == CONFLICT and held(moment.store, COMPLETE) is None:
            raise Violation("refused for good before all claims were there")

    return System(store, actors, judge, losable=losable)
