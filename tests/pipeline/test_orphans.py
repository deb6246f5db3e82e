"""The parts of the removal of orphans that run on Spark without an engine: the listing, and the record of a run."""

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.policies import Policy
from sandur.errors import Conflict
from sandur.operations.janitors.lease import Lease, LeaseRecord
from sandur.operations.maintenance.orphans import Outcome
from sandur.pipeline.maintenance.evidence import identifier_of
from sandur.pipeline.maintenance.orphans import begin, listing, result_of, vacuum
from sandur.pipeline.runs import LEASE_KIND, PipelineLease
from tests.operations.delta_requests import create_managed
from tests.operations.requests import content
from tests.pipeline.world import World
from tests.pipeline.world import identifier_of as world_identifier


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
