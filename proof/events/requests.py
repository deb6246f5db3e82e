"""Create, change and drop of tables with events, also under a key and in a transaction.

Each request returns where it answers. What a server does behind the answer is an actor of its own (`reconcile`), which
may run at any time or never: a crash right behind every answer is among the states.
"""

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NO_TABLE, OK, UNKNOWN
from proof.events.records import (
    TRIES_MAX,
    Claim,
    Event,
    Name,
    Pointer,
    claim_cell,
    ensure,
    name_cell,
    order_cell,
    pointer_cell,
    receipt_cell,
    record_cell,
    space_cell,
)
from proof.events.resolution import Settled, confirm_space, finish_drop, is_alive, living, look, settle
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, get, goto, put


def create(actor: str, name: str, uuid: str, rules: Rules) -> Step[str]:
    _, space = yield from get(space_cell(name))
    if space is None:
        return NO_NAMESPACE
    spot = yield from call(settle, name, rules, "reuse")
    if spot is None:
        return BUSY
    if spot.uuid:
        return CONFLICT
    made = yield from put(pointer_cell(uuid), Pointer("unbound", made_for=name), ABSENT)
    if made.outcome == "unknown":
        return BUSY
    # E8: another table begins another chain.
    previous = "" if "E8" in rules or spot.event is None else spot.last
    event = Event(actor, "created", uuid, name, previous, actor)
    return (yield from goto(write_name, Name("new", uuid, "", space.id, event=event), name, spot.version, rules))


def write_name(entry: Name, name: str, version: int, rules: Rules) -> Step[str]:
    """A create or an undrop happens here, if the namespace and the pointer are confirmed (N3, U8)."""
    if "E3 new" not in rules:
        yield from call(ensure, entry.event, rules)
    answer = yield from put(name_cell(name), entry, version)
    at = answer.version
    if answer.outcome == "unknown":
        at, found = yield from get(name_cell(name))
        if found != entry:
            return UNKNOWN
    if answer.outcome == "lost":
        if entry.life:
            return (yield from goto(take_back_own, entry.uuid, entry.life, CONFLICT))
        return CONFLICT if (yield from call(look, name, rules)) != NO_TABLE else BUSY
    return (yield from goto(confirm, entry, name, at, rules))


def confirm(entry: Name, name: str, version: int, rules: Rules) -> Step[str]:
    if entry.life and "U8 confirm" not in rules:
        return OK
    is_home = yield from call(confirm_space, name, entry.home)
    is_there = yield from call(living, entry.uuid, entry.life, rules)
    if is_home is True and is_there is True:
        return OK
    if "unsure" in (is_home, is_there):
        return BUSY
    _, pointer = yield from get(pointer_cell(entry.uuid))
    if pointer is not None and was_seen(entry, pointer):
        return OK
    freed = yield from put(name_cell(name), Name("free", entry.uuid), version)
    if freed.outcome != "ok":
        return UNKNOWN  # Another actor changed the name: the table may have been seen and dropped again.
    if entry.life:
        return (yield from goto(take_back_own, entry.uuid, entry.life, BUSY if is_home else NO_NAMESPACE))
    return BUSY if is_home else NO_NAMESPACE


def was_seen(entry: Name, pointer: Pointer) -> bool:
    """Whether another actor saw the name and bound or dropped its table: then it has happened (N7)."""
    if pointer.life != entry.life or pointer.state not in ("live", "dropped"):
        return False
    if not entry.life or pointer.state == "live":
        return True
    dropped, written = pointer.event, entry.event
    return dropped is not None and written is not None and dropped.previous == written.id


def take_back_own(uuid: str, life: str, verdict: str) -> Step[str]:
    """Take an undrop back that certainly wrote no name and never will."""
    version, pointer = yield from get(pointer_cell(uuid))
    if pointer and pointer.life == life and pointer.state in ("unbound", "condemned"):
        answer = yield from put(pointer_cell(uuid), pointer._replace(state="dropped"), version)
        return verdict if answer.outcome == "ok" else BUSY
    return verdict


def create_keyed(actor: str, name: str, uuid: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """Every attempt has the same uuid: name, then pointer (N7). A refusal kills the pointer first (N8)."""
    _, space = yield from get(space_cell(name))
    spot = yield from call(settle, name, rules, "reuse")
    if spot is None or tries > TRIES_MAX:
        return BUSY
    if spot.uuid == uuid:
        return OK
    version, pointer = yield from get(pointer_cell(uuid))
    if pointer and pointer.state in ("live", "dropped"):
        return OK
    is_refused = spot.uuid is not None or space is None or (pointer is not None and pointer.state == "killed")
    if is_refused or space is None:
        is_killed = yield from call(kill, uuid, name, pointer, version)
        if not is_killed:
            return (yield from goto(create_keyed, actor, name, uuid, key, rules, tries + 1))
        return NO_NAMESPACE if space is None else CONFLICT
    if pointer is None:
        made = yield from put(pointer_cell(uuid), Pointer("unbound", made_for=name), ABSENT)
        if made.outcome == "unknown":
            return BUSY
        if made.outcome == "lost":
            return (yield from goto(create_keyed, actor, name, uuid, key, rules, tries + 1))
    event = Event(f"{actor}.{tries}", "created", uuid, name, "", key)
    answer = yield from call(write_name, Name("new", uuid, "", space.id, event=event), name, spot.version, rules)
    if answer in (CONFLICT, NO_NAMESPACE):
        return (yield from goto(create_keyed, actor, name, uuid, key, rules, tries + 1))
    return answer


def kill(uuid: str, name: str, pointer: Pointer | None, version: int) -> Step[bool]:
    """Condemn the pointer, read the name, kill the pointer. False: it is bound, or another actor was faster."""
    if pointer and pointer.state == "killed":
        return True
    if pointer:
        condemned = yield from put(pointer_cell(uuid), pointer._replace(state="condemned"), version)
        if condemned.outcome != "ok":
            return False
        _, entry = yield from get(name_cell(name))
        if entry and entry.uuid == uuid and entry.state in ("new", "active"):
            return False
        version = condemned.version
    killed = yield from put(pointer_cell(uuid), Pointer("killed"), version)
    return killed.outcome == "ok"


def change(actor: str, name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A change of content swaps the pointer. The events of the content are a chain of their own."""
    uuid = yield from call(look, name, rules)
    if uuid in (NO_TABLE, BUSY) or tries > TRIES_MAX:
        return uuid if tries <= TRIES_MAX else BUSY
    version, pointer = yield from get(pointer_cell(uuid))
    if pointer is None or not is_alive(pointer, pointer.life, rules) or pointer.state == "condemned":
        return (yield from goto(change, actor, name, rules, tries + 1))
    if "E2 change" in rules and not (yield from call(ensure, pointer.change, rules)):
        return BUSY
    previous = pointer.change.id if pointer.change else ""
    event = Event(f"{actor}.{tries}", "changed", f"{uuid}/content", name, previous, actor)
    answer = yield from put(pointer_cell(uuid), pointer._replace(change=event), version)
    if answer.outcome == "lost":
        return (yield from goto(change, actor, name, rules, tries + 1))
    if answer.outcome == "unknown":
        _, found = yield from get(pointer_cell(uuid))
        return OK if found and found.change == event else UNKNOWN
    return OK


def drop(actor: str, name: str, purges: bool, rules: Rules, tries: int = 0) -> Step[str]:  # noqa: FBT001 -- actors are started by position
    spot = yield from call(settle, name, rules, "drop")
    if spot is None or tries > TRIES_MAX:
        return BUSY
    if spot.uuid is None:
        return NO_TABLE
    event = Event(f"{actor}.{tries}", "dropped", spot.uuid, name, spot.last, actor)
    if purges:
        yield from put(order_cell(spot.uuid, event.id), "ordered", ABSENT)
    gone = Name("dropped", spot.uuid, spot.life, event=event)
    answer = yield from put(name_cell(name), gone, spot.version)
    if answer.outcome == "lost":
        return (yield from goto(drop, actor, name, purges, rules, tries + 1))
    if answer.outcome == "unknown":
        _, found = yield from get(name_cell(name))
        if found != gone:
            return UNKNOWN
    return OK if (yield from call(finish_drop, gone, rules)) else UNKNOWN


def drop_keyed(actor: str, name: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The claim pins the uuid and the life, and keeps every event tried."""
    version, claim = yield from get(claim_cell(key))
    spot = yield from call(settle, name, rules, "drop")
    if spot is None or tries > TRIES_MAX:
        return BUSY
    if claim and claim[0] == "done":
        return claim[1]
    if claim and (yield from call(was_dropped, claim, spot, rules)):
        return OK
    wanted = dropping_claim(claim, spot, f"{actor}.{tries}", rules)
    taken = yield from put(claim_cell(key), wanted, version)
    if taken.outcome != "ok":
        return (yield from goto(drop_keyed, actor, name, key, rules, tries + 1))
    if wanted[0] == "done":
        return NO_TABLE
    uuid, life, event_id = wanted[0], wanted[1], wanted[-1]
    gone = Name("dropped", uuid, life, event=Event(event_id, "dropped", uuid, name, spot.last, key))
    answer = yield from put(name_cell(name), gone, spot.version)
    if answer.outcome == "lost":
        return (yield from goto(drop_keyed, actor, name, key, rules, tries + 1))
    if answer.outcome == "unknown":
        return UNKNOWN
    return OK if (yield from call(finish_drop, gone, rules)) else UNKNOWN


def dropping_claim(claim: Claim | None, spot: Settled, event_id: str, rules: Rules) -> Claim:
    """The table and the life that the first attempt found; nothing else is dropped under the key."""
    if spot.uuid is None or (claim and claim[:2] != (spot.uuid, spot.life) and "E7 once" in rules):
        return ("done", NO_TABLE)
    return (spot.uuid, spot.life, *(claim[2:] if claim else ()), event_id)


def was_dropped(claim: Claim, spot: Settled, rules: Rules) -> Step[bool]:
    """E7: the name, then the pointer, then the receipts. Evidence moves in this order only."""
    _, pointer = yield from get(pointer_cell(claim[0]))
    seen = [event.id for event in (spot.event, pointer.event if pointer else None) if event]
    for tried in claim[2:]:
        if tried in seen or ("E7 once" in rules and (yield from get(receipt_cell(tried)))[1]):
            return True
    return False


def transact(actor: str, name: str, uuid: str, rules: Rules) -> Step[str]:
    """A transaction that creates one table (T2 to T4)."""
    began = yield from put(record_cell(actor), "preparing", ABSENT)
    if began.outcome != "ok":
        return BUSY
    _, space = yield from get(space_cell(name))
    spot = yield from call(settle, name, rules, "reuse")
    if space is None or spot is None or spot.uuid:
        verdict = NO_NAMESPACE if space is None else BUSY if spot is None else CONFLICT
        given = yield from put(record_cell(actor), "aborted", began.version)
        return verdict if given.outcome == "ok" else BUSY
    made = yield from put(pointer_cell(uuid), Pointer("unbound", made_for=name), ABSENT)
    if made.outcome != "ok":
        return BUSY
    event = Event(actor, "created", uuid, name, "", actor)
    if "E3 pending" not in rules:
        yield from call(ensure, event, rules)
    entry = Name("pending", uuid, "", space.id, transaction=actor, event=event)
    taken = yield from put(name_cell(name), entry, spot.version)
    if taken.outcome != "ok":
        return BUSY
    return (yield from goto(commit_transaction, actor, name, uuid, space.id, began.version, rules))


def commit_transaction(actor: str, name: str, uuid: str, home: str, version: int, rules: Rules) -> Step[str]:
    is_home = yield from call(confirm_space, name, home)
    is_there = yield from call(living, uuid, "", rules)
    if not (is_home is True and is_there is True):
        given = yield from put(record_cell(actor), "aborted", version)
        return NO_NAMESPACE if given.outcome == "ok" and is_home is False else BUSY
    answer = yield from put(record_cell(actor), "committed", version)
    if answer.outcome == "unknown":
        return OK if (yield from get(record_cell(actor)))[1] == "committed" else UNKNOWN
    return OK if answer.outcome == "ok" else BUSY
