"""The list index: marks, updates, segments, damage and repair."""

import asyncio
import contextlib
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Kind, Namespace
from sandur.catalog.index import INLINE_MAX, SEGMENT_MAX, Manifest, Segment, names_scope, place_of
from sandur.errors import Busy
from sandur.operations.counters import INDEX_REBUILDS, INDEX_UPDATES, Counters
from sandur.operations.index import update
from sandur.operations.index.rebuild import rebuild
from sandur.operations.lake import Lake
from sandur.storage.cell import TRIES_MAX, Versioned
from sandur.storage.contract import ABSENT
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake, put_name, remove_name

SPACE = Namespace("main", ("a",))
SCOPE = names_scope(SPACE)


def table(name: str) -> Identifier:
    return Identifier("main", ("a",), name)


async def create(lake: Lake, name: str, kind: Kind = "table") -> None:
    operation_id = lake.clock.new_id()
    await update.mark(lake, table(name), operation_id)
    await put_name(lake, table(name), kind=kind)
    await update.finish(lake, table(name), operation_id)


async def drop(lake: Lake, name: str) -> None:
    operation_id = lake.clock.new_id()
    await update.mark(lake, table(name), operation_id)
    await remove_name(lake, table(name))
    await update.finish(lake, table(name), operation_id)


async def manifest_of(lake: Lake) -> Manifest:
    found = await lake.index(SCOPE).read()
    assert found is not None
    return found.value


async def segments_of(lake: Lake) -> list[Versioned[Segment]]:
    refs = (await manifest_of(lake)).segments
    found = await asyncio.gather(*(lake.index_segment(SCOPE, ref.id).read() for ref in refs))
    assert all(found)
    return [held for held in found if held]


async def indexed(lake: Lake) -> list[str]:
    """The names in the objects of the index, read directly."""
    fresh = make_lake(lake.store, lake.clock)
    manifest = await manifest_of(fresh)
    segments = await segments_of(fresh)
    return [entry.name for entry in (*manifest.entries, *(entry for held in segments for entry in held.value.entries))]


async def marks(lake: Lake) -> Sequence[str]:
    return [listed.key for listed in await lake.store.list(lake.layout.marks_folder())]


async def indexed_lake(count: int, *, store: MemoryStore | None = None) -> Lake:
    """A lake with `count` tables, created in random order."""
    lake = make_lake(store)
    names = [f"t{number:06d}" for number in range(count)]
    random.Random(7).shuffle(names)
    for name in names:
        await create(lake, name)
    await lake.background.drain()
    return lake


async def test_an_entry_has_all_fields_of_a_list() -> None:
    lake = make_lake()
    await create(lake, "t")
    await create(lake, "s", kind="view")

    entries = (await manifest_of(lake)).entries

    name = await lake.name(table("t")).read()
    assert name is not None
    assert [(entry.name, entry.kind, entry.format) for entry in entries] == [
        ("s", "view", "iceberg"),
        ("t", "table", "iceberg"),
    ]
    assert entries[1].uuid == name.value.uuid
    assert entries[1].created_ms == entries[1].updated_ms == lake.clock.now_ms()


async def test_finish_removes_the_mark() -> None:
    lake = make_lake()
    await create(lake, "t")
    assert await indexed(lake) == ["t"]

    await drop(lake, "t")

    assert await indexed(lake) == []
    assert await marks(lake) == []


async def test_another_process_can_finish_a_mark() -> None:
    lake = make_lake()
    await update.mark(lake, table("t"), "operation")
    await update.mark(lake, table("t"), "operation")
    await put_name(lake, table("t"))

    other = make_lake(lake.store, lake.clock)
    await update.finish(other, table("t"), "operation")

    assert await indexed(lake) == ["t"]
    assert await marks(lake) == []


async def test_an_update_without_a_change_makes_slower_updates_lose() -> None:
    """I3: a slow creator has read index and name; a drop finds nothing to change; the creator must lose."""
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    await create(make_lake(inner, clock), "other")
    store = HookedStore(inner)
    slow = make_lake(store, clock)
    await put_name(slow, table("t"))

    async def dropped() -> None:
        await drop(make_lake(inner, clock), "t")

    store.before("put", slow.layout.list_index(SCOPE), dropped)
    await update.finish(slow, table("t"), "creation")

    assert await indexed(slow) == ["other"]


async def test_waiting_updates_share_a_swap() -> None:
    store = SpyStore(MemoryStore())
    lake = make_lake(store)
    await create(lake, "first")
    names = [f"t{number}" for number in range(20)]
    for name in names:
        await put_name(lake, table(name))
    store.reset()

    await asyncio.gather(*(update.update_entry(lake, place_of(table(name))) for name in names))

    assert await indexed(lake) == ["first", *sorted(names)]
    assert len(store.keys("put")) <= 2


async def test_a_failure_reaches_every_waiting_update() -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    lake = make_lake(HookedStore(inner), clock)
    await create(lake, "first")
    busy = make_lake(_NeverSwaps(inner, lake.layout.list_index(SCOPE)), clock)

    outcomes = await asyncio.gather(
        *(update.update_entry(busy, place_of(table(name))) for name in ("a", "b", "c")), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [Busy] * 3
    assert busy.feature(Counters).times(INDEX_UPDATES, "error") >= 1
    assert busy.feature(Counters).times(INDEX_UPDATES, "conflict") >= TRIES_MAX


class _NeverSwaps(HookedStore):
    """Another writer is always faster at one key."""

    def __init__(self, inner: MemoryStore, key: str) -> None:
        super().__init__(inner)
        self._key = key
        self._memory = inner
        self.hooks = [("put", key, self._touch)]

    async def _touch(self) -> None:
        found = await self._memory.get(self._key)
        await self._memory.put(self._key, found.data if found else b"{}", expected=found.version if found else ABSENT)
        self.hooks = [("put", self._key, self._touch)]


async def test_a_growing_index_is_split_into_segments_and_keeps_every_entry() -> None:
    count = 3 * INLINE_MAX
    lake = await indexed_lake(count)

    manifest, segments = await manifest_of(lake), await segments_of(lake)

    assert manifest.entries == ()
    assert len(segments) > 3
    assert all(len(held.value.entries) <= SEGMENT_MAX for held in segments)
    assert await indexed(lake) == [f"t{number:06d}" for number in range(count)]
    assert len(await lake.store.list(lake.layout.index_segments_folder(SCOPE))) == len(segments)


async def test_entries_are_removed_from_segments() -> None:
    count = 2 * INLINE_MAX
    lake = await indexed_lake(count)

    for number in range(0, count, 2):
        await drop(lake, f"t{number:06d}")

    assert await indexed(lake) == [f"t{number:06d}" for number in range(1, count, 2)]


@pytest.mark.parametrize("after", [False, True])
async def test_the_next_update_finishes_an_interrupted_split(*, after: bool) -> None:
    """The process dies at every call of an update that splits the manifest into segments, or a segment in two."""
    for count in (INLINE_MAX, 2 * INLINE_MAX):
        for dies_at in range(1, 40):
            world = await _full_index(count)
            await put_name(world, table("~new"))
            await put_name(world, table("~later"))
            store = DyingStore(world.store, dies_at=dies_at, after=after)
            dying = make_lake(store, world.clock)
            with contextlib.suppress(Died):
                await update.finish(dying, table("~new"), "operation")
            await dying.background.drain()

            # Enough new entries to overflow the same segment, whether or not the first one was written.
            for name in ("~later", "~new"):
                await update.update_entry(make_lake(world.store, world.clock), place_of(table(name)))

            assert (await indexed(world))[-2:] == ["~later", "~new"]
            assert len(await indexed(world)) == len(_grown[count][1]) + 2
            if not store.has_died:
                break
        else:
            pytest.fail("the update never came to its end")


_grown: dict[int, tuple[dict[str, bytes], list[str]]] = {}


async def _full_index(count: int) -> Lake:
    """An index whose last object is full; built once, then copied."""
    lake = make_lake()
    if count not in _grown:
        source = make_lake()
        for number in range(count):
            await create(source, f"t{number:06d}")
        extra = 0
        while count > INLINE_MAX and len((await segments_of(source))[-1].value.entries) < SEGMENT_MAX:
            await create(source, f"u{extra:06d}")
            extra += 1
        await source.background.drain()
        held = source.store
        assert isinstance(held, MemoryStore)
        _grown[count] = ({key: stored.data for key, (stored, _) in held._objects.items()}, await indexed(source))
    for key, data in _grown[count][0].items():
        await lake.store.put(key, data, expected=ABSENT)
    return lake


DAMAGES = [b"", b"{}", b"[1, 2", b'{"version": 9}', b'{"version":1,"updated_at_epoch_ms":0,"entries":[7]}', b"\xff"]


@pytest.mark.parametrize("damage", [None, *DAMAGES])
@pytest.mark.parametrize("count", [3, INLINE_MAX + 50])
async def test_the_next_update_rebuilds_a_missing_or_damaged_index(count: int, damage: bytes | None) -> None:
    lake = await indexed_lake(count)
    key = lake.layout.list_index(SCOPE)
    found = await lake.store.get(key)
    assert found is not None
    if damage is None:
        await lake.store.delete(key, expected=found.version)
    else:
        await lake.store.put(key, damage, expected=found.version)
    await put_name(lake, table("new"))

    await update.finish(make_lake(lake.store, lake.clock), table("new"), "operation")

    assert await indexed(lake) == sorted(["new", *(f"t{number:06d}" for number in range(count))])


@pytest.mark.parametrize("damage", [None, *DAMAGES])
async def test_the_next_update_rebuilds_a_missing_or_damaged_segment(damage: bytes | None) -> None:
    count = INLINE_MAX + 50
    lake = await indexed_lake(count)
    key = lake.layout.index_segment(SCOPE, (await manifest_of(lake)).segments[0].id)
    found = await lake.store.get(key)
    assert found is not None
    if damage is None:
        await lake.store.delete(key, expected=found.version)
    else:
        await lake.store.put(key, damage, expected=found.version)
    await put_name(lake, table("a"))

    await update.finish(make_lake(lake.store, lake.clock), table("a"), "operation")

    assert await indexed(lake) == ["a", *(f"t{number:06d}" for number in range(count))]


async def test_an_unsorted_index_or_one_with_duplicates_is_rebuilt() -> None:
    lake = await indexed_lake(3)
    found = await lake.index(SCOPE).read()
    assert found is not None
    ghost = replace(found.value.entries[0], name="ghost")
    wrong = (*found.value.entries, ghost)
    await lake.index(SCOPE).swap(Manifest(version=1, updated_at_epoch_ms=0, entries=wrong), expected=found.version)

    for _ in range(2):
        await update.finish(lake, table("t000000"), "operation")

    assert await indexed(lake) == ["t000000", "t000001", "t000002"]


@pytest.mark.parametrize("count", [5, INLINE_MAX + 50])
async def test_a_rebuild_adds_missing_entries_and_removes_stale_ones(count: int) -> None:
    lake = await indexed_lake(count)
    for name in ("x", "y"):
        await put_name(lake, table(name))
    await remove_name(lake, table("t000003"))

    await rebuild(make_lake(lake.store, lake.clock), SCOPE)

    expected = [f"t{number:06d}" for number in range(count) if number != 3]
    assert await indexed(lake) == [*expected, "x", "y"]


async def test_a_rebuild_splits_segments_that_are_too_large() -> None:
    lake = await indexed_lake(INLINE_MAX + 50)
    for number in range(2 * SEGMENT_MAX):
        await put_name(lake, table(f"u{number:06d}"))

    await rebuild(lake, SCOPE)

    assert len(await indexed(lake)) == INLINE_MAX + 50 + 2 * SEGMENT_MAX
    assert lake.feature(Counters).times(INDEX_REBUILDS, "ok") == 1


async def test_a_rebuild_keeps_names_created_during_its_listing() -> None:
    """I4: its version is older than its listing."""
    for count in (3, INLINE_MAX + 50):
        source = await indexed_lake(count)
        store = HookedStore(source.store)
        slow = make_lake(store, source.clock)

        async def created(source: Lake = source) -> None:
            await create(make_lake(source.store, source.clock), "fresh")

        store.before("get", source.layout.name(table("t000000")), created)  # The listing has ended before this point.
        await rebuild(slow, SCOPE)

        assert store.hooks == []
        assert "fresh" in await indexed(source)


async def test_an_update_of_a_rebuilt_index_is_repeated() -> None:
    """No manifest names the swapped segment any more."""
    source = await indexed_lake(INLINE_MAX + 50)
    store = HookedStore(source.store)
    slow = make_lake(store, source.clock)
    await put_name(source, table("a"))
    segment = source.layout.index_segment(SCOPE, (await manifest_of(source)).segments[0].id)

    async def lost_and_rebuilt() -> None:
        await remove_name(source, table("a"))
        other = make_lake(source.store, source.clock)
        found = await other.index(SCOPE).read()
        assert found is not None
        await other.index(SCOPE).empty(expected=found.version)
        await rebuild(other, SCOPE)
        await put_name(source, table("a"))

    store.before("put", segment, lost_and_rebuilt)
    await update.finish(slow, table("a"), "operation")

    assert store.hooks == []
    assert (await indexed(source))[0] == "a"
