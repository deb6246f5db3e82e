"""Create and drop a namespace: mark, look, act (G5, N6)."""

from typing import Final

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NOT_EMPTY, OK, UNKNOWN
from proof.names.entries import Namespace, namespace_cell
from proof.names.resolution import settle
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, delete, get, goto, listing, put

TRIES_MAX: Final = 2


def drop_namespace(actor: str, space: str, rules: Rules, tries: int = 0) -> Step[str]:
    cell = namespace_cell(space)
    version, namespace = yield from get(cell)
    if namespace is None:
        return NO_NAMESPACE
    marked = yield from put(cell, Namespace("dropping", f"{actor}{tries}", namespace.id), version)
    if marked.outcome != "ok":
        return BUSY
    for key in (yield from listing(f"name:{space}.")):
        child = yield from call(settle, key.removeprefix("name:"), rules, dropping=namespace.id)
        if child is None or child.uuid:
            back = yield from put(cell, Namespace("active", actor, namespace.id), marked.version)
            if back.outcome == "lost" and "N6 back" in rules:
                return BUSY if tries == TRIES_MAX else (yield from goto(drop_namespace, actor, space, rules, tries + 1))
            return NOT_EMPTY if child and (back.outcome != "unknown" or "N6 back" not in rules) else BUSY
    answer = yield from delete(cell, marked.version)
    if answer.outcome == "ok":
        return OK
    if answer.outcome == "unknown":
        _, namespace = yield from get(cell)
        return OK if namespace is None else UNKNOWN
    if tries == TRIES_MAX:
        return BUSY
    return (yield from goto(drop_namespace, actor, space, rules, tries + 1))  # N6: a child cancelled the drop.


def make_namespace(actor: str, space: str) -> Step[str]:
    answer = yield from put(namespace_cell(space), Namespace("active", actor, actor), ABSENT)
    if answer.outcome == "unknown":
        return UNKNOWN
    return OK if answer.outcome == "ok" else CONFLICT
