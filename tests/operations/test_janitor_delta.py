"""Garbage of Delta tables: abandoned stages, orphaned records, the files of dropped tables."""

import pytest

from sandur.errors import Invalid, NotFound, SwapLost
from sandur.operations.delta.tables import (
    NewTable,
    create_external,
    create_from_staging,
    drop_table,
    load_delta_table,
    stage_table,
)
from sandur.operations.janitors.files import Budget, delete_folder
from sandur.operations.lake import Lake
from sandur.storage.contract import Version
from tests.fakes.wrapping_store import WrappingStore
from tests.operations.delta_requests import D, create_managed, new_delta_table, publish, write_staged
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Cluster
from tests.operations.requests import identifier_of, request

UUID = "5b6b2b4e-0000-4000-8000-00000000000a"
OTHER = "5b6b2b4e-0000-4000-8000-00000000000b"


async def files_below(cluster: Cluster, location: str) -> list[str]:
    return await cluster.keys(location.removeprefix("memory://store/") + "/")


async def test_an_abandoned_stage_is_deleted_with_its_files() -> None:
    cluster = await Cluster.with_catalog(stage_ttl="PT72H")
    server = cluster.server()
    stage = await stage_table(server, D)
    await server.locations.create(f"{stage.location}/_delta_log/{0:020d}.json", b"{}")
    cluster.clock.advance(72 * HOUR_MS - 1)
    assert await cluster.sweep() == {}

    cluster.clock.advance(1)
    await cluster.sweep()

    assert await files_below(cluster, stage.location) == []
    assert await cluster.server().delta_stage(stage.uuid).read() is None
    with pytest.raises(NotFound):
        await create_from_staging(
            cluster.server(), new_delta_table(stage.location, stage.uuid), request=request("late")
        )


async def test_a_swept_stage_cannot_become_a_table() -> None:
    """The mark is written first: a creator that has read the stage before still fails."""
    cluster = await Cluster.with_catalog()
    stage = await stage_table(cluster.server(), D)
    cluster.clock.advance(100 * HOUR_MS)
    await cluster.sweep()
    await cluster.server().delta_stage(stage.uuid).create(stage)

    with pytest.raises(NotFound, match="no longer exists"):
        await create_from_staging(
            cluster.server(), new_delta_table(stage.location, stage.uuid), request=request("late")
        )


async def test_the_stage_of_a_table_is_deleted_and_the_table_stays() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_managed(server)
    await publish(server, table, 1)
    await server.background.drain()
    cluster.clock.advance(100 * HOUR_MS)

    assert await cluster.sweep() == {"delta_stages_removed": 1}

    assert (await load_delta_table(cluster.server(), D)).uuid == table.uuid
    assert len(await files_below(cluster, table.location)) == 1


async def test_the_files_of_a_dropped_managed_table_are_deleted_before_its_record() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    kept, gone = await create_managed(server, identifier_of("kept")), await create_managed(server)
    for table in (kept, gone):
        await publish(server, table, 1)
        await write_staged(server, table, "staged.json")
    await drop_table(server, D, request=request("drop"))
    await server.background.drain()
    cluster.clock.advance(LONG_MS)

    await cluster.sweep()
    assert await files_below(cluster, gone.location) == []
    assert len(await files_below(cluster, kept.location)) == 2
    cluster.clock.advance(100 * HOUR_MS)
    for _ in range(3):  # A record that depends on another is deleted one run later.
        await cluster.sweep()

    assert await cluster.server().delta_table(gone.uuid).read() is None
    assert (await load_delta_table(cluster.server(), identifier_of("kept"))).uuid == kept.uuid
    assert cluster.errors == []


async def test_the_files_of_a_dropped_external_table_stay() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    location = "memory://store/tables/default/default/main/ext"
    asked = NewTable(identifier=D, table_type="EXTERNAL", location=location)
    await create_external(server, asked, request=request("r"))
    await server.locations.create(f"{location}/data.parquet", b"x")
    await drop_table(server, D, request=request("drop"))
    cluster.clock.advance(LONG_MS)

    await cluster.sweep()

    assert len(await files_below(cluster, location)) == 1


async def test_a_creation_that_died_before_its_name_is_swept() -> None:
    cluster = await Cluster.with_catalog()
    stage = await stage_table(cluster.server(), D)

    async def is_unbound(server: Lake) -> bool:
        found = await server.delta_table(stage.uuid).read()
        return found is not None and await server.name(D).read() is None

    await cluster.kill_when(
        lambda server: create_from_staging(server, new_delta_table(stage.location, stage.uuid), request=request("r")),
        is_unbound,
    )
    for _ in range(3):
        cluster.clock.advance(100 * HOUR_MS)
        await cluster.sweep()

    assert await cluster.server().delta_stage(stage.uuid).read() is None
    assert await cluster.server().delta_table(stage.uuid).read() is None


@pytest.mark.parametrize(
    "location",
    [
        "memory://store/x",
        "memory://store/__unitystorage/x",
        f"memory://store/tables/{OTHER}",
        f"memory://store/r/__unitystorage/a/t-{OTHER}",
        f"memory://store/r/__unitystorage/a/t-{OTHER}/below",
    ],
)
async def test_files_in_other_folders_are_never_deleted(location: str) -> None:
    cluster = await Cluster.with_catalog()

    async def confirm() -> None:
        pytest.fail("nothing may be deleted")

    with pytest.raises(Invalid):
        await delete_folder(cluster.server(), location, UUID, Budget(10), confirm=confirm)


class _RefusingStore(WrappingStore):
    """Loses every delete of one object."""

    refused = ""

    async def delete(self, key: str, *, expected: Version) -> None:
        if key.endswith(self.refused):
            raise SwapLost(f"object {key}: not at the expected version {expected}")
        await super().delete(key, expected=expected)


async def test_a_file_that_cannot_be_deleted_at_its_version_ends_the_run() -> None:
    cluster = await Cluster.with_catalog()
    store = _RefusingStore(cluster.store)
    store.refused = "_delta_log"
    lake = cluster.server(store)
    location = f"memory://store/r/__unitystorage/a/t-{UUID}"
    for name in ("_delta_log", "data.parquet"):
        await lake.locations.create(f"{location}/{name}", b"1")
    looks = 0

    async def confirm() -> None:
        nonlocal looks
        looks += 1
        assert looks < 10

    with pytest.raises(SwapLost, match="as fast as they are deleted"):
        await delete_folder(lake, location, UUID, Budget(10), confirm=confirm)

    assert [key.rpartition("/")[2] for key in await files_below(cluster, location)] == ["_delta_log"]
