"""The fakes keep their promises, which other tests rely on."""

import asyncio

import pytest

from sandur.errors import OutcomeUnknown, SwapLost
from sandur.storage.contract import ABSENT, ObjectStore, get_many
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.lossy_store import Fate, LossyStore
from tests.fakes.spy_store import SpyStore
from tests.fakes.wrapping_store import Call
from tests.fakes.yielding_store import YieldingStore


@pytest.fixture(params=["memory", "local"])
def spy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SpyStore:
    """A spy over a store that yields and over one that answers reads without ever yielding."""
    is_memory = request.param == "memory"
    return SpyStore(MemoryStore() if is_memory else LocalStore(tmp_path_factory.mktemp("spied"), fsync="never"))


async def test_concurrent_calls_are_one_round(spy: SpyStore) -> None:
    await get_many(spy, ["a", "b", "c"])

    assert spy.rounds == 1
    assert spy.keys("get") == ["a", "b", "c"]


async def test_a_call_after_others_have_ended_is_the_next_round(spy: SpyStore) -> None:
    await get_many(spy, ["a", "b", "c"])
    await spy.put("a", b"1", expected=ABSENT)

    assert spy.rounds == 2
    assert spy.calls[-1] == Call("put", "a", b"1")


async def test_two_concurrent_chains_are_as_many_rounds_as_the_longer_one(spy: SpyStore) -> None:
    async def chain(name: str, length: int) -> None:
        for number in range(length):
            await spy.get(f"{name}{number}")

    await asyncio.gather(chain("a", 2), chain("b", 3))

    assert spy.rounds == 3
    assert len(spy.calls) == 5


async def test_a_call_that_overlaps_two_rounds_counts_in_the_first() -> None:
    gate = asyncio.Event()

    class Slow(MemoryStore):
        async def head(self, key: str) -> None:
            del key
            await gate.wait()

    spy = SpyStore(Slow())
    slow = asyncio.create_task(spy.head("slow"))
    await spy.get("a")
    await spy.get("b")
    gate.set()
    await slow

    assert spy.rounds == 2


async def test_failed_calls_are_rounds_too(spy: SpyStore) -> None:
    await spy.put("a", b"1", expected=ABSENT)
    with pytest.raises(SwapLost):
        await spy.put("a", b"2", expected=ABSENT)
    await spy.get("a")

    assert spy.rounds == 3


async def test_the_spy_counts_bytes_until_it_is_reset(spy: SpyStore) -> None:
    await spy.put("a", b"12345", expected=ABSENT)
    await spy.get("a")
    await spy.get("absent")

    assert (spy.bytes_written, spy.bytes_read) == (5, 5)

    spy.reset()
    assert (spy.bytes_written, spy.bytes_read, spy.rounds, spy.calls) == (0, 0, 0, [])

    await spy.list("")
    assert spy.rounds == 1
    assert spy.keys("list") == [""]


@pytest.mark.parametrize("after", [False, True])
async def test_a_dying_store_dies_at_its_call_and_stays_dead(*, after: bool) -> None:
    inner = MemoryStore()
    dying = DyingStore(inner, dies_at=2, after=after)
    await dying.put("a", b"1", expected=ABSENT)

    with pytest.raises(Died):
        await dying.put("b", b"2", expected=ABSENT)

    assert dying.has_died
    assert (await inner.get("b") is not None) == after
    with pytest.raises(Died):
        await dying.get("a")
    with pytest.raises(Died):
        await dying.put("c", b"3", expected=ABSENT)
    assert await inner.get("c") is None


async def test_a_store_dies_also_after_a_failed_call() -> None:
    inner = MemoryStore()
    await inner.put("a", b"1", expected=ABSENT)
    dying = DyingStore(inner, dies_at=1, after=True)

    with pytest.raises(Died):
        await dying.put("a", b"2", expected=ABSENT)


async def test_death_is_not_an_error_that_code_can_handle() -> None:
    dying = DyingStore(MemoryStore(), dies_at=1, after=False)

    async def careful() -> None:
        try:
            await dying.get("a")
        except Exception as error:
            raise AssertionError from error

    with pytest.raises(Died):
        await asyncio.gather(careful())


@pytest.mark.parametrize(("fate", "lands"), [("applied", True), ("dropped", False), ("late", False)])
async def test_a_write_with_a_lost_answer_may_or_may_not_be_applied(fate: Fate, *, lands: bool) -> None:
    inner = MemoryStore()
    lossy = LossyStore(inner, loses_at=2, fate=fate)
    await lossy.put("a", b"1", expected=ABSENT)

    with pytest.raises(OutcomeUnknown):
        await lossy.put("b", b"2", expected=ABSENT)

    assert (await inner.get("b") is not None) == lands
    await lossy.put("c", b"3", expected=ABSENT)
    assert await inner.get("c") is not None


async def test_reads_do_not_count_as_writes_that_may_be_lost() -> None:
    lossy = LossyStore(MemoryStore(), loses_at=1, fate="dropped")
    await lossy.get("a")
    await lossy.list("")

    with pytest.raises(OutcomeUnknown):
        await lossy.put("a", b"1", expected=ABSENT)


async def test_a_late_write_is_applied_once_when_it_is_delivered() -> None:
    inner = MemoryStore()
    lossy = LossyStore(inner, loses_at=1, fate="late")
    with pytest.raises(OutcomeUnknown):
        await lossy.put("a", b"1", expected=ABSENT)

    assert await lossy.deliver()
    stored = await inner.get("a")
    assert stored
    assert stored.data == b"1"
    await inner.delete("a", expected=stored.version)
    assert not await lossy.deliver()
    assert await inner.get("a") is None


async def test_a_late_write_that_was_overtaken_is_not_applied() -> None:
    inner = MemoryStore()
    lossy = LossyStore(inner, loses_at=1, fate="late")
    with pytest.raises(OutcomeUnknown):
        await lossy.put("a", b"late", expected=ABSENT)
    await inner.put("a", b"first", expected=ABSENT)

    assert not await lossy.deliver()
    stored = await inner.get("a")
    assert stored
    assert stored.data == b"first"


async def test_a_lost_delete_may_have_happened() -> None:
    inner = MemoryStore()
    version = await inner.put("a", b"1", expected=ABSENT)
    lossy = LossyStore(inner, loses_at=1, fate="applied")

    with pytest.raises(OutcomeUnknown):
        await lossy.delete("a", expected=version)

    assert await inner.get("a") is None


async def test_a_lost_answer_hides_even_a_lost_swap() -> None:
    inner = MemoryStore()
    await inner.put("a", b"1", expected=ABSENT)
    lossy = LossyStore(inner, loses_at=1, fate="applied")

    with pytest.raises(OutcomeUnknown):
        await lossy.put("a", b"2", expected=ABSENT)


async def _order_of_winners(seed: int) -> list[int]:
    inner = MemoryStore()
    store: ObjectStore = YieldingStore(inner, seed=seed)
    winners: list[int] = []

    async def racer(number: int) -> None:
        for place in range(4):
            try:
                await store.put(f"place/{place}", b"%d" % number, expected=ABSENT)
            except SwapLost:
                continue
            winners.append(number)
            return

    await asyncio.gather(*(racer(number) for number in range(4)))
    return winners


async def test_the_same_seed_gives_the_same_interleaving_and_others_differ() -> None:
    orders = [await _order_of_winners(seed) for seed in range(20)]

    assert orders == [await _order_of_winners(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 5


async def test_a_fixed_clock_moves_only_by_advance_and_sleep() -> None:
    clock = FixedClock(1_000)

    assert clock.now_ms() == clock.now_ms() == 1_000
    clock.advance(500)
    assert clock.now_ms() == 1_500
    await clock.sleep(2.5)
    assert clock.now_ms() == 4_000
    assert clock.slept_seconds == [2.5]


def test_ids_of_a_fixed_clock_follow_from_its_seed_and_never_repeat() -> None:
    first, second, other = FixedClock(seed=7), FixedClock(seed=7), FixedClock(seed=8)

    ids = [first.new_id() for _ in range(1_000)] + [first.new_uuid() for _ in range(1_000)]

    assert ids == [second.new_id() for _ in range(1_000)] + [second.new_uuid() for _ in range(1_000)]
    assert len(set(ids)) == 2_000
    assert other.new_id() not in ids
    assert 0 <= first.chance() < 1
