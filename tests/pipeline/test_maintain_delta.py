"""Managed Delta tables are compacted through the catalog: by Delta's own classes, without Unity Catalog's connector."""

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.policies import Compaction, Policy
from sandur.catalog.maintenance.records import OperationResult
from sandur.cli.catalog_server import open_catalog
from sandur.operations.delta.versions import delta_history
from sandur.pipeline.maintenance.delta import DeltaMaintenance
from sandur.pipeline.maintenance.engine import Engine
from tests.pipeline.delta_tables import (
    DeltaOnSpark,
    append_file,
    create_table,
    files_by_kernel,
    health_of,
    record_of,
)
from tests.pipeline.maintained import EAGER, maintained, set_policy
from tests.pipeline.world import World

pytestmark = pytest.mark.timeout(1_800)


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
