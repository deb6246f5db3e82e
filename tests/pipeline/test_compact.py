"""`compact` on real stores: every receipt once, and the same rows in the system tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import msgspec
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from demo.duckdb_sessions import extension_file
from sandur.catalog.identifiers import Identifier
from sandur.errors import Conflict
from sandur.operations.receipts import Receipt
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.rename import rename
from sandur.pipeline import publishing, system_tables
from sandur.pipeline.jobs.compact import COMPACT
from sandur.storage.contract import ABSENT
from sandur.storage.locations import connect
from tests.fakes.dying_store import Died, DyingStore
from tests.pipeline.world import World, identifier_of


def system_table(world: World, name: str) -> list[dict[str, Any]]:
    """The rows of a system table as PyIceberg reads them from its metadata file."""
    document = world.wait(current_document(world.lake, Identifier("main", ("system",), name)))
    properties = {"s3.endpoint": world.settings.s3.endpoint} if world.settings.store.startswith("s3") else {}
    if properties:
        s3 = world.settings.s3
        properties |= {
            "s3.access-key-id": s3.access_key_id,
            "s3.secret-access-key": s3.secret_access_key,
            "s3.region": s3.region,
        }
    rows: list[dict[str, Any]] = StaticTable.from_metadata(document.location, properties).scan().to_arrow().to_pylist()
    return rows


def locations_by_duckdb(world: World) -> set[str]:
    """The rows of `system.commits` in DuckDB."""
    document = world.wait(current_document(world.lake, Identifier("main", ("system",), "commits")))
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            connection.load_extension(str(extension_file(name)))
        found = connection.execute("SELECT metadata_location FROM iceberg_scan(?)", [document.location]).fetchall()
    return {location for (location,) in found}


def summary(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(row["name"], row["metadata_version"], row["metadata_location"], row["source"]) for row in rows}


def receipts_of_users(world: World) -> dict[str, Receipt]:
    """The receipts of commits that the pipeline did not make."""
    found = {}
    for key, data in world.receipts().items():
        if "/iceberg/committed/" in key and len(data) > 2 and b'"kind":"pipeline"' not in data:
            found[key] = msgspec.json.decode(data, type=Receipt)
    return found


def snapshots_of(world: World) -> dict[str, int | None]:
    return {
        name: world.wait(
            current_document(world.lake, Identifier("main", ("system",), name))
        ).metadata.current_snapshot_id
        for name in ("commits", "timeline", "activity", "quarantine")
    }


def check_history(world: World, spark: SparkSession) -> None:
    """Check that there is one row per committed metadata file, in the dataset and in the system table."""
    expected = {receipt.metadata_location for receipt in receipts_of_users(world).values()}
    published = world.dataset(spark, "commits")
    assert len(published) == len(expected)
    assert {row["metadata_location"] for row in published} == expected
    assert summary(system_table(world, "commits")) == summary(published)


def test_every_commit_is_published_once_with_the_current_name_of_its_table(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.commits("orders", 3)
    world.make("customers")
    events = world.layout.events_folder()
    late_key, late = next(iter(world.receipts().items()))
    world.remove(late_key)
    for name, data in {"rubbish": b"rubbish", "2026-01-01/iceberg/committed/x.json": b"{}", "copy.json": late}.items():
        world.wait(world.store.put(f"{events}{name}", data, expected=ABSENT))

    first = world.run(spark, COMPACT)

    assert (first.counts["commits"], first.counts["quarantined_corrupt"]) == (4, 3)
    assert first.manifest
    check_history(world, spark)
    assert {row["problem"] for row in system_table(world, "quarantine")} == {"corrupt"}

    before = snapshots_of(world)
    second = world.run(spark, COMPACT)

    assert (second.counts["commits"], second.counts["commits_of_system_tables"]) == (0, 10)
    assert snapshots_of(world) == before

    world.wait(world.store.put(late_key, late, expected=ABSENT))
    world.wait(
        rename(world.lake, identifier_of("orders"), identifier_of("sold"), kind="table", request=world.request())
    )
    world.commits("sold", 1)
    third = world.run(spark, COMPACT)

    assert (third.counts["commits"], third.counts["tables_renamed"]) == (2, 1)
    check_history(world, spark)
    assert locations_by_duckdb(world) == {row["metadata_location"] for row in system_table(world, "commits")}
    assert {row["name"] for row in system_table(world, "commits")} == {"sold", "customers"}
    timeline = [row for row in system_table(world, "timeline") if row["name"] == "sold"]
    assert sorted(row["version"] for row in timeline) == [0, 1, 2, 3, 4]
    assert [row["version"] for row in timeline if row["is_current"]] == [4]
    assert all(row["is_linked"] for row in timeline)
    assert sum(row["commits"] for row in system_table(world, "activity")) == 6


def test_a_run_on_a_bucket_publishes_the_same(spark: SparkSession, bucket_world: World) -> None:
    bucket_world.make("orders")
    bucket_world.commits("orders", 2)

    report = bucket_world.run(spark, COMPACT)

    assert report.counts["commits"] == 3
    check_history(bucket_world, spark)


@pytest.mark.slow
def test_executors_verify_and_copy_large_files(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (publishing, system_tables):
        monkeypatch.setattr(module, "SMALL_BYTES_MAX", 0)
    world.make("orders")

    report = world.run(spark, COMPACT)

    assert not report.warnings
    check_history(world, spark)


@contextmanager
def dying_at(world: World, step: str, *, after: bool) -> Iterator[DyingStore]:
    """A store for the driver that fails at the first write to a key with the text."""
    yield _DyingAtKey(connect(world.settings, world.lake.clock), step, after=after)


class _DyingAtKey(DyingStore):
    def __init__(self, inner: Any, step: str, *, after: bool) -> None:
        super().__init__(inner, dies_at=-1, after=after)
        self._step = step

    async def _around(self, call: Any, perform: Any) -> Any:
        if call.is_write and self._step in call.key and not self.has_died:
            self._dies_at = self._begun + 1
        return await super()._around(call, perform)


STEPS = ("/feed/0", "/feed/state", "core/snapshots", "-m0.avro", "/snap-", "iceberg_pointers", "/names/")


@pytest.mark.parametrize(
    ("step", "after"),
    [
        pytest.param("core/manifest.json", False, marks=pytest.mark.crash),
        ("core/manifest.json", True),
        *(pytest.param(step, after, marks=pytest.mark.crash) for step in STEPS for after in (False, True)),
    ],
)
def test_the_next_run_finishes_the_work_of_a_driver_that_died(
    spark: SparkSession, world: World, step: str, *, after: bool
) -> None:
    world.make("orders")
    world.commits("orders", 1)

    with dying_at(world, step, after=after) as store, pytest.raises(Died):
        world.run(spark, COMPACT, store=store)
    world.run(spark, COMPACT)

    check_history(world, spark)


def test_the_slower_of_two_runs_that_publish_one_dataset_stops(spark: SparkSession, world: World) -> None:
    world.make("orders")
    rivals: list[str | None] = []

    def run_rival() -> None:
        if not rivals:
            rivals.append("")
            rivals.append(world.run(spark, COMPACT).manifest)

    with pytest.raises(Conflict, match="another run published it"):
        world.run(spark, COMPACT, check_fence=run_rival)

    assert rivals[-1]
    check_history(world, spark)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [(1, 1, 1, 1), (2, 2), (4,)])
def test_the_output_does_not_depend_on_the_parts_of_the_input(
    spark: SparkSession, world: World, parts: tuple[int, ...]
) -> None:
    world.make("orders")
    world.commits("orders", 3)
    receipts = world.receipts()
    for key in receipts:
        world.remove(key)
    left = list(receipts.items())

    for size in parts:
        for key, data in left[:size]:
            world.wait(world.store.put(key, data, expected=ABSENT))
        left = left[size:]
        world.run(spark, COMPACT)

    assert not left
    check_history(world, spark)
    assert sum(row["commits"] for row in world.dataset(spark, "activity")) == 4


@pytest.mark.slow
def test_processing_the_input_again_gives_the_same_output(spark: SparkSession, world: World) -> None:
    world.make("orders")
    world.commits("orders", 2)
    world.run(spark, COMPACT)
    commits, activity = world.dataset(spark, "commits"), world.dataset(spark, "activity")

    world.remove(world.layout.core_manifest())
    report = world.run(spark, COMPACT)

    assert report.counts["commits"] == 3
    assert world.dataset(spark, "commits") == commits
    assert world.dataset(spark, "activity") == activity
    check_history(world, spark)
