"""Janitors of names, containers and pointers that are dropped or were never bound (rules N9, GC2, GC3).

Nothing that expects such a name absent, and was sent before it was used, can still be on its way by then.

A managed table has a folder of its own, named by its uuid, in which nothing else lies; so all of it goes.
"""

from typing import TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import BoundRecord, Catalog, DeltaStage, DeltaTable, head_of
from sandur.catalog.securables import ModelVersion
from sandur.catalog.users import User
from sandur.errors import Invalid, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.containers.records import help_predecessor
from sandur.operations.delta.tables import MANAGED_FOLDER
from sandur.operations.janitors.files import DELETES_AT_ONCE, Budget, BudgetSpent
from sandur.operations.janitors.sweep import Janitor, Outcome, is_older, key_age_ms
from sandur.operations.lake import Lake
from sandur.operations.tables.names import active_record, settle_name
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import Listed, ObjectStore
from sandur.storage.layout import Layout

B = TypeVar("B", bound=BoundRecord)

_SHOWS = ("new", "active", "pending")
_GONE = ("free", "moved")


async def visit_pointer(lake: Lake, listed: Listed) -> Outcome:
    return await visit_pointer_cell(lake, lake.pointer(lake.layout.parse_pointer(listed.key)), listed)


async def visit_pointer_cell(lake: Lake, cell: Cell[B], listed: Listed) -> Outcome:
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


async def _orphan(lake: Lake, cell: Cell[B], listed: Listed, found: Versioned[B]) -> Outcome:
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


async def _dead(lake: Lake, cell: Cell[B], listed: Listed, found: Versioned[B]) -> Outcome:
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
        if head := head_of(pointer):
            # C5: what was committed is recognised by its receipt from now on. What was killed never was.
            await lake.receipts.ensure(pointer.table_uuid, head)
    await cell.empty(expected=found.version)
    return "removed"


async def _is_named(lake: Lake, pointer: BoundRecord, identifier: Identifier | None) -> bool:
    """Whether a name still refers to the pointer.

    Whoever reuses a `dropped` name drops the pointer of its uuid once more: if that were gone, and the table had been
    registered again meanwhile, it would be the new one that is dropped.
    """
    name = await lake.name(identifier).read() if identifier else None
    return name is not None and name.value.uuid == pointer.uuid and name.value.state not in _GONE


def _orphan_age_ms(settings: Settings) -> int:
    return seconds_of(settings.orphan_retention) * 1_000


def pointer_age_ms(settings: Settings) -> int:
    return min(_orphan_age_ms(settings), key_age_ms(settings))


POINTERS = Janitor("pointers", Layout.pointers_folder, pointer_age_ms, visit_pointer)


_OVER = ("free", "dropped", "moved")
_UNCONFIRMED = ("new", "pending")


async def visit_name(lake: Lake, listed: Listed) -> Outcome:
    """Delete a name that is over; free one that never came to be, for the next time."""
    identifier = lake.layout.parse_name(listed.key)
    cell = lake.name(identifier)
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state == "active":
        return "kept"
    # G6: the pointer of a dropped name is dropped, the other side of a moved one is active and its claim done; what
    # was under way for a day is decided, and the pointer of what came to be is bound.
    spot = await settle_name(lake, identifier)
    if spot.live:
        if spot.live.name.value.state in _UNCONFIRMED:  # Confirmed and bound: nothing is left to confirm.
            await cell.swap(active_record(spot.live.name.value), expected=spot.live.name.version)
        return "settled"
    if found.value.state in _OVER:
        await cell.empty(expected=found.version)
        return "removed"
    free = replace(found.value, state="free", updated_ms=lake.clock.now_ms())
    await cell.swap(free, expected=found.version)
    return "settled"


async def visit_namespace(lake: Lake, listed: Listed) -> Outcome:
    cell = lake.namespace(lake.layout.parse_namespace(listed.key))
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(lake, found.value)  # G6: whoever dropped it is told.
    await cell.empty(expected=found.version)
    return "removed"


def _name_age_ms(settings: Settings) -> int:
    return seconds_of(settings.name_retention) * 1_000


NAMES = Janitor("names", Layout.all_names_folder, _name_age_ms, visit_name)
NAMESPACES = Janitor("namespaces", Layout.all_namespaces_folder, _name_age_ms, visit_namespace)


async def visit_securable(lake: Lake, listed: Listed) -> Outcome:
    """A volume, function or model, which is a pointer like any other (GC2, GC3)."""
    cell = lake.securable(lake.layout.parse_securable(listed.key))
    return await visit_pointer_cell(lake, cell, listed)


async def visit_catalog(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_dropped(lake, lake.catalog(lake.layout.parse_catalog(listed.key)), listed)


async def visit_model_version(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_dropped(lake, Cell(lake.store, listed.key, ModelVersion, lake.clock), listed)


async def visit_user(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_dropped(lake, Cell(lake.store, listed.key, User, lake.clock), listed)


async def _visit_dropped(lake: Lake, cell: Cell[Catalog] | Cell[ModelVersion] | Cell[User], listed: Listed) -> Outcome:
    """N9: a day after it was dropped nothing that expects it absent can still be on its way."""
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(lake, found.value)  # G6: whoever dropped it is told.
    await cell.empty(expected=found.version)
    return "removed"


SECURABLES = Janitor("securables", Layout.securables_folder, pointer_age_ms, visit_securable)
CATALOGS = Janitor("catalogs", Layout.catalogs_folder, _name_age_ms, visit_catalog)
MODEL_VERSIONS = Janitor("model_versions", Layout.all_model_versions_folder, _name_age_ms, visit_model_version)
USERS = Janitor("users", Layout.users_folder, _name_age_ms, visit_user)

UNITY = (CATALOGS, SECURABLES, MODEL_VERSIONS, USERS)


async def visit_delta_table(lake: Lake, listed: Listed) -> Outcome:
    """The record of a table, which is a pointer like any other (GC2, GC3)."""
    uuid = lake.layout.parse_delta_table(listed.key)
    cell = lake.delta_table(uuid)
    found = await cell.read()
    if found and found.value.state in {"dropped", "killed"} and await lake.delta_stage(uuid).read():
        return "kept"  # Without the record, the place could be made a table once more.
    return await visit_pointer_cell(lake, cell, listed)


async def visit_delta_stage(lake: Lake, listed: Listed) -> Outcome:
    """A place that expired: if no table was made of it, none ever will be, and what was written there goes."""
    cell = lake.delta_stage(lake.layout.parse_delta_stage(listed.key))
    found = await cell.read()
    if found is None:
        return "changed"
    if found.value.expires_ms > lake.clock.now_ms():
        return "kept"
    table = await _fence_stage(lake, found.value)
    if table.value.state in {"unbound", "condemned"}:
        return "kept"  # Somebody is at it, or the janitor of tables will be.
    if table.value.state == "killed":
        try:
            await delete_folder(lake, found.value.location, Budget(lake.settings.janitor_objects_max))
        except BudgetSpent:
            return "kept"
    await cell.empty(expected=found.version)
    return "removed"


async def _fence_stage(lake: Lake, stage: DeltaStage) -> Versioned[DeltaTable]:
    """The table of a place; where there is none, one that is killed, so that none can be made any more (G5)."""
    cell = lake.delta_table(stage.uuid)
    found = await cell.read()
    if found:
        return found
    killed = DeltaTable(
        uuid=stage.uuid, table_uuid=stage.uuid, state="killed", made_for=stage.identifier, location=stage.location
    )
    return await cell.create(killed)


async def delete_folder(lake: Lake, location: str, budget: Budget) -> int:
    """Delete everything in the folder of a managed table; how much it was. Enough when the budget is used up.

    Invalid for any other folder: it may be somebody else's.
    """
    plain = normalize_location(location)
    if plain.rsplit("/", 3)[1:3] != [MANAGED_FOLDER, "tables"]:
        raise Invalid(f"{location} is not the folder of a managed table")
    store, folder = lake.locations.holder(f"{plain}/_")
    folder = folder.removesuffix("_")
    removed = 0
    while page := await store.list(folder, limit=DELETES_AT_ONCE):
        some = page[: budget.next_files()]
        removed += sum(await gather_all(_deleted(store, listed, budget) for listed in some))
    return removed


async def _deleted(store: ObjectStore, listed: Listed, budget: Budget) -> bool:
    try:
        await store.delete(listed.key, expected=listed.version)
    except SwapLost:  # Written anew, or gone: the next page tells.
        return False
    budget.spend()
    return True


DELTA_TABLES = Janitor("delta_tables", Layout.delta_tables_folder, pointer_age_ms, visit_delta_table)
DELTA_STAGES = Janitor(
    "delta_stages",
    Layout.delta_stages_folder,
    lambda settings: seconds_of(settings.stage_ttl) * 1_000,
    visit_delta_stage,
)
