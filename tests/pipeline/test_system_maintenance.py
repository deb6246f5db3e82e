"""System tables are maintained as every other table, by a default policy, and the pipeline goes on from there."""

import pytest
from pyspark.sql import SparkSession

from sandur.catalog.identifiers import Identifier
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.maintenance.planning import plan_run
from sandur.operations.published import PublishedDatasets
from sandur.operations.tables.documents import current_document
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.jobs.project import PROJECT
from tests.pipeline.maintained import connected, maintained, make_small_files, opener, set_policy
from tests.pipeline.test_compact import system_table
from tests.pipeline.test_maintenance_under_load import LaterClock
from tests.pipeline.world import World

COMMITS = "main.system.commits"


def metadata_of(world: World) -> TableMetadata:
    return world.wait(current_document(world.lake, Identifier("main", ("system",), "commits"))).metadata


def total_files(world: World) -> str:
    snapshot = metadata_of(world).current_snapshot
    assert snapshot
    return (snapshot.summary or {})["total-data-files"]


def published_files(world: World) -> int:
    return len(world.wait(PublishedDatasets(world.lake).manifest()).datasets["commits"].files)


def commit_keys(rows: list[dict[str, object]]) -> list[str]:
    return sorted(str(row["commit_key"]) for row in rows)


def publish(world: World, spark: SparkSession, times: int) -> None:
    """Each time adds a small file to the system table of commits."""
    for _ in range(times):
        world.set_property("orders", str(world.lake.clock.now_ms()))
        world.run(spark, COMPACT)


def check_content(world: World, spark: SparkSession) -> None:
    published = world.dataset(spark, "commits")
    assert commit_keys(system_table(world, "commits")) == commit_keys(published)


@pytest.mark.timeout(600)
def test_a_rewritten_system_table_keeps_its_rows_and_grows_on(world: World, spark: SparkSession) -> None:
    world.make("orders")
    publish(world, spark, 4)
    with connected(world) as catalog:
        make_small_files(catalog, "report", 6)  # No policy lets maintenance change tables of users.
    eager = {"compaction": {"min_input_files": 3}, "snapshots": {"min_expired": 1, "min_to_keep": 1}}
    set_policy(world, eager, COMMITS)
    assert total_files(world) == "4"
    before, published = commit_keys(system_table(world, "commits")), published_files(world)

    maintained(world, spark)

    assert total_files(world) == "1"
    assert commit_keys(system_table(world, "commits")) == before
    done = [row for row in world.dataset(spark, "maintenance") if row["state"] == "done"]
    assert [(row["namespace"], row["name"], row["operation"]) for row in done] == [("system", "commits", "compaction")]
    assert (done[0]["files_before"], done[0]["files_after"], done[0]["rows_after"]) == (4, 1, len(before))

    publish(world, spark, 1)

    # What was rewritten is not copied again. A run publishes a file or more, by the entries of the feed that it reads.
    assert total_files(world) == str(1 + published_files(world) - published)
    check_content(world, spark)

    clock = LaterClock()
    for job in (PROJECT, HEALTH):
        world.run(spark, job, clock=clock)
    world.run(spark, MAINTAIN, open_catalog=opener(world), clock=clock)
    left = metadata_of(world)
    world.run(spark, COMPACT)
    publish(world, spark, 1)

    operations = {row["operation"]: row["state"] for row in world.dataset(spark, "maintenance")}
    assert operations == {"compaction": "done", "snapshots": "done"}
    assert len(left.snapshots) == 1
    check_content(world, spark)


def test_a_session_that_cannot_maintain_tables_leaves_system_tables_alone(world: World, spark: SparkSession) -> None:
    world.make("orders")
    publish(world, spark, 3)
    set_policy(world, {"compaction": {"min_input_files": 2}}, COMMITS)
    for job in (PROJECT, HEALTH):
        world.run(spark, job)

    able = world.wait(plan_run(world.lake, within=COMMITS))
    unable = world.wait(plan_run(world.lake, within=COMMITS, refuses_own="Spark has no Iceberg"))

    assert [one.operation for one in able.plan.work] == ["compaction"]
    assert (unable.plan.work, [one.reason for one in unable.plan.skipped]) == ([], ["Spark has no Iceberg"])
