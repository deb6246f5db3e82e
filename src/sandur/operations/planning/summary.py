"""What a scan would read, counted: for people who want to know what a filter saves."""

from contextlib import aclosing
from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.iceberg.scan.manifest_list import DATA, DELETES
from sandur.iceberg.scan.requests import ScanRequest, scan_of
from sandur.operations.lake import Lake
from sandur.operations.planning.manifests import Manifests
from sandur.operations.planning.scan import Selecting
from sandur.operations.tables.load import current_document
from sandur.operations.tables.locations import allowed_roots

_DIGITS_MAX: Final = 18


class Amount(msgspec.Struct, frozen=True):
    """How much there is of one thing, and how much of it a scan reads. Without a total that is not known."""

    read: int
    total: int | None

    @property
    def pruned_share(self) -> float | None:
        return None if not self.total else 1 - self.read / self.total


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan reads of a table."""

    snapshot_id: int | None
    manifests: Amount
    files: Amount
    rows: Amount
    size_bytes: Amount
    delete_manifests: int


async def scan_summary(lake: Lake, identifier: Identifier, request: ScanRequest) -> Summary:
    """Look through everything that a scan would read of manifests, and count."""
    metadata = (await current_document(lake, identifier)).metadata
    scan = scan_of(request, metadata)
    manifests = Manifests(lake, await allowed_roots(lake, identifier.catalog))
    selecting = Selecting(scan, metadata, manifests)
    listed = await selecting.listed()
    to_open = selecting.to_open(listed)
    data = [manifest for manifest in listed if manifest.content == DATA]
    files = rows = size = 0
    async with aclosing(selecting.each(to_open.values())) as opened:
        async for manifest, columns in opened:
            chosen = selecting.selected(manifest, columns).rows
            files += len(chosen)
            rows += int(columns.numbers("record_count").values[chosen].sum())
            size += int(columns.numbers("file_size_in_bytes").values[chosen].sum())
    said = (scan.snapshot.summary or {}) if scan.snapshot else {}
    counted = [manifest.live_files for manifest in data]
    total_files = None if None in counted else sum(count or 0 for count in counted)
    return Summary(
        snapshot_id=scan.snapshot.snapshot_id if scan.snapshot else None,
        manifests=Amount(len(to_open), len(data)),
        files=_amount(files, total_files),
        rows=_amount(rows, _number(said.get("total-records"))),
        size_bytes=_amount(size, _number(said.get("total-files-size"))),
        delete_manifests=sum(manifest.content == DELETES for manifest in listed),
    )


def _amount(read: int, said: int | None) -> Amount:
    """Totals are what a writer said: one that is less than what is read is not believed."""
    return Amount(read, said if said is not None and said >= read else None)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
