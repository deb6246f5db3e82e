"""One unreadable record: every job continues, names its key, and deletes nothing without a known owner."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import CATALOGS as LIST_OF_CATALOGS
from sandur.catalog.index import names_scope
from sandur.catalog.record_versions import NEWEST
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.feed import STATE
from sandur.operations.tables.reports import report_metrics
from sandur.pipeline.blocking_lake import lake_options
from sandur.pipeline.job import Job
from sandur.pipeline.jobs.collect_garbage import COLLECT_GARBAGE
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.metrics import METRICS
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.jobs.rebuild_index import REBUILD_INDEX
from sandur.pipeline.jobs.reconcile import RECONCILE
from sandur.pipeline.sources.catalog import SandurCatalogs, SandurNamespaces
from sandur.pipeline.sources.range_reader import RangeSource
from sandur.pipeline.tables import NAMESPACES, with_problem
from sandur.pipeline.transforms import projection as of_changes
from tests.pipeline.test_collect_garbage import _orphan, age, exists
from tests.pipeline.test_rebuild_index import _empty_index, _listed
from tests.pipeline.test_transforms import frame
from tests.pipeline.world import NAMESPACE, World, identifier_of, rows_of

OTHER = Namespace("other", ("sales",))
SYSTEM = Identifier("main", ("system",), "commits")
JOBS = (RECONCILE, COMPACT, PROJECT, METRICS, REBUILD_INDEX, COLLECT_GARBAGE)
NAMED_BY: dict[str, tuple[Job, ...]] = {
    "catalog": (PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "namespace": (PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "name": (COMPACT, PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "pointer": (RECONCILE, COMPACT, PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "receipt": (RECONCILE, COMPACT),
    "report": (METRICS,),
    "feed state": (RECONCILE, COMPACT, PROJECT),
    "default catalog": (PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "namespace of system tables": (PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "name of a system table": (RECONCILE, COMPACT, PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
    "pointer of a system table": (RECONCILE, COMPACT, PROJECT, REBUILD_INDEX, COLLECT_GARBAGE),
}


def fill_catalogs(world: World) -> None:
    """Two catalogs with a namespace each, and tables with commits and reports."""
    world.wait(create_catalog(world.lake, "other", root=None, properties={}, request=world.request()))
    world.wait(create_namespace(world.lake, OTHER, {}, world.request()))
    for name in ("t", "u"):
        world.make(name)
    world.commits("t", 1)
    world.wait(report_metrics(world.lake, identifier_of("t"), b'{"report-type": "scan-report"}', world.request()))


def pointer_of(world: World, identifier: Identifier) -> str:
    found = world.wait(world.lake.name(identifier).read())
    assert found
    return world.layout.pointer(found.value.uuid)


def new_receipt(world: World) -> str:
    before = world.receipts().keys()
    world.commits("t", 1)
    return min(world.receipts().keys() - before)


WHERE: dict[str, Callable[[World], str]] = {
    "catalog": lambda world: world.layout.catalog("other"),
    "namespace": lambda world: world.layout.namespace(OTHER),
    "name": lambda world: world.layout.name(identifier_of("t")),
    "pointer": lambda world: pointer_of(world, identifier_of("t")),
    "receipt": new_receipt,
    "report": lambda world: world.listed(world.layout.operational_folder("metrics"))[0].key,
    "feed state": lambda world: world.layout.operational("feed", STATE),
    "default catalog": lambda world: world.layout.catalog("main"),
    "namespace of system tables": lambda world: world.layout.namespace(SYSTEM.namespace),
    "name of a system table": lambda world: world.layout.name(SYSTEM),
    "pointer of a system table": lambda world: pointer_of(world, SYSTEM),
}


@contextmanager
def damaged(world: World, key: str) -> Iterator[None]:
    """Damage an object for a while; restore it at the end unless a job replaced or deleted it."""
    stored = world.wait(world.store.get(key))
    assert stored
    world.damage(key)
    rubbish = world.wait(world.store.get(key))
    yield
    found = world.wait(world.store.get(key))
    if found and rubbish and found.data == rubbish.data:
        world.wait(world.store.put(key, stored.data, expected=found.version))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["catalog", "namespace", "name", "pointer"])
def test_a_record_of_a_later_major_is_named_by_the_jobs_that_read_it_and_never_changed(
    spark: SparkSession, world: World, kind: str
) -> None:
    fill_catalogs(world)
    world.run(spark, COMPACT)
    world.run(spark, PROJECT)
    names = {row["name"] for row in world.dataset(spark, "tables")}
    key = WHERE[kind](world)
    stored = world.wait(world.store.get(key))
    assert stored
    newer = json.dumps({**json.loads(stored.data), "v": NEWEST.major + 1}).encode()
    world.wait(world.store.put(key, newer, expected=stored.version))
    age(world, days=31)

    for job in JOBS:
        world.set_property("u", job.name)  # The job has work to do.
        report = world.run(spark, job)
        named = [warning for warning in report.warnings if key in warning]
        assert job not in NAMED_BY[kind] or any("newer Sandur" in one for one in named), (job.name, report.warnings)

    found = world.wait(world.store.get(key))
    assert found
    assert found.data == newer
    assert {row["name"] for row in world.dataset(spark, "tables")} >= names


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", NAMED_BY)
def test_no_job_fails_for_one_damaged_record_and_jobs_that_read_it_name_it(
    spark: SparkSession, world: World, kind: str
) -> None:
    fill_catalogs(world)
    world.run(spark, COMPACT)
    world.run(spark, PROJECT)
    names = {row["name"] for row in world.dataset(spark, "tables")}

    for job in JOBS:
        world.set_property("u", job.name)  # The job has work to do.
        key = WHERE[kind](world)
        with damaged(world, key):
            age(world, days=31)  # Only old objects are candidates.
            report = world.run(spark, job)
        assert job not in NAMED_BY[kind] or any(key in warning for warning in report.warnings), (
            f"{job.name} does not name {key}: {report.counts} {report.warnings}"
        )

    for job in (RECONCILE, COMPACT, PROJECT):
        world.run(spark, job)
    assert {row["name"] for row in world.dataset(spark, "tables")} >= names
    assert not [row for row in world.dataset(spark, "changes") if row["change"] == "dropped"]
    assert len(world.dataset(spark, "commits")) == sum(
        b'"kind":"pipeline"' not in data for data in world.receipts().values()
    )


def rows_read(source: RangeSource) -> list[dict[str, Any]]:
    batches = [batch for part in source.partitions() for batch in source.read(InputPartition(part.value))]
    return [row for batch in batches for row in batch.to_pylist()]


def test_an_unreadable_catalog_or_namespace_has_its_name_and_a_problem(world: World) -> None:
    fill_catalogs(world)
    options = lake_options(world.settings)
    world.damage(world.layout.catalog("other"))
    world.damage(world.layout.namespace(NAMESPACE))

    catalogs, namespaces = rows_read(SandurCatalogs(options)), rows_read(SandurNamespaces(options))

    assert [(row["name"], row["id"] is None) for row in catalogs] == [("main", False), ("other", True)]
    assert world.layout.catalog("other") in catalogs[1]["problem"]
    assert {(row["catalog"], row["namespace"], row["problem"] is None) for row in namespaces} == {
        ("main", "sales", False),
        ("other", "sales", True),
    }
    assert [world.layout.namespace(NAMESPACE) in (row["problem"] or "") for row in namespaces] == [True, False]


def test_unreadable_containers_keep_their_rows_and_have_no_change(spark: SparkSession) -> None:
    def namespace_row(name: str, **more: Any) -> dict[str, Any]:
        at = {"created_at": 1, "updated_at": 1, "depth": 1, "properties_json": "{}"}
        return {"catalog": "main", "namespace": name, "id": f"id of {name}", **at, **more}

    before = frame(
        spark,
        NAMESPACES,
        [namespace_row("a"), namespace_row("b"), namespace_row("c"), namespace_row("moved", namespace="d")],
    )
    unread = [{"catalog": "main", "namespace": name, "problem": "bad"} for name in ("b", "never seen", "d")]
    read = frame(spark, with_problem(NAMESPACES), [namespace_row("a"), namespace_row("moved"), *unread])

    known = of_changes.with_unreadable(NAMESPACES, read, before)
    compared = of_changes.compare_containers(NAMESPACES, known, before)

    assert {row["id"]: row["change"] for row in rows_of(compared.toArrow())} == {
        "id of a": "same",
        "id of b": "same",
        "id of c": "dropped",
        "id of moved": "renamed",
    }


@pytest.mark.slow
def test_damaged_containers_are_counted_and_named_and_their_rows_stay(spark: SparkSession, world: World) -> None:
    fill_catalogs(world)
    world.run(spark, PROJECT)
    published = {name: world.dataset(spark, name) for name in ("catalogs", "namespaces")}
    others = [world.layout.catalog("other"), world.layout.namespace(NAMESPACE)]
    world.wait(create_namespace(world.lake, Namespace("main", ("new",)), {}, world.request()))

    with damaged(world, others[0]), damaged(world, others[1]):
        report = world.run(spark, PROJECT)
        kept = {name: world.dataset(spark, name) for name in published}
    healed = world.run(spark, PROJECT)

    assert (report.counts["catalogs"], report.counts["catalogs_unreadable"]) == (2, 1)
    assert (report.counts["namespaces"], report.counts["namespaces_unreadable"]) == (4, 1)
    assert all(any(key in warning for warning in report.warnings) for key in others)
    assert kept["catalogs"] == published["catalogs"]
    assert {row["namespace"] for row in kept["namespaces"]} == {"sales", "system", "new"}
    assert len(kept["namespaces"]) == 4
    assert (healed.counts["catalogs_unreadable"], healed.warnings) == (0, ())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["catalog", "default catalog"])
def test_no_metadata_file_is_deleted_with_an_unreadable_catalog(spark: SparkSession, world: World, kind: str) -> None:
    fill_catalogs(world)
    orphan = _orphan(world, "t", 9)
    age(world, days=2)
    key = WHERE[kind](world)

    with damaged(world, key):
        refused = world.run(spark, COLLECT_GARBAGE)
        stayed = exists(world, orphan)
    age(world, days=2)
    world.run(spark, COLLECT_GARBAGE)

    assert stayed
    assert any("metadata files are skipped" in warning and key in warning for warning in refused.warnings)
    assert not exists(world, orphan)


@pytest.mark.slow
def test_indexes_that_do_not_need_a_damaged_record_are_rebuilt(spark: SparkSession, world: World) -> None:
    fill_catalogs(world)
    _empty_index(world, names_scope(NAMESPACE))
    _empty_index(world, LIST_OF_CATALOGS)

    with damaged(world, world.layout.catalog("other")), damaged(world, world.layout.namespace(OTHER)):
        report = world.run(spark, REBUILD_INDEX)

    assert _listed(world) == ["t", "u"]
    assert report.counts["lists_failed"] >= 1
    assert any(world.layout.catalog("other") in warning for warning in report.warnings)
