"""Systems of owners that want places, and their judgement.

No two living owners overlap. An acknowledged owner stays. No file of a living owner is deleted, and no purge is lost. A
409 is true. The strongest is refused only because of one that lives. No place is stuck.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from proof.answers import BUSY, CONFLICT, OK
from proof.checker import Actor, Moment, System, Violation
from proof.locations.records import (
    RULES,
    Claim,
    Options,
    Pointer,
    State,
    claim_at,
    file_at,
    is_below,
    living,
    may_contain,
    name_cell,
    order_of,
    overlap,
    pointer_of,
)
from proof.locations.removal import purge
from proof.locations.requests import create
from proof.steps import Result
from proof.store import Store, held, present, run

STRANGER: Final = Claim("z", "name z", 99)


class Owner(NamedTuple):
    """A table, or a catalog with a root, and the address that it wants."""

    uuid: str
    address: str
    rank: int
    kind: Literal["place", "root"] = "place"
    catalog: str = ""

    @property
    def claim(self) -> Claim:
        return Claim(self.uuid, f"name {self.uuid}", self.rank, self.kind, self.catalog)


class Expected(NamedTuple):
    """What a system promises beyond the places themselves.

    `wins` must have its place after all have answered. `dropped` may end. `probes` are addresses that must not get
    stuck. `writers` have written a file. `guarded` are files of an owner at an address. `purged` have a purge order.
    """

    wins: str = ""
    dropped: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    writers: bool = False
    guarded: tuple[tuple[str, str], ...] = ()
    purged: tuple[str, ...] = ()


def store_with(*owners: Owner, has_files: bool = False, state: State = "live") -> Store:
    """A store in which these owners exist."""
    store: Store = {}
    for owner in owners:
        store = {
            **store,
            claim_at(owner.address).key: (1, owner.claim),
            pointer_of(owner.uuid).key: (1, Pointer(state, (owner.address,))),
            name_cell(owner.claim.name).key: (1, owner.uuid if state == "live" else "dropped"),
        }
        if has_files:
            store = {**store, file_at(owner.address).key: (1, owner.uuid)}
    return store


def system(
    *creators: Owner,
    options: Options = Options(),  # noqa: B008 -- an immutable value
    start: Store | None = None,
    known: tuple[Owner, ...] = (),
    others: tuple[Actor, ...] = (),
    expected: Expected = Expected(),  # noqa: B008 -- an immutable value
    losable: int = 0,
) -> System:
    """Creators and other actors on a store."""
    actors = [
        Actor(f"create {one.uuid}", create, (one.address, one.claim, options, expected.writers)) for one in creators
    ]
    claims = {one.uuid: one.claim for one in (*creators, *known)}
    judge = judgement(creators, claims, expected, is_complete=options.rules == RULES)
    return System(start or {}, [*actors, *others], judge, losable=losable)


def judgement(
    creators: tuple[Owner, ...], claims: dict[str, Claim], expected: Expected, *, is_complete: bool
) -> Callable[[Moment], None]:
    """`is_complete`: no rule is left out, so every living owner has its claims too."""
    right: set[int] = set()

    def judge(moment: Moment) -> None:
        store, results = moment.store, moment.results
        check_places(store, claims, is_complete=is_complete)
        check_files(store, expected)
        alive = living(store)
        for creator, result in zip(creators, results, strict=False):
            check_answer(store, creator, result, expected)
            if expected.wins == creator.uuid and None not in results and not is_served(alive, creator):
                raise Violation(f"{creator.uuid} was refused for nothing: {results}")
        # The checker keeps every store, so no two stores have the same id.
        if expected.probes and id(store) not in right:
            check_not_stuck(store, expected.probes, claims, is_complete=is_complete)
            right.add(id(store))

    return judge


def is_served(alive: dict[str, tuple[str, ...]], creator: Owner) -> bool:
    """Whether the creator lives, or another one that lives overlaps it."""
    return creator.uuid in alive or is_blocked(alive, creator)


def is_blocked(alive: dict[str, tuple[str, ...]], creator: Owner) -> bool:
    return any(
        overlap(creator.address, place) for uuid, places in alive.items() if uuid != creator.uuid for place in places
    )


def check_answer(store: Store, creator: Owner, result: Result | None, expected: Expected) -> None:
    alive = living(store)
    if result == OK and creator.uuid not in expected.dropped and creator.uuid not in alive:
        raise Violation(f"the creation of {creator.uuid} was acknowledged and is gone")
    if result == OK and expected.writers and creator.uuid in alive:
        check_file(store, creator.uuid, creator.address)
    if result == CONFLICT and not expected.dropped and not is_blocked(alive, creator):
        raise Violation(f"{creator.uuid} was refused for good, and nothing overlaps it")


def check_files(store: Store, expected: Expected) -> None:
    for uuid, address in expected.guarded:
        if uuid in living(store):
            check_file(store, uuid, address)
    for uuid in expected.purged:
        pointer = held(store, pointer_of(uuid))
        is_over = pointer is not None and pointer.state == "dropped" and held(store, order_of(uuid)) is None
        if is_over and uuid in present(store, "file:").values():
            raise Violation(f"the purge of {uuid} was forgotten")


def check_file(store: Store, uuid: str, address: str) -> None:
    if held(store, file_at(address)) != uuid:
        raise Violation(f"a file of {uuid}, which lives, was deleted")


def check_places(store: Store, claims: dict[str, Claim], *, is_complete: bool = True) -> None:
    """No two living owners overlap, unless one may contain the other; each has its claims.

    The second is not a promise but the reason for the first. It is not checked when a rule is left out.
    """
    places = [(uuid, place) for uuid, owned in living(store).items() for place in owned]
    for number, (uuid, place) in enumerate(places):
        for other, beside in places[:number]:
            if uuid == other or not overlap(place, beside) or is_contained(claims, (uuid, place), (other, beside)):
                continue
            raise Violation(f"{other} at {beside} and {uuid} at {place} overlap")
    for uuid, place in places if is_complete else ():
        claim = held(store, claim_at(place))
        if claim is None or claim.uuid != uuid:
            raise Violation(f"{uuid} lives at {place} without a claim")


def is_contained(claims: dict[str, Claim], one: tuple[str, str], other: tuple[str, str]) -> bool:
    if one[1] == other[1]:
        return False
    outer, inner = (one, other) if is_below(other[1], one[1]) else (other, one)
    return may_contain(claims[outer[0]], claims[inner[0]])


def check_not_stuck(store: Store, probes: tuple[str, ...], claims: dict[str, Claim], *, is_complete: bool) -> None:
    """After the janitors, a stranger that runs alone gets every place that no living owner overlaps."""
    for key in present(store, "order:"):
        uuid = key.removeprefix("order:")
        pointer = held(store, pointer_of(uuid))
        for place in pointer.places if pointer else ():
            store, _ = run(store, purge(place, uuid, RULES))
    for probe in probes:
        after, answer = run(store, create(probe, STRANGER, Options()))
        is_taken = any(overlap(place, probe) for owned in living(store).values() for place in owned)
        check_places(after, {**claims, STRANGER.uuid: STRANGER}, is_complete=is_complete)
        if answer == BUSY or (answer == OK) == is_taken:
            raise Violation(f"{probe} is stuck: a stranger is answered {answer}, living: {living(store)}")
