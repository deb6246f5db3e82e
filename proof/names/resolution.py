"""The first step of every request with a name: loads resolve it (R7, T6), writers settle it (R6, N7, T5)."""

from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from proof.answers import BUSY, NO_TABLE, OK
from proof.names.entries import (
    Active,
    Dropped,
    Free,
    Moved,
    Moving,
    New,
    Pending,
    Pointer,
    Record,
    name_cell,
    namespace_cell,
    pointer_cell,
    record_cell,
    rename_claim,
    space_of,
)
from proof.rules import Rules
from proof.steps import ABSENT, Step, Write, call, delete, get, goto, passed, put

TRIES_MAX: Final = 2
Unsure: TypeAlias = Literal["unsure"]


class Settled(NamedTuple):
    """A settled name: the version that a swap expects, and the table; None if the name is free."""

    version: int
    uuid: str | None


def living(uuid: str, *, binds: bool = False) -> Step[Pointer | Unsure | None]:
    """The pointer of an existing table, or None. With `binds`, the pointer is bound and no orphan any more (N7)."""
    for _ in range(TRIES_MAX + 1):
        version, pointer = yield from get(pointer_cell(uuid))
        if pointer is None or pointer.state in ("dropped", "killed"):
            return None
        if pointer.state == "live" or (pointer.state == "unbound" and not binds):
            return pointer
        # A request that relies on a condemned pointer first removes the mark (N5).
        answer = yield from put(pointer_cell(uuid), pointer._replace(state="live" if binds else "unbound"), version)
        if answer.outcome == "ok":
            return pointer
    return "unsure"


def drop_pointer(uuid: str) -> Step[bool]:
    """D4: the pointer of a dropped table never becomes live again. True if that is certain."""
    for _ in range(TRIES_MAX + 1):
        version, pointer = yield from get(pointer_cell(uuid))
        if pointer is None or pointer.state in ("killed", "dropped"):
            return True
        answer = yield from put(pointer_cell(uuid), pointer._replace(state="dropped"), version)
        if answer.outcome == "ok":
            return True
    return False


def confirm_namespace(name: str, namespace_id: str, rules: Rules) -> Step[bool | Unsure]:
    """N4: after a name was written, whether its namespace is the one it was created for. Cancels a drop of it (N6)."""
    cell = namespace_cell(space_of(name))
    for _ in range(TRIES_MAX):
        version, namespace = yield from get(cell)
        if namespace is None or ("N4" in rules and namespace.id != namespace_id):
            return False
        if namespace.state == "active":
            return True
        if "N6" not in rules:
            return False
        answer = yield from put(cell, namespace._replace(state="active", by="-"), version)
        if answer.outcome == "ok":
            return True
    return "unsure"


def free(name: str, version: int, uuid: str, by: str, rules: Rules) -> Step[Write]:
    """Free a name whose creation or rename did not happen; without N9 the entry is deleted."""
    if "N9" in rules:
        return (yield from put(name_cell(name), Free(uuid, by), version))
    return (yield from delete(name_cell(name), version))


def happened(entry: Moving) -> Step[bool]:
    """R7: the old name decides."""
    _, other = yield from get(name_cell(entry.old))
    return isinstance(other, Moved) and other.rename == entry.rename


def decided(name: str, version: int, entry: Pending, rules: Rules) -> Step[bool | Unsure | None]:
    """T6: committed, aborted or undecided (None). Unsure if the name has changed."""
    _, record = yield from get(record_cell(entry.transaction))
    if record is None:
        again, _ = yield from get(name_cell(name))
        return False if again == version or "T6" not in rules else "unsure"
    if record.attempt != entry.attempt and "T1" in rules:
        return False
    return None if record.state == "preparing" else record.state == "committed"


def look(name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The answer of a load: the content, or NO_TABLE."""
    answer = yield from look_once(name, rules)
    if answer:
        return answer
    return BUSY if tries == TRIES_MAX else (yield from goto(look, name, rules, tries + 1))


def look_once(name: str, rules: Rules) -> Step[str | None]:
    """None if the name changed during the read."""
    version, entry = yield from get(name_cell(name))
    match entry:
        case None | Moved() | Dropped() | Free():
            return NO_TABLE
        case Moving():
            if not (yield from happened(entry)):
                again, _ = yield from get(name_cell(name))
                return NO_TABLE if again == version or "R7" not in rules else None
        case New():
            is_there = yield from call(confirm_namespace, name, entry.namespace_id, rules)
            if is_there is not True:
                return BUSY if is_there == "unsure" else NO_TABLE
        case Pending():
            is_committed = yield from call(decided, name, version, entry, rules)
            if is_committed is not True:
                return None if is_committed == "unsure" else NO_TABLE
        case Active():
            pass
        case _:
            assert_never(entry)
    pointer = yield from call(living, entry.uuid)
    if pointer == "unsure":
        return BUSY
    return pointer.content if pointer else NO_TABLE


def settle(name: str, rules: Rules, dropping: str | None = None, tries: int = 0) -> Step[Settled | None]:
    """Settle a name for a writer; None to give up. `dropping` is the id of the namespace that the caller drops."""
    settled = yield from settle_once(name, rules, dropping)
    if settled != "again":
        return settled
    return None if tries == TRIES_MAX else (yield from goto(settle, name, rules, dropping, tries + 1))


def settle_once(  # noqa: C901 -- one flat match
    name: str, rules: Rules, dropping: str | None
) -> Step[Settled | Literal["again"] | None]:
    version, entry = yield from get(name_cell(name))
    match entry:
        case None:
            return Settled(ABSENT, None)
        case Free():
            return Settled(version, None)
        case Dropped():  # G6: the pointer is dropped before the name is reused.
            if "D2" in rules and not (yield from call(drop_pointer, entry.uuid)):
                return None
            return Settled(version, None)
        case Moved():
            return Settled(version, None) if (yield from settle_moved(entry, rules)) else "again"
        case Moving():
            return (yield from settle_moving(name, version, entry, rules, binds=dropping is None))
        case New():
            is_there = yield from has_home(name, entry, rules, dropping)
            if is_there is not True:
                return None if is_there == "unsure" else Settled(version, None)
            return (yield from settle_table(version, entry.uuid, binds=dropping is None and "N7" in rules))
        case Pending():
            return (yield from settle_pending(name, version, entry, rules, binds=dropping is None))
        case Active():
            return (yield from settle_table(version, entry.uuid, binds=dropping is None and "N7" in rules))
        case _:
            assert_never(entry)


def has_home(name: str, entry: New, rules: Rules, dropping: str | None) -> Step[bool | Unsure]:
    """N4. For a drop of the namespace, "N6 id": a name created for an earlier namespace of that name is no child."""
    if dropping is None:
        return (yield from call(confirm_namespace, name, entry.namespace_id, rules))
    return entry.namespace_id == dropping or "N6 id" not in rules


def settle_table(version: int, uuid: str, *, binds: bool) -> Step[Settled | None]:
    pointer = yield from call(living, uuid, binds=binds)
    if pointer == "unsure":
        return None
    return Settled(version, uuid if pointer else None)


def settle_moved(entry: Moved, rules: Rules) -> Step[bool]:
    """R6: the new name is active before the old one is reused. R9: the claim says that the rename happened."""
    if "R6 settle" in rules:
        version, other = yield from get(name_cell(entry.new))
        if isinstance(other, Moving) and other.rename == entry.rename:
            answer = yield from put(name_cell(entry.new), Active(entry.uuid), version)
            if answer.outcome != "ok":
                return False
    if entry.claim and "R9" in rules:
        version, claim = yield from get(rename_claim(entry.claim))
        if claim and claim.status == "open":
            answer = yield from put(rename_claim(entry.claim), claim._replace(status=OK), version)
            if answer.outcome != "ok":
                return False
    return True


def settle_moving(
    name: str, version: int, entry: Moving, rules: Rules, *, binds: bool
) -> Step[Settled | Literal["again"] | None]:
    """R6: finish a rename that happened; make another one impossible before the name counts as free."""
    there, other = yield from get(name_cell(entry.old))
    if isinstance(other, Moved) and other.rename == entry.rename:
        answer = yield from put(name_cell(name), Active(entry.uuid), version)
        if answer.outcome != "ok":
            return "again"
        return (yield from settle_table(answer.version, entry.uuid, binds=binds and "N7" in rules))
    if "R6 fence" not in rules:
        return Settled(version, None)
    if there == entry.old_version and other is not None:
        bump = yield from put(name_cell(entry.old), other, there)  # The rename can no longer happen.
        if bump.outcome != "ok":
            return "again"
    again, _ = yield from get(name_cell(name))
    return Settled(version, None) if again == version else "again"


def settle_pending(
    name: str, version: int, entry: Pending, rules: Rules, *, binds: bool
) -> Step[Settled | Literal["again"] | None]:
    """T5: a committed name exists, an aborted one is free; an undecided transaction is aborted if it is stale."""
    is_committed = yield from call(decided, name, version, entry, rules)
    if is_committed == "unsure":
        return "again"
    if is_committed is None:
        if "T5" not in rules:  # A name of an undecided transaction taken for a table.
            return Settled(version, entry.uuid)
        return "again" if (yield from abort(entry, rules)) else None
    if not is_committed:
        return Settled(version, None)
    return (yield from settle_table(version, entry.uuid, binds=binds and "N7 pending" in rules))


def abort(entry: Pending, rules: Rules) -> Step[bool]:
    """True if the transaction may be decided now: read again."""
    is_stale = yield from passed()
    if not is_stale:
        return False
    version, record = yield from get(record_cell(entry.transaction))
    if record and record.state == "preparing" and (record.attempt == entry.attempt or "T1" not in rules):
        yield from put(record_cell(entry.transaction), Record("aborted", record.attempt), version)
    return True
