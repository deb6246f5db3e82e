"""Stores that are older than location claims: a janitor claims all places; until then no new one is named (P13)."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from sandur.catalog.locations import canonical_address
from sandur.catalog.records import Securable
from sandur.errors import Busy, Invalid
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import Completeness
from sandur.operations.tables.commit import commit_table
from sandur.operations.unity.registry import create_credential, create_location
from sandur.storage.contract import ABSENT, list_all
from sandur.storage.layout import LOCATIONS_COMPLETE, Layout
from tests.operations.claimed_places import (
    at,
    check_places,
    claimed,
    external_delta,
    forget_claims,
    make_volume,
    migrate,
    older_volume,
)
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.requests import NAMESPACE, append, commit, create, identifier_of, load, request, set_location
from tests.operations.table_files import create_table_with_files, files_below
from tests.operations.test_purge import DELAY_MS, drop, orders

T = identifier_of("t")


async def older_store(janitor_objects_max: int = 10_000) -> Cluster:
    """A store with tables at named and at generated places, a volume and roots, all without claims and `places`."""
    cluster = await Cluster.with_catalog(allowed_locations=["s3://lake"], janitor_objects_max=janitor_objects_max)
    server = cluster.server()
    await create(server, "t", location=at(server, "named/t"))
    await create(server, "moved", location=at(server, "named/moved"))
    await commit_table(
        server, identifier_of("moved"), commit(set_location(at(server, "second/moved"))), request("move")
    )
    await external_delta(server, "named/d")
    await make_volume(server, "named/v")
    await create(server, "default")
    await create_catalog(server, "house", root="s3://lake/house", properties={}, request=request("house"))
    await update_namespace_properties(
        server, NAMESPACE, removals=(), updates={"location": at(server, "team")}, request=request("place")
    )
    await create_credential(server, "k", role=None, comment=None, request=request("k"))
    await create_location(
        server, "l", url="s3://lake/external", credential_name="k", comment=None, request=request("l")
    )
    await server.background.drain()
    await forget_claims(cluster)
    await forget_places(server)
    return cluster


async def forget_places(lake: Lake) -> None:
    for listed in await list_all(lake.store, lake.layout.pointers_folder()):
        cell = lake.pointer(lake.layout.parse_pointer(listed.key))
        found = await cell.read()
        assert found
        await cell.swap(replace(found.value, places=()), expected=found.version)
    held = await lake.catalog("main").read()
    assert held
    await lake.catalog("main").swap(replace(held.value, places=()), expected=held.version)


async def test_before_the_migration_named_places_are_refused_and_the_rest_works() -> None:
    cluster = await older_store()
    server = cluster.server()

    with pytest.raises(Busy, match="recording the locations of its older tables"):
        await create(server, "new", location=at(server, "new"))
    with pytest.raises(Busy, match="recording the locations of its older tables"):
        await make_volume(server, "new", name=identifier_of("w"))
    with pytest.raises(Busy, match="recording the locations of its older tables"):
        await commit_table(server, T, commit(set_location(at(server, "new"))), request("move"))
    with pytest.raises(Busy, match="recording the locations of its older tables"):
        await create_catalog(server, "new", root="s3://lake/new", properties={}, request=request("new"))
    await create(server, "new")
    await commit_table(server, T, append(1), request("append"))

    assert (await load(server, T)).metadata
    await server.background.drain()
    assert await claimed(server) == []


async def test_the_migration_claims_every_named_place_and_every_root() -> None:
    cluster = await older_store()

    swept = await cluster.sweep()
    server = cluster.server()

    named = ["named/d", "named/t", "named/v", "second/moved", "team"]
    assert await claimed(server) == [*(at(server, one) for one in named), "s3://lake/external", "s3://lake/house"]
    assert swept["locations_migrated"] == 4
    assert await server.feature(Completeness).is_complete()
    await check_places(server)
    for place in ("named", "named/t/x", "named/v", "team", "second"):
        with pytest.raises(Invalid, match="overlaps"):
            await make_volume(server, place, name=identifier_of("w"))
    await make_volume(server, "free", name=identifier_of("w"))
    cluster.clock.advance(LONG_MS)
    await cluster.sweep()
    assert len(await claimed(server)) == 8


async def test_purges_wait_for_the_migration() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    made = await create_table_with_files(server, location=at(server, "named/t"))
    await older_volume(server, at(server, "named/t/files"))
    await forget_claims(cluster)
    await drop(server, made)
    cluster.clock.advance(DELAY_MS)
    before = await files_below(server, made)
    await cluster.store.put(server.layout.pointer("broken"), b"{", expected=ABSENT)

    assert "purge_removed" not in await cluster.sweep()
    assert (await orders(cluster))[0].blocked == ""
    found = await cluster.store.head(server.layout.pointer("broken"))
    assert found
    await cluster.store.delete(found.key, expected=found.version)
    assert (await cluster.sweep())["purge_blocked"] == 1
    assert await files_below(server, made) == before


async def test_overlaps_of_older_tables_are_reported_and_protect_each_other() -> None:
    cluster = await older_store()
    server = cluster.server()
    await older_volume(server, at(server, "named/t"))

    swept = await cluster.sweep()

    assert swept["locations_overlaps"] >= 1
    assert any("overlaps the" in error for error in cluster.errors)
    claim = await server.location_claim(canonical_address(at(server, "named/t"))).read()
    assert claim
    assert len(claim.value.holders) == 2


async def test_a_record_that_cannot_be_read_keeps_the_migration_open() -> None:
    """It may be a table at any place."""
    cluster = await older_store(janitor_objects_max=2)
    server = cluster.server()
    await cluster.store.put(server.layout.pointer("broken"), b"{", expected=ABSENT)

    positions: Mapping[str, str] = {}
    for _ in range(20):
        positions = (await run_janitors(cluster.server(), positions, on_error=cluster.errors)).positions

    assert not await server.feature(Completeness).is_complete()
    assert any("is not a Pointer" in error for error in cluster.errors)
    found = await cluster.store.head(server.layout.pointer("broken"))
    assert found
    await cluster.store.delete(found.key, expected=found.version)
    for _ in range(20):
        positions = (await run_janitors(cluster.server(), positions, on_error=cluster.errors)).positions
    assert await server.feature(Completeness).is_complete()


async def test_a_store_is_complete_once_every_workspace_is_migrated() -> None:
    cluster = await older_store()
    other = cluster.server().in_workspace(Layout("other"))
    record = Securable(uuid="v", table_uuid="v", state="live", kind="volume", location="s3://lake/other")
    await other.securable("v").create(record)

    await cluster.sweep()
    assert await cluster.store.head(LOCATIONS_COMPLETE) is None
    await run_janitors(other, {}, on_error=cluster.errors)

    assert await cluster.store.head(LOCATIONS_COMPLETE)
    assert "s3://lake/other" in await claimed(other)
    assert (await migrate(cluster)).get("locations_failed", 0) == 0
