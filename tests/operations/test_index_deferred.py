"""Commits that change the entry of a table share a mark, and the index is updated once for all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import names_scope
from sandur.errors import OutcomeUnknown, Unavailable
from sandur.operations.counters import INDEX_UPDATES, Counters
from sandur.operations.index import update
from sandur.operations.index.lists import read_page
from sandur.operations.index.update import DeferredUpdate
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.batches import queued, together, warm
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake, put_name
from tests.operations.requests import commit, create, identifier_of, request, set_property, set_up_catalog

T = TypeVar("T")

TABLE = Identifier("main", ("a",), "t")
SCOPE = names_scope(Namespace("main", ("a",)))


async def marks(lake: Lake) -> list[str]:
    return [listed.key for listed in await lake.store.list(lake.layout.marks_folder())]


async def updates(lake: Lake) -> int:
    return lake.feature(Counters).times(INDEX_UPDATES, "ok")


async def test_commits_in_quick_succession_write_one_mark_and_update_the_entry_once() -> None:
    lake = make_lake()
    await put_name(lake, TABLE)
    seen = []
    for _ in range(5):
        shared = await update.begin_deferred_update(lake, TABLE)
        seen.append(len(await marks(lake)))
        shared.end()
    await lake.background.drain()

    assert (seen, await marks(lake), await updates(lake)) == ([1] * 5, [], 1)


async def test_the_mark_stays_until_the_last_commit_has_ended() -> None:
    lake = make_lake()
    first, second = await asyncio.gather(*(update.begin_deferred_update(lake, TABLE) for _ in range(2)))
    first.end()
    await lake.background.drain()
    late = await update.begin_deferred_update(lake, TABLE)
    during = len(await marks(lake))
    second.end()
    late.end()
    await lake.background.drain()

    assert first is second
    assert late is not first
    assert during == 2
    # The first mark was still shared at the deadline and is left to the janitor; the late one was removed.
    assert [key.rsplit("/", 1)[1] for key in await marks(lake)] == [first.mark]


async def test_a_list_of_the_same_server_shows_the_change_before_the_index_does() -> None:
    lake = make_lake()
    (await update.begin_deferred_update(lake, TABLE)).end()
    await lake.background.drain()
    before = await lake.index(SCOPE).read()

    shared = await update.begin_deferred_update(lake, TABLE)
    await put_name(lake, TABLE)
    shared.end()
    page = await read_page(lake, SCOPE, last=None, wanted=None)

    assert [entry.name for entry in page.entries] == ["t"]
    assert await lake.index(SCOPE).read() == before
    await lake.background.drain()


async def test_a_commit_that_waits_for_a_failed_mark_writes_another() -> None:
    store = HookedStore(MemoryStore())
    lake = make_lake(store, FixedClock())

    async def fail() -> None:
        await asyncio.sleep(0)
        raise Unavailable("the store is away")

    store.before("put", lake.layout.mark(SCOPE.hash, FixedClock().new_id()), fail)
    first, second = await asyncio.gather(
        update.begin_deferred_update(lake, TABLE), update.begin_deferred_update(lake, TABLE), return_exceptions=True
    )

    assert isinstance(first, Unavailable)
    assert isinstance(second, DeferredUpdate)
    assert [key.rsplit("/", 1)[1] for key in await marks(lake)] == [second.mark]
    second.end()
    await lake.background.drain()
    assert not await marks(lake)


async def test_a_commit_that_never_ends_leaves_its_mark_and_no_other_commit_joins_it() -> None:
    lake = make_lake()
    lost = await update.begin_deferred_update(lake, TABLE)
    await lake.background.drain()

    following = await update.begin_deferred_update(lake, TABLE)
    following.end()
    await lake.background.drain()

    assert following is not lost
    assert [key.rsplit("/", 1)[1] for key in await marks(lake)] == [lost.mark]


class _LateSwaps(WrappingStore):
    """Once armed, swaps of pointers get no answer and are held back; with `is_slow`, also no failure."""

    def __init__(self, inner: MemoryStore, *, is_slow: bool = False) -> None:
        super().__init__(inner)
        self.is_armed = False
        self.is_held = asyncio.Event()
        self._is_slow = is_slow
        self.held: list[Callable[[], Awaitable[object]]] = []

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.is_armed and call.name == "put" and "/iceberg_pointers/" in call.key:
            self.held.append(perform)
            self.is_held.set()
            if self._is_slow:
                await asyncio.Event().wait()
            raise OutcomeUnknown(f"object {call.key}: no answer")
        return await perform()


@pytest.mark.parametrize("together_with", [0, 2])
async def test_the_mark_of_a_commit_that_may_still_be_made_stays(together_with: int) -> None:
    """I1: alone, and in a batch. Without the mark, lists would show the old properties until a rebuild."""
    store = _LateSwaps(MemoryStore(clock=FixedClock()))
    lake, table = make_lake(store), identifier_of("t")
    await set_up_catalog(lake)
    await create(lake, "t")
    await warm(lake, table)
    store.is_armed = True

    change = commit(set_property("a", "1"))
    sent = [commit_table(lake, table, change, request(str(number))) for number in range(1 + together_with)]
    answers = await together(lake, table, sent)
    await lake.background.drain()
    left = await marks(lake)
    await store.held[0]()

    assert {type(one) for one in answers} == {OutcomeUnknown}
    assert len(left) == 1


@pytest.mark.parametrize(("together_with", "ended"), [(0, "requests"), (2, "requests"), (2, "batch")])
async def test_the_mark_of_a_commit_stays_that_is_cancelled_while_its_swap_is_sent(
    together_with: int, ended: str
) -> None:
    """I1: a server that stops cancels its requests; a swap that was sent may be made after that."""
    store = _LateSwaps(MemoryStore(clock=FixedClock()), is_slow=True)
    lake, table = make_lake(store), identifier_of("t")
    await set_up_catalog(lake)
    await create(lake, "t")
    await warm(lake, table)
    store.is_armed = True

    change = commit(set_property("a", "1"))
    sent = [commit_table(lake, table, change, request(str(number))) for number in range(1 + together_with)]
    tasks = await queued(lake, table, sent)
    await store.is_held.wait()
    batches = [task for task in asyncio.all_tasks() if task.get_name() == "batch of commits"]
    for task in tasks if ended == "requests" else batches:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await lake.background.drain()

    assert len(await marks(lake)) == 1
