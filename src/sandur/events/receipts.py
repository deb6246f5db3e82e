"""Receipts: proof of a commit, the same bytes whoever writes them, one unbroken chain per table."""

import contextlib
import datetime as dt
import hashlib
from collections.abc import MutableMapping
from typing import Final, Literal

import msgspec

from sandur.catalog.records import AttemptedFile, Head
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
