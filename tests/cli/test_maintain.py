"""`sandur maintain` without Spark: plans, history, and the catalog server that a run starts."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from sandur.catalog.maintenance.policies import FieldOrigin
from sandur.catalog.maintenance.records import Measure, OperationRecord, OperationResult, RunEnd, ended_record
from sandur.cli.catalog_server import open_catalog
from sandur.cli.run_jobs import RunOptions, spark_options
from sandur.clock import SystemClock
from sandur.operations.maintenance.runs import RunRecords
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from sandur.storage.locations import connect
from tests.cli.commands import User
from tests.ui.published import publish


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


def _measured(catalog: Catalog, name: str, small_files: int) -> dict[str, object]:
    """A table, and the row that the job `health` would publish."""
    table = catalog.create_table(f"sales.{name}", pa.schema({"id": pa.int64()}))
    need = {"operation": "compaction", "reason": "", "benefit_bytes": 1.0, "cost_bytes": 1.0}
    return {
        "catalog": "main",
        "namespace": "sales",
        "name": name,
        "uuid": str(table.metadata.table_uuid),
        "format": "iceberg",
        "mode": "run",
        "policy_json": msgspec.json.encode([FieldOrigin("mode", "run", "catalog main")]).decode(),
        "needs_json": json.dumps([need] if small_files > 1 else []),
        "benefit": float(small_files),
        "last_commit_ms": 1,
        "data_files": small_files,
        "small_files": small_files,
        "small_bytes": 1_000 * small_files,
        "excess_files": small_files - 1,
    }


def test_the_worst_tables_and_the_plan_are_printed_with_estimates(
    user: User, settings: Settings, connection: Connection
) -> None:
    catalog = load_catalog("sandur", type="rest", uri=connection.uri, token=connection.token, warehouse="main")
    catalog.create_namespace("sales")
    rows = [_measured(catalog, name, files) for name, files in {"clicks": 100, "orders": 200, "few": 1}.items()]
    asyncio.run(publish(connect(settings, SystemClock()), {"table_health": rows}, published_ms=1))
    assert user.run("policy", "set", "metastore", "mode=run", "--store", settings.store).code == 0

    worst = user.run("health", "--worst", "1", "--store", settings.store)
    found = user.run("health", "--worst", "20", "--store", settings.store)
    plan = user.run("maintain", "--dry-run", "--store", settings.store)

    heading = ["name", "operation", "reason", "score", "cost bytes", "data files", "mode", "skipped"]
    orders = ["main.sales.orders", "compaction", "200 small files, 199 of them can be saved"]
    clicks = ["main.sales.clicks", "compaction", "100 small files, 99 of them can be saved"]
    worse = [*orders, "0.995", "839260800", "200", "run", ""]
    better = [*clicks, "0.99", "419630400", "100", "run", ""]
    assert [line.split("\t") for line in worst.out.splitlines()] == [heading, worse]
    assert "--worst prints more than 1 lines" in worst.err
    assert [line.split("\t") for line in found.out.splitlines()] == [heading, worse, better]
    planned = [line.split("\t") for line in plan.out.splitlines()]
    assert planned[0] == ["name", "operation", "reason", "score", "cost bytes", "task seconds", "skipped"]
    assert [*orders, "0.995", "839260800", "25", ""] in planned
    assert [*clicks, "0.99", "419630400", "12", ""] in planned
    assert {line[1] for line in planned if line[0] == "main.sales.few"} == {"orphans"}


@pytest.mark.parametrize("changes", ["nothing", "system tables", "a table", "requested"])
def test_spark_loads_packages_only_if_maintenance_may_change_something(
    user: User, settings: Settings, connection: Connection, changes: str
) -> None:
    store = ("--store", settings.store)
    catalog = load_catalog("sandur", type="rest", uri=connection.uri, token=connection.token, warehouse="main")
    catalog.create_namespace("sales")
    row = _measured(catalog, "orders", 200)
    system = {**row, "namespace": "system", "name": "commits"}
    rows = [system if changes == "system tables" else {**row, "mode": "report"}]
    formats = [{"uuid": "1", "name": "a", "format": "iceberg"}, {"uuid": "2", "name": "b", "format": "delta"}]
    datasets: dict[str, list[Any]] = {"table_health": rows, "tables": formats if changes == "a table" else formats[:1]}
    asyncio.run(publish(connect(settings, SystemClock()), datasets, published_ms=1))
    done = user.run("policy", "set", "main.sales", "mode=run" if changes == "a table" else "mode=report", *store)
    assert done.code == 0, done.err
    if changes == "requested":
        assert user.run("maintain", "main.sales.orders", "--request", *store).code == 0

    packages = {
        name: spark_options(name, settings, RunOptions()).get("spark.jars.packages", "")
        for name in ("compact", "all", "maintain")
    }

    assert spark_options("maintain", settings, RunOptions(dry_run=True)) == {}
    has_iceberg = [name for name, text in packages.items() if "iceberg-spark-runtime" in text]
    assert has_iceberg == {"nothing": [], "system tables": ["maintain"]}.get(changes, ["all", "maintain"])
    assert {"delta" in packages[name] for name in has_iceberg} <= {changes == "a table"}
