"""Garbage of Delta tables: abandoned stages, orphaned records, the files of dropped tables."""

import pytest

from sandur.errors import Invalid, NotFound
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
from tests.operations.delta_requests import D, create_managed, publish, wanted, write_staged
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Shore
from tests.operations.requests import called, request


async def files_below(shore: Shore, location: str) -> list[str]:
    return await shore.keys(location.removeprefix("memory://store/") + "/")


async def test_an_abandoned_stage_is_deleted_with_its_files() -> None:
    shore = await Shore.furnished(stage_ttl="PT72H")
    server = shore.server()
    stage = await stage_table(server, D)
    await server.locations.create(f"{stage.location}/_delta_log/{0:020d}.json", b"{}")
    shore.clock.advance(72 * HOUR_MS - 1)
    assert await shore.sweep() == {}

    shore.clock.advance(1)
    await shore.sweep()

    assert await files_below(shore, stage.location) == []
    assert await shore.server().delta_stage(stage.uuid).read() is None
    with pytest.raises(NotFound):
        await create_from_staging(shore.server(), wanted(stage.location, stage.uuid), request=request("late"))


async def test_a_swept_stage_cannot_become_a_table() -> None:
    """The mark is written first: a creator that has read the stage before still fails."""
    shore = await Shore.furnished()
    stage = await stage_table(shore.server(), D)
    shore.clock.advance(100 * HOUR_MS)
    await shore.sweep()
    await shore.server().delta_stage(stage.uuid).create(stage)

    with pytest.raises(NotFound, match="no longer exists"):
        await create_from_staging(shore.server(), wanted(stage.location, stage.uuid), request=request("late"))


async def test_the_stage_of_a_table_is_deleted_and_the_table_stays() -> None:
    shore = await Shore.furnished()
    server = shore.server()
    table = await create_managed(server)
    await publish(server, table, 1)
    await server.background.drain()
    shore.clock.advance(100 * HOUR_MS)

    assert await shore.sweep() == {"delta_stages_removed": 1}

    assert (await load_delta_table(shore.server(), D)).uuid == table.uuid
    assert len(await files_below(shore, table.location)) == 1


async def test_the_files_of_a_dropped_managed_table_are_deleted_before_its_record() -> None:
    shore = await Shore.furnished()
    server = shore.server()
    kept, gone = await create_managed(server, called("kept")), await create_managed(server)
    for table in (kept, gone):
        await publish(server, table, 1)
        await write_staged(server, table, "staged.json")
    await drop_table(server, D, request=request("drop"))
    await server.background.drain()
    shore.clock.advance(LONG_MS)

    await shore.sweep()
    assert await files_below(shore, gone.location) == []
    assert len(await files_below(shore, kept.location)) == 2
    shore.clock.advance(100 * HOUR_MS)
    for _ in range(3):  # A record that depends on another is deleted one run later.
        await shore.sweep()

    assert await shore.server().delta_table(gone.uuid).read() is None
    assert (await load_delta_table(shore.server(), called("kept"))).uuid == kept.uuid
    assert shore.trouble == []


async def test_the_files_of_a_dropped_external_table_stay() -> None:
    shore = await Shore.furnished()
    server = shore.server()
    location = "memory://store/tables/default/default/main/ext"
    asked = NewTable(identifier=D, table_type="EXTERNAL", location=location)
    await create_external(server, asked, request=request("r"))
    await server.locations.create(f"{location}/data.parquet", b"x")
    await drop_table(server, D, request=request("drop"))
    shore.clock.advance(LONG_MS)

    await shore.sweep()

    assert len(await files_below(shore, location)) == 1


async def test_a_creation_that_died_before_its_name_is_swept() -> None:
    shore = await Shore.furnished()
    stage = await stage_table(shore.server(), D)

    async def is_unbound(server: Lake) -> bool:
        found = await server.delta_table(stage.uuid).read()
        return found is not None and await server.name(D).read() is None

    await shore.dies_when(
        lambda server: create_from_staging(server, wanted(stage.location, stage.uuid), request=request("r")), is_unbound
    )
    for _ in range(3):
        shore.clock.advance(100 * HOUR_MS)
        await shore.sweep()

    assert await shore.server().delta_stage(stage.uuid).read() is None
    assert await shore.server().delta_table(stage.uuid).read() is None


@pytest.mark.parametrize("location", ["memory://store/x", "memory://store/__unitystorage/x", "memory://store/tables/u"])
async def test_files_in_other_folders_are_never_deleted(location: str) -> None:
    shore = await Shore.furnished()

    with pytest.raises(Invalid):
        await delete_folder(shore.server(), location, Budget(10))
