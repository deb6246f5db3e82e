"""Concurrent lists share the reads of names that their process is changing. Each shows what was answered before it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Scope, names_scope, place_of
from sandur.errors import Unavailable
from sandur.operations.index import update
from sandur.operations.index.lists import read_page
from sandur.operations.index.memory import Batch, IndexMemory
from sandur.operations.lake import Lake
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake, put_name, remove_name

T = TypeVar("T")

SCOPE: Scope = names_scope(Namespace("main", ("a",)))
NAMES = [f"t{number:02}" for number in range(20)]


def table(name: str) -> Identifier:
    return Identifier("main", ("a",), name)


class CountingStore(WrappingStore):
    """Counts the reads of names, and may hold their answers or fail them; every call yields to other tasks."""

    def __init__(self) -> None:
        self.memory = MemoryStore(clock=FixedClock())
        super().__init__(self.memory)
        self.reads: Counter[str] = Counter()
        self.has_read = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_away = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(0)
        answer = await perform()
        if call.name.startswith("get") and "/names/" in call.key:
            self.reads[call.key] += 1
            self.has_read.set()
            await self.gate.wait()
            if self.is_away:
                raise Unavailable("the store is away")
        return answer

    def hold(self) -> None:
        """From now on, answers wait for the gate."""
        self.has_read.clear()
        self.gate.clear()


async def changing(store: WrappingStore) -> Lake:
    """A lake whose index exists, and that is changing every table."""
    lake = make_lake(store, FixedClock())
    await put_name(lake, table("old"))
    await update.update_entry(lake, place_of(table("old")))
    for name in NAMES:
        await update.mark(lake, table(name), f"change-of-{name}")
        await put_name(lake, table(name))
    return lake


async def listed(lake: Lake) -> list[str]:
    page = await read_page(lake, SCOPE, last=None, wanted=None)
    assert not page.is_fallback
    return [entry.name for entry in page.entries]


async def test_many_lists_at_once_read_each_changing_name_at_most_twice() -> None:
    """The first list reads alone, and all others share what is read after it."""
    store = CountingStore()
    lake = await changing(store)
    store.reads.clear()

    found = await asyncio.gather(*(listed(lake) for _ in range(16)))

    assert found == [["old", *NAMES]] * 16
    assert set(store.reads.values()) == {2}
    assert not lake.feature(IndexMemory).reads


async def test_a_list_shows_what_was_answered_before_it_while_another_list_is_reading() -> None:
    store = CountingStore()
    lake = await changing(store)
    store.hold()
    first = asyncio.create_task(listed(lake))
    await store.has_read.wait()
    await remove_name(make_lake(store.memory), table("t00"))

    second = asyncio.create_task(listed(lake))
    store.gate.set()

    assert "t00" in await first
    assert "t00" not in await second


async def test_what_a_caller_that_leaves_was_doing_is_done_for_those_that_wait_with_it() -> None:
    batch, gates, begun, calls = Batch(), [asyncio.Event(), asyncio.Event()], asyncio.Queue[int](), list[list[str]]()

    async def work(names: Collection[str]) -> Mapping[str, None]:
        calls.append(sorted(names))
        begun.put_nowait(len(calls))
        for gate in gates[len(calls) - 1 : len(calls)]:
            await gate.wait()
        return dict.fromkeys(names)

    first = asyncio.create_task(batch.share(["a"], work))
    await begun.get()
    second, third = (asyncio.create_task(batch.share([name], work)) for name in "bc")
    await asyncio.sleep(0)
    gates[0].set()
    await begun.get()

    second.cancel()

    assert (await first, await third) == ({"a": None}, {"c": None})
    assert calls == [["a"], ["b", "c"], ["b", "c"]]
    assert second.cancelled()


async def test_lists_that_share_reads_get_their_error_and_later_ones_do_not() -> None:
    store = CountingStore()
    lake = await changing(store)
    store.is_away = True

    found = await asyncio.gather(*(listed(lake) for _ in range(4)), return_exceptions=True)
    store.is_away = False

    assert [type(one) for one in found] == [Unavailable] * 4
    assert await listed(lake) == ["old", *NAMES]
