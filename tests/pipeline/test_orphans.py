"""The parts of the removal of orphans that run on Spark without an engine: the listing, and the record of a run."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.orphans import Found
from sandur.catalog.maintenance.policies import Policy
from sandur.catalog.maintenance.records import OperationResult
from sandur.cli.catalog_server import open_catalog
from sandur.errors import Conflict
from sandur.operations.janitors.lease import Lease, LeaseRecord
from sandur.operations.maintenance.orphans import Outcome
from sandur.operations.tables.documents import current_document
from sandur.pipeline.maintenance.engine import Engine
from sandur.pipeline.maintenance.evidence import identifier_of
from sandur.pipeline.maintenance.orphans import begin, find_orphans, listing, remove_orphans, result_of, vacuum
from sandur.pipeline.runs import LEASE_KIND, PipelineLease
from sandur.spark.sessions import Connection
from tests.operations.delta_requests import create_managed
from tests.operations.requests import content
from tests.pipeline.maintained import connected, make_small_files
from tests.pipeline.world import World
from tests.pipeline.world import identifier_of as world_identifier

LONG_AGO_S: Final = 1_600_000_000


def test_the_listing_of_a_table_has_its_own_files_in_the_spelling_of_its_location(
    spark: SparkSession, world: World
) -> None:
    made = world.make("t")
    place = content(made)["location"]
    lake = world.blocking.lake
    for path in (f"{place}/data/a.parquet", f"{place}0/data/b.parquet"):
        world.blocking.wait(lake.locations.create(path, b"12345"))

    rows = listing(spark, world.blocking, place).collect()

    found = {row.file_path: row for row in rows}
    assert [path for path in found if not path.endswith(".metadata.json")] == [f"{place}/data/a.parquet"]
    row = found[f"{place}/data/a.parquet"]
    store, key = lake.locations.holder(row.file_path)
    head = world.blocking.wait(store.head(key))
    assert head
    assert (row.version, row.size_bytes, row.modified_ms) == (head.version, 5, head.modified_ms)


class Cleaned:
    """An Iceberg table whose files are all old, and its orphans."""

    def __init__(self, world: World, spark: SparkSession, connection: Connection, orphans: int) -> None:
        self.world = world
        document = world.wait(current_document(world.lake, world_identifier("orders")))
        self.place = document.metadata.location
        self.health = TableHealth(
            uuid=str(document.metadata.table_uuid), catalog="main", namespace="sales", name="orders", format="iceberg"
        )
        self.table = Engine(spark, connection, "run").table(self.health)
        for number in range(orphans):
            world.wait(world.lake.locations.create(f"{self.place}/data/orphan-{number}.parquet", b"x"))
        folder = Path(self.place[len("file:") :])
        for file in folder.rglob("*"):
            os.utime(file, (LONG_AGO_S, LONG_AGO_S))

    def find(self, files_max: int) -> Found:
        listed = listing(self.table.session, self.world.blocking, self.place)
        now_ms = self.world.lake.clock.now_ms()
        return find_orphans(self.table, listed, self.place, Policy(), now_ms=now_ms, files_max=files_max)

    def remove_orphans(self) -> OperationResult:
        run = begin(self.world.blocking, "run", lambda: None)
        return remove_orphans(run, self.table, self.health, Policy())


@pytest.fixture
def cleaned(world: World, spark: SparkSession) -> Iterator[Cleaned]:
    with open_catalog(world.settings) as connection:
        with connected(world) as catalog:
            make_small_files(catalog, "orders", 2)
        yield Cleaned(world, spark, connection, orphans=5)


def test_orphans_that_are_too_many_to_look_at_count_for_the_share(cleaned: Cleaned) -> None:
    everything = cleaned.find(6)
    few = cleaned.find(2)

    assert (len(everything.files), everything.more) == (5, 0)
    assert (len(few.files), few.more, few.listed) == (2, 3, everything.listed)


def test_a_table_that_names_a_file_under_another_scheme_is_left_alone(cleaned: Cleaned) -> None:
    """It may be the same file: then every file of the table would look like an orphan."""
    path = f"hdfs://namenode{cleaned.place.removeprefix('file:')}/data/orphan-0.parquet"
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    file.spec_id = 0
    with (
        connected(cleaned.world) as catalog,
        catalog.load_table("sales.orders").transaction() as transaction,
        transaction.update_snapshot().fast_append() as append,
    ):
        append.append_data_file(file)

    result = cleaned.remove_orphans()

    reason = "its metadata names files with another scheme or host than its location"
    assert (result.state, result.reason) == ("skipped", f"condemned nothing: {reason}")


def test_a_run_reports_what_it_deleted_found_and_kept() -> None:
    done = result_of(Outcome(2, 20, {"gone or written again": 1}), Outcome(3, 30, {"hidden": 1_000}))
    refused = result_of(Outcome(), Outcome(refusal="it is encrypted"))

    assert (done.state, done.files_deleted, done.bytes_deleted, done.files_found, done.bytes_found) == (
        "done",
        2,
        20,
        3,
        30,
    )
    assert done.reason == "1 gone or written again; 1,000 hidden"
    assert (refused.state, refused.reason) == ("skipped", "condemned nothing: it is encrypted")


def test_a_run_reports_how_many_files_it_left() -> None:
    both = result_of(Outcome(2, 20, left=3), Outcome(3, 30, {"left for the next run": 7}, left=7))
    refused = result_of(Outcome(2, 20, left=3), Outcome(refusal="it is encrypted"))

    assert (both.files_left, both.reason) == (7, "7 left for the next run")
    assert (refused.files_left, refused.reason) == (3, "condemned nothing: it is encrypted; 3 left for the next run")


def test_a_namespace_of_several_levels_is_named_by_its_levels() -> None:
    health = TableHealth(uuid="u", catalog="main", namespace="a.b", name="t", format="iceberg")

    assert identifier_of(health).levels == ("a", "b")


def test_a_run_whose_lease_was_taken_over_deletes_nothing(world: World) -> None:
    """The check of the lease waits for a lake of its own, also from within the work on a table."""
    with PipelineLease(world.settings) as lease:
        run = begin(world.blocking, "run", lease.check)
        world.blocking.wait(run.fence())
        taken = Lease(world.lake, LEASE_KIND)
        held = world.wait(taken.current())
        assert held
        world.wait(
            world.lake.uncached(world.layout.operational(LEASE_KIND, "turn"), LeaseRecord).update(
                lambda before: replace(before, owner="another") if before else None, is_idempotent=True
            )
        )

        with pytest.raises(Conflict, match="another run took over the lease"):
            world.blocking.wait(run.fence())


def test_a_delta_table_is_vacuumed_through_the_same_record(world: World) -> None:
    name = world_identifier("d")
    table = world.wait(create_managed(world.lake, name))
    log = f"{table.location}/_delta_log/{0:020d}.json"
    world.wait(world.lake.locations.create(log, b'{"add": {"path": "live"}}'))
    world.wait(world.lake.locations.create(f"{table.location}/live", b"x"))
    health = TableHealth(
        uuid=table.uuid, catalog=name.catalog, namespace=".".join(name.levels), name=name.name, format="delta"
    )

    result = vacuum(begin(world.blocking, "run", lambda: None), health, Policy())

    assert (result.state, result.files_found, result.files_deleted) == ("done", 0, 0)
    assert "1 younger than the minimum age" in result.reason
