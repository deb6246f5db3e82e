"""Reports of engines are kept for a month, and receipts for three."""

from sandur.operations.janitors.leftovers import COMMITTED_RECEIPTS
from sandur.operations.janitors.sweep import DAY_MS, sweep
from sandur.operations.tables.reports import report_metrics
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


async def test_a_receipt_is_deleted_after_its_retention() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    receipts = await cluster.keys(server.layout.events_folder())
    cluster.clock.advance(DAY_MS)

    await sweep(cluster.server(), COMMITTED_RECEIPTS, position="", on_error=cluster.errors)
    young = await cluster.keys(server.layout.events_folder())
    cluster.clock.advance(89 * DAY_MS)
    await sweep(cluster.server(), COMMITTED_RECEIPTS, position="", on_error=cluster.errors)

    assert len(young) == 2  # Of the commit, and of the creation.
    assert young == receipts
    assert await cluster.keys(server.layout.events_folder()) == []
    assert cluster.errors == []
