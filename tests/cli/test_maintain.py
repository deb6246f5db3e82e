"""`sandur maintain` without Spark: plans, history, and the catalog server that a run starts."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandur.catalog.maintenance.records import Measure, OperationRecord, OperationResult, RunEnd, ended_record
from sandur.cli.catalog_server import open_catalog
from sandur.operations.maintenance.runs import RunRecords
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from tests.cli.commands import User


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=str(tmp_path / "store"), fsync="never")


@pytest.fixture
def connection(settings: Settings) -> Iterator[Connection]:
    with open_catalog(settings) as found:
        yield found


def test_the_server_of_a_run_serves_nobody_without_its_token(connection: Connection) -> None:
    config = f"{connection.uri}/v1/config?warehouse=main"
    sent = [{}, {"Authorization": "Bearer none"}, {"Authorization": f"Bearer {connection.token}"}]

    statuses = [httpx.get(config, headers=headers, timeout=30).status_code for headers in sent]

    assert statuses == [401, 401, 200]
    assert connection.uri.startswith("http://127.0.0.1:")


def test_what_was_done_is_printed_newest_first(user: User, settings: Settings, connection: Connection) -> None:
    del connection  # It makes the store.
    begun = OperationRecord(
        run="1",
        number=0,
        uuid="u",
        catalog="main",
        namespace="sales",
        name="orders",
        format="iceberg",
        operation="compaction",
        started_ms=1_000,
    )
    result = OperationResult(before=Measure(files=200, bytes=2_000), after=Measure(files=1, bytes=900))
    with BlockingLake(settings) as blocking:
        records = RunRecords(blocking.lake, "1")
        blocking.wait(records.end(ended_record(begun, result, now_ms=4_000)))
        blocking.wait(records.write_end(RunEnd(run="1", ended_ms=4_000)))

    shown = user.run("maintain", "--history", "--store", settings.store)
    plan = user.run("maintain", "--dry-run", "--store", settings.store)
    on_server = user.run("maintain", "--server", "http://127.0.0.1:1")

    assert shown.code == 0, shown.err
    assert "main.sales.orders\tcompaction\tdone\t200 → 1\t2,000 → 900\t3.0" in shown.out
    assert plan.out.startswith("name\toperation\treason\tscore\tcost bytes\ttask seconds\tskipped")
    assert (on_server.code, "pass --store" in on_server.err) == (1, True)
