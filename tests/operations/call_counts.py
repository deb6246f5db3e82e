"""What each operation costs on a bucket: storage calls, bytes and rounds, counted by a spy on a warm server."""

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request
from sandur.iceberg.requests import TableCommit
from sandur.operations.access import Security, with_current_names
from sandur.operations.delta.commit import update_table
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import add, add_change, create_managed
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
    table,
)
from tests.planning.plan_servers import Fleet, made_table, request_plan

T, U = identifier_of("t"), identifier_of("u")
_WARM_COMMITS = 2


class Counted(NamedTuple):
    """The calls of one operation, those after its answer included; the rounds before the answer, and their calls.

    A conditional read of an object that did not change is a read of no bytes.
    """

    rounds: int
    reads: int
    writes: int
    lists: int
    deletes: int
    bytes_read: int
    bytes_written: int
    widths: tuple[int, ...]


@dataclasses.dataclass
class _Counter:
    """Counts operations of one server."""

    lake: Lake
    spy: SpyStore
    counted: dict[str, Counted] = dataclasses.field(default_factory=dict)

    async def count(self, name: str, operation: Callable[[Lake], Awaitable[object]], *, is_read: bool = False) -> None:
        """Count an operation as a server carries it out: with the check of the names of containers (X1)."""
        await self.lake.background.drain()
        self.spy.reset()
        await with_current_names(self.lake, None, operation, is_read=is_read)
        rounds, widths = self.spy.rounds, tuple(self.spy.widths)
        await self.lake.background.drain()
        names = [call.name for call in self.spy.calls]
        self.counted[name] = Counted(
            rounds=rounds,
            reads=sum(names.count(one) for one in ("get", "get_if_changed", "head")),
            writes=names.count("put"),
            lists=names.count("list"),
            deletes=names.count("delete"),
            bytes_read=self.spy.bytes_read,
            bytes_written=self.spy.bytes_written,
            widths=widths,
        )


async def count_operations(folder: Path) -> Mapping[str, Counted]:
    """The cost of each operation on two tables of two commits; the plan is made for a table in the folder."""
    clock = FixedClock()
    spy = SpyStore(MemoryStore(clock=clock))
    lake = make_lake(spy, clock)
    counter = _Counter(lake, spy)
    await set_up_catalog(lake)
    for identifier in (T, U):
        await create(lake, identifier.name)
        for number in range(1, _WARM_COMMITS + 1):
            sent = request(f"{identifier} {number}")
            await commit_table(lake, identifier, append(number, number - 1 or None), sent)
            await lake.background.drain()
    delta = await create_managed(lake)
    await lake.background.drain()
    await add(lake, delta, 1)
    await list_names(lake, NAMESPACE, kind="table", page_token="", page_size=10)

    await lake.feature(Security).read()
    pages = functools.partial(list_names, namespace=NAMESPACE, kind="table", page_token="", page_size=10)

    count, appended = counter.count, functools.partial(_commit, T)
    await count("load", lambda lake: load(lake, T), is_read=True)
    await count("commit, append", appended(append(3, 2), request("3")))
    await count("commit, append, with a key", appended(append(4, 3), keyed_request("4")))
    await count("commit, property", appended(commit(set_property("a", "b")), request("a")))
    for number, sent in ((5, request("both")), (6, keyed_request("both"))):
        both = [(T, append(number, number - 1)), (U, append(number - 2, number - 3))]
        work = functools.partial(commit_transaction, catalog="main", commits=both, request=sent)
        await count(f"transaction, two tables{', with a key' * bool(sent.key)}", work)
    for name, sent in (("new", request("create")), ("newer", keyed_request("create"))):
        made = functools.partial(create_table, namespace=NAMESPACE, create=table(name), request=sent)
        await count(f"create{', with a key' * bool(sent.key)}", made)
    new, renamed = identifier_of("new"), identifier_of("renamed")
    await count("rename", lambda lake: rename(lake, new, renamed, kind="table", request=request("rename")))
    await count("drop", lambda lake: drop_name(lake, renamed, kind="table", request=request("drop")))
    await pages(lake)
    await count("list, one page", pages, is_read=True)
    await count("Delta commit", lambda lake: add(lake, delta, 2))
    by_uuid = functools.partial(update_table, identifier=None, change=add_change(delta, 3), request=request("3"))
    await count("Delta commit, by the uuid of the table", by_uuid)
    return {**counter.counted, "plan": await _count_plan(folder)}


def _commit(identifier: Identifier, change: TableCommit, sent: Request) -> Callable[[Lake], Awaitable[object]]:
    return lambda lake: commit_table(lake, identifier, change, sent)


async def _count_plan(folder: Path) -> Counted:
    """The second plan of a table on a server that has its manifests in memory."""
    spy = SpyStore(LocalStore(folder, fsync="never"))
    fleet = Fleet(folder, store=spy)
    server = await fleet.serve_table(made_table(fleet.table_folder, 3, 2))
    await request_plan(server)
    counter = _Counter(server, spy)
    await server.feature(Security).read()
    await counter.count("plan", request_plan, is_read=True)
    return counter.counted["plan"]
