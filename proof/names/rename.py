"""Rename a table: `moving` on the new name, then `moved` on the old (R1 to R7)."""

from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NO_TABLE, OK, UNKNOWN
from proof.names.entries import Active, Moved, Moving, name_cell, namespace_cell, space_of
from proof.names.resolution import confirm_namespace, free, settle
from proof.rules import Rules
from proof.steps import Step, call, delete, get, goto, put

TRIES_MAX: Final = 2
AGAIN: Final = "again"


class Plan(NamedTuple):
    """The result of R1: the table, the expected versions, and the id of the target namespace."""

    uuid: str
    old: str
    new: str
    old_version: int
    new_version: int
    namespace_id: str


def plan(old: str, new: str, rules: Rules) -> Step[Plan | str]:
    """R1: settle both names; a plan, the answer that refuses, or AGAIN.

    That the new name is taken refuses only if the table had the old one all along: it may just have been moved there.
    """
    _, namespace = yield from get(namespace_cell(space_of(new)))
    if namespace is None:
        return NO_NAMESPACE
    source = yield from call(settle, old, rules)
    if source is None:
        return BUSY
    if source.uuid is None:
        return NO_TABLE
    target = yield from call(settle, new, rules)
    if target is None:
        return BUSY
    if target.uuid:
        again, _ = yield from get(name_cell(old))
        return CONFLICT if again == source.version or "R1" not in rules else AGAIN
    return Plan(source.uuid, old, new, source.version, target.version, namespace.id)


def move(planned: Plan, rename_id: str, claim: str, rules: Rules) -> Step[str]:
    """R2 to R5: the answer, or AGAIN if it certainly did not happen and may be planned again."""
    old, new, uuid = planned.old, planned.new, planned.uuid
    moving = Moving(uuid, old, planned.old_version, rename_id)
    taken = yield from put(name_cell(new), moving, planned.new_version)  # R2
    if taken.outcome != "ok":
        return UNKNOWN if taken.outcome == "unknown" else AGAIN
    is_there = yield from call(confirm_namespace, new, planned.namespace_id, rules)  # R3
    if is_there is not True:
        yield from free(new, taken.version, uuid, rename_id, rules)
        return BUSY if is_there == "unsure" else NO_NAMESPACE
    moved = Moved(uuid, new, rename_id, claim)
    answer = yield from put(name_cell(old), moved, planned.old_version)  # R4: happens here.
    old_version = answer.version
    if answer.outcome == "unknown":
        old_version, entry = yield from get(name_cell(old))
        if entry != moved:
            return UNKNOWN
    if answer.outcome == "lost":
        yield from free(new, taken.version, uuid, rename_id, rules)
        return AGAIN
    settled = yield from put(name_cell(new), Active(uuid), taken.version)  # R5
    if settled.outcome != "unknown" and "N9" not in rules:  # Otherwise `moved` stays until someone settles it.
        yield from delete(name_cell(old), old_version)
    return OK


def rename(actor: str, old: str, new: str, rules: Rules, tries: int = 0) -> Step[str]:
    if tries == TRIES_MAX:
        return BUSY
    planned = yield from call(plan, old, new, rules)
    if planned == AGAIN:
        return (yield from goto(rename, actor, old, new, rules, tries + 1))
    if isinstance(planned, str):
        return planned
    answer = yield from call(move, planned, f"{actor}{tries}", "", rules)
    return (yield from goto(rename, actor, old, new, rules, tries + 1)) if answer == AGAIN else answer
