"""Delta tables that name files of others, as shallow clones do, block their deletion."""

import pytest
from msgspec.structs import replace

from sandur.catalog.locations import canonical_address
from sandur.operations.delta.tables import NewTable, create_external
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.maintenance.delta_files import DeltaClones
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import D, create_managed
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import identifier_of, request
from tests.operations.test_vacuum import PROTOCOL, Vacuumed, added, checkpoint


async def test_a_shallow_clone_blocks_the_vacuum_of_its_source() -> None:
    made = await Vacuumed.managed(added("live"))
    await made.write("live", "old")
    server = made.cluster.server()
    clone = Vacuumed(made.cluster, await create_managed(server, identifier_of("clone")))
    await clone.publish(0, PROTOCOL, added(made.at("old")))
    made.cluster.clock.advance(8 * DAY_MS)

    found = await made.condemn()

    assert found.refusal == f"table {clone.table.uuid} names files of it, as a shallow clone does"


async def test_the_log_of_a_table_is_read_again_only_after_a_commit() -> None:
    """A run asks for the clones of each table that it cleans."""
    made = await Vacuumed.external(added("file:/elsewhere/one"))
    spy = SpyStore(made.cluster.store)
    clones = DeltaClones(made.cluster.server(spy))
    one, two = (canonical_address(f"file:/elsewhere/{name}") for name in ("one", "two"))

    found = [await clones.user_of("other", place) for place in (one, two, one)]
    reads = len([key for key in spy.keys("get") if "_delta_log/" in key])
    await made.publish(1, added("file:/elsewhere/two"))
    after = await clones.user_of("other", two)

    user = f"table {made.table.uuid} names files of it, as a shallow clone does"
    assert (found, reads, after) == ([user, "", user], 1, user)


async def test_a_clone_that_writes_its_first_commit_during_a_run_counts() -> None:
    """The record of an external table does not show its commits, not even the first one."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    new = NewTable(identifier=D, table_type="EXTERNAL", location=f"{server.area}/main/outside")
    made = Vacuumed(cluster, await create_external(server, new, request=request("external")))
    clones = DeltaClones(cluster.server())
    place = canonical_address("file:/elsewhere/one")

    before = await clones.user_of("other", place)
    await made.publish(0, PROTOCOL, added("file:/elsewhere/one/x.parquet"))
    after = await clones.user_of("other", place)

    assert (before, after) == ("", f"table {made.table.uuid} names files of it, as a shallow clone does")


async def test_a_managed_clone_is_read_again_only_when_its_record_changed() -> None:
    made = await Vacuumed.managed(added("file:/elsewhere/one"))
    spy = SpyStore(made.cluster.store)
    clones = DeltaClones(made.cluster.server(spy))
    one, two = (canonical_address(f"file:/elsewhere/{name}") for name in ("one", "two"))
    user = f"table {made.table.uuid} names files of it, as a shallow clone does"

    first = await clones.user_of("other", one)
    spy.reset()
    second = await clones.user_of("other", one)
    reads = len(spy.keys("get")) + len(spy.keys("get_if_changed"))
    await made.commit(1, added("file:/elsewhere/two"))
    third = await clones.user_of("other", two)

    assert (first, second, third) == (user, user, user)
    assert reads == 0


async def test_a_clone_that_is_gone_is_forgotten() -> None:
    made = await Vacuumed.managed(added("file:/elsewhere/one"))
    server = made.cluster.server()
    clones = DeltaClones(server)
    one = canonical_address("file:/elsewhere/one")
    cell = server.delta_table(made.table.uuid)
    record = await cell.read()
    assert record

    assert await clones.user_of("other", one)
    killed = await cell.swap(replace(record.value, state="killed"), expected=record.version)
    ended = await clones.user_of("other", one)
    await cell.empty(expected=killed.version)
    gone = await clones.user_of("other", one)
    await cell.create(record.value)
    again = await clones.user_of("other", one)

    assert (ended, gone) == ("", "")
    assert again == f"table {made.table.uuid} names files of it, as a shallow clone does"


@pytest.mark.parametrize("form", ["a commit", "a checkpoint"])
async def test_a_clone_that_names_a_deletion_vector_elsewhere_counts(form: str) -> None:
    made = await Vacuumed.external()
    vector = {"storageType": "p", "pathOrInlineDv": "file:/elsewhere/dv.bin", "offset": 1, "cardinality": 1}
    if form == "a commit":
        await made.publish(1, added("own"), added("with-vector", deletionVector=vector))
    else:
        rows = [added("own"), added("file:/elsewhere/x.parquet")]
        await made.write(f"_delta_log/{1:020d}.checkpoint.parquet", data=checkpoint(rows))

    found = await DeltaClones(made.cluster.server()).user_of("other", canonical_address("file:/elsewhere"))

    assert found == f"table {made.table.uuid} names files of it, as a shallow clone does"
