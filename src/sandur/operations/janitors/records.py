"""Janitors of records: names, containers, and the pointers that names lead to.

GC2: a pointer without a name is condemned, its name is read again, and only then the pointer is killed. A creator that
comes late finds the mark and takes it off (N5), or the janitor finds the name.
GC3: a dead pointer stays while a replay, the purge queue or a name may need it.
N9: a dropped name or container is deleted a day after its last write. This rule alone depends on time: a request
that expects the name to be absent, and was sent before the name was used, cannot arrive that late.
"""

from typing import TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import BoundRecord, Catalog, DeltaStage, DeltaTable, ModelVersion, NamespaceRecord, head_of
from sandur.catalog.users import User
from sandur.operations.containers.records import help_predecessor
from sandur.operations.janitors.files import Budget, BudgetSpent, delete_folder
from sandur.operations.janitors.sweep import Janitor, Outcome, is_older, key_age_ms, read_listed
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts
from sandur.operations.tables.names import active_record, settle_name
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

B = TypeVar("B", bound=BoundRecord)
C = TypeVar("C", Catalog, NamespaceRecord, ModelVersion, User)

_VISIBLE_NAMES = ("new", "active", "pending")
_UNCONFIRMED_NAMES = ("new", "pending")
_DEAD_NAMES = ("free", "dropped", "moved")
_RELEASED_NAMES = ("free", "moved")


async def visit_pointer(lake: Lake, listed: Listed) -> Outcome:
    return await visit_pointer_cell(lake, lake.pointer(lake.layout.parse_pointer(listed.key)), listed)


async def visit_pointer_cell(lake: Lake, cell: Cell[B], listed: Listed) -> Outcome:
    """Visit the pointer of an Iceberg table or view, a Delta table, or a securable."""
    found = await read_listed(cell, listed)
    match found.value.state:
        case "live":
            return "kept"
        case "unbound" | "condemned":
            return await _visit_orphan(lake, cell, listed, found)
        case "dropped" | "killed":
            return await _visit_dead(lake, cell, listed, found)


async def _visit_orphan(lake: Lake, cell: Cell[B], listed: Listed, found: Versioned[B]) -> Outcome:
    """GC2: mark the pointer, read the name that it was created for, act."""
    made_for = found.value.made_for
    if made_for is None or not is_older(lake, listed, _orphan_age_ms(lake.settings)):
        return "kept"
    condemned = await cell.swap(replace(found.value, state="condemned"), expected=found.version)
    name = await lake.name(made_for).read()
    if name and name.value.uuid == found.value.uuid and name.value.state in _VISIBLE_NAMES:
        # The name leads to it. If the name is confirmed, the pointer is bound now (N7), and no orphan any more.
        return "settled" if (await settle_name(lake, made_for)).live else "kept"
    await cell.swap(replace(found.value, state="killed"), expected=condemned.version)
    return "settled"


async def _visit_dead(lake: Lake, cell: Cell[B], listed: Listed, found: Versioned[B]) -> Outcome:
    """GC3: delete the pointer when neither a replay, nor the purge queue, nor a name needs it."""
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
            # C5: from now on its receipt proves the commit. A killed pointer was never committed.
            await lake.feature(Receipts).ensure(pointer.table_uuid, head)
    await cell.empty(expected=found.version)
    return "removed"


async def _is_named(lake: Lake, pointer: BoundRecord, identifier: Identifier | None) -> bool:
    """Whether a name still refers to the pointer.

    A request that reuses a `dropped` name drops the pointer of its uuid again. If the pointer were gone and the table
    registered again, that request would drop the new table.
    """
    name = await lake.name(identifier).read() if identifier else None
    return name is not None and name.value.uuid == pointer.uuid and name.value.state not in _RELEASED_NAMES


def _orphan_age_ms(settings: Settings) -> int:
    return seconds_of(settings.orphan_retention) * 1_000


def pointer_age_ms(settings: Settings) -> int:
    return min(_orphan_age_ms(settings), key_age_ms(settings))


POINTERS = Janitor("pointers", Layout.pointers_folder, pointer_age_ms, visit_pointer)


async def visit_name(lake: Lake, listed: Listed) -> Outcome:
    """Delete a dead name (N9); mark an unconfirmed one as free, for the next sweep."""
    identifier = lake.layout.parse_name(listed.key)
    cell = lake.name(identifier)
    found = await read_listed(cell, listed)
    if found.value.state == "active":
        return "kept"
    # G6: afterwards the pointer of a dropped name is dropped, the target of a moved one is active and its claim done,
    # and a creation that is a day old is decided, with its pointer bound.
    slot = await settle_name(lake, identifier)
    if slot.live:
        if slot.live.name.value.state in _UNCONFIRMED_NAMES:  # It is confirmed and bound now.
            await cell.swap(active_record(slot.live.name.value), expected=slot.live.name.version)
        return "settled"
    if found.value.state in _DEAD_NAMES:
        await cell.empty(expected=found.version)
        return "removed"
    free = replace(found.value, state="free", updated_ms=lake.clock.now_ms())
    await cell.swap(free, expected=found.version)
    return "settled"


async def visit_namespace(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_container(lake, lake.namespace(lake.layout.parse_namespace(listed.key)), listed)


def _name_age_ms(settings: Settings) -> int:
    return seconds_of(settings.name_retention) * 1_000


NAMES = Janitor("names", Layout.all_names_folder, _name_age_ms, visit_name)
NAMESPACES = Janitor("namespaces", Layout.all_namespaces_folder, _name_age_ms, visit_namespace)


async def visit_securable(lake: Lake, listed: Listed) -> Outcome:
    """A volume, function or model: its record is a pointer too (GC2, GC3)."""
    cell = lake.securable(lake.layout.parse_securable(listed.key))
    return await visit_pointer_cell(lake, cell, listed)


async def visit_catalog(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_container(lake, lake.catalog(lake.layout.parse_catalog(listed.key)), listed)


async def visit_model_version(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_container(lake, Cell(lake.store, listed.key, ModelVersion, lake.clock), listed)


async def visit_user(lake: Lake, listed: Listed) -> Outcome:
    return await _visit_container(lake, Cell(lake.store, listed.key, User, lake.clock), listed)


async def _visit_container(lake: Lake, cell: Cell[C], listed: Listed) -> Outcome:
    """N9: delete a dropped record."""
    found = await read_listed(cell, listed)
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(lake, found.value)  # G6: the claim of the drop is done.
    await cell.empty(expected=found.version)
    return "removed"


SECURABLES = Janitor("securables", Layout.securables_folder, pointer_age_ms, visit_securable)
CATALOGS = Janitor("catalogs", Layout.catalogs_folder, _name_age_ms, visit_catalog)
MODEL_VERSIONS = Janitor("model_versions", Layout.all_model_versions_folder, _name_age_ms, visit_model_version)
USERS = Janitor("users", Layout.users_folder, _name_age_ms, visit_user)

UNITY = (CATALOGS, SECURABLES, MODEL_VERSIONS, USERS)


async def visit_delta_table(lake: Lake, listed: Listed) -> Outcome:
    """A Delta table: its record is a pointer too (GC2, GC3)."""
    uuid = lake.layout.parse_delta_table(listed.key)
    cell = lake.delta_table(uuid)
    found = await cell.read()
    if found and found.value.state in {"dropped", "killed"} and await lake.delta_stage(uuid).read():
        return "kept"  # Without the record, the stage could become a table again.
    return await visit_pointer_cell(lake, cell, listed)


async def visit_delta_stage(lake: Lake, listed: Listed) -> Outcome:
    """An expired stage without a table: no table can be created from it any more, and its files are deleted."""
    cell = lake.delta_stage(lake.layout.parse_delta_stage(listed.key))
    found = await cell.read()
    if found is None:
        return "changed"
    if found.value.expires_ms > lake.clock.now_ms():
        return "kept"
    table = await _fence_stage(lake, found.value)
    if table.value.state in {"unbound", "condemned"}:
        return "kept"  # A creation is in progress, or the janitor of tables finds its orphan.
    if table.value.state == "killed":
        try:
            await delete_folder(lake, found.value.location, Budget(lake.settings.janitor_objects_max))
        except BudgetSpent:
            return "kept"
    await cell.empty(expected=found.version)
    return "removed"


async def _fence_stage(lake: Lake, stage: DeltaStage) -> Versioned[DeltaTable]:
    """The table of a stage; if there is none, a killed record that prevents its creation (G5)."""
    cell = lake.delta_table(stage.uuid)
    found = await cell.read()
    if found:
        return found
    killed = DeltaTable(
        uuid=stage.uuid, table_uuid=stage.uuid, state="killed", made_for=stage.identifier, location=stage.location
    )
    return await cell.create(killed)


DELTA_TABLES = Janitor("delta_tables", Layout.delta_tables_folder, pointer_age_ms, visit_delta_table)
DELTA_STAGES = Janitor(
    "delta_stages",
    Layout.delta_stages_folder,
    lambda settings: seconds_of(settings.stage_ttl) * 1_000,
    visit_delta_stage,
)
