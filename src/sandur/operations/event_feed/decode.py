"""Receipts of every family as events: the one decoder of receipts for readers of the feed in servers."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.event_feed.events import Event
from sandur.catalog.identifiers import Format
from sandur.clock import uuid_v7
from sandur.errors import BadRequest
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipt, DeltaReceipt, Receipt
from sandur.splicing import NOT_JSON
from sandur.storage.contract import get_many
from sandur.storage.layout import COMMITTED

_DECODED_MAX: Final = 20_000
_HASH: Final = re.compile(r"[0-9a-f]{64}\Z")


def _decoded(_lake: Lake) -> LruCache[str, Event | None]:
    """Events by receipt. A receipt never changes, and streams of several readers pass the same ones."""
    return LruCache(_DECODED_MAX)


async def read_events(lake: Lake, receipts: Sequence[str]) -> Sequence[Event | None]:
    """The events of receipts, in their order; None for a receipt that was collected, or that no release wrote."""
    cache = lake.feature(_decoded)
    missing = [receipt for receipt in receipts if receipt not in cache]
    folder = lake.layout.events_folder()
    fresh: dict[str, Event | None] = {}
    for receipt, found in zip(missing, await get_many(lake.store, [folder + one for one in missing]), strict=True):
        fresh[receipt] = decode_event(lake, folder + receipt, found.data) if found else None
        if found:
            cache[receipt] = fresh[receipt]
    return [fresh[one] if one in fresh else cache[one] for one in receipts]


def decode_event(lake: Lake, key: str, data: bytes) -> Event | None:
    """The event of a receipt; None if it is damaged, or a copy under another key, which the pipeline reports."""
    try:
        place = lake.layout.parse_receipt(key)
        decode = _DECODERS.get(place.family) if place.state == COMMITTED else None
        event = decode(data) if decode else None
    except (BadRequest, *NOT_JSON) as error:
        lake.incidents.object_damaged(key, f"is not a receipt: {error}")
        return None
    if event is None or event.commit_key != place.commit_key or not _HASH.match(event.commit_key):
        return None
    return event if event.id == uuid_v7(event.time_ms, int(event.commit_key, 16)) else None


def _iceberg_event(data: bytes) -> Event:
    receipt = msgspec.json.decode(data, type=Receipt)
    return replace(
        _commit(receipt, "iceberg"),
        version=receipt.metadata_version,
        snapshot_id=receipt.snapshot_id,
        operation=receipt.operation,
        refs={} if receipt.refs is msgspec.UNSET else receipt.refs,
    )


def _delta_event(data: bytes) -> Event:
    receipt = msgspec.json.decode(data, type=DeltaReceipt)
    return replace(_commit(receipt, "delta"), version=receipt.version, operation="" if receipt.version else "create")


def _commit(receipt: Receipt | DeltaReceipt, format_: Format) -> Event:
    return Event(
        id=receipt.event_id,
        kind="committed",
        object_type="table",
        object_id=receipt.table_uuid,
        commit_key=receipt.commit_key,
        previous=receipt.previous_commit_key,
        time_ms=receipt.committed_at_ms,
        format=format_,
        source=receipt.source,
    )


def _catalog_event(data: bytes) -> Event:
    receipt = msgspec.json.decode(data, type=CatalogReceipt)
    return Event(
        id=receipt.event_id,
        kind=receipt.kind,
        object_type=receipt.object_type,
        object_id=receipt.object_id,
        commit_key=receipt.commit_key,
        previous=receipt.previous_commit_key,
        time_ms=receipt.committed_at_ms,
        format=receipt.format,
        identifier=receipt.identifier,
        renamed_from=receipt.renamed_from,
        details=receipt.details,
        source=receipt.source,
    )


_DECODERS: Final[Mapping[str, Callable[[bytes], Event]]] = {
    "iceberg": _iceberg_event,
    "delta": _delta_event,
    "catalog": _catalog_event,
}
"""Decoders by the folder of the receipts. A receipt of a later release, in another folder, is left out."""
