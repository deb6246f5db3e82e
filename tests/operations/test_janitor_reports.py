"""Reports of engines are kept for a month, and receipts of attempts for a day."""

from sandur.operations.janitors.leftovers import COMMITTED_RECEIPTS, PENDING_RECEIPTS
from sandur.operations.janitors.sweep import DAY_MS, sweep
from sandur.operations.tables.reports import report_metrics
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import create, identifier_of, request

REPORT = b'{"report-type": "scan-report"}'


async def test_a_report_is_deleted_after_a_month() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    folder = server.layout.operational_folder("metrics")
    await report_metrics(server, identifier_of("t"), REPORT, request("report"))
    cluster.clock.advance(30 * DAY_MS - 1)
    await report_metrics(server, identifier_of("t"), REPORT, request("another"))

    await cluster.sweep()
    young = await cluster.keys(folder)
    cluster.clock.advance(1)
    swept = await cluster.sweep()

    assert len(young) == 2
    assert swept["reports_removed"] == 1
    assert await cluster.keys(folder) == young[1:]
    assert cluster.errors == []


async def test_a_pending_receipt_is_deleted_after_a_day_and_a_committed_one_stays() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    (committed,) = await cluster.keys(server.layout.events_folder())
    pending = server.layout.receipt("2026-01-01", "iceberg", "pending", "ab" * 32)
    await server.store.put(pending, b"{}", expected=ABSENT)
    cluster.clock.advance(DAY_MS)

    await sweep(cluster.server(), PENDING_RECEIPTS, position="", on_error=cluster.errors)
    after_a_day = await cluster.keys(server.layout.events_folder())
    await sweep(cluster.server(), COMMITTED_RECEIPTS, position="", on_error=cluster.errors)
    young = await cluster.keys(server.layout.events_folder())
    cluster.clock.advance(89 * DAY_MS)
    await sweep(cluster.server(), COMMITTED_RECEIPTS, position="", on_error=cluster.errors)

    assert after_a_day == young == [committed]
    assert await cluster.keys(server.layout.events_folder()) == []
    assert cluster.errors == []
