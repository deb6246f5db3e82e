"""Drop a table: swap the name (D3), then the pointer (D4). With a key, a retry drops that table or none (D2)."""

from typing import Final

from proof.answers import BUSY, NO_TABLE, OK, UNKNOWN
from proof.names.entries import Dropped, drop_claim, name_cell, pointer_cell
from proof.names.resolution import drop_pointer, settle
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, delete, get, goto, put

TRIES_MAX: Final = 2


def drop(actor: str, name: str, rules: Rules, tries: int = 0) -> Step[str]:
    settled = yield from call(settle, name, rules)
    if settled is None:
        return BUSY
    if settled.uuid is None:
        return NO_TABLE
    if "D3" not in rules:
        return (yield from goto(drop_at_pointer, name, settled.uuid, settled.version))
    answer = yield from put(name_cell(name), Dropped(settled.uuid, actor), settled.version)  # D3: happens here.
    version = answer.version
    if answer.outcome == "unknown":
        version, entry = yield from get(name_cell(name))
        if entry != Dropped(settled.uuid, actor):
            return UNKNOWN
    if answer.outcome == "lost":
        return BUSY if tries == TRIES_MAX else (yield from goto(drop, actor, name, rules, tries + 1))
    is_dropped = yield from call(drop_pointer, settled.uuid)
    if "N9" not in rules:
        yield from delete(name_cell(name), version)
    return OK if is_dropped else UNKNOWN


def drop_at_pointer(name: str, uuid: str, version: int) -> Step[str]:
    """The order that D3 replaces."""
    at, pointer = yield from get(pointer_cell(uuid))
    if pointer is None or pointer.state in ("dropped", "killed"):
        return NO_TABLE
    answer = yield from put(pointer_cell(uuid), pointer._replace(state="dropped"), at)
    if answer.outcome != "ok":
        return UNKNOWN if answer.outcome == "unknown" else NO_TABLE
    yield from delete(name_cell(name), version)
    return OK


def drop_keyed(name: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    settled = yield from call(settle, name, rules)
    if settled is None or tries > TRIES_MAX:
        return BUSY
    if "D2" in rules:
        answer = yield from put(drop_claim(key), settled.uuid or "none", ABSENT)
        if answer.outcome != "ok":
            _, pinned = yield from get(drop_claim(key))
            if pinned is None:
                return BUSY
            if pinned != settled.uuid:
                _, pointer = yield from get(pointer_cell(pinned))
                return OK if pointer and pointer.state == "dropped" else NO_TABLE
    if settled.uuid is None:
        return NO_TABLE
    answer = yield from put(name_cell(name), Dropped(settled.uuid, key), settled.version)
    if answer.outcome == "ok":
        return OK if (yield from call(drop_pointer, settled.uuid)) else UNKNOWN
    if answer.outcome == "unknown":
        return UNKNOWN
    return (yield from goto(drop_keyed, name, key, rules, tries + 1))
