"""Undrop: a dropped table gets a name again, until its files are purged or its retention ends (U1 to U9)."""

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NO_TABLE, OK, REFUSED, SWEPT, UNKNOWN
from proof.events.records import (
    TRIES_MAX,
    Claim,
    Event,
    Name,
    Pointer,
    claim_cell,
    ensure,
    id_of,
    name_cell,
    pointer_cell,
    receipt_cell,
    space_cell,
)
from proof.events.requests import write_name
from proof.events.resolution import Settled, settle
from proof.rules import Rules
from proof.steps import Step, call, get, goto, passed, put


def undrop(actor: str, uuid: str, was: str, name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The table that was dropped as `was` comes back as `name`: namespace, names, then the pointer."""
    _, space = yield from get(space_cell(name))
    if space is None:
        return NO_NAMESPACE
    spot = yield from call(settle_both, was, name, rules)
    if spot is None or tries > TRIES_MAX:
        return BUSY
    version, pointer = yield from get(pointer_cell(uuid))
    if pointer is None or pointer.state in ("live", "killed", "purging"):
        return NO_TABLE  # It is not dropped, or it is gone.
    if pointer.state in ("unbound", "condemned"):
        if not (yield from can_take_back(pointer)):
            return BUSY
        yield from call(take_back, uuid, rules)
        return (yield from goto(undrop, actor, uuid, was, name, rules, tries + 1))
    if spot.uuid:
        return CONFLICT
    if "E2 undrop" in rules and not (yield from call(ensure, pointer.event, rules)):
        return BUSY
    life = f"{actor}.{tries}"
    event = Event(life, "undropped", uuid, name, id_of(pointer.event), actor)
    entry = Name("new", uuid, life, space.id, event=event)
    if "U2 first" not in rules:
        return (yield from goto(name_first, entry, name, spot.version, version))
    answer = yield from call(take_and_write, entry, name, spot.version, pointer, version, rules)
    # U9: the undrop is taken back; whether the name is taken is seen when it is settled again.
    if answer == "lost" or (answer == CONFLICT and "U9 settle" in rules):
        return (yield from goto(undrop, actor, uuid, was, name, rules, tries + 1))
    return answer


def settle_both(was: str, name: str, rules: Rules) -> Step[Settled | None]:
    """Settle the old name, which finishes a drop that was killed, then the new one."""
    if was != name and (yield from call(settle, was, rules, "undrop")) is None:
        return None
    return (yield from goto(settle, name, rules, "undrop"))


def can_take_back(pointer: Pointer) -> Step[bool]:
    """Whether another undrop is unfinished for so long that it may be taken back."""
    return bool(pointer.life) and (yield from passed())


def take_and_write(entry: Name, name: str, at: int, pointer: Pointer, version: int, rules: Rules) -> Step[str]:
    """U2: the pointer, which excludes a purge, a janitor and other undrops; then the name."""
    kept = pointer if "E4 activate" in rules else pointer._replace(change=None)
    wanted = kept._replace(state="unbound", life=entry.life, made_for=name)
    taken = yield from put(pointer_cell(entry.uuid), wanted, version)
    if taken.outcome != "ok":
        return BUSY if taken.outcome == "unknown" else "lost"
    return (yield from goto(write_name, entry, name, at, rules))


def name_first(entry: Name, name: str, at: int, version: int) -> Step[str]:
    """What U2 replaces: the name, which shows the table once the pointer has its life."""
    written = yield from put(name_cell(name), entry, at)
    if written.outcome != "ok":
        return UNKNOWN if written.outcome == "unknown" else CONFLICT
    _, found = yield from get(pointer_cell(entry.uuid))
    if found and found.state == "dropped":
        yield from put(pointer_cell(entry.uuid), Pointer("live", entry.life), version)
    return OK


def undrop_keyed(actor: str, uuid: str, was: str, name: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The claim keeps every life tried."""
    version, claim = yield from get(claim_cell(key))
    if claim and claim[0] == "done":
        return claim[1]
    _, space = yield from get(space_cell(name))
    spot = yield from call(settle_both, was, name, rules)
    if spot is None or tries > TRIES_MAX:
        return BUSY
    at, pointer = yield from get(pointer_cell(uuid))
    if (yield from call(was_undropped, uuid, claim or (), spot, pointer, rules)):
        return OK
    if pointer and pointer.state in ("unbound", "condemned"):
        if not (yield from can_take_back(pointer)):
            return BUSY
        yield from call(take_back, uuid, rules)
        return (yield from goto(undrop_keyed, actor, uuid, was, name, key, rules, tries + 1))
    home = space.id if space else ""
    verdict = verdict_of(home, spot, pointer)
    if not verdict and pointer and not (yield from call(ensure, pointer.event, rules)):
        return BUSY
    life = f"{actor}.{tries}"
    taken = yield from put(claim_cell(key), ("done", verdict) if verdict else (*(claim or ()), life), version)
    if taken.outcome == "ok":
        if verdict or pointer is None:
            return verdict
        event = Event(life, "undropped", uuid, name, id_of(pointer.event), key)
        entry = Name("new", uuid, life, home, event=event)
        answer = yield from call(take_and_write, entry, name, spot.version, pointer, at, rules)
        if answer != "lost" and answer not in REFUSED:
            return answer
    return (yield from goto(undrop_keyed, actor, uuid, was, name, key, rules, tries + 1))


def verdict_of(home: str, spot: Settled, pointer: Pointer | None) -> str:
    """Why the undrop is refused; empty if it is not."""
    if not home:
        return NO_NAMESPACE
    if pointer is None or pointer.state != "dropped":
        return NO_TABLE
    return CONFLICT if spot.uuid else ""


def was_undropped(uuid: str, tried: Claim, spot: Settled, pointer: Pointer | None, rules: Rules) -> Step[bool]:
    """E7: the name, then the pointer, then the receipts."""
    for life in tried:
        if spot.uuid == uuid and spot.life == life:
            return True
        if pointer and (pointer.state, pointer.life) == ("live", life):
            return True
        if pointer and pointer.event and pointer.event.previous == life:
            return True
        if "E7 once" in rules and (yield from get(receipt_cell(life)))[1]:
            return True
    return False


def take_back(uuid: str, rules: Rules) -> Step[str]:
    """The janitor of an undrop or a create that was killed: mark, look, act (G5, U4, GC2)."""
    version, pointer = yield from get(pointer_cell(uuid))
    if pointer is None or pointer.state not in ("unbound", "condemned"):
        return SWEPT
    if "U4 look" in rules:
        marked = yield from put(pointer_cell(uuid), pointer._replace(state="condemned"), version)
        if marked.outcome != "ok":
            return SWEPT
        version = marked.version
        _, entry = yield from get(name_cell(pointer.made_for))
        is_own = entry is not None and (entry.uuid, entry.life) == (uuid, pointer.life)
        if is_own and entry is not None and entry.state in ("new", "active", "pending"):
            spot = yield from call(settle, pointer.made_for, rules, "look")
            if spot is None or spot.uuid or (spot.entry and spot.entry.state == "pending"):
                return SWEPT
    back = pointer._replace(state="dropped" if pointer.life and "U5 back" in rules else "killed")
    yield from put(pointer_cell(uuid), back, version)
    return SWEPT
