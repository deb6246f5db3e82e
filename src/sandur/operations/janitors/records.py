"""Janitors of records: names, containers, and the pointers that names lead to.

GC2: a pointer without a name is condemned, its name is read again, and only then the pointer is killed. A creator that
comes late finds the mark and takes it off (N5), or the janitor finds the name.
GC3: a dead pointer stays while a replay, the purge queue or a name may need it.
N9: a dropped name or container is deleted a day after its last write. This rule alone depends on time: a request
that expects the name to be absent, and was sent before the name was used, cannot arrive that late.
"""

from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from sandur.catalog.location_claims import Holder, Owner
from sandur.catalog.locations import canonical_address
from sandur.catalog.records import (
    BoundRecord,
    Catalog,
    DeltaStage,
    DeltaTable,
    ModelVersion,
    NamespaceRecord,
    Pointer,
    Securable,
    drop_of,
)
from sandur.catalog.security.users import User
from sandur.errors import SwapLost
from sandur.operations.containers.records import help_predecessor
from sandur.operations.events import event_in
from sandur.operations.index.truth import list_keys
from sandur.operations.janitors.files import Budget, BudgetSpent, delete_folder
from sandur.operations.janitors.sweep import Janitor, Outcome, is_older, key_age_ms, read_listed
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import Completeness, find_living
from sandur.operations.receipts import CatalogReceipts, Receipts
from sandur.operations.tables.names import active_record, freed_record, settle_name, take_back
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned, gather_all
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

B = TypeVar("B", bound=BoundRecord)
C = TypeVar("C", Catalog, NamespaceRecord, ModelVersion, User)


async def visit_pointer(lake: Lake, listed: Listed, *, kind: type[B]) -> Outcome:
    """Visit the record that a name leads to: an Iceberg table or view, a Delta table, or a securable."""
    cell = lake.uncached(listed.key, kind)
    found = await read_listed(cell, listed)
    match found.value.state:
        case "live":
            return "kept"
        case "unbound" | "condemned":
            return await _visit_orphan(lake, cell, listed, found)
        case "dropped" | "purging" | "killed":
            return await _visit_dead(lake, cell, listed, found)


async def _visit_orphan(lake: Lake, cell: Cell[B], listed: Listed, found: Versioned[B]) -> Outcome:
    """GC2: mark the pointer, read the name that it was created for, act."""
    made_for = found.value.made_for
    if made_for is None or not is_older(lake, listed, _orphan_age_ms(lake.settings)):
        return "kept"
    if found.value.life:
        return "settled" if await take_back(lake, cell, found) is not None else "changed"
    condemned = await cell.swap(replace(found.value, state="condemned"), expected=found.version)
    name = await lake.name(made_for).read()
    if name and name.value.uuid == found.value.uuid and name.value.state in {"new", "active", "pending"}:
        # The name leads to it. If the name is confirmed, the pointer is bound now (N7), and no orphan any more.
        return "settled" if (await settle_name(lake, made_for)).live else "kept"
    await cell.swap(replace(found.value, state="killed"), expected=condemned.version)
    return "settled"


async def _visit_dead(lake: Lake, cell: Cell[B], listed: Listed, found: Versioned[B]) -> Outcome:
    """GC3: delete the pointer when neither a replay, nor the purge queue, nor a name, nor a stage needs it."""
    pointer = found.value
    if not is_older(lake, listed, key_age_ms(lake.settings)) or await _is_named(lake, pointer):
        return "kept"
    if isinstance(pointer, DeltaTable) and await lake.delta_stage(pointer.uuid).read():
        return "kept"  # Without the record, the stage could become a table again.
    if await _is_claimed(lake, pointer):
        return "kept"  # P2: without the record, a new table of its uuid would get the generated place of another.
    if pointer.state != "killed":
        order = await lake.purge_order(pointer.table_uuid, drop_of(pointer)).read()
        if order and not order.value.blocked:
            return "kept"
        if isinstance(pointer, Pointer):
            # C5, B4: from now on receipts prove the last commits. A killed pointer was never committed.
            await lake.feature(Receipts).ensure_all(pointer)
        for event in (pointer.last_event, pointer.last_change):  # E2: no other record has them from now on.
            await lake.feature(CatalogReceipts).ensure(event)
    if pointer.kind == "model":  # From here on, no undrop brings it back without its versions.
        found = await cell.swap(replace(pointer, is_ended=True), expected=found.version)
        await _delete_versions(lake, pointer.uuid)
    await cell.empty(expected=found.version)
    return "removed"


async def _delete_versions(lake: Lake, model_uuid: str) -> None:
    """Delete the versions of a dropped model before its record: no request can reach them then."""
    async for key in list_keys(lake, lake.layout.model_versions_folder(model_uuid)):
        cell = lake.uncached(key, ModelVersion)
        if found := await cell.read():
            await lake.feature(CatalogReceipts).ensure(found.value.last_event)  # E2
            await cell.empty(expected=found.version)


async def _is_claimed(lake: Lake, pointer: BoundRecord) -> bool:
    """Whether anyone has a claim on a place of the record."""
    claims = await gather_all(lake.location_claim(canonical_address(place)).read() for place in pointer.places)
    return any(claims)


async def _is_named(lake: Lake, pointer: BoundRecord) -> bool:
    """Whether a name still refers to the pointer.

    A request that reuses a `dropped` name drops the pointer of its uuid again. If the pointer were gone and the table
    registered again, that request would drop the new table.
    """
    identifier = pointer.dropped_as or pointer.made_for
    name = await lake.name(identifier).read() if identifier else None
    return name is not None and name.value.uuid == pointer.uuid and name.value.state not in {"free", "moved"}


def _orphan_age_ms(settings: Settings) -> int:
    return seconds_of(settings.orphan_retention) * 1_000


def _pointer_age_ms(settings: Settings) -> int:
    return min(_orphan_age_ms(settings), key_age_ms(settings))


POINTERS = Janitor("pointers", Layout.pointers_folder, _pointer_age_ms, partial(visit_pointer, kind=Pointer))
DELTA_TABLES = Janitor(
    "delta_tables", Layout.delta_tables_folder, _pointer_age_ms, partial(visit_pointer, kind=DeltaTable)
)
SECURABLES = Janitor("securables", Layout.securables_folder, _pointer_age_ms, partial(visit_pointer, kind=Securable))


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
        if slot.live.name.value.state in {"new", "pending"}:  # It is confirmed and bound now.
            await cell.swap(active_record(slot.live.name.value), expected=slot.live.name.version)
        return "settled"
    if found.value.state in {"free", "dropped", "moved"}:
        await cell.empty(expected=found.version)
        return "removed"
    free = replace(freed_record(found.value), updated_ms=lake.clock.now_ms())
    await cell.swap(free, expected=found.version)
    return "settled"


async def visit_container(lake: Lake, listed: Listed, *, kind: type[C]) -> Outcome:
    """N9: delete a dropped record."""
    cell = lake.uncached(listed.key, kind)
    found = await read_listed(cell, listed)
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(lake, found.value)  # G6: the claim of the drop is done.
    await lake.feature(CatalogReceipts).ensure(event_in(found.value))  # E2
    await cell.empty(expected=found.version)
    return "removed"


def _name_age_ms(settings: Settings) -> int:
    return seconds_of(settings.name_retention) * 1_000


NAMES = Janitor("names", Layout.all_names_folder, _name_age_ms, visit_name)
NAMESPACES = Janitor(
    "namespaces", Layout.all_namespaces_folder, _name_age_ms, partial(visit_container, kind=NamespaceRecord)
)
CATALOGS = Janitor("catalogs", Layout.catalogs_folder, _name_age_ms, partial(visit_container, kind=Catalog))
MODEL_VERSIONS = Janitor(
    "model_versions", Layout.all_model_versions_folder, _name_age_ms, partial(visit_container, kind=ModelVersion)
)
USERS = Janitor("users", Layout.users_folder, _name_age_ms, partial(visit_container, kind=User))


async def visit_delta_stage(lake: Lake, listed: Listed) -> Outcome:
    """An expired stage without a table: no table can be created from it any more, and its files are deleted."""
    cell = lake.delta_stage(lake.layout.parse_delta_stage(listed.key))
    found = await cell.read()
    if found is None:
        return "changed"
    stage = found.value
    if stage.expires_ms > lake.clock.now_ms():
        return "kept"
    table = lake.delta_table(stage.uuid)
    # G5: a killed record prevents that a table is created from the stage.
    killed = DeltaTable(
        uuid=stage.uuid, table_uuid=stage.uuid, state="killed", made_for=stage.identifier, location=stage.location
    )
    state = (await table.read() or await table.create(killed)).value.state
    if state in {"unbound", "condemned"}:
        return "kept"  # A creation is in progress, or the janitor of tables finds its orphan.
    if state == "killed":
        if not await lake.feature(Completeness).is_complete() or await _is_shared(lake, stage):
            return "kept"  # A volume from the time before such volumes were refused: its files stay.
        try:
            budget = Budget(lake.settings.janitor_objects_max)
            await delete_folder(lake, stage.location, stage.uuid, budget, confirm=partial(_confirm_killed, table))
        except BudgetSpent:
            return "kept"
    await cell.empty(expected=found.version)
    return "removed"


async def _is_shared(lake: Lake, stage: DeltaStage) -> bool:
    """Whether something that lives has a place in or around that of the stage (P13)."""
    layout = lake.layout
    owner = Owner(tenant=layout.tenant, workspace=layout.workspace, record="delta", uuid=stage.uuid)
    catalog = await lake.catalog(stage.identifier.catalog).read()
    me = Holder(kind="place", owner=owner, home=catalog.value.id if catalog else "", began_ms=stage.created_ms)
    return await find_living(lake, me, canonical_address(stage.location)) is not None


async def _confirm_killed(table: Cell[DeltaTable]) -> None:
    """P11: a killed record never becomes a table, and its uuid has no other place."""
    found = await table.read()
    if found is None or found.value.state != "killed":
        raise SwapLost(f"object {table.key}: the stage has become a table")


DELTA_STAGES = Janitor(
    "delta_stages",
    Layout.delta_stages_folder,
    lambda settings: seconds_of(settings.stage_ttl) * 1_000,
    visit_delta_stage,
)
