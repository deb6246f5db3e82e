"""Commits that change what lists show share a mark, and the index is put right once for all of them."""

import asyncio

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import names_of
from sandur.errors import Unavailable
from sandur.operations import relisting
from sandur.operations.counters import INDEX_UPDATES
from sandur.operations.index_pages import entries_page
from sandur.operations.workspace import Workspace
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.hooked_store import HookedStore
from tests.operations.making import make_workspace, put_name

TABLE = Identifier("main", ("a",), "t")
SCOPE = names_of(Namespace("main", ("a",)))


async def marks(workspace: Workspace) -> list[str]:
    return [listed.key for listed in await workspace.store.list(workspace.layout.marks_folder())]


async def updates(workspace: Workspace) -> int:
    return workspace.counters.times(INDEX_UPDATES, "ok")


async def test_commits_that_follow_each_other_closely_write_one_mark_and_list_the_table_once() -> None:
    workspace = make_workspace()
    await put_name(workspace, TABLE)
    seen = []
    for _ in range(5):
        shared = await relisting.begin(workspace, TABLE)
        seen.append(len(await marks(workspace)))
        shared.end()
    await workspace.background.drain()

    assert (seen, await marks(workspace), await updates(workspace)) == ([1] * 5, [], 1)


async def test_the_mark_stays_until_the_last_who_shares_it_has_ended() -> None:
    workspace = make_workspace()
    first, second = await asyncio.gather(*(relisting.begin(workspace, TABLE) for _ in range(2)))
    first.end()
    await workspace.background.drain()
    late = await relisting.begin(workspace, TABLE)
    during = len(await marks(workspace))
    second.end()
    late.end()
    await workspace.background.drain()

    assert first is second
    assert late is not first
    assert during == 2
    # Hurried while somebody still shared it, the first mark was left to the janitor; the late one went.
    assert [key.rsplit("/", 1)[1] for key in await marks(workspace)] == [first.mark]


async def test_a_list_of_the_same_server_shows_the_change_before_the_index_does() -> None:
    workspace = make_workspace()
    (await relisting.begin(workspace, TABLE)).end()
    await workspace.background.drain()
    before = await workspace.index(SCOPE).read()

    shared = await relisting.begin(workspace, TABLE)
    await put_name(workspace, TABLE)
    shared.end()
    page = await entries_page(workspace, SCOPE, last=None, wanted=None)

    assert [entry.name for entry in page.entries] == ["t"]
    assert await workspace.index(SCOPE).read() == before
    await workspace.background.drain()


async def test_who_waits_for_a_mark_that_fails_writes_another() -> None:
    store = HookedStore(MemoryStore())
    workspace = make_workspace(store, FixedClock())

    async def fail() -> None:
        await asyncio.sleep(0)
        raise Unavailable("the store is away")

    store.before("put", workspace.layout.mark(SCOPE.hash, FixedClock().new_id()), fail)
    first, second = await asyncio.gather(
        relisting.begin(workspace, TABLE), relisting.begin(workspace, TABLE), return_exceptions=True
    )

    assert isinstance(first, Unavailable)
    assert isinstance(second, relisting.Relisting)
    assert [key.rsplit("/", 1)[1] for key in await marks(workspace)] == [second.mark]
    second.end()
    await workspace.background.drain()
    assert not await marks(workspace)


async def test_who_does_not_know_how_it_ended_leaves_its_mark_and_nobody_joins_it_later() -> None:
    workspace = make_workspace()
    lost = await relisting.begin(workspace, TABLE)
    await workspace.background.drain()

    following = await relisting.begin(workspace, TABLE)
    following.end()
    await workspace.background.drain()

    assert following is not lost
    assert [key.rsplit("/", 1)[1] for key in await marks(workspace)] == [lost.mark]
