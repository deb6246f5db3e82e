"""Bring back what was dropped (rules U1–U9): its pointer first, in a new life, then the name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.events import AttemptedEvent, CatalogEvent, attempted, event_commit_key
from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace, checked_identifier, full_name_of
from sandur.catalog.locations import canonical_address
from sandur.catalog.paging import Page, checked_page_size, decode_page_token, encode_page_token
from sandur.catalog.record_versions import WITH_EVENTS
from sandur.catalog.records import BoundRecord, Claim, DeltaTable, NameRecord, Pointer, Request, Securable, head_of
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import MANAGED
from sandur.errors import AlreadyExists, Busy, Invalid, NotFound, SandurError, SwapLost, Unsupported
from sandur.operations.access import authorize_catalog, read_authority, require
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import catalog_not_found
from sandur.operations.events import event_of, record_subject
from sandur.operations.idempotency import claim_for, require_claim, run_exactly_once
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims
from sandur.operations.locations.placement import holder_of, locations_of, resolve_placed_namespace
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.securable_chains import namespace_chain, record_chain
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.names import (
    EVERY_FORMAT,
    NameSlot,
    ResolvedName,
    activate_name,
    bind_pointer,
    confirm_namespace,
    dropped_again,
    freed_record,
    name_not_found,
    namespace_not_found,
    settle_name,
    take_back,
)
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all, gather_in_batches

READS_MAX: Final = 1_000
_READS_AT_ONCE: Final = 32
_DROPPED: Final = frozenset({"dropped", "free", "new"})
"""The states of a name that may lead to something dropped; its record says whether it was."""


async def undrop(
    lake: Lake,
    was: Identifier,
    *,
    kind: Kind,
    target: Identifier | None = None,
    uuid: str | None = None,
    request: Request,
) -> tuple[Identifier, str]:
    """Bring back what was dropped as `was`, under that name or another one of its catalog; returns name and uuid.

    `uuid` says which one, if the name was dropped more than once or is used again. NotFound once its purge has begun or
    its retention has ended; AlreadyExists if the name is taken.
    """
    to = checked_identifier(target or was)
    if to.catalog != was.catalog:
        raise Invalid(f"Cannot bring {full_name_of(was)} back in catalog {to.catalog}: its files are those of its own")
    if not lake.form.has_reached(WITH_EVENTS):  # An older server would ignore lives.
        raise Unsupported("Undrop needs records of version 2.0 in the whole store; upgrade it with: sandur upgrade")
    attempt = _Undrop(lake, was, to, kind, uuid, request)
    async with update.finishing(lake, "finish undrop", lambda: update.finish(lake, to, attempt.mark)):
        try:
            return await run_exactly_once(attempt.claim, attempt.attempt, attempt.replay)
        except SandurError:
            await lake.background.run("withdraw location claims", attempt.places.withdraw())
            raise


@dataclass
class _Undrop:
    """One request to bring something back. Every attempt has its own life, which is the id of its event."""

    lake: Lake
    was: Identifier
    target: Identifier
    kind: Kind
    uuid: str | None
    request: Request
    tried: list[AttemptedEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claim = claim_for(self.lake, self.request, "undrop")
        self.places = LocationClaims(self.lake)
        self.mark = self.lake.clock.new_id()
        self._began_ms = self.lake.clock.now_ms()
        text = f"Nothing to bring back: no {self.kind} that was dropped as {full_name_of(self.was)} is kept"
        self._missing = NotFound(text, subject=self.kind)

    async def attempt(self, continued: Claim | None) -> tuple[Identifier, str]:
        if continued:
            self.uuid, self.tried = continued.uuid, list(continued.events)
        async for _ in Attempts(self.lake.clock):
            namespace, slot, pointer = await self._look()
            uuid = pointer.value.uuid if pointer else self.uuid
            if authority := await read_authority(self.lake):
                await self._authorize(authority, pointer, namespace)
            if uuid and await self._is_done(uuid, slot, pointer):
                require_claim(self.claim)
                return await self._answer(uuid)
            if pointer is None:
                raise self._missing
            if not await self._is_dropped(pointer):
                continue
            self._check(slot, namespace)
            if await self._bring_back(pointer, slot, namespace):
                return await self._answer(pointer.value.uuid)
        raise Busy(f"{self.target}: other requests keep changing the name or what was dropped")

    async def _is_dropped(self, pointer: Versioned[BoundRecord]) -> bool:
        """Whether it can come back now; False to read it again. Raises NotFound if it lives, or is gone for good."""
        record = pointer.value
        if record.state in {"unbound", "condemned"} and record.life:
            await self._end_other(pointer)
            return False
        if record.state != "dropped" or record.is_ended:
            raise self._missing
        return True

    def _check(self, slot: NameSlot, namespace: str) -> None:
        if not namespace:
            raise namespace_not_found(self.target.namespace)
        if slot.live:  # U9: only a name that was seen live refuses.
            live = slot.live.name.value.kind
            raise AlreadyExists(f"{live.capitalize()} already exists: {self.target}", subject=live)

    async def _look(self) -> tuple[str, NameSlot, Versioned[BoundRecord] | None]:
        """The id of the target namespace (empty: it does not exist), the target, and what may come back."""
        namespace, slot, pointer = await gather_all(
            (resolve_placed_namespace(self.lake, self.target.namespace), self._settle(), self._find())
        )
        # After the names, from which evidence moves to it (E7), unless it is certain already that it is dropped.
        if self.tried or pointer is None or pointer.value.state != "dropped":
            pointer = await self._find()
        return namespace.value.id if namespace else "", slot, pointer

    async def replay(self, done: Claim) -> tuple[Identifier, str]:
        self.tried = list(done.events)
        if authority := await read_authority(self.lake):  # A9
            await self._authorize(authority, await self._read(done.uuid), "")
        return self.target, done.uuid

    async def _settle(self) -> NameSlot:
        """The target. The old name is settled too, which ends a drop that died before D4."""
        if self.was != self.target:
            await settle_name(self.lake, self.was)
        return await settle_name(self.lake, self.target)

    async def _find(self) -> Versioned[BoundRecord] | None:
        """What was dropped last under the name, unless the request says which one.

        An undrop that was taken back leaves a name that is `free`, or `new` for a namespace that is gone.
        """
        if self.uuid:
            return await self._read(self.uuid)
        name = await self.lake.name(self.was).read()
        return await self._read(name.value.uuid) if name and name.value.state in _DROPPED else None

    async def _read(self, uuid: str) -> Versioned[BoundRecord] | None:
        """The record of that uuid, if it is of the kind, and was dropped as the request says.

        After an attempt it may have come back, and have been renamed and dropped again.
        """
        found = await gather_all(self.lake.bound_record(uuid, one).read() for one in EVERY_FORMAT)
        for held in found:
            if held and held.value.kind == self.kind and (self.tried or held.value.dropped_as == self.was):
                return held
        return None

    def _cell(self, record: BoundRecord) -> Cell[BoundRecord]:
        return self.lake.bound_record(record.uuid, record.format)

    async def _authorize(self, authority: Authority, pointer: Versioned[BoundRecord] | None, namespace_id: str) -> None:
        """The right to manage what was dropped, and to create it where it comes back (A6)."""
        chain = await record_chain(self.lake, authority, self.was, pointer, missing=self._missing)
        require(self.lake, authority, chain, missing=self._missing)
        missing = namespace_not_found(self.target.namespace)
        above = await namespace_chain(self.lake, authority, self.target.namespace, namespace_id, missing=missing)
        require(self.lake, authority, above, missing=missing, situation=self.kind)

    async def _is_done(self, uuid: str, slot: NameSlot, pointer: Versioned[BoundRecord] | None) -> bool:
        """E7: whether an attempt of this request brought it back: by the name, the pointer, then the receipts."""
        lives = {one.id for one in self.tried}
        if not lives:
            return False
        if slot.live and slot.live.uuid == uuid and slot.live.name.value.life in lives:
            return True
        if pointer and pointer.value.state == "live" and pointer.value.life in lives:
            return True
        dropped = pointer.value.last_event if pointer else None
        if dropped and dropped.previous in {event_commit_key(uuid, life) for life in lives}:
            return True  # Brought back, seen, and dropped again.
        return any(await gather_all(self.lake.feature(CatalogReceipts).exists(uuid, one) for one in self.tried))

    async def _end_other(self, pointer: Versioned[BoundRecord]) -> None:
        """U4: a half-done undrop, of this request or of another one that is surely dead; otherwise Busy."""
        stale_ms = pointer.value.updated_ms + self.lake.settings.claim_timeout_ms
        is_own = pointer.value.life in {one.id for one in self.tried}
        if not is_own and stale_ms > self.lake.clock.now_ms():
            raise Busy(f"{self.was}: another request is bringing it back")
        await take_back(self.lake, self._cell(pointer.value), pointer)

    async def _bring_back(self, pointer: Versioned[BoundRecord], slot: NameSlot, namespace_id: str) -> bool:
        """Steps 2 to 5; False to start over."""
        record = pointer.value
        subject = record_subject(self.target, record)
        event = await event_of(self.lake, "undropped", subject, self.request.source, before=record.last_event)
        if event is None:
            raise Busy(f"{self.was}: the version of the store is not known yet")
        await gather_all(
            [
                self._secure(record),  # P10
                self.lake.feature(CatalogReceipts).ensure(record.last_event),  # E2 undrop
                self.claim.take(uuid=record.uuid, event=event),  # E7
                update.mark(self.lake, self.target, self.mark),  # I1
            ]
        )
        self.tried.append(attempted(event))
        back = replace(
            record, state="unbound", life=event.id, made_for=self.target, updated_ms=self.lake.clock.now_ms()
        )
        # U2: excludes purge, the end of retention, and other undrops.
        taken = await self._cell(record).try_swap(back, expected=pointer.version)
        return taken is not None and await self._write_name(taken, slot, namespace_id, event)

    async def _write_name(
        self, pointer: Versioned[BoundRecord], slot: NameSlot, namespace_id: str, event: CatalogEvent
    ) -> bool:
        """It happens here, if namespace and pointer confirm it (U8). False if it did not."""
        record, cell = pointer.value, self.lake.name(self.target)
        head = head_of(record)
        wanted = NameRecord(
            state="new",
            uuid=record.uuid,
            kind=record.kind,
            format=record.format,
            namespace_id=namespace_id,
            metadata_location=head.metadata_location if head else "",
            updated_ms=self.lake.clock.now_ms(),
            last_event=event,
            life=event.id,
        )
        try:
            name = await cell.swap(wanted, expected=slot.expected)
        except SwapLost as lost:
            if lost.is_definite:
                await self._take_back_own(record)
            return False  # U9: the next attempt settles the name, and looks for this life.
        has_namespace, bound = await gather_all(
            (
                confirm_namespace(self.lake, self.target.namespace, namespace_id),  # N4
                bind_pointer(self._cell(record), binds=False, life=event.id),  # N5
            )
        )
        if has_namespace and bound:
            found = ResolvedName(self.target, name, bound)
            await self.lake.background.run("finish undrop", self._finish(found))
            return True
        if await cell.try_swap(freed_record(name.value), expected=name.version):
            await self._take_back_own(record)
            if not has_namespace:
                raise namespace_not_found(self.target.namespace)
        return False

    async def _take_back_own(self, record: BoundRecord) -> None:
        """U5: the name was not written and never will be."""
        cell = self._cell(record)
        found = await cell.read()
        if found and found.value.life == record.life and found.value.state in {"unbound", "condemned"}:
            await cell.try_swap(dropped_again(found.value), expected=found.version)

    async def _secure(self, record: BoundRecord) -> None:
        """P10: claim its named places again, and look around all of them; Invalid or Busy if one is taken."""
        me = holder_of(
            self.lake, self.target, record.uuid, record.format, record.kind, self.request, began_ms=self._began_ms
        )
        claimed = {canonical_address(place): place for place in record.places}
        if unfree := await self.places.write(me, claimed) or await self.places.look():
            raise unfree.error
        for location in await self._locations(record):
            address = canonical_address(location)
            if any(address.is_within(outer) for outer in claimed):
                continue
            if unfree := await self.places.find_overlap(me, address, location):
                raise unfree.error

    async def _locations(self, record: BoundRecord) -> Sequence[str]:
        """The places of its files. NotFound if its metadata file is gone."""
        if not isinstance(record, Pointer):
            return (record.location,) if record.location else ()
        return locations_of((await load_head(self.lake, record.kind, record.head)).metadata) if record.head else ()

    async def _finish(self, found: ResolvedName) -> None:
        """After the answer: pointer `live`, name `active`, the receipt."""
        if await bind_pointer(self._cell(found.pointer.value), life=found.name.value.life):
            await activate_name(self.lake, found)
        await self.lake.feature(CatalogReceipts).ensure(found.name.value.last_event)

    async def _answer(self, uuid: str) -> tuple[Identifier, str]:
        await self.lake.background.run("finish undrop", self.claim.finish())
        return self.target, uuid


class DroppedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be brought back. Times are milliseconds since 1970."""

    kind: Kind
    full_name: str
    uuid: str
    format: Format
    dropped_at: int
    dropped_by: str = ""
    owner: str = ""


async def list_dropped(
    lake: Lake,
    catalog: str,
    namespace: Namespace | None,
    *,
    page_token: str | None = None,
    page_size: int | None = None,
) -> Page[DroppedInfo]:
    """What was dropped in a catalog or namespace and that the caller may bring back, by format and uuid.

    A page reads at most READS_MAX records: it may be empty although there are more. NotFound without the catalog.
    """
    await authorize_catalog(lake, await load_catalog(lake, catalog), missing=catalog_not_found(catalog))
    layout, what = lake.layout, ("dropped", lake.layout.root, catalog, str(namespace or ""))
    limit = min(checked_page_size(page_size), READS_MAX)
    folders: dict[str, type[Pointer | DeltaTable | Securable]] = {
        layout.delta_tables_folder(): DeltaTable,
        layout.pointers_folder(): Pointer,
        layout.securables_folder(): Securable,
    }
    after = decode_page_token(page_token, what) if page_token else ""
    authority = await read_authority(lake)
    keys: list[tuple[str, type[Pointer | DeltaTable | Securable]]] = []
    for folder in sorted(folders):
        if len(keys) <= limit and after < f"{folder}\U0010ffff":
            listed = await lake.store.list(folder, after=after or None, limit=limit + 1 - len(keys))
            keys += [(one.key, folders[folder]) for one in listed]

    async def read(key: tuple[str, type[Pointer] | type[DeltaTable] | type[Securable]]) -> DroppedInfo | None:
        found = await lake.uncached(*key).read()
        if found is None or not _is_in(found.value, catalog, namespace):
            return None
        return await dropped_info(lake, authority, found)

    infos = await gather_in_batches(keys[:limit], read, at_once=_READS_AT_ONCE)
    token = encode_page_token(what, keys[limit - 1][0]) if len(keys) > limit else None
    return Page([info for info in infos if info], token)


def _is_in(record: BoundRecord, catalog: str, namespace: Namespace | None) -> bool:
    """Whether it can be brought back, and was dropped there."""
    was = record.dropped_as
    if record.state != "dropped" or record.is_ended or was is None or was.catalog != catalog:
        return False
    return namespace is None or was.namespace == namespace


async def dropped_info(lake: Lake, authority: Authority | None, found: Versioned[BoundRecord]) -> DroppedInfo | None:
    """The entry of a dropped record; None if the caller may not bring it back."""
    record, was = found.value, found.value.dropped_as
    if was is None:
        return None
    if lake.access and authority:
        missing = name_not_found(was, record.kind)
        try:
            chain = await record_chain(lake, authority, was, found, missing=missing)
        except NotFound:  # Its namespace is gone.
            return None
        decision = authority.decision(lake.access.caller, chain, MANAGED)
        if decision is None or decision.verdict.outcome != "allowed":
            return None
    event = record.last_event
    return DroppedInfo(
        kind=record.kind,
        full_name=full_name_of(was),
        uuid=record.uuid,
        format=record.format,
        dropped_at=event.at_ms if event else record.updated_ms,
        dropped_by=event.source.principal if event else "",
        owner=record.owner,
    )
