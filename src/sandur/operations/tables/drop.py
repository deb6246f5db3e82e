"""Drop a table or view (rules D1–D4): the name first, then the pointer; purge its files only on request."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent, Source
from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.catalog.records import BoundRecord, Claim, NameRecord, PurgeOrder, Request, drop_of, head_of
from sandur.errors import Busy, OutcomeUnknown, SwapLost, Unavailable
from sandur.operations.access import check_names_early, read_authority, require
from sandur.operations.events import event_of, name_subject
from sandur.operations.idempotency import KeyClaim, claim_for, key_hash_of, run_exactly_once
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import release_places
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.securable_chains import name_chain, record_chain
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX
from sandur.operations.tables.documents import TABLES, LoadedTable, load_document, loaded_table
from sandur.operations.tables.names import (
    ICEBERG,
    ResolvedName,
    active_record,
    dropped_record,
    finish_drop,
    name_not_found,
    pointer_cell,
    settle_name,
)
from sandur.operations.transactions.resolution import abort_pending
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import ABSENT
from sandur.storage.keys import validate_key

_DROPPED: Final = frozenset({"dropped", "purging"})


async def drop_name(
    lake: Lake,
    identifier: Identifier,
    *,
    kind: Kind,
    purge: bool | Callable[[ResolvedName], bool] = False,
    request: Request,
    formats: Collection[Format] = ICEBERG,
) -> Versioned[BoundRecord] | None:
    """Free the name and drop its table. The files stay unless `purge` orders their later deletion.

    A name of another format than `formats` does not exist for the caller. Returns the pointer of what was dropped; None
    if this is a replay so late that the pointer is gone.
    """
    validate_key(lake.layout.name(identifier))  # Before its mark: lists read the names that have one.
    claim = claim_for(lake, request, f"drop-{kind}")
    drop_id = key_hash_of(request) or lake.clock.new_id()
    drop = _Drop(lake, identifier, kind, formats, claim, drop_id, request.source, purge=purge)
    try:
        async with update.finishing(lake, "finish drop", lambda: update.finish(lake, identifier, drop_id)):
            dropped = await run_exactly_once(claim, drop.attempt, drop.replay)
    except (Unavailable, Busy) as error:
        if drop.has_happened:  # G2
            raise OutcomeUnknown(f"{identifier}: it was dropped, but not completely: {error}") from error
        raise
    if dropped and dropped.value.places:  # P10
        releasing = release_places(lake, dropped.value.uuid, dropped.value.places)
        await lake.background.run("release location claims", releasing)
    return dropped


async def unregister_table(lake: Lake, identifier: Identifier, request: Request) -> LoadedTable:
    """Drop a table without deleting a file, and return its last state; no commit can follow it."""
    pointer = await drop_name(lake, identifier, kind="table", request=request)
    head = head_of(pointer.value) if pointer else None
    if head is None:
        raise name_not_found(identifier, "table")
    return loaded_table(lake, await load_document(lake, TABLES, head.metadata_location))


@dataclass
class _Drop:
    """One request to drop something; `id` is how names and pointers record the request."""

    lake: Lake
    identifier: Identifier
    kind: Kind
    formats: Collection[Format]
    claim: KeyClaim
    id: str
    source: Source
    purge: bool | Callable[[ResolvedName], bool]
    has_happened: bool = False

    async def attempt(self, continued: Claim | None) -> Versioned[BoundRecord] | None:
        del continued  # The claim that is held pins the same uuid.
        _, live = await gather_all((update.mark(self.lake, self.identifier, self.id), self._find_live()))  # I1
        async for _ in Attempts(self.lake.clock):
            pinned = self.claim.pinned_uuid
            if live and self._is_pinned(live):
                read_ms = self.lake.clock.now_ms()
                await self._authorize(live)
                event = await self._event(live)
                # D2: the table of the claim, and no other with that name. E7: every event that was tried.
                await self.claim.take(uuid=live.uuid, life=live.name.value.life, event=event)
                if pointer := await self._drop_live(live, event, read_ms):
                    return pointer
            elif pinned and (earlier := await self._find_dropped(pinned)):
                return earlier
            elif pinned and await self._has_receipt(pinned):
                await self.lake.background.run("finish drop", self.claim.finish())
                return await self.read_pointer(pinned)
            else:
                raise name_not_found(self.identifier, self.kind)
            live = await self._find_live()
        raise Busy(f"{self.identifier}: other requests keep changing the name")

    async def replay(self, done: Claim) -> Versioned[BoundRecord] | None:
        """What the first attempt dropped. A9: the right to drop is judged on the record that is left."""
        pointer = await self.read_pointer(done.uuid)
        authority = await read_authority(self.lake)
        if authority and pointer:
            missing = name_not_found(self.identifier, self.kind)
            chain = await record_chain(self.lake, authority, self.identifier, pointer, missing=missing)
            require(self.lake, authority, chain, missing=missing)
        return pointer

    async def _authorize(self, live: ResolvedName) -> None:
        """A6: the grants are read after the name that will be swapped."""
        missing = name_not_found(self.identifier, self.kind)
        if authority := await read_authority(self.lake):
            chain = await name_chain(self.lake, authority, live, missing=missing)
            require(self.lake, authority, chain, missing=missing)
            if self._purges(live):
                require(self.lake, authority, chain, missing=missing, situation="purge")

    def _purges(self, live: ResolvedName) -> bool:
        return self.purge(live) if callable(self.purge) else self.purge

    async def _find_live(self) -> ResolvedName | None:
        """D1: what there is to drop."""
        slot, _ = await gather_all((settle_name(self.lake, self.identifier), check_names_early(self.lake)))
        live = slot.live
        return live if live and live.is_a(self.kind, self.formats) else None

    async def _find_dropped(self, uuid: str) -> Versioned[BoundRecord] | None:
        """What an earlier attempt dropped: a request that reuses the name first records that at the pointer (G6)."""
        pointer = await self.read_pointer(uuid)
        if pointer is None or not _is_dropped_by(pointer.value, self.id):
            return None
        await self.lake.background.run("finish drop", self.claim.finish())
        return pointer

    def _is_pinned(self, live: ResolvedName) -> bool:
        """D2, E7: whether the claim is about this table, and about this life of it."""
        held = self.claim.held
        return held is None or (held.value.uuid, held.value.life) == (live.uuid, live.name.value.life)

    async def _event(self, live: ResolvedName) -> CatalogEvent | None:
        name = live.name.value
        subject = name_subject(self.identifier, name)
        return await event_of(self.lake, "dropped", subject, self.source, before=name.last_event)

    async def _has_receipt(self, uuid: str) -> bool:
        """E7: whether an event of this claim has a receipt. Asked after name and pointer: evidence moves this way."""
        tried = self.claim.held.value.events if self.claim.held else ()
        return any(await gather_all(self.lake.feature(CatalogReceipts).exists(uuid, one) for one in tried))

    async def read_pointer(self, uuid: str) -> Versioned[BoundRecord] | None:
        """The pointer of that uuid in any of the formats: the claim records only the uuid."""
        found = await gather_all(self.lake.bound_record(uuid, one).read() for one in self.formats)
        return next((pointer for pointer in found if pointer), None)

    async def _drop_live(
        self, live: ResolvedName, event: CatalogEvent | None, read_ms: int
    ) -> Versioned[BoundRecord] | None:
        """D3, D4: swap the name, then the pointer; None if the swap was lost."""
        record = live.name.value
        dropped = replace(
            active_record(record),
            state="dropped",
            namespace_id="",
            metadata_location="",
            renamed_by=None,
            by=self.id,
            updated_ms=self.lake.clock.now_ms(),
            last_event=event,
        )
        cell = self.lake.name(self.identifier)
        if self._purges(live):
            await queue_purge(self.lake, live, drop=event.id if event else self.id)  # U6
        if self.lake.clock.now_ms() - read_ms > SWAP_DELAY_MS_MAX:
            await self._authorize(live)  # The grants were read too long ago.
        try:
            await cell.swap(dropped, expected=live.name.version)  # The drop happens here.
        except SwapLost as lost:
            if lost.is_definite:
                return None
            found = await cell.read()
            if found is None or (found.value.state, found.value.by) != ("dropped", self.id):
                return await self._find_dropped(live.uuid)
            dropped = found.value  # Perhaps that of another attempt of this request, with another event.
        self.has_happened = True
        pointer = await self._drop_pointer(live, dropped)
        receipt = self.lake.feature(CatalogReceipts).ensure(dropped.last_event)
        await self.lake.background.run("finish drop", gather_all((self.claim.finish(), receipt)))
        return pointer

    async def _drop_pointer(self, live: ResolvedName, dropped: NameRecord) -> Versioned[BoundRecord]:
        """D4: from the pointer as it was read, which is mostly current; otherwise as for any dropped name."""
        cell = pointer_cell(self.lake, live.name.value)
        with contextlib.suppress(SwapLost):
            pointer = await abort_pending(self.lake, live.pointer)
            gone = dropped_record(pointer.value, self.identifier, dropped, now_ms=dropped.updated_ms)
            return await cell.swap(gone, expected=pointer.version)
        await finish_drop(self.lake, self.identifier, dropped)
        found = await cell.read()
        if found is None:
            raise Busy(f"{self.identifier}: its pointer disappeared while it was dropped")
        return found


async def queue_purge(lake: Lake, found: ResolvedName, *, drop: str) -> None:
    """Order the deletion of a table's files, before `drop` drops the table; the order counts only if that happens.

    If the order came after the drop, a crash between the two would lose it: the retry finds the drop done. Every drop
    has its own order, so that a drop that does not happen cannot confirm the order of another.
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
    await lake.purge_order(table_uuid, drop).try_swap(order, expected=ABSENT)  # An earlier attempt may have queued it.


async def check_not_purged(lake: Lake, table_uuid: str) -> None:
    """Raise Busy while the files of a table with that uuid wait for deletion: no new table may rely on them.

    A caller that continues has `purge_delay` to write a pointer. Only after that delay does a purge look for other
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
    return pointer is not None and pointer.value.state in _DROPPED and drop_of(pointer.value) == order.drop


def _is_dropped_by(record: BoundRecord, drop_id: str) -> bool:
    return record.state in _DROPPED and record.by == drop_id
