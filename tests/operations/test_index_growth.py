"""The cost of one creation for the index as the namespace grows: bytes and rounds, counted and not timed."""

from statistics import mean
from typing import NamedTuple

import pytest

from sandur.catalog.index import INLINE_MAX, place_of
from sandur.operations.index import update
from sandur.operations.index.rebuild import rebuild
from sandur.operations.lake import Lake
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake, put_name
from tests.operations.test_index_updates import SCOPE, indexed, indexed_lake, manifest_of, table

GROWTH_MAX = 2.0
MEASURED = 400


class Cost(NamedTuple):
    """The average cost of one creation."""

    bytes_written: float
    bytes_read: float
    rounds: float


def spread_name(number: int) -> str:
    """Names spread between those of `indexed_lake`."""
    return f"t{(number * 7_919) % 100_003:06d}-{number}"


async def cost_of_creates(lake: Lake, spy: SpyStore, count: int, first: int) -> Cost:
    costs: list[Cost] = []
    for number in range(first, first + count):
        identifier = table(spread_name(number))
        spy.reset()
        await update.mark(lake, identifier, str(number))
        marking = Cost(spy.bytes_written, spy.bytes_read, spy.rounds)
        await put_name(lake, identifier)
        spy.reset()
        await update.finish(lake, identifier, str(number))
        await lake.background.drain()
        costs.append(
            Cost(
                marking.bytes_written + spy.bytes_written,
                marking.bytes_read + spy.bytes_read,
                marking.rounds + spy.rounds,
            )
        )
    return Cost(*(mean(values) for values in zip(*costs, strict=True)))


async def cost_around_the_hundredth() -> Cost:
    """The mean cost of the creations 50 to 150."""
    spy = SpyStore(MemoryStore())
    lake = make_lake(spy, FixedClock(seed=1))
    await cost_of_creates(lake, spy, 50, 0)
    return await cost_of_creates(lake, spy, 100, 50)


def check(cost: Cost, small: Cost) -> None:
    """Check the cost, although early creations hit the cache and later ones read new segments."""
    assert cost.bytes_written <= GROWTH_MAX * small.bytes_written, (cost, small)
    assert cost.bytes_written + cost.bytes_read <= GROWTH_MAX * (small.bytes_written + small.bytes_read), (cost, small)
    assert cost.rounds <= GROWTH_MAX * small.rounds, (cost, small)


@pytest.mark.parametrize("count", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_a_create_beside_thousands_costs_no_more_than_twice_the_hundredth(count: int) -> None:
    small = await cost_around_the_hundredth()
    spy = SpyStore((await indexed_lake(count)).store)

    cost = await cost_of_creates(make_lake(spy, FixedClock(seed=1)), spy, MEASURED, count)

    check(cost, small)


@pytest.mark.slow
async def test_the_hundred_thousandth_create_costs_no_more_than_twice_the_hundredth() -> None:
    small = await cost_around_the_hundredth()
    store = MemoryStore()
    source = make_lake(store)
    for number in range(100_000):
        await put_name(source, table(f"t{number:06d}"))
    await rebuild(source, SCOPE)
    spy = SpyStore(store)
    lake = make_lake(spy, FixedClock(seed=1))

    cost = await cost_of_creates(lake, spy, 2 * MEASURED, 100_000)

    check(cost, small)


async def test_an_update_that_loses_one_segment_does_not_write_the_others_again() -> None:
    """Otherwise writers of different segments take each other's swaps, the more of them the longer the lists are."""
    store = MemoryStore()
    other = await indexed_lake(2 * INLINE_MAX, store=store)
    spy = SpyStore(hooked := HookedStore(store))
    server, names = make_lake(spy), [table("t000000-new"), table("t999999-new")]
    for name in (*names, table("t999998-new")):
        await put_name(other, name)
    manifest = (await manifest_of(other)).segments
    first, last = (other.index_segment(SCOPE, manifest[position].id).key for position in (0, -1))
    hooked.before("put", last, lambda: update.update_entry(other, place_of(table("t999998-new"))))

    await update.finish_together(server, {name: name.name for name in names})

    assert (spy.keys("put").count(first), len(spy.keys("put"))) == (1, 3)
    assert {"t000000-new", "t999998-new", "t999999-new"} <= set(await indexed(make_lake(store)))
