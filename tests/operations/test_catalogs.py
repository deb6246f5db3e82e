"""Catalogs: created once, under concurrent requests and crashes."""

import asyncio

import pytest

from sandur.clock import SystemClock
from sandur.errors import AlreadyExists, Busy, Invalid, KeyReused, NotFound, Unfit
from sandur.operations.containers.catalogs import (
    create_catalog,
    ensure_catalog,
    ensure_default_catalog,
    list_catalogs,
    load_catalog,
)
from sandur.operations.lake import Lake, Lakes, complete_new_store
from sandur.operations.tables.documents import document_cache
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, Expected, Version
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake, make_request

ROOT = "memory://store/tables/default/default"


async def create(lake: Lake, name: str, key: str | None = None, root: str | None = None) -> str:
    request = make_request(f"{name} {root}", key)
    catalog = await create_catalog(lake, name, root=root, properties={"owner": "a"}, request=request)
    return catalog.id


async def test_a_catalog_is_loaded_as_it_was_created() -> None:
    lake = make_lake()

    made = await create(lake, "sales/eu")

    found = await load_catalog(lake, "sales/eu")
    assert (found.id, found.root, found.properties) == (made, f"{ROOT}/sales_eu", {"owner": "a"})


async def test_a_catalog_is_created_once() -> None:
    lake = make_lake()
    await create(lake, "sales")

    with pytest.raises(AlreadyExists, match="Catalog already exists: sales") as refused:
        await create(lake, "sales")

    assert refused.value.subject == "catalog"


async def test_a_missing_catalog_is_not_found() -> None:
    with pytest.raises(NotFound, match="Catalog does not exist: nobody") as refused:
        await load_catalog(make_lake(), "nobody")

    assert refused.value.subject == "catalog"


async def test_the_default_catalog_reads_as_empty_and_is_created_by_the_first_change() -> None:
    lake = make_lake(default_catalog="home")

    absent = await load_catalog(lake, "home")
    listed = await list_catalogs(lake)
    first, second = await asyncio.gather(ensure_catalog(lake, "home"), ensure_catalog(lake, "home"))

    assert (absent.id, absent.root, listed) == ("", f"{ROOT}/home", [])
    assert first == second == await load_catalog(lake, "home")
    assert first.root == absent.root
    with pytest.raises(NotFound, match="Catalog does not exist: nobody"):
        await ensure_catalog(lake, "nobody")


@pytest.mark.parametrize("name", ["", "a\x1fb", "a\x00b", "x" * 256, "\ud800"])
async def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="Invalid catalog name"):
        await create(make_lake(), name)


async def test_properties_of_the_catalog_itself_cannot_be_set() -> None:
    with pytest.raises(Invalid, match=r"Sandur\.X"):
        await create_catalog(make_lake(), "a", root=None, properties={"Sandur.X": "1"}, request=make_request("a"))


@pytest.mark.parametrize(
    "root",
    [
        "memory://store/elsewhere",
        "s3://bucket",
        f"{ROOT}/../other",
        "memory://store",
        f"{ROOT}/a*b",
        ROOT,
        f"{ROOT}/another_catalog",
        f"{ROOT}/another_catalog/x",
        f"{ROOT}/a/__unitystorage",
    ],
)
async def test_a_root_outside_the_workspace_and_the_allowed_locations_is_refused(root: str) -> None:
    with pytest.raises(Invalid, match="Invalid location"):
        await create(make_lake(), "a", root=root)


@pytest.mark.parametrize("root", ["s3://bucket/house", "s3a://bucket/house/", "s3://bucket/house/inner", f"{ROOT}/a/x"])
async def test_a_root_in_an_allowed_location_is_accepted(root: str) -> None:
    lake = make_lake(allowed_locations=["s3://bucket/house"])
    await complete_new_store(lake.store, lake.clock)

    await create(lake, "a", root=root)

    assert (await load_catalog(lake, "a")).root == root.rstrip("/")


async def test_catalogs_are_listed_in_order_without_listing_the_store() -> None:
    store = SpyStore(MemoryStore())
    lake = make_lake(store)
    for name in ("b", "a", "c"):
        await create(lake, name)
    await lake.background.drain()
    store.reset()

    catalogs = await list_catalogs(lake)

    assert [catalog.name for catalog in catalogs] == ["a", "b", "c"]
    assert store.keys("list") == []


async def test_a_repeated_key_returns_the_same_catalog_and_is_refused_for_another_request() -> None:
    lake = make_lake()
    made = await create(lake, "a", key="k")
    await lake.background.drain()

    assert await create(lake, "a", key="k") == made
    with pytest.raises(KeyReused):
        await create(lake, "b", key="k")


async def test_a_refusal_is_repeated_under_its_key() -> None:
    lake = make_lake()
    await create(lake, "a")

    for _ in range(2):
        with pytest.raises(AlreadyExists):
            await create(lake, "a", key="k")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 9))
async def test_a_retry_creates_the_catalog_after_a_death(dies_at: int, *, after: bool) -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    dying = make_lake(DyingStore(inner, dies_at=dies_at, after=after), clock)
    try:
        await create(dying, "a", key="k")
    except Died:
        await dying.background.drain()
    clock.advance(dying.settings.claim_timeout_ms + 1)
    retried = make_lake(inner, clock)

    made = await create(retried, "a", key="k")
    await retried.background.drain()

    assert [catalog.id for catalog in await list_catalogs(make_lake(inner, clock))] == [made]


async def test_exactly_one_of_many_concurrent_creations_succeeds() -> None:
    clock = FixedClock()
    store = MemoryStore(seed=3, clock=clock)

    outcomes = await asyncio.gather(*(create(make_lake(store, clock), "a") for _ in range(5)), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyExists"] * 4 + ["str"]


async def test_a_key_in_progress_is_busy() -> None:
    clock = FixedClock()
    store = MemoryStore(seed=1, clock=clock)

    outcomes = await asyncio.gather(
        *(create(make_lake(store, clock), "a", key="k") for _ in range(4)), return_exceptions=True
    )

    assert {type(outcome) for outcome in outcomes} <= {str, Busy}
    assert len({outcome for outcome in outcomes if isinstance(outcome, str)}) == 1


async def test_a_new_store_gets_the_default_catalog_at_the_start() -> None:
    store = MemoryStore()
    lakes = Lakes(Settings(store="memory:"), SystemClock(), store)

    await ensure_default_catalog(await lakes.start())

    lake = lakes.lake("default", "default")
    assert lakes.lake("default", "default") is lake
    assert [catalog.name for catalog in await list_catalogs(lake)] == ["main"]
    assert [(cache.hits, cache.misses) for cache in lake.feature(document_cache)] == [(0, 0), (0, 0)]
    await lakes.close()


async def test_tenants_and_workspaces_share_nothing() -> None:
    lakes = Lakes(Settings(store="memory:"), SystemClock(), MemoryStore())
    await create(lakes.lake("a", "x"), "mine")

    for other in (lakes.lake("a", "y"), lakes.lake("b", "x")):
        with pytest.raises(NotFound):
            await load_catalog(other, "mine")
        assert await list_catalogs(other) == []
    await lakes.close()


async def test_a_store_that_breaks_a_guarantee_is_refused_at_the_start() -> None:
    class Careless(MemoryStore):
        async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:  # noqa: ARG002 - that is the fault
            found = await self.get(key)
            return await super().put(key, data, expected=found.version if found else ABSENT)

    lakes = Lakes(Settings(store="memory:"), SystemClock(), Careless())

    with pytest.raises(Unfit):
        await ensure_default_catalog(await lakes.start())
