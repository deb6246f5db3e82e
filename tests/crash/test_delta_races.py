"""Many servers and writers of one Delta table: every version has one commit, and no acknowledged commit is lost."""

import asyncio
import contextlib

import pytest

from sandur.catalog.records import DeltaTable
from sandur.delta.requests import DeltaChange
from sandur.errors import Busy, Exhausted, NotFound, SandurError, SwapLost, VersionTaken
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.publishing import published_location, staged_location, unpublished_commits
from sandur.operations.delta.tables import create_from_staging, drop_table, find_by_id, load_delta_table, rename_table
from sandur.operations.lake import Lake
from tests.crash.delta_world import NEW, TARGET, DeltaWorld, check_delta_invariants, make_delta_world
from tests.operations.delta_requests import D, commit_file, new_delta_table, write_staged
from tests.operations.requests import identifier_of, request

WRITERS = 8
COMMITS = 4
SEEDS = range(6)


async def write(world: DeltaWorld, writer: int, *, publishes: bool = False) -> list[tuple[int, str]]:
    """Commit several times, each with the next version; return the acknowledged commits."""
    server = world.server()
    made: list[tuple[int, str]] = []
    tries = 0
    while len(made) < COMMITS and tries < 500:
        tries += 1
        table = await load_delta_table(server, D)
        version, name = table.last_version + 1, f"{writer}-{tries}.json"
        await write_staged(server, table, name, name.encode())
        if publishes:
            await publish_all(server, table)
        reported = table.last_version if publishes else None
        change = DeltaChange(asserted_uuid=table.uuid, commit=commit_file(version, name), published=reported)
        try:
            await update_table(server, D, change, request(name))
        except (VersionTaken, Busy):
            continue
        except Exhausted:
            await publish_all(server, table)
            continue
        made.append((version, name))
    await server.background.drain()
    return made


async def publish_all(server: Lake, table: DeltaTable) -> None:
    """Publish the staged commits as clients do; a second client finds them published."""
    for row in table.commits:
        content = await server.locations.read(staged_location(table, row.file_name)) or b"{}"
        with contextlib.suppress(SandurError, SwapLost):
            await server.locations.create(published_location(table, row.version), content)


@pytest.mark.parametrize("seed", SEEDS)
async def test_eight_writers_get_distinct_versions_and_lose_none(seed: int) -> None:
    world = await make_delta_world(seed)

    made = await asyncio.gather(*(write(world, writer, publishes=True) for writer in range(WRITERS)))

    await check_delta_invariants(world)
    acknowledged = [one for some in made for one in some]
    versions = [version for version, _ in acknowledged]
    assert len(acknowledged) == WRITERS * COMMITS
    assert len(set(versions)) == len(versions), "a version was given to two"
    table = await world.table()
    assert table is not None
    assert sorted(versions) == list(range(4, table.last_version + 1))
    kept = {row.version: row.file_name for row in table.commits}
    assert all(kept[version] == name for version, name in acknowledged if version in kept)


@pytest.mark.parametrize("seed", SEEDS)
async def test_true_and_false_reports_during_commits_lose_no_version(seed: int) -> None:
    world = await make_delta_world(seed)

    async def report_falsely() -> None:
        for _ in range(10):
            server = world.server()
            table = await load_delta_table(server, D)
            change = DeltaChange(asserted_uuid=table.uuid, published=table.last_version)
            try:
                await update_table(server, D, change, request("lie"))
            except Busy:
                continue

    await asyncio.gather(
        *(write(world, writer, publishes=writer == 0) for writer in range(3)), report_falsely(), report_falsely()
    )

    await check_delta_invariants(world)


@pytest.mark.parametrize("seed", SEEDS)
async def test_commits_after_a_drop_fail_and_commits_before_it_are_kept(seed: int) -> None:
    world = await make_delta_world(seed)
    is_dropped = asyncio.Event()
    late: list[int] = []

    async def commit_until_gone(writer: int) -> None:
        server = world.server()
        for number in range(40):
            try:
                table = (await find_by_id(server, world.uuids["d"])).value
                began_after = is_dropped.is_set()
                change = DeltaChange(
                    asserted_uuid=table.uuid, commit=commit_file(table.last_version + 1, f"{writer}-{number}.json")
                )
                after = await update_table(server, D, change, request("c"))
                if began_after:
                    late.append(after.last_version)
            except (VersionTaken, Busy, Exhausted):
                continue
            except NotFound:
                return

    async def drop() -> None:
        server = world.server()
        await drop_table(server, D, request=request("drop"))
        is_dropped.set()

    await asyncio.gather(*(commit_until_gone(writer) for writer in range(4)), drop())

    assert late == []
    assert await world.table() is None
    with pytest.raises(NotFound):
        await find_by_id(world.server(), world.uuids["d"])


@pytest.mark.parametrize("seed", SEEDS)
async def test_concurrent_finalizations_of_one_stage_get_the_same_answer(seed: int) -> None:
    world = await make_delta_world(seed)
    new_table = new_delta_table(world.staged_at, world.uuids["new"], NEW)

    async def finalize(label: str, identifier_name: str = "new") -> str:
        wish = new_delta_table(world.staged_at, world.uuids["new"], identifier_of(identifier_name))
        try:
            made = await create_from_staging(
                world.server(), new_table if identifier_name == "new" else wish, request=request(label)
            )
        except SandurError as error:
            return type(error).__name__
        return made.uuid

    said = await asyncio.gather(*(finalize("same") for _ in range(4)), finalize("other", "target"))

    await check_delta_invariants(world)
    tables = [await world.table(name) for name in (NEW, TARGET)]
    assert sum(table is not None for table in tables) == 1
    if tables[0] is not None:
        assert set(said[:4]) <= {world.uuids["new"], "Busy"}
        assert world.uuids["new"] in said[:4]


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_rename_during_commits_loses_nothing(seed: int) -> None:
    world = await make_delta_world(seed)

    async def commit(version: int) -> None:
        change = DeltaChange(asserted_uuid=world.uuids["d"], commit=commit_file(version, f"{version}-r.json"))
        for identifier in (D, TARGET, D, TARGET):
            try:
                await update_table(world.server(), identifier, change, request("c"))
            except (NotFound, Busy):
                continue
            return

    await asyncio.gather(commit(4), rename_table(world.server(), D, TARGET.name, request=request("rename")))

    await check_delta_invariants(world)
    table = await world.table(TARGET)
    assert table is not None
    assert next(row.version for row in unpublished_commits(world.server(), table)) in {3, 4}
