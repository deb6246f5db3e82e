"""Keep the scan and commit reports that engines send."""

from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request, Source
from sandur.errors import BadRequest
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import TABLES
from sandur.operations.tables.names import resolve_name
from sandur.storage.contract import ABSENT

REPORT_BYTES_MAX: Final = 1 << 20


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report as it is stored: its table, its time and source, and the bytes that the engine sent."""

    id: str
    table_uuid: str
    identifier: Identifier
    report_type: str
    received_ms: int
    source: Source
    report: msgspec.Raw


class _Body(msgspec.Struct, frozen=True, rename="kebab"):
    report_type: str


async def report_metrics(lake: Lake, identifier: Identifier, report: bytes, request: Request) -> None:
    """Store a report of a table that exists, of any type. A report that is too large is ignored."""
    try:
        body = msgspec.json.decode(report, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"metrics report of {identifier}: cannot be decoded: {error}") from error
    found = await resolve_name(lake, identifier)
    if found is None or not found.is_a("table"):
        raise TABLES.missing(identifier)
    if len(report) > REPORT_BYTES_MAX:
        return
    report_id = lake.clock.new_id()
    kept = Report(
        id=report_id,
        table_uuid=found.pointer.value.table_uuid,
        identifier=identifier,
        report_type=body.report_type,
        received_ms=lake.clock.now_ms(),
        source=request.source,
        report=msgspec.Raw(report),
    )
    key = lake.layout.operational("metrics", report_id)
    await lake.store.put(key, msgspec.json.encode(kept), expected=ABSENT)
