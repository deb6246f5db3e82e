"""What Delta tables leave behind: places that never became a table, and the folders of managed tables that are gone.

A managed table has a folder of its own, named by its uuid, in which nothing else lies; so all of it goes.
"""

from sandur.catalog.locations import normalize_location
from sandur.catalog.records import DeltaStage, DeltaTable
from sandur.errors import Invalid, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.delta.tables import MANAGED_FOLDER
from sandur.operations.janitors.files import DELETES_AT_ONCE, Budget, Enough
from sandur.operations.janitors.pointers import age_ms, visit_cell
from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.settings import seconds_of
from sandur.storage.cell import Held
from sandur.storage.contract import Listed, ObjectStore
from sandur.storage.layout import Layout


async def visit_table(lake: Lake, listed: Listed) -> Outcome:
    """The record of a table, which is a pointer like any other (GC2, GC3)."""
    uuid = lake.layout.parse_delta_table(listed.key)
    cell = lake.pointer(uuid, "delta")
    found = await cell.read()
    if found and found.value.state in {"dropped", "killed"} and await lake.delta_stage(uuid).read():
        return "kept"  # Without the record, the place could be made a table once more.
    return await visit_cell(lake, cell, listed)


async def visit_stage(lake: Lake, listed: Listed) -> Outcome:
    """A place that expired: if no table was made of it, none ever will be, and what was written there goes."""
    cell = lake.delta_stage(lake.layout.parse_delta_stage(listed.key))
    found = await cell.read()
    if found is None:
        return "changed"
    if found.value.expires_ms > lake.clock.now_ms():
        return "kept"
    table = await _fenced(lake, found.value)
    if table.value.state in {"unbound", "condemned"}:
        return "kept"  # Somebody is at it, or the janitor of tables will be.
    if table.value.state == "killed":
        try:
            await delete_folder(lake, found.value.location, Budget(lake.settings.janitor_objects_max))
        except Enough:
            return "kept"
    await cell.empty(expected=found.version)
    return "removed"


async def _fenced(lake: Lake, stage: DeltaStage) -> Held[DeltaTable]:
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


DELTA_TABLES = Janitor("delta_tables", Layout.delta_tables_folder, age_ms, visit_table)
DELTA_STAGES = Janitor(
    "delta_stages", Layout.delta_stages_folder, lambda settings: seconds_of(settings.stage_ttl) * 1_000, visit_stage
)
