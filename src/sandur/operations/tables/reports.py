"""The scan and commit reports that engines send about a table."""

import asyncio
from typing import Final

import msgspec

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request
from sandur.errors import BadRequest, Unavailable
from sandur.operations.access import resolve_authorized
from sandur.operations.lake import Lake
from sandur.operations.tables.names import name_not_found
from sandur.splicing import NOT_JSON
from sandur.storage.contract import ABSENT

REPORT_BYTES_MAX: Final = 1 << 20
REPORT_SECONDS_MAX: Final = 5.0
DELTA_COMMIT_REPORT: Final = "delta-commit-report"
"""The type of reports that come through the Delta API, which gives them no type."""


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


async def report_metrics(
    lake: Lake,
    identifier: Identifier,
    report: bytes,
    request: Request,
    *,
    within_seconds: float = REPORT_SECONDS_MAX,
) -> None:
    """Store a report of a table that exists, of any type. A report that is too large is ignored.

    No client should wait for the retries of a store that does not answer: after the time, the report is dropped and
    Unavailable is raised.
    """
    try:
        async with asyncio.timeout(within_seconds):
            await _store_report(lake, identifier, report, request)
    except TimeoutError:
        raise Unavailable(
            f"metrics report of {identifier}: dropped, because the store did not answer within {within_seconds:g} s"
        ) from None


async def _store_report(lake: Lake, identifier: Identifier, report: bytes, request: Request) -> None:
    try:
        body = msgspec.json.decode(report, type=_Body)
    except NOT_JSON as error:
        raise BadRequest(f"metrics report of {identifier}: cannot be decoded: {error}") from error
    missing = name_not_found(identifier, "table")
    found = await resolve_authorized(lake, identifier, lambda found: found.is_a("table"), missing=missing)
    await keep_report(lake, identifier, found.pointer.value.table_uuid, body.report_type, report, request)


async def keep_report(
    lake: Lake, identifier: Identifier, table_uuid: str, report_type: str, report: bytes, request: Request
) -> None:
    """Store a report of a table that the caller may report about. A report that is too large is ignored."""
    if len(report) > REPORT_BYTES_MAX:
        return
    report_id = lake.clock.new_id()
    kept = Report(
        id=report_id,
        table_uuid=table_uuid,
        identifier=identifier,
        report_type=report_type,
        received_ms=lake.clock.now_ms(),
        source=request.source,
        report=msgspec.Raw(report),
    )
    key = lake.layout.operational("metrics", report_id)
    await lake.store.put(key, msgspec.json.encode(kept), expected=ABSENT)
