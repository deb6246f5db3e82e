"""Receipts: the proof of each commit and event, derived from the record alone, one unbroken chain per object."""

import contextlib
import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.events import (
    AttemptedEvent,
    CatalogEvent,
    EventKind,
    ObjectType,
    Source,
    commit_key_of_event,
    event_commit_key,
)
from sandur.catalog.identifiers import Format, Identifier
from sandur.catalog.records import AttemptedFile, DeltaCommit, DeltaTable, Head, Pointer
from sandur.clock import uuid_v7
from sandur.errors import SwapLost
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.storage.cell import gather_all
from sandur.storage.contract import ABSENT, ObjectStore, list_pages
from sandur.storage.layout import Layout

LISTED_AT_ONCE: Final = 50_000
_KNOWN_MAX: Final = 50_000
_DAY_MS: Final = 86_400_000
_FIRST_DAY: Final = dt.date(1970, 1, 1)
_LAST_DAY_MS: Final = (dt.date(9999, 12, 31) - _FIRST_DAY).days * _DAY_MS


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The proof that a metadata file became the head of a table.

    Every field is derived from the head, so the commit, its successor (C5) and a repair write the same object.
    `previous_commit_key` names the previous receipt of the table; it is absent on the first. `refs` are the snapshots
    of branches and tags, `spec_id` the partition spec of new files; receipts of older releases have neither.
    """

    event_type: Literal["iceberg_commit_committed"] = "iceberg_commit_committed"
    event_version: int = 1
    event_id: str
    commit_key: str
    table_uuid: str
    metadata_location: str
    previous_metadata_location: str | None
    previous_commit_key: str | None
    snapshot_id: int | None
    operation: str
    metadata_version: int
    last_sequence_number: int
    committed_at_ms: int
    source: Source
    refs: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    spec_id: int | msgspec.UnsetType = msgspec.UNSET


class DeltaReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The proof that a version of a Delta table was accepted. `file_name` is the staged file; empty for version 0.

    Every field is derived from the table's record, so the commit and a repair write the same object.
    """

    event_type: Literal["delta_commit_committed"] = "delta_commit_committed"
    event_version: int = 1
    event_id: str
    commit_key: str
    table_uuid: str
    table_location: str
    version: int
    file_name: str
    file_size: int
    previous_commit_key: str | None
    committed_at_ms: int
    source: Source


class CatalogReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The proof that a change of the catalog happened. Every field follows from the event, so every writer writes the
    same object (E1). The fields that all receipts have (`commit_key`, `previous_commit_key`, …) mean the same here.
    """

    event_type: Literal["catalog_changed"] = "catalog_changed"
    event_version: int = 1
    event_id: str
    commit_key: str
    previous_commit_key: str | None
    kind: EventKind
    object_type: ObjectType
    object_id: str
    identifier: Identifier | None
    renamed_from: Identifier | None
    format: Format | None
    details: tuple[str, ...]
    committed_at_ms: int
    source: Source


def commit_key(metadata_location: str, registration: str = "") -> str:
    """The id of a receipt: the file that became current and, for a registered file, which registration it was."""
    named = f"{metadata_location}\n{registration}" if registration else metadata_location
    return hashlib.sha256(named.encode()).hexdigest()


def commit_key_of(head: Head) -> str:
    return commit_key(head.metadata_location, head.registration)


def tried_of(head: Head) -> AttemptedFile:
    return AttemptedFile(head.metadata_location, head.last_updated_ms, head.registration)


def receipt_key(layout: Layout, tried: AttemptedFile) -> str:
    """The key of a receipt. Its date is the time of the metadata, never the time of writing."""
    key = commit_key(tried.metadata_location, tried.registration)
    return layout.receipt(receipt_date(tried.last_updated_ms), "iceberg", key)


def receipt_of(table_uuid: str, head: Head) -> Receipt:
    key = commit_key_of(head)
    return Receipt(
        event_id=uuid_v7(head.last_updated_ms, int(key, 16)),
        commit_key=key,
        table_uuid=table_uuid,
        metadata_location=head.metadata_location,
        previous_metadata_location=head.previous_metadata_location,
        previous_commit_key=head.previous_commit_key,
        snapshot_id=head.snapshot_id,
        operation=head.operation,
        metadata_version=head.metadata_version,
        last_sequence_number=head.last_sequence_number,
        committed_at_ms=head.last_updated_ms,
        source=head.source,
        refs=head.refs,
        spec_id=msgspec.UNSET if head.spec_id is None else head.spec_id,
    )


def head_in(receipt: Receipt) -> Head:
    """The head that a receipt proves, without its registration, which a receipt does not keep."""
    return Head(
        metadata_location=receipt.metadata_location,
        last_updated_ms=receipt.committed_at_ms,
        metadata_version=receipt.metadata_version,
        previous_metadata_location=receipt.previous_metadata_location,
        previous_commit_key=receipt.previous_commit_key,
        snapshot_id=receipt.snapshot_id,
        operation=receipt.operation,
        last_sequence_number=receipt.last_sequence_number,
        refs={} if receipt.refs is msgspec.UNSET else receipt.refs,
        spec_id=None if receipt.spec_id is msgspec.UNSET else receipt.spec_id,
        source=receipt.source,
    )


def delta_commit_key(table_uuid: str, version: int, file_name: str) -> str:
    """The id of a Delta receipt: the table, the version, and the file that became the version."""
    return hashlib.sha256(f"{table_uuid}\n{version}\n{file_name}".encode()).hexdigest()


def first_delta_commit(table: DeltaTable) -> DeltaCommit:
    """Version 0, which the creator of the table writes as a published file."""
    return DeltaCommit(
        version=0,
        timestamp_ms=table.created_ms,
        file_name="",
        file_size=0,
        file_modified_ms=0,
        source=table.created_source or _source_of_older(table),
    )


def _source_of_older(table: DeltaTable) -> Source:
    """The source of a table whose record an older release wrote, which kept no more than the name."""
    return Source(kind="rest", principal=table.created_by) if table.created_by else Source()


def delta_receipt_of(table: DeltaTable, commit: DeltaCommit) -> DeltaReceipt:
    key = delta_commit_key(table.uuid, commit.version, commit.file_name)
    return DeltaReceipt(
        event_id=uuid_v7(commit.timestamp_ms, int(key, 16)),
        commit_key=key,
        table_uuid=table.uuid,
        table_location=table.location,
        version=commit.version,
        file_name=commit.file_name,
        file_size=commit.file_size,
        previous_commit_key=commit.previous_commit_key,
        committed_at_ms=commit.timestamp_ms,
        source=commit.source,
    )


def delta_receipt_key(layout: Layout, receipt: DeltaReceipt) -> str:
    """The key of a Delta receipt. Its date is the time of the commit, never the time of writing."""
    return layout.receipt(receipt_date(receipt.committed_at_ms), "delta", receipt.commit_key)


async def read_delta_receipt(lake: Lake, key: str, committed_at_ms: int) -> DeltaReceipt | None:
    """The receipt of a Delta commit with that id, made at that time; None if it is missing."""
    stored = await lake.store.get(lake.layout.receipt(receipt_date(committed_at_ms), "delta", key))
    return msgspec.json.decode(stored.data, type=DeltaReceipt) if stored else None


def receipt_of_event(event: CatalogEvent) -> CatalogReceipt:
    key = commit_key_of_event(event)
    return CatalogReceipt(
        event_id=uuid_v7(event.at_ms, int(key, 16)),
        commit_key=key,
        previous_commit_key=event.previous,
        kind=event.kind,
        object_type=event.object_type,
        object_id=event.object_id,
        identifier=event.identifier,
        renamed_from=event.renamed_from,
        format=event.format,
        details=event.details,
        committed_at_ms=event.at_ms,
        source=event.source,
    )


def catalog_receipt_key(layout: Layout, receipt: CatalogReceipt) -> str:
    """The key of the receipt of an event. Its date is the time of the change, never the time of writing."""
    return layout.receipt(receipt_date(receipt.committed_at_ms), "catalog", receipt.commit_key)


def receipt_date(time_ms: int) -> str:
    """The date under which the receipt of a change at that time is kept."""
    # A file that another catalog wrote may carry any number as its time.
    day = min(max(time_ms, 0), _LAST_DAY_MS) // _DAY_MS
    return (_FIRST_DAY + dt.timedelta(days=day)).isoformat()


def receipt_of_key(layout: Layout, key: str) -> str:
    """The name of an object key in the feed's entries."""
    return key.removeprefix(layout.events_folder())


def date_of(receipt: str) -> str:
    """The date with which the name of a receipt begins."""
    return receipt.partition("/")[0]


def by_date(receipts: Sequence[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for receipt in receipts:
        found.setdefault(date_of(receipt), []).append(receipt)
    return found


async def list_dates(store: ObjectStore, folder: str) -> AsyncIterator[tuple[str, Sequence[str]]]:
    """Every date in a folder with the names of its objects, in order; the names begin with the date."""
    date, receipts = "", list[str]()
    async for page in list_pages(store, folder, limit=LISTED_AT_ONCE):
        for receipt in (listed.key[len(folder) :] for listed in page):
            if receipt.partition("/")[0] != date:
                if receipts:
                    yield date, receipts
                date, receipts = receipt.partition("/")[0], []
            receipts.append(receipt)
    if receipts:
        yield date, receipts


class WrittenReceipts:
    """Tells the reader of the feed in this process which receipts this process wrote, so that it need not poll."""

    def __init__(self, _lake: Lake) -> None:
        self.listener: Callable[[str], None] | None = None

    def note(self, key: str) -> None:
        if self.listener:
            self.listener(key)


class _ReceiptWriter:
    """Writes receipts once. `known` caches which ones exist; a receipt is never deleted by an operation."""

    def __init__(self, lake: Lake) -> None:
        self._written = lake.feature(WrittenReceipts)
        self._store = lake.store
        self._layout = lake.layout
        self._known = LruCache[str, bool](_KNOWN_MAX)

    async def _write(self, key: str, receipt: Receipt | DeltaReceipt | CatalogReceipt) -> None:
        # A lost swap means that the receipt exists: the commit itself or another successor wrote it.
        with contextlib.suppress(SwapLost):
            await self._store.put(key, msgspec.json.encode(receipt), expected=ABSENT)
            self._written.note(key)
        self._known[receipt.commit_key] = True


class Receipts(_ReceiptWriter):
    """The receipts of Iceberg tables and views in one lake."""

    async def ensure(self, table_uuid: str, head: Head) -> None:
        """C5 (help): when this returns, the receipt exists; any failure is raised."""
        if commit_key_of(head) not in self._known:
            await self._write(receipt_key(self._layout, tried_of(head)), receipt_of(table_uuid, head))

    async def ensure_all(self, pointer: Pointer) -> None:
        """C5 (help), B4: as `ensure`, for the head of a pointer and all commits that its last swap passed.

        Called before a swap moves the head. The caller knows that the head counts.
        """
        if pointer.head:
            await self.ensure(pointer.table_uuid, pointer.head)
        if pointer.passed:
            await gather_all(self.ensure(pointer.table_uuid, head) for head in pointer.passed)

    def is_known(self, tried: AttemptedFile) -> bool:
        """Whether the receipt is known to exist, without asking the store."""
        return commit_key(tried.metadata_location, tried.registration) in self._known

    async def exists(self, tried: AttemptedFile) -> bool:
        if self.is_known(tried):
            return True
        return await self._store.head(receipt_key(self._layout, tried)) is not None


class DeltaReceipts(_ReceiptWriter):
    """The receipts of Delta tables in one lake."""

    async def ensure(self, table: DeltaTable, commit: DeltaCommit) -> None:
        """When this returns, the receipt exists; any failure is raised."""
        if delta_commit_key(table.uuid, commit.version, commit.file_name) not in self._known:
            receipt = delta_receipt_of(table, commit)
            await self._write(delta_receipt_key(self._layout, receipt), receipt)

    def are_known(self, table: DeltaTable, commits: Iterable[DeltaCommit]) -> bool:
        """Whether all of these receipts are known to exist, without asking the store."""
        return all(delta_commit_key(table.uuid, one.version, one.file_name) in self._known for one in commits)


class CatalogReceipts(_ReceiptWriter):
    """The receipts of the catalog's own events in one lake."""

    async def ensure(self, event: CatalogEvent | None) -> None:
        """E2: when this returns, the receipt exists; any failure is raised. None is a record without an event.

        The caller knows that the event happened (E3).
        """
        if event is not None and not self.is_known(event):
            receipt = receipt_of_event(event)
            await self._write(catalog_receipt_key(self._layout, receipt), receipt)

    def is_known(self, event: CatalogEvent) -> bool:
        """Whether the receipt is known to exist, without asking the store."""
        return commit_key_of_event(event) in self._known

    async def exists(self, object_id: str, tried: AttemptedEvent) -> bool:
        """E7: whether an event that an attempt tried to write happened, if no record shows it any more."""
        key = event_commit_key(object_id, tried.id)
        if key in self._known:
            return True
        return await self._store.head(self._layout.receipt(receipt_date(tried.at_ms), "catalog", key)) is not None
