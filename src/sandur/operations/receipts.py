"""Receipts: the proof of each commit, derived from the pointer alone, one unbroken chain per table."""

import contextlib
import datetime as dt
import hashlib
from collections.abc import Iterable, MutableMapping
from typing import Final, Literal

import msgspec

from sandur.catalog.records import AttemptedFile, DeltaCommit, DeltaTable, Head
from sandur.catalog.sources import Source
from sandur.clock import uuid_v7
from sandur.errors import SwapLost
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout

_DAY_MS: Final = 86_400_000
_FIRST_DAY: Final = dt.date(1970, 1, 1)
_LAST_DAY_MS: Final = (dt.date(9999, 12, 31) - _FIRST_DAY).days * _DAY_MS


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a metadata file became the head of a table, as the pointer said when it did.

    Every field is derived from the head, so that the commit, its successor (C5) and a repair write the same object.
    `previous_commit_key` is that of the receipt before, absent on the first: the receipts of a table are one chain.
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


def commit_key(metadata_location: str, registration: str = "") -> str:
    """What identifies a receipt: the file that became current, and for one that was registered, which time it was."""
    named = f"{metadata_location}\n{registration}" if registration else metadata_location
    return hashlib.sha256(named.encode()).hexdigest()


def commit_key_of(head: Head) -> str:
    return commit_key(head.metadata_location, head.registration)


def receipt_key(layout: Layout, tried: AttemptedFile) -> str:
    """Where the receipt of a metadata file lies: its date is that of the metadata, never that of the writing."""
    # A file written elsewhere may carry any number as its time.
    day = min(max(tried.last_updated_ms, 0), _LAST_DAY_MS) // _DAY_MS
    date = (_FIRST_DAY + dt.timedelta(days=day)).isoformat()
    key = commit_key(tried.metadata_location, tried.registration)
    return layout.receipt(date, "iceberg", "committed", key)


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
    )


class Receipts:
    """The receipts of one workspace. `known` remembers which are certain to exist; receipts are never taken back."""

    def __init__(self, store: ObjectStore, layout: Layout, known: MutableMapping[str, bool]) -> None:
        self._store = store
        self._layout = layout
        self._known = known

    async def ensure(self, table_uuid: str, head: Head) -> None:
        """C5 (help): when this returns, the receipt exists; whatever else happens is raised."""
        key = receipt_key(self._layout, tried_of(head))
        if key in self._known:
            return
        # A lost swap means: written already, by the commit itself or by another successor.
        with contextlib.suppress(SwapLost):
            await self._store.put(key, msgspec.json.encode(receipt_of(table_uuid, head)), expected=ABSENT)
        self._known[key] = True

    async def exists(self, tried: AttemptedFile) -> bool:
        key = receipt_key(self._layout, tried)
        return key in self._known or await self._store.head(key) is not None


def tried_of(head: Head) -> AttemptedFile:
    return AttemptedFile(head.metadata_location, head.last_updated_ms, head.registration)


class DeltaReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a version of a Delta table was accepted. `file_name` is that of the staged file; empty for version 0.

    Every field is derived from the table's record, so that the commit and a repair write the same object.
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


def delta_commit_key(table_uuid: str, version: int, file_name: str) -> str:
    """What identifies a receipt: the table, the version and the file that became it."""
    return hashlib.sha256(f"{table_uuid}\n{version}\n{file_name}".encode()).hexdigest()


def first_delta_commit(table: DeltaTable) -> DeltaCommit:
    """Version 0, which its creator wrote as the published file."""
    return DeltaCommit(
        version=0,
        timestamp_ms=table.created_ms,
        file_name="",
        file_size=0,
        file_modified_ms=0,
        source=Source(kind="rest", principal=table.created_by) if table.created_by else Source(),
    )


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
    """Where a receipt lies: its date is that of the commit, never that of the writing."""
    day = min(max(receipt.committed_at_ms, 0), _LAST_DAY_MS) // _DAY_MS
    date = (_FIRST_DAY + dt.timedelta(days=day)).isoformat()
    return layout.receipt(date, "delta", "committed", receipt.commit_key)


class DeltaReceipts:
    """The receipts of one workspace. `known` remembers which are certain to exist; receipts are never taken back."""

    def __init__(self, store: ObjectStore, layout: Layout, known: MutableMapping[str, bool]) -> None:
        self._store = store
        self._layout = layout
        self._known = known

    async def ensure(self, table: DeltaTable, commit: DeltaCommit) -> None:
        """When this returns the receipt exists; whatever else happens is raised."""
        receipt = delta_receipt_of(table, commit)
        if receipt.commit_key in self._known:
            return
        # A lost swap means: written already, by the commit itself or by a successor.
        with contextlib.suppress(SwapLost):
            await self._store.put(
                delta_receipt_key(self._layout, receipt), msgspec.json.encode(receipt), expected=ABSENT
            )
        self._known[receipt.commit_key] = True

    def are_known(self, table: DeltaTable, commits: Iterable[DeltaCommit]) -> bool:
        """Whether all of them are certain to exist, without asking."""
        return all(delta_commit_key(table.uuid, one.version, one.file_name) in self._known for one in commits)
