"""A mixed load on one store, from a seed: both formats, transactions, renames, drops, grants, and servers that die."""

import asyncio
import contextlib
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sandur.errors import SandurError, SwapLost
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import undrop
from sandur.operations.tables.views import create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.yielding_store import YieldingStore
from tests.operations.delta_requests import add, create_managed, publish, write_staged
from tests.operations.invariants import all_pointers
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    commit,
    create_commit,
    identifier_of,
    keyed_request,
    set_property,
    set_up_catalog,
    table,
    view,
)

TABLES: Final = tuple(f"t{number}" for number in range(6))
_DEATHS_SHARE: Final = 0.1
_CALLS_BEFORE_DEATH_MAX: Final = 12


@dataclass
class Load:
    """A store under load. `acknowledged` are the marks of answered commits: each is a property of its tables."""

    seed: int
    clock: FixedClock = field(default_factory=FixedClock)
    acknowledged: set[str] = field(default_factory=set)
    begun: dict[str, int] = field(default_factory=dict)
    """How many tables each transaction changes."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)
        self._chance = random.Random(self.seed)
        self._count = 0

    def server(self, store: ObjectStore | None = None) -> Lake:
        return make_lake(store or self.store, self.clock)

    async def start(self) -> None:
        server = self.server()
        await set_up_catalog(server)
        for name in TABLES:
            await create_table(server, NAMESPACE, table(name), keyed_request(f"create {name}"))
        await create_view(server, NAMESPACE, view("v"), keyed_request("create v"))
        self.delta = await create_managed(server)
        await server.background.drain()

    async def run(self, requests: int, workers: int = 4) -> None:
        """Send requests from several servers at once; some of the servers die."""
        await asyncio.gather(*(self._work(requests // workers, number) for number in range(workers)))

    async def _work(self, requests: int, worker: int) -> None:
        for number in range(requests):
            store: ObjectStore = YieldingStore(self.store, seed=self.seed * 1_000 + worker * 100 + number)
            if self._chance.random() < _DEATHS_SHARE:
                dies_at = self._chance.randint(1, _CALLS_BEFORE_DEATH_MAX)
                store = DyingStore(store, dies_at=dies_at, after=self._chance.random() < 0.5)
            server = self.server(store)
            self.clock.advance(self._chance.randint(1, 40))
            with contextlib.suppress(SandurError, Died):
                await self._send(server)
            with contextlib.suppress(Died):
                await server.background.drain()

    async def _send(self, server: Lake) -> None:
        self._count += 1
        mark, sent = f"m{self._count}", keyed_request(f"{self.seed} request {self._count}")
        one, other = self._chance.sample([*TABLES, "x", "y"], 2)
        match self._chance.choices(range(8), [6, 6, 2, 1, 1, 1, 1, 2])[0]:
            case 0:
                await commit_table(server, identifier_of(one), commit(set_property(mark, "1")), sent)
                self.acknowledged.add(mark)
            case 1:
                self.begun[mark] = 2
                both = [(identifier_of(name), commit(set_property(mark, "1"))) for name in (one, other)]
                await commit_transaction(server, "main", both, sent)
                self.acknowledged.add(mark)
            case 2:
                await rename(server, identifier_of(one), identifier_of(other), kind="table", request=sent)
            case 3:
                await drop_name(server, identifier_of(one), kind="table", request=sent)
            case 4:
                await undrop(server, identifier_of(one), kind="table", uuid=None, request=sent)
            case 5:
                await create_table(server, NAMESPACE, table(one), sent)
            case 6:
                self.begun[mark] = 2
                made = create_commit(server.clock.new_uuid(), set_property(mark, "1"))
                both = [(identifier_of(one), commit(set_property(mark, "1"))), (identifier_of(f"n{mark}"), made)]
                await commit_transaction(server, "main", both, sent)
                self.acknowledged.add(mark)
            case _:
                await self._write_delta(server)

    async def _write_delta(self, server: Lake) -> None:
        found = await server.delta_table(self.delta.uuid).read()
        if found:
            version = found.value.last_version + 1
            name = f"{version:020d}.{self._count}.json"
            await write_staged(server, found.value, name)
            await add(server, found.value, version, name)
            if self._chance.random() < 0.5:
                for one in range(found.value.published + 1, version + 1):  # In order, as the Delta protocol requires.
                    with contextlib.suppress(SwapLost):
                        await publish(server, found.value, one)


async def marks_of(lake: Lake) -> Mapping[str, int]:
    """How many tables have each mark, dropped ones included."""
    counts: dict[str, int] = {}
    for pointer in (await all_pointers(lake)).values():
        record = pointer.value
        if record.head and record.kind == "table" and record.state in {"live", "dropped"}:
            metadata = (await load_head(lake, "table", record.head)).metadata
            for key in metadata.properties:
                counts[key] = counts.get(key, 0) + 1
    return counts
