"""`maintain` rewrites what policies allow, keeps every row of every state, and records what it did."""

import httpx
import pytest
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.policies import Policy
from sandur.catalog.maintenance.records import OperationRecord, RunPlan
from sandur.catalog.records import DeltaTable
from sandur.cli.catalog_server import open_catalog
from sandur.delta.requests import DeltaChange
from sandur.operations.delta.commit import update_table
from sandur.operations.maintenance.reports import load_operations, load_plan
from sandur.operations.maintenance.requests import list_requests, request_maintenance
from sandur.operations.maintenance.runs import RunRecords, list_runs
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.history import logged_versions
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.maintenance.engine import Engine
from sandur.pipeline.maintenance.iceberg import IcebergTable
from tests.operations.delta_requests import create_managed
from tests.pipeline.maintained import (
    EAGER,
    connected,
    hashes,
    maintained,
    make_small_files,
    measured,
    opener,
    set_policy,
    store_objects,
)
from tests.pipeline.world import World, identifier_of


def test_small_files_become_one_and_every_branch_tag_and_snapshot_keeps_its_rows(
    world: World, spark: SparkSession
) -> None:
    with connected(world) as catalog:
        table = make_small_files(catalog, "orders", 6)
        other = make_small_files(catalog, "report", 6)
        ids = [one.snapshot_id for one in table.snapshots()]
        table.manage_snapshots().create_tag(ids[1], "monday").create_branch(ids[3], "audit").commit()
        set_policy(world, {**EAGER, "manifests": {"min_manifests": 2}, "statistics": {"enabled": True}})
        set_policy(world, {"mode": "report"}, "main.sales.report")
        before = hashes(table)
    measured(world, spark)
    world.settle()
    objects = store_objects(world)

    dry = world.run(spark, MAINTAIN, dry_run=True)
    plan = world.wait(load_plan(world.lake))

    assert store_objects(world) == objects
    assert dry.counts["operations_planned"] == 3
    of_users = [row for row in plan.rows if row["namespace"] != "system"]
    assert [(row["name"], row["operation"], row.get("skipped", "")) for row in of_users] == [
        ("orders", "compaction", ""),
        ("orders", "manifests", ""),
        ("orders", "statistics", ""),
        ("report", "", "its policy only reports (mode = report)"),
    ]

    with connected(world) as catalog:
        report = world.run(spark, MAINTAIN, open_catalog=opener(world))
        table, other = catalog.load_table("sales.orders"), catalog.load_table("sales.report")
        after = hashes(table)

        assert {name: after[name] for name in before if name != "main"} == {
            name: rows for name, rows in before.items() if name != "main"
        }
        assert after["main"] == before["main"]
        assert len(other.snapshots()) == 6
    assert report.counts["operations_done"] == 3
    assert report.counts["files_saved"] == 5
    rows = {row["operation"]: row for row in world.dataset(spark, "maintenance")}
    row = rows["compaction"]
    assert (row["state"], row["files_before"], row["files_after"], row["rows_after"]) == ("done", 6, 1, 6)
    assert (row["run"], row["files_rewritten"], row["why"]) == (
        report.run_id,
        6,
        "6 small files, 5 of them can be saved",
    )
    document = world.wait(current_document(world.lake, identifier_of("orders")))
    receipts = [one.receipt for one in world.wait(logged_versions(world.lake, document))]
    assert [one.source.run_id for one in receipts if one and one.source.run_id] == [report.run_id] * 3
    with open_catalog(world.settings) as connection:
        events_url = f"{connection.uri}/api/sandur/v1/events?table=main.sales.orders"
        answer = httpx.get(events_url, headers={"Authorization": f"Bearer {connection.token}"}, timeout=60)
    events = answer.raise_for_status().json()["events"]
    assert [one["source"]["run_id"] for one in events if "run_id" in one["source"]] == [report.run_id] * 3
    shown = world.wait(load_operations(world.lake, limit=2))
    assert [one["operation"] for one in shown.rows] == ["statistics", "manifests"]
    assert shown.is_cut


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("strategy", "order"),
    [("zorder", "id, text"), pytest.param("sort", "id DESC NULLS LAST", marks=pytest.mark.slow)],
)
def test_rewrites_of_every_kind_keep_the_rows_of_every_snapshot(
    world: World, spark: SparkSession, strategy: str, order: str
) -> None:
    """A partitioned table with position deletes, which are merged first. Then its data is rewritten in an order."""
    with open_catalog(world.settings) as connection, connected(world) as catalog:
        session = spark.newSession()
        for option, value in connection.options().items():
            session.conf.set(option, value)
        session.sql(
            "CREATE TABLE sandur.sales.parts (id BIGINT, text STRING, part STRING) PARTITIONED BY (part) TBLPROPERTIES "
            "('format-version'='2', 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition')"
        )
        values = "SELECT id, concat('row ', id), IF(id % 2 = 0, 'a', 'b') FROM range({}, {}, 1, 1)"
        for number in range(4):
            session.sql("INSERT INTO sandur.sales.parts " + values.format(number * 10, number * 10 + 10))
        for number in range(3):
            session.sql(f"DELETE FROM sandur.sales.parts WHERE id = {number * 10}")  # noqa: S608 - a number
        session.sql("ALTER TABLE sandur.sales.parts CREATE TAG before")
        table = catalog.load_table("sales.parts")
        before = hashes(table)
        later = {"manifests": {"min_manifests": 2}, "statistics": {"enabled": True}}
        set_policy(world, {**EAGER, **later, "compaction": {"enabled": False}, "deletes": {"min_files": 2}})

        maintained(world, spark)
        merged = hashes(table)
        summary = table.metadata.snapshot_by_id(table.metadata.current_snapshot_id or 0)
        compaction = {"enabled": True, "strategy": strategy, "sort_order": order, "min_input_files": 2}
        set_policy(world, {"compaction": compaction})
        maintained(world, spark)
        after = hashes(table)

    for found in (merged, after):
        assert {name: found[name] for name in before} == before
    assert summary
    assert summary.summary
    assert summary.summary["total-delete-files"] == "1"
    assert len(table.metadata.partition_statistics) == 1
    assert len(list(table.scan().plan_files())) == 2
    rows = [row for row in world.dataset(spark, "maintenance") if row["name"] == "parts"]
    assert {row["state"] for row in rows} == {"done"}
    assert {row["operation"] for row in rows} == {"deletes", "manifests", "statistics", "compaction"}
    assert {(row["rows_before"], row["rows_after"]) for row in rows if row["operation"] == "deletes"} == {(40, 40)}


def test_a_requested_table_is_maintained_by_the_next_run_although_its_policy_only_reports(
    world: World, spark: SparkSession
) -> None:
    with connected(world) as catalog:
        table = make_small_files(catalog, "orders", 4)
        make_small_files(catalog, "report", 4)
        set_policy(world, {**EAGER, "mode": "report"})
        before = hashes(table)
        world.wait(request_maintenance(world.lake, identifier_of("orders"), world.request()))
        report = maintained(world, spark)
        (done,) = world.wait(list_requests(world.lake))
        world.wait(request_maintenance(world.lake, identifier_of("orders"), world.request()))
        idle = maintained(world, spark)
        (nothing,) = world.wait(list_requests(world.lake))

        assert hashes(table)["main"] == before["main"]
    assert report.counts["operations_done"] == 1
    assert (done.state, done.run) == ("done", report.run_id)
    assert "operations_done" not in idle.counts
    assert (nothing.state, nothing.reason) == ("done", "nothing was due")


def test_a_run_that_died_is_settled_from_the_table_by_the_next_one(world: World, spark: SparkSession) -> None:
    with connected(world) as catalog:
        make_small_files(catalog, "orders", 3)
    set_policy(world, EAGER)
    document = world.wait(current_document(world.lake, identifier_of("orders")))
    begun = OperationRecord(
        run="run-00000000",
        number=0,
        uuid=document.metadata.table_uuid or "",
        catalog="main",
        namespace="sales",
        name="orders",
        format="iceberg",
        operation="compaction",
        state="running",
        started_ms=1,
    )
    died = RunRecords(world.lake, "run-00000000")
    world.wait(died.write_plan(RunPlan(run=died.run, started_ms=1, application="gone", operations=(begun,))))
    world.wait(died.begin(begun))

    report = maintained(world, spark)

    assert report.counts["settled"] == 1
    assert report.counts["operations_planned"] == 0  # It backs off for an hour, as after every failure.
    (ended,) = world.wait(died.ended([0]))
    assert (ended.state, ended.settled_by) == ("failed", report.run_id)
    assert ended.reason == "its run ended before it committed; nothing of it is visible"
    assert all(run.is_over for run in world.wait(list_runs(world.lake)))
    assert [row["state"] for row in world.dataset(spark, "maintenance")] == ["failed"]


def test_what_a_writer_forbids_after_the_health_was_measured_is_not_done(world: World, spark: SparkSession) -> None:
    with connected(world) as catalog:
        table = make_small_files(catalog, "orders", 6)
        set_policy(world, EAGER)
        measured(world, spark)
        with table.transaction() as transaction:
            transaction.set_properties({"maintenance.compaction.enabled": "false"})

        world.run(spark, MAINTAIN, open_catalog=opener(world))

        assert len(list(catalog.load_table("sales.orders").scan().plan_files())) == 6
    rows = [row for row in world.dataset(spark, "maintenance") if row["name"] == "orders"]
    reason = "a property of the table turned compaction off"
    assert [(row["operation"], row["state"], row["reason"]) for row in rows] == [("compaction", "skipped", reason)]


def test_properties_of_now_also_stop_the_removal_of_files_and_work_on_delta_tables(
    world: World, spark: SparkSession
) -> None:
    with connected(world) as catalog:
        table = make_small_files(catalog, "orders", 1)
        clicks, visits = (_make_delta(world, name) for name in ("clicks", "visits"))
        set_policy(world, {"mode": "run", "quiet": "PT0S", "delta": {"checkpoint_interval": 1}})
        measured(world, spark)
        with table.transaction() as transaction:
            transaction.set_properties({"maintenance.orphans.enabled": "false"})
        _set_delta_property(world, clicks, "maintenance.delta.enabled", "false")
        _set_delta_property(world, visits, "maintenance.mode", "report")

        world.run(spark, MAINTAIN, open_catalog=opener(world))

    rows = [row for row in world.dataset(spark, "maintenance") if row["namespace"] == "sales"]
    off = "a property of the table turned {} off"
    assert sorted((row["name"], row["operation"], row["state"], row["reason"]) for row in rows) == [
        ("clicks", "checkpoint", "skipped", off.format("checkpoint")),
        ("clicks", "vacuum", "skipped", off.format("vacuum")),
        ("orders", "orphans", "skipped", off.format("orphans")),
        ("visits", "checkpoint", "skipped", off.format("maintenance")),
        ("visits", "vacuum", "skipped", off.format("maintenance")),
    ]


def _make_delta(world: World, name: str) -> DeltaTable:
    """A managed table with a log of one commit."""
    table = world.wait(create_managed(world.lake, identifier_of(name)))
    world.wait(world.lake.locations.create(f"{table.location}/_delta_log/{0:020d}.json", b'{"add": {"path": "live"}}'))
    return table


def _set_delta_property(world: World, table: DeltaTable, name: str, value: str) -> None:
    change = DeltaChange(asserted_uuid=table.uuid, set_properties={name: value})
    world.wait(update_table(world.lake, table.made_for, change, world.request()))


def test_a_rewrite_that_finds_nothing_to_do_is_skipped(world: World, spark: SparkSession) -> None:
    with connected(world) as catalog:
        table = make_small_files(catalog, "orders", 1)
    health = TableHealth(
        uuid=str(table.metadata.table_uuid), catalog="main", namespace="sales", name="orders", format="iceberg"
    )
    with open_catalog(world.settings) as connection:
        found = IcebergTable(Engine(spark, connection, "run"), world.blocking, health, Policy(), "run")

        result = found.perform("compaction", sharing=lambda *_: "")

    assert (result.state, result.reason) == ("skipped", "Iceberg found nothing to rewrite")
    assert result.before == result.after
