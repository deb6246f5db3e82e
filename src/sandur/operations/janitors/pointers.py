"""Pointers that nothing refers to: orphans are condemned, looked after and killed (GC2); the dead go last (GC3)."""

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Pointer
from sandur.operations.janitors.sweeping import Janitor, Outcome, is_older, key_age_ms
from sandur.operations.lake import Lake
from sandur.operations.tables.names import settle_name
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Held
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

_SHOWS = ("new", "active", "pending")
_GONE = ("free", "moved")


async def visit(lake: Lake, listed: Listed) -> Outcome:
    return await visit_cell(lake, lake.pointer(lake.layout.parse_pointer(listed.key)), listed)


async def visit_cell(lake: Lake, cell: Cell[Pointer], listed: Listed) -> Outcome:
    """A pointer of whatever format."""
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    match found.value.state:
        case "live":
            return "kept"
        case "unbound" | "condemned":
            return await _orphan(lake, cell, listed, found)
        case "dropped" | "killed":
            return await _dead(lake, cell, listed, found)


async def _orphan(lake: Lake, cell: Cell[Pointer], listed: Listed, found: Held[Pointer]) -> Outcome:
    """GC2: mark, look at the name it was made for, act. A creator that comes late sees the mark, or is seen (N5)."""
    made_for = found.value.made_for
    if made_for is None or not is_older(lake, listed, _orphan_age_ms(lake.settings)):
        return "kept"
    condemned = await cell.swap(replace(found.value, state="condemned"), expected=found.version)
    name = await lake.name(made_for).read()
    if name and name.value.uuid == found.value.uuid and name.value.state in _SHOWS:
        # It has a name: if that counts, it is bound now (N7) and not looked at again.
        return "settled" if (await settle_name(lake, made_for)).live else "kept"
    await cell.swap(replace(found.value, state="killed"), expected=condemned.version)
    return "settled"


async def _dead(lake: Lake, cell: Cell[Pointer], listed: Listed, found: Held[Pointer]) -> Outcome:
    """GC3: kept as long as a replay may ask for it, while its files wait to be deleted, and while its name is there."""
    pointer = found.value
    if not is_older(lake, listed, key_age_ms(lake.settings)):
        return "kept"
    if await _is_named(lake, pointer, pointer.dropped_as or pointer.made_for):
        return "kept"
    if pointer.state == "dropped":
        order = await lake.purge_order(pointer.table_uuid, pointer.by).read()
        if order and not order.value.blocked:
            return "kept"
        if pointer.head:
            # C5: what was committed is recognised by its receipt from now on. What was killed never was.
            await lake.receipts.ensure(pointer.table_uuid, pointer.head)
    await cell.empty(expected=found.version)
    return "removed"


async def _is_named(lake: Lake, pointer: Pointer, identifier: Identifier | None) -> bool:
    """Whether a name still refers to the pointer.

    Whoever reuses a `dropped` name drops the pointer of its uuid once more: if that were gone, and the table had been
    registered again meanwhile, it would be the new one that is dropped.
    """
    name = await lake.name(identifier).read() if identifier else None
    return name is not None and name.value.uuid == pointer.uuid and name.value.state not in _GONE


def _orphan_age_ms(settings: Settings) -> int:
    return seconds_of(settings.orphan_retention) * 1_000


def age_ms(settings: Settings) -> int:
    return min(_orphan_age_ms(settings), key_age_ms(settings))


POINTERS = Janitor("pointers", Layout.pointers_folder, age_ms, visit)
