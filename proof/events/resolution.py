"""How readers and writers resolve a name, and how a writer leaves the receipt of what it found (E2, E3)."""

from typing import Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, NO_TABLE
from proof.events.records import (
    ENDED,
    OVER,
    TRIES_MAX,
    Event,
    Name,
    Pointer,
    Unsure,
    ensure,
    id_of,
    name_cell,
    pointer_cell,
    record_cell,
    space_cell,
)
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, get, goto, passed, put

Why: TypeAlias = Literal["look", "drop", "rename", "reuse", "janitor", "undrop"]
"""Why a name is settled. A `look` leaves receipts behind the answer, under no rule."""


class Settled(NamedTuple):
    """A name without an operation in progress: the version to swap, its table (None: the name is free), its entry."""

    version: int
    uuid: str | None
    entry: Name | None

    @property
    def life(self) -> str:
        return self.entry.life if self.entry else ""

    @property
    def event(self) -> Event | None:
        return self.entry.event if self.entry else None

    @property
    def last(self) -> str:
        return id_of(self.event)


Settling: TypeAlias = Settled | Literal["again"] | None
"""None: it could not be settled."""


def is_alive(pointer: Pointer | None, life: str, rules: Rules) -> bool:
    if pointer is None or pointer.state in ENDED:
        return False
    return pointer.life == life or "U1 shown" not in rules


def confirm_space(name: str, home: str) -> Step[bool | Unsure]:
    """Whether the namespace is the one that the name was written for; cancels a drop of it (N4, N6)."""
    for _ in range(TRIES_MAX):
        version, space = yield from get(space_cell(name))
        if space is None or space.id != home:
            return False
        if space.state == "active":
            return True
        answer = yield from put(space_cell(name), space._replace(state="active", by="child"), version)
        if answer.outcome == "ok":
            return True
    return "unsure"


def living(uuid: str, life: str, rules: Rules, *, binds: bool = False) -> Step[bool | Unsure]:
    """Whether a name's table exists. Takes a mark off; with `binds` makes the pointer live (N5, N7)."""
    for _ in range(TRIES_MAX + 1):
        version, pointer = yield from get(pointer_cell(uuid))
        if pointer is None or not is_alive(pointer, life, rules):
            return False
        if pointer.state == "live" or (pointer.state == "unbound" and not binds):
            return True
        kept = pointer if "E4 activate" in rules else pointer._replace(change=None)
        bound = kept._replace(state="live", event=None) if binds else kept._replace(state="unbound")
        answer = yield from put(pointer_cell(uuid), bound, version)
        if answer.outcome == "ok":
            return True
    return "unsure"


def finish_drop(dropped: Name, rules: Rules) -> Step[bool]:
    """Drop the pointer, in the life that the name ended and in no other (D4, U1). The pointer keeps the event (E6)."""
    for _ in range(TRIES_MAX + 1):
        version, pointer = yield from get(pointer_cell(dropped.uuid))
        if pointer is None or pointer.state in ENDED:
            return True
        if pointer.life != dropped.life and "U1 life" in rules:
            return True
        event = dropped.event if "E6 pointer" in rules else None
        answer = yield from put(pointer_cell(dropped.uuid), pointer._replace(state="dropped", event=event), version)
        if answer.outcome == "ok":
            return True
    return False


def is_moved(moving: Name) -> Step[bool]:
    _, other = yield from get(name_cell(moving.other))
    return other is not None and other.state == "moved" and other.rename == moving.rename


def look(name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A load: the uuid under the name."""
    version, entry = yield from get(name_cell(name))
    if entry is None or entry.state in OVER:
        return NO_TABLE
    is_shown: bool | Unsure = True
    if entry.state == "new":
        is_shown = yield from call(confirm_space, name, entry.home)
    elif entry.state == "moving":
        is_shown = yield from is_moved(entry)
    elif entry.state == "pending":
        is_shown = (yield from get(record_cell(entry.transaction)))[1] == "committed"
    if is_shown is True:
        is_shown = yield from call(living, entry.uuid, entry.life, rules)
    if is_shown is True:
        return entry.uuid
    again, _ = yield from get(name_cell(name))
    if is_shown is False and again == version:
        return NO_TABLE
    return BUSY if tries == TRIES_MAX else (yield from goto(look, name, rules, tries + 1))


def settle(name: str, rules: Rules, why: Why, tries: int = 0) -> Step[Settled | None]:
    """The first step of a writer. The receipt of the name's event exists before the caller swaps the name (E2)."""
    settled = yield from call(settle_once, name, rules, why)
    if settled != "again":
        return settled
    return None if tries == TRIES_MAX else (yield from goto(settle, name, rules, why, tries + 1))


def settle_once(name: str, rules: Rules, why: Why) -> Step[Settling]:
    version, entry = yield from get(name_cell(name))
    if entry is None:
        return Settled(ABSENT, None, None)
    if entry.state in OVER:
        return (yield from goto(settle_over, version, entry, rules, why))
    decided = yield from call(decide, name, version, entry, rules)
    if decided is None or decided == "again" or decided.entry is None or decided.uuid is None:
        return decided
    entry = decided.entry
    is_there = yield from call(living, entry.uuid, entry.life, rules, binds=True)
    if is_there == "unsure":
        return None
    if not is_there:
        return decided._replace(uuid=None)
    if helps(why, rules) and not (yield from call(ensure, entry.event, rules, why)):
        return None
    return decided


def helps(why: Why, rules: Rules) -> bool:
    return why == "look" or f"E2 {why}" in rules


def settle_over(version: int, entry: Name, rules: Rules, why: Why) -> Step[Settling]:
    """A name that can be used again: finish its drop (D4) or its rename (R6)."""
    if entry.state == "dropped":
        if not (yield from call(finish_drop, entry, rules)):
            return None
        if helps(why, rules) and not (yield from call(ensure, entry.event, rules, why)):
            return None
    if entry.state == "moved":
        at, other = yield from get(name_cell(entry.other))
        if other and other.state == "moving" and other.rename == entry.rename:
            answer = yield from put(name_cell(entry.other), activated(other, rules), at)
            if answer.outcome != "ok":
                return "again"
    return Settled(version, None, entry)


def decide(name: str, version: int, entry: Name, rules: Rules) -> Step[Settling]:
    """Whether what the name says has happened; if it can no longer happen, the name is free (E3)."""
    happened, over = Settled(version, entry.uuid, entry), Settled(version, None, entry)
    if entry.state == "new":
        is_there = yield from call(confirm_space, name, entry.home)
        if is_there == "unsure":
            return None
        return happened if is_there else over
    if entry.state == "pending":
        return (yield from goto(decide_pending, name, version, entry))
    if entry.state == "moving":
        return (yield from goto(decide_moving, name, version, entry, rules))
    return happened


def decide_pending(name: str, version: int, entry: Name) -> Step[Settling]:
    """T5, T6: by the record of the transaction."""
    at, record = yield from get(record_cell(entry.transaction))
    if record == "preparing":
        if not (yield from passed()):
            return None
        yield from put(record_cell(entry.transaction), "aborted", at)
        return "again"
    if record == "committed":
        return Settled(version, entry.uuid, entry)
    if record is None:
        again, _ = yield from get(name_cell(name))
        if again != version:
            return "again"
    return Settled(version, None, entry)


def decide_moving(name: str, version: int, entry: Name, rules: Rules) -> Step[Settling]:
    """R6: by the old name, which is bumped if the rename has not happened."""
    there, other = yield from get(name_cell(entry.other))
    if other and other.state == "moved" and other.rename == entry.rename:
        answer = yield from put(name_cell(name), activated(entry, rules), version)
        return Settled(answer.version, entry.uuid, activated(entry, rules)) if answer.outcome == "ok" else "again"
    if there == entry.other_version and other is not None:
        kept = other if "E4 bump" in rules else other._replace(event=None)
        bump = yield from put(name_cell(entry.other), kept, there)
        if bump.outcome != "ok":
            return "again"
    again, _ = yield from get(name_cell(name))
    return Settled(version, None, entry) if again == version else "again"


def activated(entry: Name, rules: Rules) -> Name:
    return Name("active", entry.uuid, entry.life, event=entry.event if "E4 activate" in rules else None)
