"""Work through the purge queue: delete the files of tables that were dropped with a purge, and no other files (P11).

An order is carried out if its drop happened, and after `purge_delay`. It is blocked for good if something that lives
may need the files. The record of the table is ended after all files are gone, then its location claims are removed, and
the order last: a run that dies is repeated, and deletes no file once the record is ended.
"""

from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from sandur.catalog.location_claims import Holder, Owner
from sandur.catalog.locations import Address, canonical_address, normalize_location
from sandur.catalog.records import BoundRecord, DeltaTable, Pointer, PurgeOrder, Securable, drop_of
from sandur.errors import BadRequest, Conflict, Invalid, NotFound, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.events import has_events
from sandur.operations.janitors.files import Budget, BudgetSpent, Purge, delete_folder
from sandur.operations.janitors.sweep import DAY_MS, OnError, Swept, is_older
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import Completeness, find_living, release_places
from sandur.operations.locations.placement import catalog_home, locations_of
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.drop import is_drop_confirmed
from sandur.operations.tables.names import settle_name
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned
from sandur.storage.contract import Listed

T = TypeVar("T")

ORDERS_MAX: Final = 100
BLOCKED_KEPT_MS: Final = 30 * DAY_MS
VOID_AFTER_MS: Final = DAY_MS


class PurgeTarget(NamedTuple):
    """A table to purge: the order, the record of the dropped table, and the folders of its files."""

    order: Versioned[PurgeOrder]
    record: Versioned[Pointer | DeltaTable]
    folders: Sequence[str]


async def run_purge_queue(lake: Lake, *, position: str, on_error: OnError) -> Swept:
    """Carry out at most ORDERS_MAX orders, and delete at most `janitor_objects_max` files."""
    return await _Queue(lake, on_error).run(position)


class _Queue:
    """One run over the queue."""

    def __init__(self, lake: Lake, on_error: OnError) -> None:
        self._lake = lake
        self._on_error = on_error
        self._budget = Budget(lake.settings.janitor_objects_max)
        self._counts: Counter[str] = Counter()

    async def run(self, position: str) -> Swept:
        folder = self._lake.layout.purge_orders_folder()
        page = await self._lake.store.list(folder, after=position or None, limit=ORDERS_MAX)
        if not await self._lake.feature(Completeness).is_complete():  # P13: claims that are missing protect no files.
            return Swept({"kept": len(page)}, "")
        for listed in page:
            if target := await self._guard(listed.key, self._open_order(listed)):
                await self._guard(str(target.order.value.identifier), self._purge(target))
        return Swept(self._counts, page[-1].key if len(page) == ORDERS_MAX else "")

    async def _guard(self, what: str, work: Awaitable[T]) -> T | None:
        """Report the error of one order; the others go on."""
        try:
            return await work
        except SwapLost:
            self._counts["changed"] += 1
        except SandurError as error:
            self._counts["failed"] += 1
            self._on_error(what, error)
        return None

    async def _open_order(self, listed: Listed) -> PurgeTarget | None:
        """The table that an order is about; None if there is nothing to delete, or not yet."""
        lake = self._lake
        order = await lake.purge_order(*lake.layout.parse_purge_order(listed.key)).read()
        if order is None or not is_older(lake, listed, seconds_of(lake.settings.purge_delay) * 1_000):
            self._counts["kept"] += 1
            return None
        if order.value.blocked:
            is_expired = is_older(lake, listed, BLOCKED_KEPT_MS)
        elif not await _is_dropped(lake, order.value):
            is_expired = is_older(lake, listed, VOID_AFTER_MS) and await _is_void(lake, order.value)
        else:
            return await self._target(order)
        if is_expired:
            await self._remove(order)
        else:
            self._counts["kept"] += 1
        return None

    async def _target(self, order: Versioned[PurgeOrder]) -> PurgeTarget | None:
        found = await self._lake.bound_record(order.value.uuid, order.value.format).read()
        if found is None or isinstance(found.value, Securable):
            await self._remove(order)
            return None
        if found.value.is_ended:  # All files are gone: from here on none is deleted.
            await self._finish(order, found.value)
            return None
        record: Versioned[Pointer | DeltaTable] = Versioned(found.value, found.version)
        try:
            folders = await _folders(self._lake, found.value)
        except BadRequest as error:
            await self._block(order, str(error))
            return None
        return PurgeTarget(order, record, folders)

    async def _purge(self, target: PurgeTarget) -> None:
        """Delete the files, or some of them if the budget is spent, or block the order."""
        lake, record = self._lake, target.record.value
        try:
            for folder in target.folders:
                await _check_folder(lake, target.order.value, record, folder)
        except BadRequest as error:
            await self._block(target.order, str(error))
            return
        cell = lake.bound_record(record.uuid, record.format)
        marked: Versioned[BoundRecord] = target.record
        if record.state != "purging" and await has_events(lake):  # An older release does not know the state.
            # U3: from here on, no undrop brings the table back.
            marked = await cell.swap(replace(record, state="purging"), expected=target.record.version)

        async def confirm() -> None:
            """P11: the table is still dropped, and its record as it was before the versions of the files were read."""
            again = await cell.read()
            if again is None or again.version != marked.version:
                raise SwapLost(f"table {record.uuid}: its record has changed")

        roots = await _roots(lake, target.order.value.identifier.catalog)
        purge = Purge(lake, target.folders, roots, self._budget, confirm)
        try:
            await _delete_files(purge, record)
        except BudgetSpent:
            self._counts["kept"] += 1
        except BadRequest as error:
            await self._block(target.order, str(error))
        else:
            over = replace(marked.value, state="dropped", is_ended=True)
            ended = await cell.swap(over, expected=marked.version)
            await self._finish(target.order, ended.value)
        finally:
            self._counts["files_removed"] += purge.removed
            self._counts["files_left"] += purge.left

    async def _finish(self, order: Versioned[PurgeOrder], record: BoundRecord) -> None:
        await release_places(self._lake, record.uuid, record.places)
        await self._remove(order)

    async def _remove(self, order: Versioned[PurgeOrder]) -> None:
        await self._lake.purge_order(order.value.table_uuid, order.value.drop).empty(expected=order.version)
        self._counts["removed"] += 1

    async def _block(self, order: Versioned[PurgeOrder], reason: str) -> None:
        """Keep the files for good: the other table may leave this catalog and still be used elsewhere."""
        cell = self._lake.purge_order(order.value.table_uuid, order.value.drop)
        await cell.swap(replace(order.value, blocked=reason), expected=order.version)
        self._counts["blocked"] += 1
        self._on_error(str(order.value.identifier), Conflict(f"its files are not purged: {reason}"))


async def _is_dropped(lake: Lake, order: PurgeOrder) -> bool:
    """Whether the drop of the order happened; a drop that died half way is finished first (D4)."""
    if await is_drop_confirmed(lake, order):
        return True
    await settle_name(lake, order.identifier)
    return await is_drop_confirmed(lake, order)


async def _is_void(lake: Lake, order: PurgeOrder) -> bool:
    """U7: whether the drop of the order can no longer happen, and did not.

    *Fence*: the drop of a table that lives loses once its name was bumped. *Keep*: a half-done undrop may be taken
    back, and the table is then dropped by the drop of this order.
    """
    live = (await settle_name(lake, order.identifier)).live
    if live and live.uuid == order.uuid:
        await lake.name(order.identifier).swap(live.name.value, expected=live.name.version)
        return True
    found = await lake.bound_record(order.uuid, order.format).read()
    is_half_done = found is not None and found.value.state in {"unbound", "condemned"} and bool(found.value.life)
    return not (found and is_half_done and drop_of(found.value) == order.drop)


async def _folders(lake: Lake, record: Pointer | DeltaTable) -> Sequence[str]:
    """The folders of a dropped table: those of its metadata, and the places that it had. BadRequest if not readable."""
    if isinstance(record, DeltaTable):
        return (normalize_location(record.location),)
    try:
        located = locations_of((await load_head(lake, record.kind, record.head)).metadata) if record.head else ()
    except NotFound:  # All other files were deleted before the metadata file.
        located = ()
    return tuple(dict.fromkeys((*map(normalize_location, located), *record.places)))


async def _roots(lake: Lake, name: str) -> Sequence[str]:
    """The roots below which the files of a catalog lie, also of one that was dropped."""
    catalog = await lake.catalog(name).read()
    root = catalog.value.root if catalog and catalog.value.root else catalog_home(lake, name)
    return (normalize_location(root), *lake.locations.others)


async def _check_folder(lake: Lake, order: PurgeOrder, record: BoundRecord, folder: str) -> None:
    """P11, P13: raise Invalid if something else that lives may need files in the folder."""
    address = canonical_address(folder)
    if str(address) not in record.places and _may_be_anothers(lake, record, address):
        raise Invalid(f"{folder} may hold files of other tables")
    found = lake.catalog(order.identifier.catalog).last_seen or await lake.catalog(order.identifier.catalog).read()
    owner = Owner(tenant=lake.layout.tenant, workspace=lake.layout.workspace, record=record.format, uuid=record.uuid)
    me = Holder(kind="place", owner=owner, home=found.value.id if found else "", began_ms=order.ordered_ms)
    if other := await find_living(lake, me, address):
        who = f"{other.what} {other.owner.uuid}" if other.workspace == me.workspace else "something else"
        raise Invalid(f"{who} may need the files")


def _may_be_anothers(lake: Lake, record: BoundRecord, address: Address) -> bool:
    """Whether a folder without a claim of the table is a place, or lies around places, that the catalog generates."""
    if address.is_managed:
        return address.generated_for not in {record.uuid, record.table_uuid}
    store, area = canonical_address(lake.locations.own), canonical_address(lake.area)
    if not address.overlaps(store):
        return False
    return not address.is_within(area) or len(address.segments) <= len(area.segments) + 1


async def _delete_files(purge: Purge, pointer: Pointer | DeltaTable) -> None:
    if isinstance(pointer, DeltaTable):
        purge.removed += await delete_folder(
            purge.lake, pointer.location, pointer.uuid, purge.budget, confirm=purge.confirm
        )
        return
    if pointer.head is None:
        return
    try:
        metadata = (await load_head(purge.lake, pointer.kind, pointer.head)).metadata
    except NotFound:  # All other files were deleted before this one.
        return
    if isinstance(metadata, TableMetadata):
        await purge.purge_table(metadata)
    if previous := pointer.head.previous_metadata_location:  # A view has no log of metadata files.
        await purge.remove([previous])
    await purge.remove([head.metadata_location for head in (*pointer.passed, pointer.head)])
