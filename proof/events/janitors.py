"""What runs beside requests: purge, collectors, drop of a namespace, and the reconciler."""

from proof.answers import BUSY, NO_NAMESPACE, NOT_EMPTY, OK, SWEPT, UNKNOWN
from proof.events.records import (
    OVER,
    Name,
    Namespace,
    Pointer,
    ensure,
    files_cell,
    name_cell,
    order_cell,
    pointer_cell,
    record_cell,
    space_cell,
)
from proof.events.resolution import activated, living, settle
from proof.events.undrop import take_back
from proof.rules import Rules
from proof.steps import Step, call, delete, get, goto, listing, passed, put, quiet


def purge(uuid: str, was: str, rules: Rules) -> Step[str]:
    """Carry out the purge orders of a table that was dropped as `was`; their delay may pass at any time."""
    for key in (yield from listing(f"order:{uuid}/")):
        yield from call(purge_order, uuid, was, key.partition("/")[2], rules)
    return SWEPT


def purge_order(uuid: str, was: str, event: str, rules: Rules) -> Step[str]:
    """The order, then the name, then the pointer: evidence moves in this order only."""
    order, _ = yield from get(order_cell(uuid, event))
    spot = yield from call(settle, was, rules, "look")
    if not order or spot is None:
        return SWEPT
    if spot.entry and spot.uuid == uuid and "U7 fence" in rules:
        if not (yield from passed()):
            return SWEPT
        bump = yield from put(name_cell(was), spot.entry, spot.version)  # The drop that ordered it can only lose now.
        if bump.outcome == "ok":
            yield from delete(order_cell(uuid, event), order)
        return SWEPT
    version, pointer = yield from get(pointer_cell(uuid))
    is_for = pointer is not None and is_ordered(pointer, event, rules)
    if pointer and pointer.state == "dropped" and is_for:
        if "U3 mark" in rules:
            marked = yield from put(pointer_cell(uuid), pointer._replace(state="purging"), version)
            if marked.outcome != "ok":
                return SWEPT
    elif not (pointer and pointer.state == "purging" and is_for):
        may_come_back = pointer is not None and pointer.state in ("unbound", "condemned") and is_for
        if not (may_come_back and "U7 keep" in rules) and (yield from passed()):
            yield from delete(order_cell(uuid, event), order)
        return SWEPT
    return (yield from goto(delete_files, uuid, event, order))


def is_ordered(pointer: Pointer, event: str, rules: Rules) -> bool:
    return pointer.event is not None and (pointer.event.id == event or "U6 order" not in rules)


def delete_files(uuid: str, event: str, order: int) -> Step[str]:
    at, files = yield from get(files_cell(uuid))
    if files:
        gone = yield from delete(files_cell(uuid), at)
        if gone.outcome == "unknown":
            return SWEPT
    yield from delete(order_cell(uuid, event), order)
    return SWEPT


def sweep_name(name: str, rules: Rules) -> Step[str]:
    """Delete a name that is over, a day after its last write (N9)."""
    spot = yield from call(settle, name, rules, "janitor")
    if spot and spot.entry and spot.uuid is None and spot.entry.state in OVER:
        if "N9 day" in rules:
            yield from quiet()
        yield from delete(name_cell(name), spot.version)
    return SWEPT


def sweep_pointer(uuid: str, name: str, rules: Rules) -> Step[str]:
    """The end of the retention of a dropped table (GC3)."""
    version, pointer = yield from get(pointer_cell(uuid))
    if pointer is None or pointer.state != "dropped":
        return (yield from goto(take_back, uuid, rules))
    _, entry = yield from get(name_cell(name))
    if entry and entry.uuid == uuid and entry.state not in ("free", "moved"):
        return SWEPT
    for event in (pointer.event, pointer.change):
        if "E2 janitor" in rules and not (yield from call(ensure, event, rules)):
            return SWEPT
    yield from delete(pointer_cell(uuid), version)
    return SWEPT


def collect_record(transaction: str, name: str, rules: Rules) -> Step[str]:
    """Finish the participants, then delete the record of a transaction (T9)."""
    version, record = yield from get(record_cell(transaction))
    if record is None or record == "preparing":
        return SWEPT
    at, entry = yield from get(name_cell(name))
    if record == "committed" and entry and entry.state == "pending" and entry.transaction == transaction:
        bound = yield from call(living, entry.uuid, entry.life, rules, binds=True)
        event = entry.event if "E4 fold" in rules else None
        folded = yield from put(name_cell(name), Name("active", entry.uuid, entry.life, event=event), at)
        if folded.outcome != "ok" or bound is not True:
            return SWEPT
    yield from delete(record_cell(transaction), version)
    return SWEPT


def drop_space(actor: str, space: str, rules: Rules) -> Step[str]:
    """Mark, look, act (N6)."""
    cell = space_cell(space)
    version, found = yield from get(cell)
    if found is None:
        return NO_NAMESPACE
    marked = yield from put(cell, Namespace("dropping", found.id, actor), version)
    if marked.outcome != "ok":
        return BUSY
    for key in (yield from listing(f"name:{space}.")):
        if (yield from call(is_child, key.removeprefix("name:"), found.id, rules)):
            back = yield from put(cell, Namespace("active", found.id, actor), marked.version)
            return NOT_EMPTY if back.outcome == "ok" else BUSY
    answer = yield from delete(cell, marked.version)
    if answer.outcome == "ok":
        return OK
    return UNKNOWN if answer.outcome == "unknown" else BUSY


def is_child(name: str, home: str, rules: Rules) -> Step[bool]:
    _, entry = yield from get(name_cell(name))
    if entry is None or entry.state in OVER:
        return False
    if entry.state == "moving":
        return True
    if entry.state == "new" and entry.home != home:
        return False
    return (yield from call(living, entry.uuid, entry.life, rules)) is not False


def reconcile(names: tuple[str, ...], rules: Rules) -> Step[str]:
    """What a server does behind its answer, and the reconciler: whatever happened has its receipt."""
    for name in names:
        spot = yield from call(settle, name, rules, "look")
        if spot and spot.uuid and spot.entry and spot.entry.state in ("new", "pending"):
            yield from put(name_cell(name), activated(spot.entry, rules), spot.version)
    return SWEPT


def reconcile_content(uuids: tuple[str, ...], rules: Rules) -> Step[str]:
    """The receipts of the last changes of content."""
    for uuid in uuids:
        _, pointer = yield from get(pointer_cell(uuid))
        if pointer:
            yield from call(ensure, pointer.change, rules)
    return SWEPT
