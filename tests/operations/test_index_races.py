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
from tests.operations.lakes import make_lake, work_off_marks
from tests.operations.test_index_updates import SCOPE, create, drop, filled, indexed, marks

SEEDS = range(40)


class Arena:
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
    arena = Arena(seed)
    await create(arena.quiet(), "before")

    await asyncio.gather(
        create(arena.racer(), "one"),
        create_and_drop(arena.racer(), "two"),
        drop(arena.racer(), "before"),
        rebuild_if_it_can(arena.racer()),
        create(arena.racer(), "three"),
    )

    assert await indexed(arena.quiet()) == await arena.true_names() == ["one", "three"]
    assert await marks(arena.quiet()) == []


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_name_that_changes_often_is_listed_in_its_last_state(seed: int) -> None:
    arena = Arena(seed)
    await create(arena.quiet(), "t")

    async def again() -> None:
        lake = arena.racer()
        await drop(lake, "t")
        await create(lake, "t")
        await drop(lake, "t")

    await asyncio.gather(again(), rebuild_if_it_can(arena.racer()), rebuild_if_it_can(arena.racer()))

    assert await indexed(arena.quiet()) == await arena.true_names() == []


_sources: dict[int, Lake] = {}


@pytest.mark.parametrize("count", [INLINE_MAX - 2, 2 * INLINE_MAX])
@pytest.mark.parametrize("seed", range(8))
async def test_concurrent_splits_lose_nothing(seed: int, count: int) -> None:
    """Splits run beside drops and a rebuild; a process that is too slow leaves its mark to the janitor."""
    if count not in _sources:
        _sources[count] = await filled(count)
    arena = Arena(seed)
    await arena.copy(_sources[count])
    racers = [arena.racer() for _ in range(4)]

    async def many(number: int) -> None:
        for step in range(SEGMENT_MAX // 16):
            with contextlib.suppress(Busy):
                await create(racers[number], f"t000100-{number}-{step:03d}")
        with contextlib.suppress(Busy):
            await drop(racers[number], f"t{number:06d}")

    await asyncio.gather(*(many(number) for number in range(len(racers))), rebuild_if_it_can(arena.racer()))
    for racer in racers:
        await racer.background.drain()
    await work_off_marks(arena.quiet())

    assert await indexed(arena.quiet()) == await arena.true_names()
    assert len(await indexed(arena.quiet())) == count - len(racers) + len(racers) * (SEGMENT_MAX // 16)
