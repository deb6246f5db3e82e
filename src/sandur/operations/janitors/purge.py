"""Work through the purge queue: delete the files of tables that were dropped with a purge, and no other files.

An order is carried out if its drop happened, and after `purge_delay`. It is blocked for good if a living table, volume
or model may need the files. The order is deleted after all files, so that a run that dies is repeated.
"""

from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import BoundRecord, DeltaTable, PurgeOrder, Securable
from sandur.errors import BadRequest, Conflict, NotFound, SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.janitors.files import Budget, BudgetSpent, Purge, delete_folder
from sandur.operations.janitors.sweep import DAY_MS, OnError, Swept, is_older
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.drop import is_drop_confirmed
from sandur.operations.tables.names import allowed_roots, settle_name
from sandur.operations.tables.overlaps import Table, known_places, living_securables, living_tables, table_folders
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
    record: Table
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
        targets = [target for listed in page if (target := await self._guard(listed.key, self._open_order(listed)))]
        # A pointer that cannot be read may be that of a neighbour: then no files are deleted.
        checked = await self._guard("pointers", _with_neighbours(self._lake, targets))
        for target, neighbour in checked or ():
            await self._guard(str(target.order.value.identifier), self._purge(target, neighbour))
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
            is_expired = is_older(lake, listed, VOID_AFTER_MS)
        else:
            return await self._target(order)
        if is_expired:
            await self._remove(order)
        else:
            self._counts["kept"] += 1
        return None

    async def _target(self, order: Versioned[PurgeOrder]) -> PurgeTarget | None:
        found = await self._lake.bound_record(order.value.uuid, order.value.format).read()
        record = found.value if found else None
        try:
            folders = () if record is None or isinstance(record, Securable) else await table_folders(self._lake, record)
        except BadRequest as error:
            await self._block(order, str(error))
            return None
        if record is None or isinstance(record, Securable) or not folders:
            await self._remove(order)
            return None
        return PurgeTarget(order, record, folders)

    async def _purge(self, target: PurgeTarget, neighbour: BoundRecord | None) -> None:
        """Delete the files, or some of them if the budget is spent, or block the order."""
        if isinstance(neighbour, Securable) and neighbour.state != "live":
            self._counts["kept"] += 1  # Its creation is refused while the order is open, or the next run finds it live.
            return
        if neighbour:
            await self._block(target.order, f"{neighbour.kind} {neighbour.uuid} may need the files")
            return
        catalog = target.order.value.identifier.catalog
        roots = tuple(map(normalize_location, await allowed_roots(self._lake, catalog)))
        purge = Purge(self._lake, target.folders, roots, self._budget)
        try:
            await _delete_files(purge, target.record)
        except BudgetSpent:
            self._counts["kept"] += 1
        except BadRequest as error:
            await self._block(target.order, str(error))
        else:
            await self._remove(target.order)
        finally:
            self._counts["files_removed"] += purge.removed
            self._counts["files_left"] += purge.left

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


async def _delete_files(purge: Purge, pointer: Table) -> None:
    if isinstance(pointer, DeltaTable):
        purge.removed += await delete_folder(purge.lake, pointer.location, purge.budget)
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
    await purge.remove([pointer.head.metadata_location])


async def _with_neighbours(lake: Lake, targets: Sequence[PurgeTarget]) -> list[tuple[PurgeTarget, BoundRecord | None]]:
    """Each target with a living record that may need its files, or None.

    This reads the record of every table, volume and model once for all targets. One that would need the files later is
    refused: a table by `check_not_purged`, a volume by `find_table_overlap`.
    """
    if not targets:
        return []
    neighbours: dict[int, BoundRecord] = {}

    def compare(other: BoundRecord) -> None:
        for at, target in enumerate(targets):
            if at not in neighbours and may_share(target, other):
                neighbours[at] = other

    async for table in living_tables(lake):
        compare(table)
    for securable in await living_securables(lake):
        compare(securable)
    return [(target, neighbours.get(at)) for at, target in enumerate(targets)]


def may_share(target: PurgeTarget, other: BoundRecord) -> bool:
    """Whether a living record may need files of the target: it is the same table, or the locations overlap."""
    if other.uuid == target.record.uuid:
        return False
    if other.table_uuid == target.record.table_uuid:
        return True
    return any(
        is_within(file, own) or is_within(own, folder) for file, folder in known_places(other) for own in target.folders
    )
