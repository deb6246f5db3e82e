"""Nearly empty segments are merged, and no concurrent update is lost."""

import asyncio
import contextlib

import pytest

from sandur.catalog.index import INLINE_MAX
from sandur.errors import Busy
from sandur.operations.index.rebuild import merge_segments, rebuild_and_merge
from sandur.operations.lake import Lake
from tests.crash.gated_store import GatedStore
from tests.fakes.dying_store import Died, DyingStore
from tests.operations.lakes import make_lake, visit_marks
from tests.operations.test_index_races import InterleavedCluster
from tests.operations.test_index_updates import SCOPE, create, drop, indexed, indexed_lake, segments_of

COUNT = 2 * INLINE_MAX
_thinned: list[Lake] = []


async def _sparse_index() -> Lake:
    """An index with several segments and few entries; built once."""
    if not _thinned:
        lake = await indexed_lake(COUNT)
        for number in range(COUNT):
            if number % 40:
                await drop(lake, f"t{number:06d}")
        await lake.background.drain()
        _thinned.append(lake)
    return _thinned[0]


async def test_few_entries_are_merged_into_one_object() -> None:
    cluster = InterleavedCluster(0)
    await cluster.copy(await _sparse_index())
    before = await indexed(cluster.quiet())
    segments = len(await segments_of(cluster.quiet()))

    remade = await rebuild_and_merge(cluster.quiet(), SCOPE)

    assert segments > 3
    assert remade == (True, len(before), segments, 0)
    assert await indexed(cluster.quiet()) == before == await cluster.true_names()
    assert await cluster.inner.list(cluster.quiet().layout.all_index_segments_folder()) == []
    await create(cluster.quiet(), "afterwards")
    assert "afterwards" in await indexed(cluster.quiet())


async def test_full_segments_are_not_merged() -> None:
    lake = await indexed_lake(COUNT)
    before = await segments_of(lake)

    assert not await merge_segments(lake, SCOPE)
    assert await segments_of(lake) == before


async def test_a_rebuild_reports_whether_the_index_was_right() -> None:
    cluster = InterleavedCluster(1)
    await create(cluster.quiet(), "t")
    manifest = await cluster.quiet().index(SCOPE).read()
    assert manifest is not None
    await cluster.quiet().index(SCOPE).empty(expected=manifest.version)

    missing = await rebuild_and_merge(cluster.quiet(), SCOPE)
    right = await rebuild_and_merge(cluster.quiet(), SCOPE)

    assert (missing.was_right, missing.entries) == (False, 1)
    assert (right.was_right, right.entries) == (True, 1)


async def test_an_update_right_before_the_swap_of_a_merge_makes_it_lose() -> None:
    """The merge has read and written all segments; an update of an old segment must not be lost now."""
    cluster = InterleavedCluster(0)
    await cluster.copy(await _sparse_index())
    key = cluster.quiet().layout.list_index(SCOPE)
    gate = GatedStore(cluster.inner, holds=lambda call: call.name == "put" and call.key == key)
    merging = asyncio.create_task(merge_segments(make_lake(gate, cluster.clock), SCOPE))
    await gate.is_held.wait()

    await create(cluster.quiet(), "t000100-new")
    gate.release()

    assert not await merging
    assert await indexed(cluster.quiet()) == await cluster.true_names()


@pytest.mark.parametrize("seed", range(20))
async def test_updates_during_a_merge_are_not_lost(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await cluster.copy(await _sparse_index())
    racers = [cluster.racer() for _ in range(3)]

    async def many(number: int) -> None:
        for step in range(3):
            with contextlib.suppress(Busy):
                await create(racers[number], f"t{step * 160:06d}-{number}")
        with contextlib.suppress(Busy):
            await drop(racers[number], f"t{number * 160:06d}")

    async def merge() -> None:
        for _ in range(3):
            await merge_segments(cluster.racer(), SCOPE)

    await asyncio.gather(*(many(number) for number in range(len(racers))), merge())
    for racer in racers:
        await racer.background.drain()
    await visit_marks(cluster.quiet())

    assert await indexed(cluster.quiet()) == await cluster.true_names()


@pytest.mark.parametrize("after", [False, True])
async def test_a_merge_that_dies_anywhere_leaves_a_working_index(*, after: bool) -> None:
    source = await _sparse_index()
    before = await indexed(source)
    is_over = False
    dies_at = 0
    while not is_over:
        dies_at += 1
        cluster = InterleavedCluster(0)
        await cluster.copy(source)
        dying = DyingStore(cluster.inner, dies_at=dies_at, after=after)
        with contextlib.suppress(Died):
            await merge_segments(make_lake(dying, cluster.clock), SCOPE)
        is_over = not dying.has_died

        assert await indexed(cluster.quiet()) == before, f"died at {dies_at}"
        await create(cluster.quiet(), "t000001-new")
        assert await indexed(cluster.quiet()) == sorted([*before, "t000001-new"]), f"died at {dies_at}"
    assert dies_at > 10
