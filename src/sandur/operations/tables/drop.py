"""Drop a table or view (rules D1-D4): the name first, then the pointer; purge only on request."""

import contextlib
from collections.abc import Collection
from typing import Final

from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.catalog.records import BoundRecord, NameRecord, PurgeOrder, head_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, NotFound, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.tables.load import LoadedTable, loaded_table
from sandur.operations.tables.names import (
    ICEBERG,
    ResolvedName,
    dropped_record,
    finish_drop,
    pointer_cell,
    settle_name,
)
from sandur.operations.transactions import resolution
from sandur.storage.cell import Versioned


async def queue_purge(lake: Lake, found: ResolvedName, *, drop: str) -> None:
    """Order that the files of a table be deleted, before `drop` drops it; it counts only if that drop happens.

    Before, and not after: a drop that happened and died would otherwise be told as done to its retry, with nothing
    queued. Every drop has an order of its own, so that one which does not happen cannot speak for another.
    """
    table_uuid = found.pointer.value.table_uuid
    order = PurgeOrder(
        uuid=found.uuid,
        table_uuid=table_uuid,
        drop=drop,
        kind=found.name.value.kind,
        format=found.name.value.format,
        identifier=found.identifier,
        ordered_ms=lake.clock.now_ms(),
    )
    with contextlib.suppress(SwapLost):  # Queued by an earlier attempt.
        await lake.purge_order(table_uuid, drop).create(order)


async def check_not_purged(lake: Lake, table_uuid: str) -> None:
    """Busy while the files of a table with that uuid wait to be deleted: nobody may begin to rely on them.

    Whoever asks this and goes on has `purge_delay` to show a pointer: only after that does a purge look for other
    tables that need the files.
    """
    layout = lake.layout
    listed = await lake.store.list(layout.purge_orders_of(table_uuid))
    orders = (layout.parse_purge_order(entry.key) for entry in listed)
    if any(await gather_all(_is_due(lake, *order) for order in orders)):
        raise Busy(f"table {table_uuid}: it was dropped, and its files are being purged")


async def _is_due(lake: Lake, table_uuid: str, drop: str) -> bool:
    order = await lake.purge_order(table_uuid, drop).read()
    return order is not None and not order.value.blocked and await is_drop_confirmed(lake, order.value)


async def is_drop_confirmed(lake: Lake, order: PurgeOrder) -> bool:
    """Whether the drop that the order belongs to is the one that happened."""
    pointer = await lake.bound_record(order.uuid, order.format).read()
    return pointer is not None and (pointer.value.state, pointer.value.by) == ("dropped", order.drop)


TRIES_MAX: Final = 8
FOLLOWS_MAX: Final = 4


async def drop_name(
    lake: Lake,
    identifier: Identifier,
    *,
    kind: Kind,
    purge: bool = False,
    request: Request,
    formats: Collection[Format] = ICEBERG,
) -> None:
    """The name is free again and the table is gone; its files stay unless `purge` asks for them to go, later.

    A name of another format than `formats` is as none: nobody drops what they cannot see.
    """
    await _Drop(lake, identifier, kind, purge=purge, request=request, formats=formats).run()


async def unregister_table(lake: Lake, identifier: Identifier, request: Request) -> LoadedTable:
    """Let go of a table: no file is deleted. What comes back is its last state; no commit comes to it any more."""
    pointer = await _Drop(lake, identifier, "table", purge=False, request=request).run()
    head = head_of(pointer.value) if pointer else None
    if head is None:
        raise TABLES.missing(identifier)
    return loaded_table(lake, await load_document(lake, TABLES, head.metadata_location))


class _Drop:
    """One request to drop something."""

    def __init__(
        self,
        lake: Lake,
        identifier: Identifier,
        kind: Kind,
        *,
        purge: bool,
        request: Request,
        formats: Collection[Format] = ICEBERG,
    ) -> None:
        self._formats = formats
        operation = f"drop-{kind}"
        key_hash = request.key_hash
        self._lake = lake
        self._identifier = identifier
        self._kind = kind
        self._purge = purge
        self._by = key_hash or lake.clock.new_id()
        self._claim = KeyClaim(lake, request, operation, lake.claim(operation, key_hash) if key_hash else None)

    async def run(self) -> Versioned[BoundRecord] | None:
        """The pointer of what was dropped, as it is from now on; None when a replay comes so late that it is gone."""
        try:
            return await self._run()
        except SandurError:
            await self._claim.let_go()
            raise
        finally:
            await self._lake.background.run("finish drop", self._finish_index())

    async def _run(self) -> Versioned[BoundRecord] | None:
        for _ in range(FOLLOWS_MAX):
            try:
                return await self._attempts()
            except ClaimLost:
                claim = await self._claim.follow()
                if claim.state == "done":
                    return await self._pointer_of(claim.uuid)
        raise Busy(f"{self._identifier}: is being dropped")

    async def _attempts(self) -> Versioned[BoundRecord]:
        _, live = await gather_all([update.mark(self._lake, self._identifier, self._by), self._live()])  # I1
        for _ in range(TRIES_MAX):
            pinned = self._claim.held.value.uuid if self._claim.held else None
            if live and pinned in {None, live.uuid}:
                await self._claim.take(uuid=live.uuid)  # D2: the table of the claim, and no other that has the name.
                if pointer := await self._dropped(live):
                    return pointer
            elif pinned and (before := await self._dropped_before(pinned)):
                return before
            else:
                await self._claim.done(error=self._missing())  # G3
                raise self._missing()
            live = await self._live()
        raise Busy(f"{self._identifier}: the name keeps changing")

    async def _live(self) -> ResolvedName | None:
        """D1: what is there to drop."""
        live = (await settle_name(self._lake, self._identifier)).live
        return live if live and live.is_a(self._kind, self._formats) else None

    async def _dropped_before(self, uuid: str) -> Versioned[BoundRecord] | None:
        """What an attempt of this request dropped: whoever reuses the name first says so at the pointer (G6)."""
        pointer = await self._pointer_of(uuid)
        if pointer is None or (pointer.value.state, pointer.value.by) != ("dropped", self._by):
            return None
        await self._lake.background.run("finish drop", self._finish_claim())
        return pointer

    async def _pointer_of(self, uuid: str) -> Versioned[BoundRecord] | None:
        """What was dropped before, of whichever format: the claim keeps only its uuid."""
        found = await gather_all(self._lake.bound_record(uuid, one).read() for one in self._formats)
        return next((pointer for pointer in found if pointer), None)

    async def _dropped(self, live: ResolvedName) -> Versioned[BoundRecord] | None:
        """D3, D4: the drop happens at the name. None when the swap was lost."""
        record = live.name.value
        dropped = NameRecord(
            state="dropped",
            uuid=record.uuid,
            kind=record.kind,
            format=record.format,
            by=self._by,
            updated_ms=self._lake.clock.now_ms(),
        )
        cell = self._lake.name(self._identifier)
        if self._purge:
            await queue_purge(self._lake, live, drop=self._by)
        try:
            await cell.swap(dropped, expected=live.name.version)  # The drop happens here.
        except SwapLost as lost:
            if lost.is_definite:
                return None
            if not await self._is_ours():
                return await self._dropped_before(live.uuid)
        pointer = await self._drop_pointer(live, dropped)
        await self._lake.background.run("finish drop", self._finish_claim())
        return pointer

    async def _is_ours(self) -> bool:
        found = await self._lake.name(self._identifier).read()
        return found is not None and (found.value.state, found.value.by) == ("dropped", self._by)

    async def _drop_pointer(self, live: ResolvedName, dropped: NameRecord) -> Versioned[BoundRecord]:
        """D4: from the pointer as it was seen, which mostly is still so; otherwise as everyone does who finds this."""
        cell = pointer_cell(self._lake, live.name.value)
        with contextlib.suppress(SwapLost):
            pointer = await resolution.abort_pending(self._lake, live.pointer)
            gone = dropped_record(pointer.value, self._identifier, by=self._by, now_ms=dropped.updated_ms)
            return await cell.swap(gone, expected=pointer.version)
        await finish_drop(self._lake, self._identifier, dropped)
        found = await cell.read()
        if found is None:
            raise Busy(f"{self._identifier}: its pointer is gone")
        return found

    async def _finish_index(self) -> None:
        await update.finish(self._lake, self._identifier, self._by)

    async def _finish_claim(self) -> None:
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):
                await self._claim.done()

    def _missing(self) -> NotFound:
        return NotFound(f"{self._kind.capitalize()} does not exist: {self._identifier}", subject=self._kind)
