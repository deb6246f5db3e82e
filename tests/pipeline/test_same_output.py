"""Every job makes the same output from the same input, replayed, reordered, copied or split.

Each test adds the input in parts, with a run after each. Then it runs again: over copies, and from the start over
the whole input, read in other parts and in another order.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.operations.feed import Feed
from sandur.operations.receipts import Receipt
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.reports import report_metrics
from sandur.pipeline import tasks
from sandur.pipeline.job import JobReport, Limits
from sandur.pipeline.jobs import import_tables, metrics, reconcile
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.import_tables import IMPORT
from sandur.pipeline.jobs.metrics import METRICS
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.jobs.rebuild_index import REBUILD_INDEX
from sandur.pipeline.jobs.reconcile import RECONCILE
from sandur.pipeline.sources import events, range_reader
from sandur.settings import Settings
from tests.operations.delta_requests import create_managed
from tests.operations.requests import append
from tests.pipeline.test_rebuild_index import _empty_index
from tests.pipeline.test_report_rows import counter, timer
from tests.pipeline.world import NAMESPACE, World, identifier_of

Rows = list[dict[str, Any]]

PARTITIONS = "spark.sql.shuffle.partitions"


@contextmanager
def in_other_parts(spark: SparkSession) -> Iterator[None]:
    """Make readers split their input into the smallest parts, and read them in reverse order."""
    forwards = tasks.run_per_item

    def run_in_reverse(spark: SparkSession, items: Sequence[Any], work: Any, schema: Any) -> Any:
        return forwards(spark, items[::-1], work, schema)

    before = spark.conf.get(PARTITIONS) or ""
    with pytest.MonkeyPatch.context() as patch:
        for module in (range_reader, reconcile, import_tables):
            patch.setattr(module, "run_per_item", run_in_reverse)
        patch.setattr(range_reader, "SMALL", 1)
        patch.setattr(events, "RECEIPTS_PER_TASK", 1)
        patch.setattr(metrics, "REPORTS_PER_TASK_PAGES", 1)
        patch.setattr(metrics, "LIST_LIMIT_MAX", 1)
        spark.conf.set(PARTITIONS, "5")
        try:
            yield
        finally:
            spark.conf.set(PARTITIONS, before)


PROJECTED = (
    *("catalogs", "namespaces", "tables", "columns", "schema_history"),
    *("partition_spec_history", "snapshots", "refs"),
)


def projected(world: World, spark: SparkSession) -> dict[str, Rows]:
    """The published rows of users."""
    return {name: of_users(world.dataset(spark, name)) for name in PROJECTED}


def of_users(rows: Rows) -> Rows:
    return [row for row in rows if row.get("namespace") != "system"]


@pytest.mark.slow
def test_current_tables_are_the_same(spark: SparkSession, world: World) -> None:
    def change() -> None:
        world.wait(commit_table(world.lake, identifier_of("orders"), append(1), world.request()))
        request = world.request()
        world.wait(
            rename(world.lake, identifier_of("customers"), identifier_of("people"), kind="table", request=request)
        )
        world.wait(drop_name(world.lake, identifier_of("forgotten"), kind="table", request=world.request()))
        world.wait(create_managed(world.lake, identifier_of("versions")))
        world.settle()

    for names in (("orders",), ("customers", "forgotten")):
        for name in names:
            world.make(name)
        world.run(spark, PROJECT)
    change()
    world.run(spark, PROJECT)
    in_parts = projected(world, spark)

    world.run(spark, PROJECT)
    again = projected(world, spark)
    copy_name(world, "orders", "zzz")
    copy_receipts(world)
    world.run(spark, PROJECT)
    copied = projected(world, spark)
    world.remove(world.layout.core_manifest())
    with in_other_parts(spark):
        world.run(spark, PROJECT)
    at_once = projected(world, spark)

    assert {row["name"] for row in in_parts["tables"]} == {"orders", "people", "versions"}
    assert len(in_parts["snapshots"]) == 1
    assert again == in_parts
    assert copied == in_parts
    assert at_once == in_parts


def copy_name(world: World, name: str, copy: str) -> None:
    """Add a second name for the same table."""
    stored = world.wait(world.store.get(world.layout.name(identifier_of(name))))
    assert stored
    world.put(world.layout.name(identifier_of(copy)), stored.data)


def copy_receipts(world: World) -> None:
    """Copy every receipt under another date."""
    for key, data in world.receipts().items():
        date = world.layout.parse_receipt(key).date
        world.put(key.replace(date, "2020-02-02"), data)


def test_statistics_are_the_same(spark: SparkSession, world: World) -> None:
    for name in ("t", "u"):
        world.make(name)
    folder = world.layout.operational_folder("metrics")
    for files in (3, 4):
        for name in ("t", "u"):
            report(world, name, "scan-report", {"result-data-files": counter(files)})
        report(world, "t", "commit-report", {"total-duration": timer(8, "milliseconds"), "attempts": counter(files)})
        world.run(spark, METRICS)
    in_parts = world.dataset(spark, "table_metrics")

    for listed in world.listed(folder):
        stored = world.wait(world.store.get(listed.key))
        assert stored
        world.put(f"{folder}copy-of-{listed.key.removeprefix(folder)}", stored.data)
    copied = world.run(spark, METRICS)
    with_copies = world.dataset(spark, "table_metrics")
    world.remove(world.layout.core_manifest())
    with in_other_parts(spark):
        world.run(spark, METRICS)
    at_once = world.dataset(spark, "table_metrics")

    assert {row["name"]: (row["scans"], row["commits"], row["scanned_files"]) for row in in_parts} == {
        "t": (2, 2, 7),
        "u": (2, 0, 7),
    }
    assert (copied.manifest, copied.counts["reports_misplaced"]) == (None, 6)
    assert with_copies == in_parts
    assert at_once == in_parts


def report(world: World, name: str, kind: str, metrics: dict[str, Any]) -> None:
    body = json.dumps({"report-type": kind, "metrics": metrics}).encode()
    world.wait(report_metrics(world.lake, identifier_of(name), body, world.request()))


@pytest.mark.slow
def test_restored_receipts_are_the_same(spark: SparkSession, world: World) -> None:
    for name in ("orders", "customers"):
        world.make(name, properties={"write.metadata.previous-versions-max": "1"})
        world.commits(name, 3)
    lost = world.receipts()
    world.run(spark, COMPACT)
    world.wait(Feed(world.lake).advance())
    whole = world.receipts()

    def remove_receipts(keys: Sequence[str]) -> None:
        for key in keys:
            world.remove(key)

    def found() -> dict[str, bytes]:
        return {key: data for key, data in world.receipts().items() if "2020-02-02" not in key}

    keys = sorted(lost)
    for data in lost.values():
        receipt = msgspec.json.decode(data, type=Receipt)
        if receipt.metadata_version < 2:  # No walk reaches these.
            world.wait(world.lake.locations.remove(receipt.metadata_location))
    copy_receipts(world)
    for part in (keys[:3], keys[3:]):
        remove_receipts(part)
        world.run(spark, RECONCILE)
    in_parts = found()
    again = world.run(spark, RECONCILE)
    unchanged = found()
    remove_receipts(keys)
    with in_other_parts(spark):
        at_once = world.run(spark, RECONCILE)

    assert len(keys) == 8
    assert in_parts == whole
    assert (again.counts.get("written", 0), again.counts["read_again"], unchanged) == (0, 0, whole)
    assert (at_once.counts["written"], at_once.counts["restored_without_source"]) == (8, 0)
    assert found() == whole


@pytest.mark.slow
def test_derived_receipts_are_the_same(spark: SparkSession, world: World) -> None:
    for name in ("orders", "customers"):
        world.make(name)
        world.commits(name, 3)
    keys = sorted(world.receipts())

    def restored(parts: Sequence[Sequence[str]]) -> dict[str, bytes]:
        for part in parts:
            for key in part:
                world.remove(key)
            world.run(spark, RECONCILE)
        return world.receipts()

    first = restored([keys])
    in_parts = restored([keys[:2], keys[2:5], keys[5:]])
    with in_other_parts(spark):
        in_other = restored([keys])

    assert sorted(first) == keys
    assert in_parts == first
    assert in_other == first


def index_contents(world: World) -> dict[str, list[Any]]:
    """The content of every index without its times."""
    scopes: tuple[Scope, ...] = (
        CATALOGS,
        namespaces_scope("main", None),
        namespaces_scope("main", NAMESPACE),
        names_scope(NAMESPACE),
    )
    found = {scope.text: world.wait(world.lake.index(scope).read()) for scope in scopes}
    return {text: list(held.value.entries) for text, held in found.items() if held}


@pytest.mark.slow
def test_indexes_are_the_same(spark: SparkSession, world: World) -> None:
    for name in ("t", "u"):
        world.make(name)
        world.run(spark, REBUILD_INDEX, arguments={"namespace": "sales"})
    world.run(spark, REBUILD_INDEX)
    in_parts = index_contents(world)

    world.run(spark, REBUILD_INDEX)
    again = index_contents(world)
    for scope in (CATALOGS, names_scope(NAMESPACE)):
        _empty_index(world, scope)
    with in_other_parts(spark):
        report = world.run(spark, REBUILD_INDEX)
    at_once = index_contents(world)

    assert [entry.name for entry in in_parts[names_scope(NAMESPACE).text]] == ["t", "u"]
    assert again == in_parts
    assert report.counts["lists_corrected"] == 2
    assert at_once == in_parts


def imported(world: World) -> dict[str, tuple[str, str]]:
    """The target of each registered name."""
    identifiers = [world.layout.parse_name(listed.key) for listed in world.listed(world.layout.all_names_folder())]
    found = {str(one): world.wait(current_document(world.lake, one)) for one in identifiers}
    return {name: (document.location, document.metadata.table_uuid or "") for name, document in found.items()}


@pytest.mark.slow
def test_imported_tables_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lake, origin = tmp_path / "lake", tmp_path / "origin"
    with World(Settings(store=str(origin), fsync="never")) as others:
        made = {name: others.make(name).metadata_location or "" for name in "abc"}
        others.commits("b", 2)
    allowed = (str(lake), str(origin))

    def copy_table(name: str, folder: str) -> None:
        shutil.copytree(Path(made[name].removeprefix("file:")).parents[1], lake / folder / name)

    def open_world(name: str) -> World:
        return World(Settings(store=str(tmp_path / name), fsync="never", allowed_locations=allowed))

    def run(world: World, **changes: Any) -> JobReport:
        return world.run(spark, IMPORT, arguments={"location": str(lake)}, **changes)

    with open_world("one") as one, open_world("two") as two, open_world("three") as three:
        for names in ("c", "ab"):
            for name in names:
                copy_table(name, "sold")
            run(one)
        in_parts = imported(one)
        copy_table("a", "copies")
        copy_table("b", "taken")
        run(one)
        shutil.rmtree(lake / "copies")
        with in_other_parts(spark):
            conflicts = run(two).counts["conflicts"]
        limited = [run(three, limits=Limits(tables_imported_max=1)).counts["registered"] for _ in range(4)]

        assert in_parts.keys() == {"sold.a", "sold.b", "sold.c"}
        assert imported(one) == in_parts
        assert (conflicts, imported(two)) == (1, in_parts)
        assert (limited, imported(three)) == ([1, 1, 1, 0], in_parts)
