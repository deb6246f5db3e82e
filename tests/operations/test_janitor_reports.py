"""Reports of engines are kept for a month, and receipts of attempts for a day."""

from sandur.operations.janitors.leftovers import COMMITTED_RECEIPTS, PENDING_RECEIPTS
from sandur.operations.janitors.sweep import DAY_MS, sweep
from sandur.operations.tables.reports import report_metrics
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import Shore
from tests.operations.requests import called, create, request

REPORT = b'{"report-type": "scan-report"}'


async def test_a_report_is_deleted_after_a_month() -> None:
    shore = await Shore.furnished()
    server = shore.server()
    await create(server, "t")
    folder = server.layout.operational_folder("metrics")
    await report_metrics(server, called("t"), REPORT, request("report"))
    shore.clock.advance(30 * DAY_MS - 1)
    await report_metrics(server, called("t"), REPORT, request("another"))

    await shore.sweep()
    young = await shore.keys(folder)
    shore.clock.advance(1)
    swept = await shore.sweep()

    assert len(young) == 2
    assert swept["reports_removed"] == 1
    assert await shore.keys(folder) == young[1:]
    assert shore.trouble == []


async def test_a_pending_receipt_is_deleted_after_a_day_and_a_committed_one_stays() -> None:
    shore = await Shore.furnished()
    server = shore.server()
    await create(server, "t")
    (committed,) = await shore.keys(server.layout.events_folder())
    pending = server.layout.receipt("2026-01-01", "iceberg", "pending", "ab" * 32)
    await server.store.put(pending, b"{}", expected=ABSENT)
    shore.clock.advance(DAY_MS)

    await sweep(shore.server(), PENDING_RECEIPTS, position="", on_error=shore.trouble)
    after_a_day = await shore.keys(server.layout.events_folder())
    await sweep(shore.server(), COMMITTED_RECEIPTS, position="", on_error=shore.trouble)
    young = await shore.keys(server.layout.events_folder())
    shore.clock.advance(89 * DAY_MS)
    await sweep(shore.server(), COMMITTED_RECEIPTS, position="", on_error=shore.trouble)

    assert after_a_day == young == [committed]
    assert await shore.keys(server.layout.events_folder()) == []
    assert shore.trouble == []
