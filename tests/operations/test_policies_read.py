"""All policies of a workspace are read, however many there are, many at a time, and named by their scopes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.catalog.maintenance.policies import PolicyRecord, ScopePolicy
from sandur.operations.policies import WORKSPACE, read_policies, scopes_of
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake

T = TypeVar("T")


class Counting(WrappingStore):
    """Counts lists, and the most reads at the same time."""

    at_once = most = lists = 0

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        self.lists += call.name == "list"
        self.at_once += call.name == "get"
        self.most = max(self.most, self.at_once)
        try:
            return await perform()
        finally:
            self.at_once -= call.name == "get"


async def test_all_policies_are_read_many_at_a_time() -> None:
    store = Counting(MemoryStore())
    lake = make_lake(store)
    for number in range(1_100):
        id_ = f"id-{number}"
        record = PolicyRecord(scope_id=id_, values={"priority": number % 100 + 1} if number else {})
        await lake.uncached(lake.layout.policy(id_), PolicyRecord).create(record)
    store.most = 0

    found = await read_policies(lake)

    assert sorted(found) == sorted(f"id-{number}" for number in range(1, 1_100))
    assert store.lists == 2
    assert store.most > 10


def test_policies_apply_by_the_current_names_of_their_scopes() -> None:
    ids = (WORKSPACE, "c", "n", "t", "gone")
    records = {id_: PolicyRecord(scope_id=id_, values={"priority": 7}, locked=("priority",)) for id_ in ids}

    scopes = scopes_of(records, [("main", "c"), ("other", "c2")], [("main", "a.b", "n"), ("main", "a", "n2")], "main")

    names = ["workspace", "catalog main", "namespace main.a.b", "table t"]
    row = {"catalog": "main", "namespace": "a.b.c", "uuid": "t"}
    assert scopes.of(row) == [ScopePolicy(name, {"priority": 7}, ("priority",)) for name in names]
    assert [one.scope for one in scopes.of({**row, "namespace": "system", "uuid": "u"})] == [
        "workspace",
        "catalog main",
        "default of system tables",
    ]
