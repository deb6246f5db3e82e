"""The memory of a server: what it caches and what an operation holds stays bounded, for any number of tables."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import pytest

from sandur.catalog.index import Entry, names_scope
from sandur.operations.caches import BytesLruCache, LruCache
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.index.lists import list_names
from sandur.operations.index.rebuild import READS_AT_ONCE_MAX, find_names, rebuild, rebuild_and_merge, write_index
from sandur.operations.lake import Lake
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, load_table
from sandur.storage.contract import ABSENT, Stored
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.lakes import make_lake, put_name
from tests.operations.requests import NAMESPACE, identifier_of, request, set_up_catalog, table

SCOPE = names_scope(NAMESPACE)
SEGMENTS = 6 * READS_AT_ONCE_MAX
TABLES = 120
RECORDS_MAX = 25
BYTES_MAX = 64 << 10


def caches_of(lake: Lake) -> list[LruCache[object, object]]:
    held = [lake._seen, lake._seen_containers, lake._seen_index]
    for feature in (*lake._features.values(), *lake.named_features.values()):
        held += feature if isinstance(feature, tuple) else [feature]
    return [cache for cache in held if isinstance(cache, LruCache)]


async def test_many_tables_fill_the_caches_up_to_the_settings_and_no_further() -> None:
    lake = make_lake(cache_records_max=RECORDS_MAX, cache_bytes_max=BYTES_MAX)
    await set_up_catalog(lake)
    names = [f"t{number:03}" for number in range(TABLES)]

    for name in names:
        await create_table(lake, NAMESPACE, table(name, properties={"text": name * 100}), request(name))
    await lake.background.drain()
    loaded = [await load_table(lake, identifier_of(name)) for name in names]
    listed = await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)

    assert len(loaded) == len(listed.entries) == TABLES
    caches = caches_of(lake)
    assert 0 < sum(cache.bytes for cache in caches if isinstance(cache, BytesLruCache)) <= BYTES_MAX
    assert max(len(cache) for cache in caches if not isinstance(cache, BytesLruCache)) == RECORDS_MAX


async def test_a_server_that_caches_almost_nothing_answers_the_same() -> None:
    lake = make_lake(cache_records_max=1, cache_bytes_max=1)
    await set_up_catalog(lake)
    names = [f"t{number}" for number in range(5)]

    for name in names:
        await create_table(lake, NAMESPACE, table(name), request(name))
    await lake.background.drain()

    for name in names * 2:
        loaded = await load_table(lake, identifier_of(name))
        assert isinstance(loaded, LoadedTable)
        assert f"/{name}-" in (loaded.metadata_location or "")
    listed = await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)
    assert [entry.name for entry in listed.entries] == names


async def test_a_full_cache_does_not_forget_where_a_new_table_lies() -> None:
    """What other requests read between two steps of a creation must not take its namespace and catalog away."""
    lake = make_lake(cache_records_max=1, cache_bytes_max=1)
    await set_up_catalog(lake)
    place = f"{lake.area}/main/elsewhere"
    await update_namespace_properties(lake, NAMESPACE, removals=[], updates={"location": place}, request=request("m"))
    names = [f"t{number}" for number in range(8)]

    made = await asyncio.gather(*(create_table(lake, NAMESPACE, table(name), request(name)) for name in names))

    await lake.background.drain()
    assert all((one.metadata_location or "").startswith(place) for one in made)


@dataclass
class Held:
    """How many bodies are in memory, and how many there were at most."""

    now: int = 0
    most: int = 0


class Body(bytes):
    """The body of a segment. An entry that was decoded from it keeps it in memory."""

    held: Held

    def __del__(self) -> None:
        self.held.now -= 1


class CountingStore(MemoryStore):
    """Every read of a segment returns a body of its own, as that of a bucket does."""

    def __init__(self) -> None:
        super().__init__(clock=FixedClock())
        self.held = Held()

    async def get(self, key: str) -> Stored | None:
        stored = await super().get(key)
        if stored is None or "/segments/" not in key:
            return stored
        body = Body(stored.data)
        body.held = self.held
        self.held.now += 1
        self.held.most = max(self.held.most, self.held.now)
        return Stored(body, stored.version)


async def large_index() -> CountingStore:
    """An index whose segments have one entry each, so large are their infos; no record belongs to it."""
    store = CountingStore()
    lake = make_lake(store)
    await set_up_catalog(lake)
    info = msgspec.Raw(b'"%s"' % (b"x" * 75_000))
    entries = tuple(
        Entry(name=f"t{number:03}", kind="table", uuid=f"u{number}", format="iceberg", info=info)
        for number in range(SEGMENTS)
    )
    assert await write_index(lake, SCOPE, entries, expected=ABSENT)
    return store


async def released() -> None:
    """Wait until the event loop has let go of the last answers."""
    await asyncio.sleep(0)
    gc.collect()


async def list_all(lake: Lake) -> None:
    listed = await list_names(lake, NAMESPACE, kind="table", page_token=None, page_size=None)
    assert len(listed.entries) == SEGMENTS


@pytest.mark.parametrize(
    "work",
    [
        list_all,
        lambda lake: find_names(lake, SCOPE, "u7"),
        lambda lake: rebuild(lake, SCOPE),
        lambda lake: rebuild_and_merge(lake, SCOPE),
    ],
    ids=["list", "find names", "rebuild", "rebuild and merge"],
)
async def test_work_on_a_whole_index_holds_few_of_its_segments(work: Callable[[Lake], Awaitable[object]]) -> None:
    store = await large_index()
    lake = make_lake(store, cache_bytes_max=1)

    await work(lake)

    await released()
    assert 0 < store.held.most <= 3 * READS_AT_ONCE_MAX
    assert store.held.now == 0


async def test_a_whole_list_that_is_cached_keeps_no_segment_in_memory() -> None:
    store = await large_index()
    lake = make_lake(store, cache_bytes_max=1 << 20)

    await list_all(lake)

    cached = lake._seen_index
    assert isinstance(cached, BytesLruCache)
    await released()
    assert store.held.now == sum("/segments/" in key for key in cached)


async def test_an_index_is_written_while_its_records_are_read() -> None:
    store = MemoryStore(clock=FixedClock())
    lake = make_lake(store)
    await set_up_catalog(lake)
    for number in range(2_000):
        await put_name(lake, identifier_of(f"t{number:04}"))
    spy = SpyStore(store)

    await rebuild(make_lake(spy), SCOPE)

    folder = lake.layout.index_segments_folder(SCOPE)
    unwritten = most = 0
    for call in spy.calls:
        if call.name == "put" and call.key.startswith(folder):
            unwritten = 0
        unwritten += call.key.startswith(lake.layout.names_folder(NAMESPACE)) and call.name == "get"
        most = max(most, unwritten)
    assert 0 < most <= 1_000
