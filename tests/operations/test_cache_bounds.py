"""The memory of a server: what it caches stays within the settings, for any number of tables."""

import asyncio

from sandur.operations.caches import BytesLruCache, LruCache
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, load_table
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, identifier_of, request, set_up_catalog, table

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
