"""Delta tables are compacted: managed ones through the catalog, by Delta's own classes and without Unity Catalog's
connector; external ones by OPTIMIZE. What a killed run left is settled from the log.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import Operation
from sandur.catalog.maintenance.policies import Compaction, Orphans, Policy
from sandur.catalog.maintenance.records import OperationRecord, OperationResult, RunPlan
from sandur.catalog.records import DeltaTable
from sandur.cli.catalog_server import open_catalog
from sandur.operations.delta.versions import delta_history
from sandur.operations.maintenance.delta_files import DeltaFiles
from sandur.operations.maintenance.orphans import OrphanRemoval, Outcome
from sandur.operations.maintenance.runs import RunRecords, list_runs
from sandur.pipeline.maintenance.delta import DeltaMaintenance
from sandur.pipeline.maintenance.engine import Engine
from sandur.pipeline.maintenance.settle import settle_runs
from sandur.settings import Settings
from tests.pipeline.delta_tables import (
    DeltaOnSpark,
    append_file,
    create_table,
    files_by_kernel,
    health_of,
    record_of,
    register_by_delta_rs,
    rows_by_delta_rs,
)
from tests.pipeline.maintained import EAGER, maintained, set_policy
from tests.pipeline.world import World, identifier_of

pytestmark = pytest.mark.timeout(1_800)

LONG_AGO_S = 1_700_000_000


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return tmp_path / "outside" / "clicks"


@pytest.fixture
def open_world(tmp_path: Path, outside: Path) -> Iterator[World]:
    """A store whose catalog may have external tables beside it."""
    settings = Settings(store=str(tmp_path / "store"), fsync="never", allowed_locations=(outside.parent.as_uri(),))
    with World(settings) as made:
        yield made


def _compacted(world: World, spark: SparkSession, run: str, policy: Compaction | None = None) -> OperationResult:
    """One compaction, with a server of its own, as every run has."""
    health = health_of(record_of(world, "clicks"), "clicks")
    with open_catalog(world.settings, run) as connection:
        maintenance = DeltaMaintenance(Engine(spark, connection, run), run)
        return maintenance.perform(world.blocking, health, Policy(compaction=policy or Compaction()), "compaction")


def _files(result: OperationResult) -> tuple[str, int | None, int | None, int | None, int | None]:
    before, after = result.before, result.after
    return result.state, before.files, after.files, before.rows, after.rows


def test_small_files_of_a_managed_delta_table_become_one_in_every_run(world: World, spark: SparkSession) -> None:
    """Runs in one JVM have different servers: nothing that Delta caches may lead to the server of an earlier run."""
    with open_catalog(world.settings) as connection:
        create_table(spark, connection, "clicks")
    results = []
    for run in ("run-1", "run-2"):
        for number in range(3):
            append_file(world, "clicks", [number, 10 + number])
        results.append(_compacted(world, spark, run))

    table = record_of(world, "clicks")
    with open_catalog(world.settings) as connection:
        files = list(files_by_kernel(spark, connection, table, "clicks"))

    assert list(map(_files, results)) == [("done", 3, 1, 6, 6), ("done", 4, 1, 12, 12)]
    (file,) = files
    assert sorted(pq.read_table(file).column("id").to_pylist()) == sorted([*range(3), *range(10, 13)] * 2)
    rows = world.wait(delta_history(world.lake, table, limit=20))
    by_runs = [(row.version, row.operation, row.run_id, row.source) for row in rows if row.run_id]
    assert by_runs == [(8, "optimize", "run-2", "pipeline"), (4, "optimize", "run-1", "pipeline")]


SHAPES = {
    "plain": "",
    "row tracking": "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "partitioned": "PARTITIONED BY (part)",
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_row_ids_and_old_versions_stay_whatever_writers_did_before(
    world: World, spark: SparkSession, shape: str
) -> None:
    """Appends, a DELETE by deletion vectors and a MERGE by Delta on Spark, then the whole job."""
    columns = ["id", "text", "part"]
    if shape == "row tracking":
        columns += ["_metadata.row_id", "_metadata.row_commit_version"]
    with open_catalog(world.settings) as connection:
        create_table(spark, connection, "clicks", "id BIGINT, text STRING, part STRING", SHAPES[shape])
        writer = DeltaOnSpark(world, spark, connection, "clicks")
        for number in range(4):
            first = number * 10
            values = "CAST(id AS BIGINT) id, concat('row ', id) text, IF(id % 2 = 0, 'a', 'b') part"
            writer.append(f"SELECT {values} FROM range({first}, {first + 10})")  # noqa: S608 - numbers
        writer.delete("id IN (3, 4, 13)")
        writer.merge("SELECT 5L id, 'merged' text, 'b' part UNION ALL SELECT 1000L, 'new', NULL")
        before = writer.rows(*columns)
    set_policy(world, EAGER)

    report = maintained(world, spark)

    with open_catalog(world.settings) as connection:
        reader = DeltaOnSpark(world, spark, connection, "clicks")
        assert reader.rows(*columns) == before
        reader.delete("id = 1000")
        reader.append("SELECT 2000L id, 'after' text, 'a' part")
        assert len(reader.rows()) == len(before)
    rows = [row for row in world.dataset(spark, "maintenance") if row["operation"] == "compaction"]
    assert [(row["state"], row["rows_before"], row["rows_after"]) for row in rows] == [
        ("done", len(before), len(before))
    ]
    assert rows[0]["files_after"] <= {"partitioned": 3}.get(shape, 1) < rows[0]["files_before"]
    assert report.counts["operations_done"] >= 1


def _operations(world: World, spark: SparkSession, operation: Operation = "compaction") -> list[dict[str, Any]]:
    return [row for row in world.dataset(spark, "maintenance") if row["operation"] == operation]


def test_an_external_table_of_delta_rs_is_measured_from_its_log_and_compacted(
    open_world: World, spark: SparkSession, outside: Path
) -> None:
    """Its writer tells the catalog no versions, and writes no checksums."""
    register_by_delta_rs(open_world, outside, "clicks", 6)
    before = rows_by_delta_rs(outside)
    set_policy(open_world, {**EAGER, "delta": {"vacuum": False}})

    maintained(open_world, spark)

    (health,) = [row for row in open_world.dataset(spark, "table_health") if row["name"] == "clicks"]
    assert (health["data_files"], health["small_files"], health["excess_files"]) == (6, 6, 5)
    assert rows_by_delta_rs(outside) == before
    assert len(deltalake.DeltaTable(outside).file_uris()) == 1
    (row,) = _operations(open_world, spark)
    assert (row["state"], row["files_before"], row["files_after"]) == ("done", 6, 1)
    assert (row["rows_before"], row["rows_after"]) == (12, 12)

    with_checksum = maintained(open_world, spark)  # Spark wrote one beside its commit.

    (health,) = [row for row in open_world.dataset(spark, "table_health") if row["name"] == "clicks"]
    assert list((outside / "_delta_log").glob("*.crc"))
    assert (health["data_files"], health["excess_files"]) == (1, 0)
    assert with_checksum.counts["operations_planned"] == 0


def test_an_external_table_whose_log_has_a_checkpoint_is_compacted(
    open_world: World, spark: SparkSession, outside: Path
) -> None:
    register_by_delta_rs(open_world, outside, "clicks", 4)
    deltalake.DeltaTable(outside).create_checkpoint()
    set_policy(open_world, {**EAGER, "delta": {"vacuum": False}})

    report = maintained(open_world, spark)

    assert report.warnings == ()
    assert len(deltalake.DeltaTable(outside).file_uris()) == 1


def test_a_table_that_was_committed_to_after_it_was_measured_is_left_alone_until_it_is_quiet(
    open_world: World, spark: SparkSession, outside: Path
) -> None:
    register_by_delta_rs(open_world, outside, "clicks", 6)
    set_policy(open_world, {**EAGER, "quiet": "PT1H"})

    report = maintained(open_world, spark)

    assert report.counts["operations_planned"] == 0
    (health,) = [row for row in open_world.dataset(spark, "table_health") if row["name"] == "clicks"]
    newest = outside / "_delta_log" / f"{5:020d}.json"
    assert health["last_commit_at"].timestamp() == pytest.approx(newest.stat().st_mtime, abs=0.002)


def test_a_managed_table_gets_its_commits_published_and_a_checkpoint(world: World, spark: SparkSession) -> None:
    with open_catalog(world.settings) as connection:
        create_table(spark, connection, "clicks")
    for number in range(3):
        append_file(world, "clicks", [number])
    set_policy(world, {**EAGER, "compaction": {"enabled": False}, "delta": {"checkpoint_interval": 2, "vacuum": False}})

    maintained(world, spark)

    table = record_of(world, "clicks")
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    assert {row["operation"]: row["state"] for row in world.dataset(spark, "maintenance")} == {
        "checkpoint": "done",
        "publish": "done",
    }
    assert table.published == table.last_version == 3
    assert all((log / f"{version:020d}.json").exists() for version in range(4))
    assert list(log.glob(f"{3:020d}.checkpoint*.parquet"))
    with open_catalog(world.settings) as connection:
        assert [row[0] for row in DeltaOnSpark(world, spark, connection, "clicks").rows("id")] == [0, 1, 2]


def test_engines_read_and_write_a_managed_table_whose_old_log_files_went_with_vacuum(
    world: World, spark: SparkSession
) -> None:
    """The versions from the last old checkpoint on can still be read."""
    with open_catalog(world.settings) as connection:
        create_table(spark, connection, "clicks")
    set_policy(world, {**EAGER, "compaction": {"enabled": False}, "delta": {"checkpoint_interval": 3, "vacuum": False}})
    for number in range(8):
        append_file(world, "clicks", [number])
        if number in {2, 6}:
            maintained(world, spark)
    table = record_of(world, "clicks")
    folder = Path(table.location.removeprefix("file://"))
    for file in (folder / "_delta_log").glob("0*"):
        if int(file.name[:20]) <= 5:
            os.utime(file, (LONG_AGO_S, LONG_AGO_S))

    done = _vacuum(world, table)

    left = sorted(file.name for file in (folder / "_delta_log").glob("0*.json"))
    assert (done.refusal, done.files) == ("", 3)
    assert left == [f"{one:020d}.json" for one in range(3, 8)]
    append_file(world, "clicks", [8])
    with open_catalog(world.settings) as connection:
        assert [row[0] for row in DeltaOnSpark(world, spark, connection, "clicks").rows("id")] == list(range(9))
        counts = [len(list(files_by_kernel(spark, connection, table, "clicks", version=one))) for one in (3, 4, 7)]
        with pytest.raises(Py4JJavaError, match="version 2"):
            list(files_by_kernel(spark, connection, table, "clicks", version=2))
    assert counts == [3, 4, 7]


def _vacuum(world: World, table: DeltaTable) -> Outcome:
    """Both runs of VACUUM, without the time between them."""

    async def fence() -> None:
        return

    async def both() -> Outcome:
        policy = Orphans(wait="PT0S")
        name, files = identifier_of("clicks"), DeltaFiles(world.lake, Policy())
        await OrphanRemoval(world.lake, "first", fence, files).condemn(table.uuid, name, policy)
        return await OrphanRemoval(world.lake, "second", fence, files).delete(table.uuid, name, policy)

    return world.wait(both())


def test_a_checkpoint_of_an_external_table_lets_old_log_files_go(
    open_world: World, spark: SparkSession, outside: Path
) -> None:
    """Delta keeps log files for 30 days."""
    register_by_delta_rs(open_world, outside, "clicks", 4)
    before = rows_by_delta_rs(outside)
    log = outside / "_delta_log"
    for file in log.iterdir():
        os.utime(file, (LONG_AGO_S, LONG_AGO_S))
    delta = {"checkpoint_interval": 2, "vacuum": False}
    set_policy(open_world, {**EAGER, "compaction": {"enabled": False}, "delta": delta})

    maintained(open_world, spark)

    (row,) = _operations(open_world, spark, "checkpoint")
    assert row["state"] == "done"
    assert sorted(file.name for file in log.glob("*.json")) == [f"{3:020d}.json"]
    assert list(log.glob("*.checkpoint*.parquet"))
    assert rows_by_delta_rs(outside) == before


@pytest.mark.parametrize("kind", ["managed", "external"])
def test_the_log_shows_what_became_of_an_operation_whose_run_died(
    open_world: World, spark: SparkSession, outside: Path, kind: str
) -> None:
    """Of two runs that died, one had committed and one had not."""
    if kind == "external":
        register_by_delta_rs(open_world, outside, "clicks", 4)
    else:
        with open_catalog(open_world.settings) as connection:
            create_table(spark, connection, "clicks")
        for number in range(4):
            append_file(open_world, "clicks", [number, 10 + number])
    _begun(open_world, "run-00000000", "compaction")
    _begun(open_world, "run-00000001", "compaction", "checkpoint")
    done = _compacted(open_world, spark, "run-00000001")

    runs = open_world.wait(list_runs(open_world.lake))
    settled = open_world.wait(settle_runs(open_world.lake, runs, settled_by="run-00000002"))

    assert (done.state, settled) == ("done", 3)
    (before,) = open_world.wait(RunRecords(open_world.lake, "run-00000000").ended([0]))
    after, checkpoint = open_world.wait(RunRecords(open_world.lake, "run-00000001").ended([0, 1]))
    assert (before.state, checkpoint.state) == ("failed", "failed")
    assert before.reason == "its run ended before it committed; nothing of it is visible"
    assert (after.state, after.settled_by, after.files_rewritten) == ("done", "run-00000002", 4)
    assert after.reason == "its run ended after 1 commits, which are complete"
    assert (after.after.version, after.after.files) == (done.after.version, 1)
    assert after.before.version == done.before.version
    assert after.bytes_rewritten == done.before.bytes
    assert all(run.is_over for run in open_world.wait(list_runs(open_world.lake)))


def _begun(world: World, run: str, *operations: Operation) -> None:
    """A run that recorded the start of its operations, and no end."""
    records = RunRecords(world.lake, run)
    begun = [
        OperationRecord(
            run=run,
            number=number,
            uuid=record_of(world, "clicks").uuid,
            catalog="main",
            namespace="sales",
            name="clicks",
            format="delta",
            operation=operation,
            state="running",
            started_ms=world.lake.clock.now_ms(),
        )
        for number, operation in enumerate(operations)
    ]
    world.wait(records.write_plan(RunPlan(run=run, started_ms=1, operations=tuple(begun))))
    for one in begun:
        world.wait(records.begin(one))
