"""Rename with events, also under a key."""

from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NO_TABLE, OK, REFUSED, UNKNOWN
from proof.events.records import TRIES_MAX, Claim, Event, Name, claim_cell, ensure, name_cell, receipt_cell, space_cell
from proof.events.resolution import Settled, confirm_space, settle
from proof.rules import Rules
from proof.steps import Step, call, get, goto, put

AGAIN: Final = "again"


class Plan(NamedTuple):
    """What a rename read: the table of the old name, the version of the new one, its namespace."""

    old: str
    new: str
    home: str
    uuid: str
    source: Settled
    version: int


def rename(actor: str, old: str, new: str, rules: Rules, tries: int = 0) -> Step[str]:
    planned = yield from call(plan, old, new, rules)
    if isinstance(planned, str) and planned != AGAIN:
        return planned
    if tries > TRIES_MAX:
        return BUSY
    answer = planned
    if isinstance(planned, Plan):
        answer = yield from call(move, planned, f"{actor}.{tries}", actor, rules)
    if isinstance(answer, str) and answer != AGAIN:
        return answer
    return (yield from goto(rename, actor, old, new, rules, tries + 1))


def plan(old: str, new: str, rules: Rules) -> Step[Plan | str]:
    """R1: a taken new name refuses only if the old one is as it was read."""
    _, space = yield from get(space_cell(new))
    if space is None:
        return NO_NAMESPACE
    source = yield from call(settle, old, rules, "rename")
    if source is None:
        return BUSY
    if source.uuid is None:
        return NO_TABLE
    target = yield from call(settle, new, rules, "reuse")
    if target is None:
        return BUSY
    if target.uuid:
        again, _ = yield from get(name_cell(old))
        return CONFLICT if again == source.version else AGAIN
    return Plan(old, new, space.id, source.uuid, source, target.version)


def move(planned: Plan, rename_id: str, by: str, rules: Rules) -> Step[str]:
    """R2 to R4; AGAIN if it certainly did not happen. The event lies on the new name (E5)."""
    old, new, uuid, source = planned.old, planned.new, planned.uuid, planned.source
    event = Event(rename_id, "renamed", uuid, new, source.last, by)
    kept = event if "E5 new side" in rules else None
    moving = Name("moving", uuid, source.life, "", old, source.version, rename_id, event=kept)
    taken = yield from put(name_cell(new), moving, planned.version)
    if taken.outcome != "ok":
        return UNKNOWN if taken.outcome == "unknown" else AGAIN
    if "E3 moving" not in rules:
        yield from call(ensure, event, rules)
    is_there = yield from call(confirm_space, new, planned.home)
    if is_there is not True:
        yield from put(name_cell(new), Name("free", uuid), taken.version)
        return BUSY if is_there == "unsure" else NO_NAMESPACE
    moved = Name("moved", uuid, source.life, other=new, rename=rename_id)
    answer = yield from put(name_cell(old), moved, source.version)
    if answer.outcome == "unknown":
        _, found = yield from get(name_cell(old))
        return OK if found == moved else UNKNOWN
    if answer.outcome == "lost":
        yield from put(name_cell(new), Name("free", uuid), taken.version)
        return AGAIN
    return OK


def rename_keyed(actor: str, old: str, new: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The claim pins the uuid and the life, and keeps every rename tried."""
    version, claim = yield from get(claim_cell(key))
    if claim and claim[0] == "done":
        return claim[1]
    if tries > TRIES_MAX:
        return BUSY
    planned = yield from call(plan, old, new, rules)
    if claim and (yield from call(was_renamed, old, new, claim[2:], rules)):
        return OK
    if planned == BUSY:
        return BUSY
    if planned == AGAIN:
        return (yield from goto(rename_keyed, actor, old, new, key, rules, tries + 1))
    wanted = renaming_claim(claim, planned, f"{actor}.{tries}")
    taken = yield from put(claim_cell(key), wanted, version)
    if taken.outcome == "ok" and wanted[0] == "done":
        return wanted[1]
    if taken.outcome == "ok" and isinstance(planned, Plan):
        answer = yield from call(move, planned, wanted[-1], key, rules)
        if answer != AGAIN and answer not in REFUSED:
            return answer
    return (yield from goto(rename_keyed, actor, old, new, key, rules, tries + 1))


def renaming_claim(claim: Claim | None, planned: Plan | str, rename_id: str) -> Claim:
    if isinstance(planned, str):
        return ("done", planned)
    if claim and claim[:2] != (planned.uuid, planned.source.life):
        return ("done", NO_TABLE)
    return (planned.uuid, planned.source.life, *(claim[2:] if claim else ()), rename_id)


def was_renamed(old: str, new: str, tried: tuple[str, ...], rules: Rules) -> Step[bool]:
    """E7: the old name, then the new name, then the receipts."""
    _, source = yield from get(name_cell(old))
    if source and source.state == "moved" and source.rename in tried:
        return True
    _, target = yield from get(name_cell(new))
    if target and target.state == "active" and target.event and target.event.id in tried:
        return True
    for rename_id in tried:
        if "E7 once" in rules and (yield from get(receipt_cell(rename_id)))[1]:
            return True
    return False
