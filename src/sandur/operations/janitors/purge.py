"""Working off the purge queue: the files of tables that were dropped for good are deleted, and no other table's."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import DeltaTable, Pointer, PurgeOrder
from sandur.errors import BadRequest, Conflict, NotFound, SandurError, SwapLost, Unavailable
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.janitors.files import Budget, BudgetSpent, Purge, table_folders
from sandur.operations.janitors.records import delete_folder
from sandur.operations.janitors.sweep import DAY_MS, OnError, Swept, is_older
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES, VIEWS, load_document
from sandur.operations.tables.drop import is_drop_confirmed
from sandur.operations.tables.locations import allowed_roots
from sandur.operations.tables.names import settle_name
from sandur.settings import seconds_of
from sandur.storage.cell import Versioned
from sandur.storage.contract import LIST_LIMIT_MAX, Listed, get_many

T = TypeVar("T")

_Table = Pointer | DeltaTable
"""The records of things that have files."""

ORDERS_MAX: Final = 100
BLOCKED_KEPT_MS: Final = 30 * DAY_MS
VOID_AFTER_MS: Final = DAY_MS


class PurgeTarget(NamedTuple):
    """A table whose files are to go: who ordered it, what is left of it, and where its files lie."""

    order: Versioned[PurgeOrder]
    record: _Table
    homes: Sequence[str]


async def run_purge_queue(lake: Lake, *, position: str, tell: OnError) -> Swept:
    """Take up at most ORDERS_MAX orders that are older than `purge_delay`, and delete `janitor_objects_max` files.

    An order goes last, after every file, so that whatever dies on the way is done again; what is gone is gone.
    """
    return await _Queue(lake, tell).work_off(position)


class _Queue:
    """One run over the queue."""

    def __init__(self, lake: Lake, tell: OnError) -> None:
        self._lake = lake
        self._tell = tell
        self._budget = Budget(lake.settings.janitor_objects_max)
        self._counts: Counter[str] = Counter()

    async def work_off(self, position: str) -> Swept:
        folder = self._lake.layout.purge_orders_folder()
        page = await self._lake.store.list(folder, after=position or None, limit=ORDERS_MAX)
        targets = [target for listed in page if (target := await self._guarded(listed.key, self._taken_up(listed)))]
        # While a pointer cannot be read, nobody knows whose table it is, and nobody's files are deleted.
        looked_at = await self._guarded("pointers", _with_neighbours(self._lake, targets))
        for target, neighbour in looked_at or ():
            await self._guarded(str(target.order.value.identifier), self._purge(target, neighbour))
        return Swept(self._counts, page[-1].key if len(page) == ORDERS_MAX else "")

    async def _guarded(self, what: str, work: Awaitable[T]) -> T | None:
        """An order that cannot be carried out now does not hold up the others."""
        try:
            return await work
        except SwapLost:
            self._counts["changed"] += 1
        except SandurError as error:
            self._counts["failed"] += 1
            self._tell(what, error)
        return None

    async def _taken_up(self, listed: Listed) -> PurgeTarget | None:
        """What an order asks for; None when there is nothing to delete, or not yet."""
        lake = self._lake
        order = await lake.purge_order(*lake.layout.parse_purge_order(listed.key)).read()
        if order is None or not is_older(lake, listed, seconds_of(lake.settings.purge_delay) * 1_000):
            self._counts["kept"] += 1
            return None
        if order.value.blocked:
            is_over = is_older(lake, listed, BLOCKED_KEPT_MS)
        elif not await _has_happened(lake, order.value):
            is_over = is_older(lake, listed, VOID_AFTER_MS)
        else:
            return await self._target(order)
        if is_over:
            await self._remove(order)
        else:
            self._counts["kept"] += 1
        return None

    async def _target(self, order: Versioned[PurgeOrder]) -> PurgeTarget | None:
        found = await self._lake.bound_record(order.value.uuid, order.value.format).read()
        record = found.value if found else None
        if isinstance(record, DeltaTable):
            return PurgeTarget(order, record, (normalize_location(record.location),))
        try:
            metadata = await _metadata(self._lake, record) if isinstance(record, Pointer) else None
        except BadRequest as error:
            await self._block(order, str(error))
            return None
        if not isinstance(record, Pointer) or metadata is None:
            await self._remove(order)
            return None
        return PurgeTarget(order, record, table_folders(metadata))

    async def _purge(self, target: PurgeTarget, neighbour: _Table | None) -> None:
        """The files are gone, or some of them and the rest is next time's, or the order is blocked."""
        if neighbour:
            await self._block(target.order, f"table {neighbour.uuid} may need the files")
            return
        catalog = target.order.value.identifier.catalog
        roots = tuple(map(normalize_location, await allowed_roots(self._lake, catalog)))
        purge = Purge(self._lake, target.homes, roots, self._budget)
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
        """The files stay. For good: the other table may leave the catalog one day and be needed elsewhere."""
        cell = self._lake.purge_order(order.value.table_uuid, order.value.drop)
        await cell.swap(replace(order.value, blocked=reason), expected=order.version)
        self._counts["blocked"] += 1
        self._tell(str(order.value.identifier), Conflict(f"its files are not purged: {reason}"))


async def _has_happened(lake: Lake, order: PurgeOrder) -> bool:
    """Whether the drop happened for which the files were to go; one that died half way is finished (D4)."""
    if await is_drop_confirmed(lake, order):
        return True
    await settle_name(lake, order.identifier)
    return await is_drop_confirmed(lake, order)


async def _metadata(lake: Lake, pointer: Pointer) -> TableMetadata | ViewMetadata | None:
    """What the head says; None when its file is gone: then everything else went before it."""
    if pointer.head is None:
        return None
    location = pointer.head.metadata_location
    try:
        if pointer.kind == "view":
            return (await load_document(lake, VIEWS, location)).metadata
        return (await load_document(lake, TABLES, location)).metadata
    except NotFound:
        return None


async def _delete_files(purge: Purge, pointer: _Table) -> None:
    if isinstance(pointer, DeltaTable):
        purge.removed += await delete_folder(purge.lake, pointer.location, purge.budget)
        return
    metadata = await _metadata(purge.lake, pointer)
    if pointer.head is None or metadata is None:
        return
    if isinstance(metadata, TableMetadata):
        await purge.table(metadata)
    if previous := pointer.head.previous_metadata_location:  # All that is known of a view's past.
        await purge.remove([previous])
    await purge.remove([pointer.head.metadata_location])


async def _with_neighbours(lake: Lake, targets: Sequence[PurgeTarget]) -> list[tuple[PurgeTarget, _Table | None]]:
    """Each target with another table, if there is one, that may need its files.

    This reads the record of every table of either format, once for all targets and only when there are any. Tables
    that begin to need the files later do not slip through: `check_not_purged` turns them away.
    """
    if not targets:
        return []
    neighbours: dict[int, _Table] = {}
    async for other in _living(lake):
        for at, target in enumerate(targets):
            if at not in neighbours and may_share(target, other):
                neighbours[at] = other
    return [(target, neighbours.get(at)) for at, target in enumerate(targets)]


async def _living(lake: Lake) -> AsyncIterator[_Table]:
    layout = lake.layout
    for folder, kind in ((layout.pointers_folder(), Pointer), (layout.delta_tables_folder(), DeltaTable)):
        after: str | None = None
        while True:
            page = await lake.store.list(folder, after=after)
            stored = await get_many(lake.store, [entry.key for entry in page])
            for listed, found in zip(page, stored, strict=True):
                if found and (pointer := _decoded(listed.key, found.data, kind)).state not in {"dropped", "killed"}:
                    yield pointer
            if len(page) < LIST_LIMIT_MAX:
                break
            after = page[-1].key


def _decoded(key: str, data: bytes, kind: type[_Table]) -> _Table:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"object {key}: is not a {kind.__name__}: {error}") from error


def may_share(target: PurgeTarget, other: _Table) -> bool:
    """Whether a table that lives may need files of the target: it is the same table, or one lies within the other."""
    if other.uuid == target.record.uuid:
        return False
    if other.table_uuid == target.record.table_uuid:
        return True
    return any(
        is_within(file, home) or is_within(home, folder) for file, folder in _places(other) for home in target.homes
    )


def _places(table: _Table) -> Sequence[tuple[str, str]]:
    """Files or folders of a table, and what surely holds all of its files, as far as its record tells."""
    if isinstance(table, DeltaTable):
        return [(normalize_location(table.location),) * 2] if table.location else []
    heads = [table.head, table.pending.head if table.pending else None]
    files = [normalize_location(head.metadata_location) for head in heads if head]
    return [(file, file.rpartition("/")[0].removesuffix("/metadata")) for file in files]
