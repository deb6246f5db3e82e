"""The list index: marks, updates, segments, damage and repair."""

import asyncio
import contextlib
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Kind, Namespace
from sandur.catalog.index import INLINE_MAX, SEGMENT_MAX, Manifest, Segment, names_of, place_of
from sandur.errors import Busy
from sandur.operations import indexing
from sandur.operations.counters import INDEX_REBUILDS, INDEX_UPDATES
from sandur.operations.index_rebuild import rebuild
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held
from sandur.storage.memory import MemoryStore
from sandur.storage.object_store import ABSENT
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.hooked_store import HookedStore
from tests.operations.making import make_workspace, put_name, take_name_away

SPACE = Namespace("main", ("a",))
SCOPE = names_of(SPACE)


def table(name: str) -> Identifier:
    return Identifier("main", ("a",), name)


async def create(workspace: Workspace, name: str, kind: Kind = "table") -> None:
    operation_id = workspace.clock.new_id()
    await indexing.mark(workspace, table(name), operation_id)
    await put_name(workspace, table(name), kind=kind)
    await indexing.finish(workspace, table(name), operation_id)


async def drop(workspace: Workspace, name: str) -> None:
    operation_id = workspace.clock.new_id()
    await indexing.mark(workspace, table(name), operation_id)
    await take_name_away(workspace, table(name))
    await indexing.finish(workspace, table(name), operation_id)


async def manifest_of(workspace: Workspace) -> Manifest:
    found = await workspace.index(SCOPE).read()
    assert found is not None
    return found.value


async def segments_of(workspace: Workspace) -> list[Held[Segment]]:
    refs = (await manifest_of(workspace)).segments
    found = await asyncio.gather(*(workspace.index_segment(SCOPE, ref.id).read() for ref in refs))
    assert all(found)
    return [held for held in found if held]


async def indexed(workspace: Workspace) -> list[str]:
    """What the objects of the index say, read by hand."""
    fresh = make_workspace(workspace.store, workspace.clock)
    manifest = await manifest_of(fresh)
    segments = await segments_of(fresh)
    return [entry.name for entry in (*manifest.entries, *(entry for held in segments for entry in held.value.entries))]


async def marks(workspace: Workspace) -> Sequence[str]:
    return [listed.key for listed in await workspace.store.list(workspace.layout.marks_folder())]


async def filled(count: int, *, store: MemoryStore | None = None) -> Workspace:
    """A workspace with so many tables, made in an order of chance."""
    workspace = make_workspace(store)
    names = [f"t{number:06d}" for number in range(count)]
    random.Random(7).shuffle(names)
    for name in names:
        await create(workspace, name)
    await workspace.background.drain()
    return workspace


async def test_an_entry_says_all_that_a_list_needs() -> None:
    workspace = make_workspace()
    await create(workspace, "t")
    await create(workspace, "s", kind="view")

    entries = (await manifest_of(workspace)).entries

    name = await workspace.name(table("t")).read()
    assert name is not None
    assert [(entry.name, entry.kind, entry.format) for entry in entries] == [
        ("s", "view", "iceberg"),
        ("t", "table", "iceberg"),
    ]
    assert entries[1].uuid == name.value.uuid
    assert entries[1].created_ms == entries[1].updated_ms == workspace.clock.now_ms()


async def test_finishing_leaves_no_mark() -> None:
    workspace = make_workspace()
    await create(workspace, "t")
    assert await indexed(workspace) == ["t"]

    await drop(workspace, "t")

    assert await indexed(workspace) == []
    assert await marks(workspace) == []


async def test_another_process_may_finish_what_one_marked() -> None:
    workspace = make_workspace()
    await indexing.mark(workspace, table("t"), "operation")
    await indexing.mark(workspace, table("t"), "operation")
    await put_name(workspace, table("t"))

    other = make_workspace(workspace.store, workspace.clock)
    await indexing.finish(other, table("t"), "operation")

    assert await indexed(workspace) == ["t"]
    assert await marks(workspace) == []


async def test_an_update_that_changes_nothing_still_makes_slower_ones_lose() -> None:
    """I3: the slow creator has read index and name; the drop finds nothing to change; the creator must not win."""
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    await create(make_workspace(inner, clock), "other")
    store = HookedStore(inner)
    slow = make_workspace(store, clock)
    await put_name(slow, table("t"))

    async def dropped() -> None:
        await drop(make_workspace(inner, clock), "t")

    store.before("put", slow.layout.list_index(SCOPE), dropped)
    await indexing.finish(slow, table("t"), "creation")

    assert await indexed(slow) == ["other"]


async def test_those_who_wait_share_a_swap() -> None:
    store = SpyStore(MemoryStore())
    workspace = make_workspace(store)
    await create(workspace, "first")
    names = [f"t{number}" for number in range(20)]
    for name in names:
        await put_name(workspace, table(name))
    store.reset()

    await asyncio.gather(*(indexing.put_right(workspace, place_of(table(name))) for name in names))

    assert await indexed(workspace) == ["first", *sorted(names)]
    assert len(store.keys("put")) <= 2


async def test_a_failure_reaches_everyone_who_waits() -> None:
    clock = FixedClock()
    inner = MemoryStore(clock=clock)
    workspace = make_workspace(HookedStore(inner), clock)
    await create(workspace, "first")
    busy = make_workspace(_NeverSwaps(inner, workspace.layout.list_index(SCOPE)), clock)

    outcomes = await asyncio.gather(
        *(indexing.put_right(busy, place_of(table(name))) for name in ("a", "b", "c")), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [Busy] * 3
    assert busy.counters.times(INDEX_UPDATES, "error") >= 1
    assert busy.counters.times(INDEX_UPDATES, "conflict") >= indexing.TRIES_MAX


class _NeverSwaps(HookedStore):
    """Somebody else is always faster at one key."""

    def __init__(self, inner: MemoryStore, key: str) -> None:
        super().__init__(inner)
        self._key = key
        self._memory = inner
        self.hooks = [("put", key, self._touch)]

    async def _touch(self) -> None:
        found = await self._memory.get(self._key)
        await self._memory.put(self._key, found.data if found else b"{}", expected=found.version if found else ABSENT)
        self.hooks = [("put", self._key, self._touch)]


async def test_an_index_that_grows_is_cut_into_segments_and_keeps_every_entry() -> None:
    count = 3 * INLINE_MAX
    workspace = await filled(count)

    manifest, segments = await manifest_of(workspace), await segments_of(workspace)

    assert manifest.entries == ()
    assert len(segments) > 3
    assert all(len(held.value.entries) <= SEGMENT_MAX for held in segments)
    assert await indexed(workspace) == [f"t{number:06d}" for number in range(count)]
    assert len(await workspace.store.list(workspace.layout.index_segments_folder(SCOPE))) == len(segments)


async def test_entries_go_from_segments_too() -> None:
    count = 2 * INLINE_MAX
    workspace = await filled(count)

    for number in range(0, count, 2):
        await drop(workspace, f"t{number:06d}")

    assert await indexed(workspace) == [f"t{number:06d}" for number in range(1, count, 2)]


@pytest.mark.parametrize("after", [False, True])
async def test_a_conversion_or_split_that_died_is_finished_by_the_next_update(*, after: bool) -> None:
    """The process dies at every call of an update that makes the index outgrow one object, and of one that splits."""
    for count in (INLINE_MAX, 2 * INLINE_MAX):
        for dies_at in range(1, 40):
            world = await _one_before_it_grows(count)
            await put_name(world, table("~new"))
            await put_name(world, table("~later"))
            store = DyingStore(world.store, dies_at=dies_at, after=after)
            dying = make_workspace(store, world.clock)
            with contextlib.suppress(Died):
                await indexing.finish(dying, table("~new"), "operation")
            await dying.background.drain()

            # As many more as make the same segment overflow for certain, whatever became of the first.
            for name in ("~later", "~new"):
                await indexing.put_right(make_workspace(world.store, world.clock), place_of(table(name)))

            assert (await indexed(world))[-2:] == ["~later", "~new"]
            assert len(await indexed(world)) == len(_grown[count][1]) + 2
            if not store.has_died:
                break
        else:
            pytest.fail("the update never came to its end")


_grown: dict[int, tuple[dict[str, bytes], list[str]]] = {}


async def _one_before_it_grows(count: int) -> Workspace:
    """An index whose last object is full. Filled once, then copied."""
    workspace = make_workspace()
    if count not in _grown:
        source = make_workspace()
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
        await workspace.store.put(key, data, expected=ABSENT)
    return workspace


DAMAGES = [b"", b"{}", b"[1, 2", b'{"version": 9}', b'{"version":1,"updated_at_epoch_ms":0,"entries":[7]}', b"\xff"]


@pytest.mark.parametrize("damage", [None, *DAMAGES])
@pytest.mark.parametrize("count", [3, INLINE_MAX + 50])
async def test_an_index_that_is_lost_or_damaged_is_made_anew_by_the_next_update(
    count: int, damage: bytes | None
) -> None:
    workspace = await filled(count)
    key = workspace.layout.list_index(SCOPE)
    found = await workspace.store.get(key)
    assert found is not None
    if damage is None:
        await workspace.store.delete(key, expected=found.version)
    else:
        await workspace.store.put(key, damage, expected=found.version)
    await put_name(workspace, table("new"))

    await indexing.finish(make_workspace(workspace.store, workspace.clock), table("new"), "operation")

    assert await indexed(workspace) == sorted(["new", *(f"t{number:06d}" for number in range(count))])


@pytest.mark.parametrize("damage", [None, *DAMAGES])
async def test_a_segment_that_is_lost_or_damaged_is_made_anew_by_the_next_update(damage: bytes | None) -> None:
    count = INLINE_MAX + 50
    workspace = await filled(count)
    key = workspace.layout.index_segment(SCOPE, (await manifest_of(workspace)).segments[0].id)
    found = await workspace.store.get(key)
    assert found is not None
    if damage is None:
        await workspace.store.delete(key, expected=found.version)
    else:
        await workspace.store.put(key, damage, expected=found.version)
    await put_name(workspace, table("a"))

    await indexing.finish(make_workspace(workspace.store, workspace.clock), table("a"), "operation")

    assert await indexed(workspace) == ["a", *(f"t{number:06d}" for number in range(count))]


async def test_an_index_that_is_unsorted_or_says_things_twice_is_made_anew() -> None:
    workspace = await filled(3)
    found = await workspace.index(SCOPE).read()
    assert found is not None
    ghost = replace(found.value.entries[0], name="ghost")
    wrong = (*found.value.entries, ghost)
    await workspace.index(SCOPE).swap(Manifest(version=1, updated_at_epoch_ms=0, entries=wrong), expected=found.version)

    for _ in range(2):
        await indexing.finish(workspace, table("t000000"), "operation")

    assert await indexed(workspace) == ["t000000", "t000001", "t000002"]


@pytest.mark.parametrize("count", [5, INLINE_MAX + 50])
async def test_a_rebuild_adds_what_is_missing_and_removes_what_is_gone(count: int) -> None:
    workspace = await filled(count)
    for name in ("x", "y"):
        await put_name(workspace, table(name))
    await take_name_away(workspace, table("t000003"))

    await rebuild(make_workspace(workspace.store, workspace.clock), SCOPE)

    expected = [f"t{number:06d}" for number in range(count) if number != 3]
    assert await indexed(workspace) == [*expected, "x", "y"]


async def test_a_rebuild_of_segments_splits_those_that_are_too_large() -> None:
    workspace = await filled(INLINE_MAX + 50)
    for number in range(2 * SEGMENT_MAX):
        await put_name(workspace, table(f"u{number:06d}"))

    await rebuild(workspace, SCOPE)

    assert len(await indexed(workspace)) == INLINE_MAX + 50 + 2 * SEGMENT_MAX
    assert workspace.counters.times(INDEX_REBUILDS, "ok") == 1


async def test_a_rebuild_does_not_remove_what_was_created_while_it_listed() -> None:
    """I4: its version is older than its listing."""
    for count in (3, INLINE_MAX + 50):
        source = await filled(count)
        store = HookedStore(source.store)
        slow = make_workspace(store, source.clock)

        async def created(source: Workspace = source) -> None:
            await create(make_workspace(source.store, source.clock), "fresh")

        store.before("get", source.layout.name(table("t000000")), created)  # The listing is over by then.
        await rebuild(slow, SCOPE)

        assert store.hooks == []
        assert "fresh" in await indexed(source)


async def test_an_update_of_an_index_that_was_made_anew_meanwhile_is_made_again() -> None:
    """The segment it swapped belongs to no index any more."""
    source = await filled(INLINE_MAX + 50)
    store = HookedStore(source.store)
    slow = make_workspace(store, source.clock)
    await put_name(source, table("a"))
    segment = source.layout.index_segment(SCOPE, (await manifest_of(source)).segments[0].id)

    async def lost_and_made_anew() -> None:
        await take_name_away(source, table("a"))
        other = make_workspace(source.store, source.clock)
        found = await other.index(SCOPE).read()
        assert found is not None
        await other.index(SCOPE).empty(expected=found.version)
        await rebuild(other, SCOPE)
        await put_name(source, table("a"))

    store.before("put", segment, lost_and_made_anew)
    await indexing.finish(slow, table("a"), "operation")

    assert store.hooks == []
    assert (await indexed(source))[0] == "a"
