"""`lineage` publishes the same edges however events arrive, tied to the commits that they made."""

import json
import random  # noqa: TID251 - seeded
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sandur.catalog.locations import normalize_location
from sandur.delta.create_plan import TableDefinition
from sandur.operations.delta.create import create_external_at
from sandur.operations.lineage.graph import Question, load_lineage
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.lineage import LINEAGE_JOB
from sandur.pipeline.jobs.project import PROJECT
from sandur.settings import Settings
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.openlineage import dataset, run_event
from tests.pipeline.lineage_world import CTAS, DAILY, MERGED, RAW, UPDATES, make_tables, statements, store_events
from tests.pipeline.world import World, identifier_of

DAY_MS = 86_400_000
RECEIVED_MS = 1_794_966_000_000
PUBLISHED = ("lineage", "column_lineage", "lineage_runs", "lineage_states")


def edges(world: World, spark: SparkSession) -> set[tuple[str, str, str, str]]:
    rows = world.dataset(spark, "lineage")
    return {(row["source_name"], row["target_name"], row["job_name"], row["confidence"]) for row in rows}


def columns(world: World, spark: SparkSession) -> set[tuple[Any, ...]]:
    names = ("source_name", "source_column", "source_field_id", "target_name", "target_column", "target_field_id")
    rows = world.dataset(spark, "column_lineage")
    return {(*(row[name] for name in names), row["subtype"], row["confidence"]) for row in rows}


def make_external(world: World, name: str, location: str) -> None:
    """An external Delta table with the columns `id` and `text`, at version 0."""
    fields = [
        {"name": column, "type": kind, "nullable": True, "metadata": {}}
        for column, kind in (("id", "long"), ("text", "string"))
    ]
    definition = TableDefinition(fields)
    world.wait(create_external_at(world.lake, identifier_of(name), location, definition, request=world.request()))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A store with tables, their commits and their columns, all published."""
    folder = tmp_path_factory.mktemp("lineage") / "store"
    with World(Settings(store=str(folder), fsync="never")) as made:
        make_tables(made)
        made.run(spark, COMPACT)
        made.run(spark, PROJECT)
    return folder


@contextmanager
def copy_of(prepared: Path, folder: Path) -> Iterator[World]:
    """A copy of the store: its tables have the same ids and locations, which stay in the first one."""
    shutil.copytree(prepared, folder)
    world = World(Settings(store=str(folder), fsync="never", allowed_locations=(f"file://{prepared}",)))
    try:
        yield world
    finally:
        world.blocking.close()


@pytest.fixture
def world(prepared: Path, tmp_path: Path) -> Iterator[World]:
    with copy_of(prepared, tmp_path / "store") as made:
        yield made


def locations(world: World, spark: SparkSession) -> dict[str, str]:
    rows = world.dataset(spark, "tables")
    return {row["name"]: normalize_location(row["location"]) for row in rows if row["namespace"] == "sales"}


def test_statements_end_in_edges_that_hang_on_their_commits(world: World, spark: SparkSession) -> None:
    store_events(world, statements(locations(world, spark)))

    report = world.run(spark, LINEAGE_JOB)

    ctas, merge = "nightly.atomic_create_table_as_select.sales_ctas", "nightly.replace_data.raw"
    raw, made, daily, updates = ("main.sales.raw", "main.sales.ctas", "main.sales.daily", "main.sales.updates")
    assert report.warnings == ()
    assert edges(world, spark) == {
        (raw, made, ctas, "matched"),
        (updates, raw, merge, "matched"),
        (raw, daily, "nightly.overwrite.daily", "matched"),
    }
    assert columns(world, spark) == {
        (raw, "id", 1, made, "id", 1, "IDENTITY", "matched"),
        (raw, "amount", 2, made, "amount", 2, "AGGREGATION", "matched"),
        (raw, "id", 1, daily, "id", 1, "IDENTITY", "matched"),
        (raw, "amount", 2, daily, "amount", 2, "AGGREGATION", "matched"),
        (raw, "id", 1, daily, None, None, "FILTER", "matched"),
        (updates, "id", 1, raw, None, None, "JOIN", "matched"),
        (updates, "id", 1, raw, "id", 1, "", "partial"),
        (updates, "amount", 2, raw, "amount", 2, "", "partial"),
    }
    by_target = {row["target_name"]: row for row in world.dataset(spark, "lineage")}
    commits = {row["commit_key"]: row for row in world.dataset(spark, "commits")}
    versions = {name: (row["source_version"], row["target_version"]) for name, row in by_target.items()}
    assert versions == {made: (f"{RAW}", f"{CTAS}"), raw: (f"{UPDATES}", f"{MERGED}"), daily: (f"{MERGED}", f"{DAILY}")}
    assert {commits[row["commit_key"]]["snapshot_id"] for row in by_target.values()} == {CTAS, MERGED, DAILY}
    assert {row["operation"] for key, row in commits.items() if key == by_target[raw]["commit_key"]} == {"append"}
    stated = {row["lineage"] for row in world.dataset(spark, "timeline")}
    assert stated == {"declared", f"{raw} -> {made}", f"{updates} -> {raw}", f"{raw} -> {daily}"}
    assert {row["lineage"] for row in commits.values()} == stated
    runs = {row["job_name"]: row for row in world.dataset(spark, "lineage_runs")}
    assert {name: row["state"] for name, row in runs.items()}["nightly.broken"] == "FAIL"
    assert not any(name.endswith("command_result") for name in runs)
    assert json.loads(runs[merge]["outputs_json"])[0]["commit_key"] == by_target[raw]["commit_key"]
    # Nothing is new, so nothing is published again; and the graph is served from what was.
    assert world.run(spark, LINEAGE_JOB).counts["events"] == 0
    graph = world.wait(load_lineage(world.lake, Question(f"table:{daily}", "up", columns=frozenset({"amount"}))))
    assert [(edge.source, edge.target) for edge in graph.edges] == [
        (f"table:{raw}", f"table:{daily}"),
        (f"table:{updates}", f"table:{raw}"),
    ]
    assert {(one.source_column, one.target_column, one.confidence) for one in graph.columns} == {
        ("amount", "amount", "matched"),
        ("amount", "amount", "partial"),
    }


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_events_shuffled_doubled_and_split_give_the_same_rows(
    prepared: Path, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    """In the copy, events arrive in two runs, in any order, some of them twice."""
    chance = random.Random(7)
    events = statements(locations(world, spark))
    shuffled = chance.sample([*events, *events[::2]], len(events) + len(events[::2]))
    store_events(world, events, received_ms=RECEIVED_MS)
    world.run(spark, LINEAGE_JOB)

    with copy_of(prepared, tmp_path / "copy") as other:
        for part in range(2):
            for event in shuffled[part::2]:
                store_events(other, [event], received_ms=RECEIVED_MS)
            other.run(spark, LINEAGE_JOB)
        found = {name: other.dataset(spark, name) for name in PUBLISHED}

    assert found == {name: world.dataset(spark, name) for name in PUBLISHED}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_only_the_committer_or_a_trusted_sender_makes_an_edge_matched(world: World, spark: SparkSession) -> None:
    """The tables were committed by ada, who has no id; eve sends the same events under her own principal."""
    store_events(world, statements(locations(world, spark)), is_trusted=False, principal="eve", principal_id="id-eve")

    world.run(spark, LINEAGE_JOB)

    assert {confidence for _, _, _, confidence in edges(world, spark)} == {"declared"}
    assert {row["lineage"] for row in world.dataset(spark, "timeline")} == {"declared"}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_version_in_the_log_of_an_external_delta_table_is_matched(tmp_path: Path, spark: SparkSession) -> None:
    """Its commits do not pass through the catalog: its own log says which versions exist, but not who made them."""
    with World(Settings(store=str(tmp_path / "store"), fsync="never", allowed_locations=(tmp_path.as_uri(),))) as world:
        for name in ("a", "b", "unread"):
            make_external(world, name, (tmp_path / name).as_uri())
        (tmp_path / "b/_delta_log/00000000000000000001.json").write_text('{"commitInfo": {"timestamp": 1}}')
        shutil.rmtree(tmp_path / "unread")
        world.run(spark, COMPACT)
        world.run(spark, PROJECT)
        a, b, unread = (f"main.sales.{name}" for name in ("a", "b", "unread"))

        def insert(number: int, into: str, version: object) -> dict[str, Any]:
            target = dataset(into, location=(tmp_path / into).as_uri(), version=version)
            source = dataset("a", location=(tmp_path / "a").as_uri())
            return run_event(number, "COMPLETE", number, job=f"into {number}", inputs=[source], outputs=[target])

        store_events(world, [insert(1, "b", 1), insert(2, "b", 2), insert(3, "b", "01"), insert(4, "unread", 0)])
        store_events(world, [insert(5, "b", 1)], is_trusted=False, principal="eve", principal_id="id-eve")
        world.run(spark, LINEAGE_JOB)

        assert edges(world, spark) == {
            (a, b, "nightly.into 1", "matched"),
            (a, b, "nightly.into 2", "declared"),
            (a, b, "nightly.into 3", "declared"),
            (a, unread, "nightly.into 4", "declared"),
            (a, b, "nightly.into 5", "declared"),
        }


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_what_is_unresolved_is_tried_again_and_damaged_objects_are_set_aside(world: World, spark: SparkSession) -> None:
    late = dataset("sales.late", location="s3://lake/elsewhere/late", version=900)
    outside = dataset("topic", location="kafka://broker/orders")
    store_events(world, [run_event(9, "COMPLETE", 1, job="load", inputs=[outside], outputs=[late])])
    world.put(world.layout.lineage("2026-11-18", "ab" * 32), b"rubbish")
    first = world.run(spark, LINEAGE_JOB)
    before = edges(world, spark)
    named = dataset("sales.raw", location=locations(world, spark)["raw"] + "/data/part-0.parquet")
    store_events(world, [run_event(9, "COMPLETE", 2, job="load", inputs=[outside], outputs=[named])])

    world.run(spark, LINEAGE_JOB)

    assert before == {("kafka://broker:orders", "s3://lake:elsewhere/late", "nightly.load", "unresolved")}
    assert (first.counts["quarantined"], len(first.warnings)) == (1, 1)
    assert [row["problem"] for row in world.dataset(spark, "quarantine")] == ["corrupt"]
    assert ("kafka://broker:orders", "main.sales.raw", "nightly.load", "declared") in edges(world, spark)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_old_runs_are_forgotten_and_their_edges_stay(world: World, spark: SparkSession) -> None:
    events = statements(locations(world, spark))
    store_events(world, events, received_ms=RECEIVED_MS)
    world.run(spark, LINEAGE_JOB, clock=FixedClock(RECEIVED_MS, seed=1))
    found = edges(world, spark)
    for days in (40, 400):
        store_events(world, [run_event(days, "START", days % 60, job=f"after {days}")], received_ms=RECEIVED_MS)
        world.run(spark, LINEAGE_JOB, clock=FixedClock(RECEIVED_MS + days * DAY_MS, seed=days))

    assert edges(world, spark) == found
    assert {row["job_name"] for row in world.dataset(spark, "lineage_runs")} == {"nightly.after 400"}
    assert world.dataset(spark, "lineage_states") == []
