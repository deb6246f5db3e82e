"""Commits that change the entry of a table share a mark, and the index is updated once for all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import names_scope
from sandur.errors import OutcomeUnknown, Unavailable
from sandur.operations.containers.namespaces import update_namespace_properties
from sandur.operations.counters import INDEX_UPDATES, Counters
from sandur.operations.index import update
from sandur.operations.index.lists import read_page
from sandur.operations.index.memory import DeferredUpdate
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.rename import rename
from sandur.operations.unity.governance import change_tags
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.batches import queued, together, warm
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake, put_name, visit_marks
from tests.operations.requests import NAMESPACE, commit, create, identifier_of, request, set_property, set_up_catalog

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
        shared = await update.begin_deferred_update(lake, TABLE, "")
        seen.append(len(await marks(lake)))
        shared.end()
    await lake.background.drain()

    assert (seen, await marks(lake), await updates(lake)) == ([1] * 5, [], 1)


async def test_the_mark_stays_until_the_last_commit_has_ended() -> None:
    lake = make_lake()
    first, second = await asyncio.gather(*(update.begin_deferred_update(lake, TABLE, "") for _ in range(2)))
    first.end()
    await lake.background.drain()
    late = await update.begin_deferred_update(lake, TABLE, "")
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
    (await update.begin_deferred_update(lake, TABLE, "")).end()
    await lake.background.drain()
    before = await lake.index(SCOPE).read()

    shared = await update.begin_deferred_update(lake, TABLE, "")
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
        update.begin_deferred_update(lake, TABLE, ""),
        update.begin_deferred_update(lake, TABLE, ""),
        return_exceptions=True,
    )

    assert isinstance(first, Unavailable)
    assert isinstance(second, DeferredUpdate)
    assert [key.rsplit("/", 1)[1] for key in await marks(lake)] == [second.mark]
    second.end()
    await lake.background.drain()
    assert not await marks(lake)


async def test_a_commit_that_never_ends_leaves_its_mark_and_no_other_commit_joins_it() -> None:
    lake = make_lake()
    lost = await update.begin_deferred_update(lake, TABLE, "")
    await lake.background.drain()

    following = await update.begin_deferred_update(lake, TABLE, "")
    following.end()
    await lake.background.drain()

    assert following is not lost
    assert [key.rsplit("/", 1)[1] for key in await marks(lake)] == [lost.mark]


async def test_a_commit_that_never_ends_does_not_keep_the_changes_of_others_from_other_servers() -> None:
    lake = make_lake()
    await put_name(lake, Identifier("main", ("a",), "other"))
    lost, other = await asyncio.gather(*(update.begin_deferred_update(lake, TABLE, "") for _ in range(2)))
    await put_name(lake, TABLE)
    other.end()
    await lake.background.drain()

    page = await read_page(make_lake(lake.store), SCOPE, last=None, wanted=None)
    assert not page.is_fallback
    assert [entry.name for entry in page.entries] == ["other", "t"]
    assert [key.rsplit("/", 1)[1] for key in await marks(lake)] == [lost.mark]


class _LateSwaps(WrappingStore):
    """Once armed, swaps below a folder get no answer and are held back; with `is_slow`, also no failure."""

    def __init__(self, inner: MemoryStore, *, folder: str = "/iceberg_pointers/", is_slow: bool = False) -> None:
        super().__init__(inner)
        self._folder = folder
        self.is_armed = False
        self.is_held = asyncio.Event()
        self._is_slow = is_slow
        self.held: list[Callable[[], Awaitable[object]]] = []

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.is_armed and call.name == "put" and self._folder in call.key:
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


Sent = Callable[[Lake], Awaitable[object]]


@pytest.mark.parametrize(
    ("folder", "send"),
    [
        ("/names/main/a/t", lambda lake: drop_name(lake, identifier_of("t"), kind="table", request=request("d"))),
        (
            "/names/main/a/t",
            lambda lake: rename(lake, identifier_of("t"), identifier_of("u"), kind="table", request=request("r")),
        ),
        (
            "/namespaces/main/a",
            lambda lake: update_namespace_properties(
                lake, NAMESPACE, removals=(), updates={"k": "v"}, request=request("p")
            ),
        ),
        (
            "/iceberg_pointers/",
            lambda lake: change_tags(lake, "table", "main.a.t", request("g"), set_={"k": "v"}),
        ),
    ],
    ids=["drop", "rename", "namespace", "tags"],
)
async def test_the_marks_of_other_changes_that_may_still_be_made_stay(folder: str, send: Sent) -> None:
    """I1: the write has no answer, and may arrive after the index was updated."""
    store = _LateSwaps(MemoryStore(clock=FixedClock()), folder=folder)
    lake = make_lake(store)
    await set_up_catalog(lake)
    await create(lake, "t")
    await update_namespace_properties(lake, NAMESPACE, removals=(), updates={"first": "1"}, request=request("first"))
    await lake.background.drain()
    before = set(await marks(lake))
    store.is_armed = True

    with pytest.raises(OutcomeUnknown):
        await send(lake)
    await lake.background.drain()

    assert store.held
    assert set(await marks(lake)) - before


async def _last_names(lake: Lake) -> dict[str, dict[str, str]]:
    """What the index has in the end: the properties of each name."""
    await lake.background.drain()
    await visit_marks(lake)
    page = await read_page(make_lake(lake.store), SCOPE, last=None, wanted=None)
    infos = {entry.name: msgspec.json.decode(entry.info)["properties"] for entry in page.entries}
    return {name: {key: value for key, value in info.items() if key in {"a", "b"}} for name, info in infos.items()}


@pytest.mark.parametrize("is_reused", [False, True])
async def test_a_commit_to_a_table_that_is_renamed_meanwhile_is_listed_under_its_new_name(*, is_reused: bool) -> None:
    """I5: the rename brings its entries up to date before the swap of the commit."""
    store = HookedStore(MemoryStore(clock=FixedClock()))
    lake, other = make_lake(store), make_lake(store)
    await set_up_catalog(lake)
    created = await create(lake, "t")

    async def renamed() -> None:
        for source, target in (("t", "u"), ("u", "v")):
            await rename(other, identifier_of(source), identifier_of(target), kind="table", request=request(target))
            await other.background.drain()
        if is_reused:
            await create(other, "t")
            await other.background.drain()

    store.before("put", lake.pointer(created.table_uuid).key, renamed)
    await commit_table(lake, identifier_of("t"), commit(set_property("a", "1")), request("commit"))

    assert await _last_names(lake) == {**({"t": {}} if is_reused else {}), "v": {"a": "1"}}


async def test_a_registration_over_a_table_that_is_renamed_meanwhile_is_listed_under_its_new_name() -> None:
    """I5, also for the update that this server makes itself after the answer."""
    store = HookedStore(MemoryStore(clock=FixedClock()))
    lake, other = make_lake(store), make_lake(store)
    await set_up_catalog(lake)
    created = await create(lake, "t")
    await commit_table(lake, identifier_of("t"), commit(set_property("a", "1")), request("commit"))
    await lake.background.drain()

    async def renamed() -> None:
        await rename(other, identifier_of("t"), identifier_of("u"), kind="table", request=request("rename"))
        await other.background.drain()

    store.before("put", lake.pointer(created.table_uuid).key, renamed)
    location = created.metadata_location or ""
    await register_table(lake, NAMESPACE, "t", location, overwrite=True, request=request("register"))

    assert await _last_names(lake) == {"u": {}}
