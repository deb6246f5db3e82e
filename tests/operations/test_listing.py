"""Lists: exact for every page size, in one round from the index, and available without it."""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandur.catalog.identifiers import Identifier, Kind, Namespace
from sandur.catalog.index import INLINE_MAX, SEGMENT_MAX, Entry, Place, names_scope, namespaces_scope
from sandur.catalog.paging import PAGE_SIZE_DEFAULT
from sandur.errors import BadRequest, NotFound
from sandur.operations.containers.namespaces import create_namespace, list_namespaces
from sandur.operations.counters import INDEX_READS, INDEX_REBUILDS, LIST_FALLBACKS, Count, Counters
from sandur.operations.index import update
from sandur.operations.index.lists import list_names
from sandur.operations.index.memory import REBUILD_EVERY_MS, UNDER_WAY_MS_MAX
from sandur.operations.index.rebuild import expected_of, read_manifest, write_index
from sandur.operations.lake import Lake
from sandur.storage.contract import ABSENT
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.fakes.yielding_store import YieldingStore
from tests.operations.lakes import make_lake, make_request, put_name, remove_name
from tests.operations.test_index_updates import create, drop, table

SPACE = Namespace("main", ("a",))
SCOPE = names_scope(SPACE)
PAGES_MAX = 1_500


async def with_namespace(lake: Lake) -> Lake:
    """A lake with the namespace in it."""
    await create_namespace(lake, SPACE, {}, make_request("a"))
    await lake.background.drain()
    return lake


async def list_all_names(lake: Lake, kind: Kind = "table") -> list[str]:
    page = await list_names(lake, SPACE, kind=kind, page_token=None, page_size=None)
    assert page.next_token is None
    return [identifier.name for identifier in page.entries]


async def list_by_pages(lake: Lake, size: int | None, kind: Kind = "table") -> list[list[str]]:
    pages: list[list[str]] = []
    token: str | None = ""
    for _ in range(PAGES_MAX):
        page = await list_names(lake, SPACE, kind=kind, page_token=token, page_size=size)
        pages.append([identifier.name for identifier in page.entries])
        token = page.next_token
        if token is None:
            return pages
    raise AssertionError("the list has no end")


def flatten(pages: Sequence[Sequence[str]]) -> list[str]:
    return [name for page in pages for name in page]


async def restart_without_index(lake: Lake) -> Lake:
    """A new process whose index is missing."""
    key = lake.layout.list_index(SCOPE)
    found = await lake.store.get(key)
    if found:
        await lake.store.delete(key, expected=found.version)
    return make_lake(lake.store, lake.clock)


async def test_names_are_listed_by_kind_and_in_order() -> None:
    lake = await with_namespace(make_lake())
    for name in ("b", "a", "é", "B", "a-b", "a b", "a/b", "~"):
        await create(lake, name)
    await create(lake, "v", kind="view")

    assert await list_all_names(lake) == ["B", "a", "a b", "a-b", "a/b", "b", "~", "é"]
    assert await list_all_names(lake, "view") == ["v"]
    assert await list_all_names(lake, "function") == []
    assert await list_all_names(await restart_without_index(lake)) == await list_all_names(lake)


async def test_a_list_of_a_missing_namespace_is_not_found_and_writes_nothing() -> None:
    lake = make_lake()

    for token in (None, ""):
        with pytest.raises(NotFound, match="Namespace does not exist: a"):
            await list_names(lake, SPACE, kind="table", page_token=token, page_size=None)
    await lake.background.drain()

    assert await lake.store.list("") == []


async def test_an_empty_namespace_has_one_empty_page() -> None:
    lake = await with_namespace(make_lake())

    assert await list_by_pages(lake, 1) == [[]]
    assert await list_all_names(lake) == []


@pytest.mark.parametrize("token", ["x", "!!", "AAAA", "W10", "é", "=" * 5])
async def test_an_invalid_token_is_refused_before_anything_is_read(token: str) -> None:
    store = SpyStore(MemoryStore())

    with pytest.raises(BadRequest, match="Invalid page token"):
        await list_names(make_lake(store), SPACE, kind="table", page_token=token, page_size=None)

    assert store.calls == []


async def test_a_token_of_another_list_is_refused() -> None:
    lake = await with_namespace(make_lake())
    other = Namespace("main", ("b",))
    await create_namespace(lake, other, {}, make_request("b"))
    for name in ("t1", "t2"):
        await create(lake, name)
    page = await list_names(lake, SPACE, kind="table", page_token="", page_size=1)

    with pytest.raises(BadRequest, match="does not belong to this list"):
        await list_names(lake, SPACE, kind="view", page_token=page.next_token, page_size=1)
    with pytest.raises(BadRequest, match="does not belong to this list"):
        await list_names(lake, other, kind="table", page_token=page.next_token, page_size=1)
    with pytest.raises(BadRequest, match="does not belong to this list"):
        await list_namespaces(lake, "main", parent=None, page_token=page.next_token, page_size=1)


@pytest.mark.parametrize("size", [0, -5])
@pytest.mark.parametrize("token", [None, ""])
async def test_a_page_of_less_than_one_entry_is_refused(size: int, token: str | None) -> None:
    with pytest.raises(BadRequest, match="Invalid page size"):
        await list_names(make_lake(), SPACE, kind="table", page_token=token, page_size=size)


async def lake_with_tables(count: int) -> Lake:
    """A namespace with `count` tables and some views, indexed by one rebuild."""
    lake = await with_namespace(make_lake())
    for number in range(count):
        await put_name(lake, table(f"t{number:05d}"), kind="view" if number % 50 == 7 else "table")
    await update.update_entry(lake, Place(SCOPE, "t00000"))
    return lake


@pytest.mark.parametrize("count", [1, 7, INLINE_MAX, INLINE_MAX + 1, 3 * INLINE_MAX])
async def test_pages_of_every_size_list_every_entry_once(count: int) -> None:
    lake = await lake_with_tables(count)
    tables, views = await list_all_names(lake), await list_all_names(lake, "view")
    assert sorted([*tables, *views]) == [f"t{number:05d}" for number in range(count)]

    sizes = [1, 2, 3, 10, SEGMENT_MAX - 1, SEGMENT_MAX, SEGMENT_MAX + 1, count - 1, count, count + 1, None]
    for size in sizes:
        if size == 0 or (size == 1 and count > INLINE_MAX + 1):
            continue
        pages = await list_by_pages(lake, size)
        assert flatten(pages) == tables
        assert all(len(page) <= (size or PAGE_SIZE_DEFAULT) for page in pages)
        assert all(pages) or not tables
        assert flatten(await list_by_pages(lake, size, "view")) == views


@given(names=st.sets(st.text("ab.~é/ ", min_size=1, max_size=3), max_size=12), size=st.integers(1, 13))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
async def test_pages_list_names_of_any_characters(names: set[str], size: int) -> None:
    lake = await with_namespace(make_lake())
    for name in names:
        await put_name(lake, table(name))

    fallback = await list_by_pages(make_lake(lake.store, lake.clock), size)
    await update.update_entry(lake, Place(SCOPE, "x"))

    assert await list_by_pages(lake, size) == fallback
    assert flatten(fallback) == sorted(names)


async def test_a_token_works_with_and_without_the_index() -> None:
    lake = await lake_with_tables(20)
    names = await list_all_names(lake)
    first = await list_names(lake, SPACE, kind="table", page_token="", page_size=5)

    lost = await restart_without_index(lake)
    second = await list_names(lost, SPACE, kind="table", page_token=first.next_token, page_size=5)
    await lost.background.drain()
    third = await list_names(lake, SPACE, kind="table", page_token=second.next_token, page_size=50)

    assert [identifier.name for page in (first, second, third) for identifier in page.entries] == names
    assert third.next_token is None
    assert list(lost.feature(Counters)) == [
        Count(INDEX_READS, "result", "miss", 1),
        Count(INDEX_REBUILDS, "result", "ok", 1),
        Count(LIST_FALLBACKS, "collection", "tables", 1),
    ]


async def test_a_warm_page_of_wide_tables_is_one_round_wherever_it_begins() -> None:
    """Entries with many columns make small segments, so a page needs more of them."""
    source = await with_namespace(make_lake())
    info = msgspec.Raw(msgspec.json.encode({"columns": ["x" * 4_000]}))
    names = [f"t{number:04}" for number in range(600)]
    entries = [Entry(name=name, kind="table", format="iceberg", uuid=name, info=info) for name in names]
    found = await read_manifest(source, SCOPE)
    assert await write_index(source, SCOPE, tuple(entries), expected=expected_of(found))
    store = SpyStore(source.store)
    lake = make_lake(store, source.clock)

    async def listed(token: str | None) -> tuple[Sequence[str], str | None]:
        page = await list_names(lake, SPACE, kind="table", page_token=token, page_size=100)
        return [entry.name for entry in page.entries], page.next_token

    tokens: list[str | None] = [""]
    while token := (await listed(tokens[-1]))[1]:
        tokens.append(token)

    for number, begin in enumerate(tokens):
        store.reset()
        assert (await listed(begin))[0] == names[100 * number : 100 * number + 100]
        assert store.rounds == 1
        assert len(store.calls) <= 8


@pytest.mark.parametrize("count", [20, 3 * INLINE_MAX])
async def test_a_warm_page_is_one_round_and_lists_nothing(count: int) -> None:
    source = await lake_with_tables(count)
    store = SpyStore(source.store)
    lake = make_lake(store, source.clock)

    async def rounds(token: str | None) -> int:
        store.reset()
        await list_names(lake, SPACE, kind="table", page_token=token, page_size=10)
        return store.rounds

    assert await rounds("") <= 2
    assert await rounds("") == 1
    page = await list_names(lake, SPACE, kind="table", page_token="", page_size=10)
    assert await rounds(page.next_token) == 1
    assert await rounds(None) <= 2
    assert await rounds(None) == 1
    assert store.keys("list") == []
    assert store.bytes_read == 0
    assert lake.feature(Counters).times(INDEX_READS, "hit") == 6


async def test_namespaces_are_paged_too() -> None:
    store = SpyStore(MemoryStore())
    lake = make_lake(store)
    names = [f"n{number}" for number in range(7)]
    for name in names:
        await create_namespace(lake, Namespace("main", (name,)), {}, make_request(name))
    await lake.background.drain()
    store.reset()

    for size in range(1, 9):
        found: list[str] = []
        token: str | None = ""
        while token is not None:
            page = await list_namespaces(lake, "main", parent=None, page_token=token, page_size=size)
            found += [str(namespace) for namespace in page.entries]
            token = page.next_token
        assert found == names
    assert store.keys("list") == []
    assert namespaces_scope("main", None) != namespaces_scope("main", SPACE)


async def test_an_answered_change_is_listed_before_the_index_has_it() -> None:
    lake = await with_namespace(make_lake())
    for name in ("b", "d"):
        await create(lake, name)
    for name, operation in (("a", "1"), ("c", "2"), ("b", "3"), ("e", "4")):
        await update.mark(lake, table(name), operation)
    for name in ("a", "c"):
        await put_name(lake, table(name))
    await remove_name(lake, table("b"))

    assert await list_all_names(lake) == ["a", "c", "d"]
    for size in (1, 2, 3, 4):
        assert flatten(await list_by_pages(lake, size)) == ["a", "c", "d"]


async def test_pages_stay_exact_when_a_whole_page_was_dropped() -> None:
    """A page may be short or empty, but it has a token; and no entry of a later page appears early."""
    lake = await lake_with_tables(3 * INLINE_MAX)
    dropped = [f"t{number:05d}" for number in range(300)]
    for number, name in enumerate([*dropped, "z"]):
        await update.mark(lake, table(name), str(number))
    for name in dropped:
        await remove_name(lake, table(name))
    await put_name(lake, table("z"))

    names = await list_all_names(lake)
    assert names[-1] == "z"
    assert not set(names) & set(dropped)
    for size in (10, 200):
        assert flatten(await list_by_pages(lake, size)) == names


async def test_an_operation_that_never_ends_is_removed_from_the_lists() -> None:
    clock = FixedClock()
    store = SpyStore(MemoryStore(clock=clock))
    lake = await with_namespace(make_lake(store, clock))
    await create(lake, "a")
    await update.mark(lake, table("b"), "1")
    clock.advance(UNDER_WAY_MS_MAX + 1)
    await list_all_names(lake)
    store.reset()

    assert await list_all_names(lake) == ["a"]
    assert store.rounds == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 3}'])
async def test_a_damaged_index_is_rebuilt_at_most_once_per_interval(damage: bytes) -> None:
    clock = FixedClock()
    lake = await with_namespace(make_lake(MemoryStore(clock=clock), clock))
    for name in ("a", "b"):
        await create(lake, name)
    key = lake.layout.list_index(SCOPE)

    for rebuilds in (1, 2):
        for _ in range(3):
            found = await lake.store.get(key)
            await lake.store.put(key, damage, expected=found.version if found else ABSENT)
            assert await list_all_names(lake) == ["a", "b"]
            await lake.background.drain()
        assert lake.feature(Counters).times(INDEX_REBUILDS, "ok") == rebuilds
        clock.advance(REBUILD_EVERY_MS)

    assert lake.feature(Counters).times(INDEX_READS, "error") == 6
    assert lake.feature(Counters).times(LIST_FALLBACKS, "tables") == 6


async def test_a_list_survives_a_lost_segment() -> None:
    lake = await lake_with_tables(2 * INLINE_MAX)
    names = await list_all_names(lake)
    found = await lake.index(SCOPE).read()
    assert found is not None
    cell = lake.index_segment(SCOPE, found.value.segments[1].id)
    segment = await cell.read()
    assert segment is not None
    await cell.empty(expected=segment.version)

    fresh = make_lake(lake.store, lake.clock)
    assert await list_all_names(fresh) == names
    await fresh.background.drain()

    assert await list_all_names(fresh) == names
    assert fresh.feature(Counters).times(INDEX_REBUILDS, "ok") == 1
    assert fresh.feature(Counters).times(LIST_FALLBACKS, "tables") == 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [30, 2 * INLINE_MAX])
async def test_an_unchanged_entry_is_listed_exactly_once_while_others_change(seed: int, count: int) -> None:
    source = await lake_with_tables(count)
    untouched = await list_all_names(source)
    clock = FixedClock(seed=1_000 + seed)
    store = YieldingStore(source.store, seed=seed, yields_max=2)
    stop = asyncio.Event()

    async def churn(number: int) -> None:
        lake = make_lake(store, clock)
        chance = random.Random(seed + number)
        while not stop.is_set():
            name = f"t{chance.randrange(count):05d}-{number}-{chance.randrange(20)}"
            await create(lake, name)
            if chance.random() < 0.5:
                await drop(lake, name)
        await lake.background.drain()

    async def read() -> list[list[str]]:
        lake = make_lake(store, clock)
        size = 1 + seed if count < INLINE_MAX else 40 + seed
        try:
            return [flatten(await list_by_pages(lake, size)), await list_all_names(lake)]
        finally:
            stop.set()

    churning = [asyncio.create_task(churn(number)) for number in range(3)]
    lists = await read()
    await asyncio.gather(*churning)

    for found in lists:
        assert found == sorted(set(found))
        assert [name for name in found if "-" not in name] == untouched


async def test_a_long_name_is_listed() -> None:
    lake = await with_namespace(make_lake())
    name = "é" * 100
    await create(lake, name)
    await create(lake, name[:-1])

    assert await list_all_names(lake) == [name[:-1], name]
    assert await list_all_names(await restart_without_index(lake)) == [name[:-1], name]
    assert Identifier("main", ("a",), name) == table(name)
