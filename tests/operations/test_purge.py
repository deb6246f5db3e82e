"""A purge deletes all files that the metadata of a dropped table names, and no others."""

from collections.abc import Mapping

import pytest

from sandur.catalog.records import PurgeOrder
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name, queue_purge
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import commit_view, create_view
from sandur.storage.contract import ABSENT
from tests.operations.janitor_runs import HOUR_MS, LONG_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    identifier_of,
    keyed_request,
    load,
    replace_view,
    request,
    set_location,
    view,
)
from tests.operations.table_files import (
    DELETED,
    TableWithFiles,
    add_snapshot,
    create_table_with_files,
    current_location,
    files_below,
    manifest,
    manifest_list,
    set_properties,
)
from tests.planning.odd_manifests import avro_file

DELAY_MS = 600_000


async def drop(lake: Lake, table: TableWithFiles, *, purge: bool = True) -> None:
    sent = request(f"drop {table.identifier}")
    await drop_name(lake, table.identifier, kind="table", purge=purge, request=sent)
    await lake.background.drain()


async def purged(cluster: Cluster, *tables: TableWithFiles) -> Mapping[str, int]:
    for table in tables:
        await drop(cluster.server(), table)
    cluster.clock.advance(DELAY_MS)
    return await cluster.sweep()


async def orders(cluster: Cluster) -> list[PurgeOrder]:
    server = cluster.server()
    found = []
    for key in await cluster.keys(server.layout.purge_orders_folder()):
        order = await server.purge_order(*server.layout.parse_purge_order(key)).read()
        assert order
        found.append(order.value)
    return found


async def test_every_file_in_the_metadata_is_deleted_before_the_order() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server(), snapshots=3)
    assert len(await files_below(cluster.server(), table)) == 5 * 3 + 3 + 7

    swept = await purged(cluster, table)

    assert (swept["purge_removed"], swept["purge_files_removed"]) == (1, 25)
    assert await files_below(cluster.server(), table) == []
    assert await orders(cluster) == []


async def test_without_a_purge_every_file_stays() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    before = await files_below(cluster.server(), table)

    await drop(cluster.server(), table, purge=False)
    cluster.clock.advance(LONG_MS)
    await cluster.sweep()

    assert await files_below(cluster.server(), table) == before


async def test_files_that_the_metadata_does_not_name_stay() -> None:
    """A purge never deletes a directory as a whole."""
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    await cluster.server().locations.create(table.at("data/of-somebody.parquet"), b"x")
    await cluster.server().locations.create(table.at("notes.txt"), b"x")

    await purged(cluster, table)

    assert await files_below(cluster.server(), table) == ["data/of-somebody.parquet", "notes.txt"]


async def test_nothing_is_deleted_before_the_delay() -> None:
    cluster = await Cluster.with_catalog(purge_delay="PT2H")
    table = await create_table_with_files(cluster.server())
    before = await files_below(cluster.server(), table)
    await drop(cluster.server(), table)
    cluster.clock.advance(2 * HOUR_MS - 1)

    await cluster.sweep()

    assert await files_below(cluster.server(), table) == before
    cluster.clock.advance(1)
    await cluster.sweep()
    assert await files_below(cluster.server(), table) == []


@pytest.mark.parametrize("value", ["false", "FALSE", "no"])
async def test_data_files_stay_when_gc_is_disabled(value: str) -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    await set_properties(cluster.server(), table, **{"gc.enabled": value})

    await purged(cluster, table)

    left = await files_below(cluster.server(), table)
    assert left == [f"data/{number}-{part}.parquet" for number in (1, 2) for part in "ab"]


async def test_a_missing_file_is_no_error() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    for path in ("data/1-a.parquet", "metadata/m1.avro", "metadata/snap-2.avro"):
        await cluster.server().locations.remove(table.at(path))

    swept = await purged(cluster, table)

    assert swept["purge_removed"] == 1
    assert cluster.errors == []
    # No file names these any more: the manifest was removed before its files.
    assert await files_below(cluster.server(), table) == [
        "data/1-b.parquet",
        "data/2-a.parquet",
        "data/2-b.parquet",
        "metadata/m2.avro",
    ]


async def test_deleted_entries_of_a_manifest_are_skipped() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server(), snapshots=1)
    other = await table.write(cluster.server(), table.at("data/kept.parquet"))
    gone = await table.write(cluster.server(), table.at("metadata/m2.avro"), manifest(other, status=DELETED))
    listed = await table.write(cluster.server(), table.at("metadata/snap-2.avro"), manifest_list(gone))
    await add_snapshot(cluster.server(), table, 2, listed)

    await purged(cluster, table)

    assert await files_below(cluster.server(), table) == ["data/kept.parquet"]


@pytest.mark.parametrize("codec", ["null", "snappy", "zstandard"])
async def test_manifests_are_read_with_every_compression(codec: str) -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server(), snapshots=1)
    data = await table.write(cluster.server(), table.at("data/x.parquet"))
    written = await table.write(cluster.server(), table.at("metadata/m2.avro"), manifest(data, codec=codec))
    listed = await table.write(cluster.server(), table.at("metadata/snap-2.avro"), manifest_list(written))
    await add_snapshot(cluster.server(), table, 2, listed)

    await purged(cluster, table)

    assert await files_below(cluster.server(), table) == []


async def test_a_manifest_with_many_files_is_purged_in_batches() -> None:
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server(), snapshots=1)
    data = [table.at(f"data/many-{number}.parquet") for number in range(1_203)]
    for path in data:
        await cluster.server().locations.create(path, b"x")
    written = await table.write(cluster.server(), table.at("metadata/m2.avro"), manifest(*data))
    listed = await table.write(cluster.server(), table.at("metadata/snap-2.avro"), manifest_list(written))
    await add_snapshot(cluster.server(), table, 2, listed)

    await purged(cluster, table)

    assert await files_below(cluster.server(), table) == []


async def test_a_purge_beyond_the_budget_continues_in_the_next_runs() -> None:
    cluster = await Cluster.with_catalog(janitor_objects_max=10)
    table = await create_table_with_files(cluster.server(), snapshots=30)
    count = len(await files_below(cluster.server(), table))
    await drop(cluster.server(), table)
    cluster.clock.advance(DELAY_MS)

    runs = 0
    while await orders(cluster):
        swept = await cluster.sweep()
        assert swept.get("purge_files_removed", 0) <= 10
        runs += 1
        assert runs < count

    assert runs > 1
    assert await files_below(cluster.server(), table) == []


async def test_files_outside_of_the_table_are_never_touched() -> None:
    """A client that may commit may write any path into a manifest."""
    cluster = await Cluster.with_catalog()
    victim = await create_table_with_files(cluster.server(), "victim")
    server = cluster.server()
    inside = f"{server.area}/main/shared.parquet"
    outside = "memory://store/outside.parquet"
    for path in (inside, outside):
        await server.locations.create(path, b"x")
    paths = [
        inside,
        outside,
        *victim.files,
        await current_location(server, victim),
        f"{victim.location}/../{victim.location.rpartition('/')[2]}/data/1-a.parquet",
        "memory://elsewhere/x",
        "s3://other/x",
        "/etc/passwd",
        "",
    ]
    table = await create_table_with_files(server, "evil", snapshots=1)
    lies = await table.write(server, table.at("metadata/lies.avro"), manifest(*paths))
    listed = await table.write(server, table.at("metadata/snap-2.avro"), manifest_list(lies, *victim.files))
    await add_snapshot(server, table, 2, listed)
    before = await files_below(server, victim)

    swept = await purged(cluster, table)

    assert swept["purge_files_left"] >= len(paths) - 1
    assert await files_below(server, table) == []
    assert await files_below(server, victim) == before
    assert await server.locations.exists(inside)
    assert await server.locations.exists(outside)


async def test_files_in_the_write_paths_of_the_table_are_deleted() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    data, metadata = f"{server.area}/main/data-of-t", f"{server.area}/main/metadata-of-t"
    table = await create_table_with_files(
        server, snapshots=1, properties={"write.data.path": data, "write.metadata.path": metadata}
    )
    file = await table.write(server, f"{data}/x.parquet")
    written = await table.write(server, f"{metadata}/m2.avro", manifest(file))
    listed = await table.write(server, f"{metadata}/snap-2.avro", manifest_list(written))
    await add_snapshot(server, table, 2, listed)
    head = await current_location(server, table)
    assert head.startswith(metadata)

    await purged(cluster, table)

    assert [path for path in (*table.files, head) if await server.locations.exists(path)] == []


async def test_files_at_an_earlier_location_of_the_table_stay() -> None:
    """An earlier location may belong to another table now, so its files stay."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    moved = commit(set_location(f"{server.area}/main/elsewhere"))
    await commit_table(server, table.identifier, moved, request("move"))

    swept = await purged(cluster, table)

    assert swept["purge_files_left"]
    assert "data/1-a.parquet" in await files_below(server, table)
    assert await orders(cluster) == []


# Nested as deep as it has bytes; a recursive reader would crash.
ENDLESS = avro_file(
    {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}, [(1, b"\x02" * 1_000_000)]
)


@pytest.mark.parametrize("content", [b"Obj\x01 and no more", ENDLESS], ids=["no Avro", "endless"])
@pytest.mark.parametrize("which", ["list", "manifest"])
async def test_a_manifest_that_cannot_be_read_blocks_the_purge(which: str, content: bytes) -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, snapshots=1)
    broken = await table.write(server, table.at("metadata/broken.avro"), content)
    listed = broken
    if which == "manifest":
        listed = await table.write(server, table.at("metadata/snap-2.avro"), manifest_list(broken))
    await add_snapshot(server, table, 2, listed)

    swept = await purged(cluster, table)

    assert swept["purge_blocked"] == 1
    assert "broken.avro" in (await orders(cluster))[0].blocked
    assert any("is not purged" in error or "are not purged" in error for error in cluster.errors)
    assert await server.locations.exists(broken)
    assert "purge_blocked" not in await cluster.sweep()


async def test_metadata_that_cannot_be_read_blocks_the_purge() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    key = (await current_location(server, table)).removeprefix(f"{server.locations.own}/")
    found = await cluster.store.get(key)
    assert found
    await cluster.store.put(key, b"{", expected=found.version)

    swept = await purged(cluster, table)

    assert swept["purge_blocked"] == 1
    assert await server.locations.exists(table.files[0])


async def test_a_blocked_order_is_kept_for_a_month() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server, snapshots=1)
    listed = await table.write(server, table.at("metadata/broken.avro"), b"nothing")
    await add_snapshot(server, table, 2, listed)
    await purged(cluster, table)
    cluster.clock.advance(30 * 24 * HOUR_MS - 1)
    await cluster.sweep()
    assert await orders(cluster)

    cluster.clock.advance(1)

    assert (await cluster.sweep())["purge_removed"] == 1
    assert await orders(cluster) == []


async def test_an_order_is_valid_only_for_its_own_drop() -> None:
    """Two concurrent drops, one with a purge: if the other one wins, the files stay."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    found = await resolve_name(server, table.identifier)
    assert found
    await queue_purge(server, found, drop="one that loses")
    before = await files_below(server, table)

    await drop(server, table, purge=False)
    cluster.clock.advance(24 * HOUR_MS - 1)
    await cluster.sweep()
    assert await orders(cluster)
    cluster.clock.advance(1)
    await cluster.sweep()

    assert await orders(cluster) == []
    assert await files_below(server, table) == before


async def test_an_order_of_a_drop_that_never_happened_is_void_after_a_day() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    found = await resolve_name(server, table.identifier)
    assert found
    await queue_purge(server, found, drop="one that never came")
    cluster.clock.advance(24 * HOUR_MS)

    assert (await cluster.sweep())["purge_removed"] == 1
    assert (await load(cluster.server(), table.identifier)).table_uuid == table.uuid
    assert await server.locations.exists(table.files[0])


@pytest.mark.parametrize("with_key", [True, False])
async def test_a_drop_that_dies_after_its_swap_is_purged(with_key: bool) -> None:  # noqa: FBT001 - a parameter
    cluster = await Cluster.with_catalog()
    table = await create_table_with_files(cluster.server())
    sent = keyed_request("drop") if with_key else request("drop")

    async def is_dropped(server: Lake) -> bool:
        return await resolve_name(server, table.identifier) is None

    await cluster.kill_when(
        lambda server: drop_name(server, table.identifier, kind="table", purge=True, request=sent), is_dropped
    )
    cluster.clock.advance(DELAY_MS)

    await cluster.sweep()

    assert await files_below(cluster.server(), table) == []


async def test_a_renamed_table_is_purged() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    table = await create_table_with_files(server)
    await rename(server, table.identifier, identifier_of("renamed"), kind="table", request=request("rename"))
    await server.background.drain()
    table.identifier = identifier_of("renamed")

    await purged(cluster, table)

    assert await files_below(server, table) == []


async def test_the_known_metadata_files_of_a_view_are_deleted() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    identifier = identifier_of("v")
    made = await create_view(server, NAMESPACE, view("v"), request("create"))
    after = await commit_view(server, identifier, replace_view("select 2"), request("replace"))
    await server.background.drain()
    await drop_name(server, identifier, kind="view", purge=True, request=request("drop"))
    await server.background.drain()
    cluster.clock.advance(DELAY_MS)

    swept = await cluster.sweep()

    assert swept["purge_files_removed"] == 2
    assert not await server.locations.exists(made.metadata_location)
    assert not await server.locations.exists(after.metadata_location)


async def test_a_failing_order_does_not_stop_the_others() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    good, bad = await create_table_with_files(server, "good"), await create_table_with_files(server, "bad")
    await drop(server, good)
    await drop(server, bad)
    key = server.layout.purge_order("00000000-0000-0000-0000-000000000000", "x")
    await cluster.store.put(key, b"broken", expected=ABSENT)
    cluster.clock.advance(DELAY_MS)

    swept = await cluster.sweep()

    assert (swept["purge_failed"], swept["purge_removed"]) == (1, 2)
    assert any("is not a PurgeOrder" in error for error in cluster.errors)
