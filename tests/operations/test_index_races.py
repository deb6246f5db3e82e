"""The list index under many interleavings: at rest it agrees with the records."""

import asyncio
import contextlib

import pytest

from sandur.catalog.index import INLINE_MAX, SEGMENT_MAX
from sandur.errors import Busy
from sandur.operations.index.rebuild import rebuild
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_name
from sandur.storage.contract import ABSENT
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.yielding_store import YieldingStore
from tests.operations.lakes import make_lake, visit_marks
from tests.operations.test_index_updates import SCOPE, create, drop, indexed, indexed_lake, marks

SEEDS = range(40)


class InterleavedCluster:
    """Separate processes over one store that interleaves them."""

    def __init__(self, seed: int) -> None:
        self.clock = FixedClock(seed=1_000 + seed)  # A seed of its own, so that ids differ between clocks.
        self.inner = MemoryStore(clock=self.clock)
        self._store = YieldingStore(self.inner, seed=seed)

    async def copy(self, source: Lake) -> None:
        held = source.store
        assert isinstance(held, MemoryStore)
        for key, (stored, _) in held._objects.items():
            await self.inner.put(key, stored.data, expected=ABSENT)

    def racer(self) -> Lake:
        return make_lake(self._store, self.clock)

    def quiet(self) -> Lake:
        return make_lake(self.inner, self.clock)

    async def true_names(self) -> list[str]:
        listed = await self.inner.list(self.quiet().layout.names_folder(SCOPE.namespace))
        names = [self.quiet().layout.parse_name(found.key) for found in listed]
        return sorted([name.name for name in names if await resolve_name(self.quiet(), name)])


async def create_and_drop(lake: Lake, name: str) -> None:
    await create(lake, name)
    await drop(lake, name)


async def rebuild_if_it_can(lake: Lake) -> None:
    try:
        await rebuild(lake, SCOPE)
    except Busy:  # Other writers won every swap, so the index is correct.
        return


@pytest.mark.parametrize("seed", SEEDS)
async def test_creations_drops_and_rebuilds_leave_a_correct_index(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), "before")

    await asyncio.gather(
        create(cluster.racer(), "one"),
        create_and_drop(cluster.racer(), "two"),
        drop(cluster.racer(), "before"),
        rebuild_if_it_can(cluster.racer()),
        create(cluster.racer(), "three"),
    )

    assert await indexed(cluster.quiet()) == await cluster.true_names() == ["one", "three"]
    assert await marks(cluster.quiet()) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_name_that_changes_often_is_listed_in_its_last_state(seed: int) -> None:
    cluster = InterleavedCluster(seed)
    await create(cluster.quiet(), "t")

    async def again() -> None:
        lake = cluster.racer()
        await drop(lake, "t")
        await create(lake, "t")
        await drop(lake, "t")

    await asyncio.gather(again(), rebuild_if_it_can(cluster.racer()), rebuild_if_it_can(cluster.racer()))

    assert await indexed(cluster.quiet()) == await cluster.true_names() == []


_sources: dict[int, Lake] = {}


@pytest.mark.parametrize("count", [INLINE_MAX - 2, 2 * INLINE_MAX])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 8))])
async def test_concurrent_splits_lose_nothing(seed: int, count: int) -> None:
    """Splits run beside drops and a rebuild; a process that is too slow leaves its mark to the janitor."""
    if count not in _sources:
        _sources[count] = await indexed_lake(count)
    cluster = InterleavedCluster(seed)
    await cluster.copy(_sources[count])
    racers = [cluster.racer() for _ in range(4)]

    async def many(number: int) -> None:
        for step in range(SEGMENT_MAX // 16):
            with contextlib.suppress(Busy):
                await create(racers[number], f"t000100-{number}-{step:03d}")
        with contextlib.suppress(Busy):
            await drop(racers[number], f"t{number:06d}")

    await asyncio.gather(*(many(number) for number in range(len(racers))), rebuild_if_it_can(cluster.racer()))
    for racer in racers:
        await racer.background.drain()
    await visit_marks(cluster.quiet())

    assert await indexed(cluster.quiet()) == await cluster.true_names()
    assert len(await indexed(cluster.quiet())) == count - len(racers) + len(racers) * (SEGMENT_MAX // 16)
