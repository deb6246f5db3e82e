"""The janitor of grants: it removes grants of what no longer exists, and segments that no manifest names (A14)."""

import pytest

from sandur.catalog.security.grants import GrantChange
from sandur.catalog.security.manifest import Authority, Group
from sandur.operations.access import Security
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.drop import drop_catalog, drop_namespace
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.drop import drop_name
from sandur.operations.unity import registry
from sandur.operations.unity.grants import update_grants
from sandur.storage.contract import list_all
from tests.operations.hooked_store import HookedStore
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.principals import add_principals, grant
from tests.operations.requests import ELSEWHERE, create, identifier_of, request


@pytest.fixture
async def cluster() -> Cluster:
    """A store with a grant on one object of each kind of record."""
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create(server, "t")
    await create(server, "kept")
    await create_catalog(server, "other", root=None, properties={}, request=request("other"))
    await registry.create_credential(server, "k", role=None, comment=None, request=request("k"))
    await add_principals(server, "reader")
    for name in ("main.a.t", "main.a.kept"):
        await grant(server, "reader", "table", name, "SELECT")
    await grant(server, "reader", "schema", "main.b", "USE SCHEMA")
    await grant(server, "reader", "catalog", "other", "USE CATALOG")
    await grant(server, "reader", "credential", "k", "BROWSE")
    await grant(server, "reader", "metastore", "metastore", "CREATE CATALOG")
    await server.background.drain()
    return cluster


async def granted_types(lake: Lake) -> list[str]:
    authority = await lake.feature(Security).read()
    return sorted(held.type for shard in authority.shards.values() for held in shard.segment.grants.values())


async def segments(cluster: Cluster) -> list[str]:
    server = cluster.server()
    return [listed.key for listed in await list_all(server.store, server.layout.security_segments_folder())]


async def test_grants_on_what_exists_stay(cluster: Cluster) -> None:
    before = await granted_types(cluster.server())
    cluster.clock.advance(LONG_MS)

    await cluster.sweep()

    assert await granted_types(cluster.server()) == before


async def test_grants_on_what_was_dropped_go(cluster: Cluster) -> None:
    server = cluster.server()
    await drop_name(server, identifier_of("t"), kind="table", request=request("drop"))
    await drop_namespace(server, ELSEWHERE, request("drop b"))
    await drop_catalog(server, "other", force=False, request=request("drop other"))
    await registry.drop_credential(server, "k", force=False, request=request("drop k"))
    await server.background.drain()

    for _ in range(3):  # The record of a table goes first, after the lifetime of keys.
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()

    assert await granted_types(cluster.server()) == ["metastore", "table"]


async def test_segments_without_a_manifest_go_and_the_others_stay(cluster: Cluster) -> None:
    change = (GrantChange("reader", ("MODIFY",)),)
    await update_grants(cluster.server(), "table", "main.a.kept", change, request("replaces a segment"))
    before = await segments(cluster)
    cluster.clock.advance(LONG_MS)

    await cluster.sweep()

    authority = await cluster.server().feature(Security).read()
    assert len(await segments(cluster)) == len(authority.manifest.segments) < len(before)
    assert authority.principal_named("reader")


async def test_a_writer_that_wrote_its_segments_before_the_sweep_cannot_name_a_deleted_one(cluster: Cluster) -> None:
    """A14: without the bump, the manifest would name a segment that does not exist, and no request could be decided."""
    store = HookedStore(cluster.store)
    server = cluster.server(store)

    async def swept() -> None:
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()

    store.before("put", server.layout.security_manifest(), swept)
    change = (GrantChange("reader", ("MODIFY",)),)
    await update_grants(server, "table", "main.a.kept", change, request("late"))

    authority = await cluster.server().feature(Security).read()
    assert authority.manifest.number
    assert await granted_types(cluster.server())


async def test_a_reader_of_an_older_manifest_reads_again_when_a_segment_is_gone(cluster: Cluster) -> None:
    store = HookedStore(cluster.store)
    reader = cluster.server(store)
    manifest = await cluster.server().security().read()
    assert manifest
    first = next(iter(manifest.value.segments.values()))

    def add(authority: Authority) -> SecurityEdit:
        del authority
        return SecurityEdit(groups={"g": Group(id="g", name="g")})

    async def replaced() -> None:
        for name in ("main.a.t", "main.a.kept"):
            await grant(cluster.server(), "reader", "table", name, "MODIFY")
        await add_principals(cluster.server(), "reader", "new")
        await SecurityChange(cluster.server(), request("add"), "add", add).run()
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()

    store.before("get", cluster.server().layout.security_segment(first), replaced)
    authority = await reader.feature(Security).read()

    assert authority.manifest.number > manifest.value.number
    assert "g" in authority.groups
