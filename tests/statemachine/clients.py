"""Clients that act concurrently through several servers, some of which die, and the answers they get."""

import asyncio
import itertools
import random  # noqa: TID251 - seeded, so that a history can be repeated
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from sandur.catalog.records import Request
from sandur.errors import SandurError, SwapLost
from sandur.operations.idempotency import key_hash_of
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from sandur.storage.shared_reads import SharingStore
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.invariants import check_invariants, times_applied
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    identifier_of,
    load,
    request,
    set_property,
    set_up_catalog,
    table,
)
from tests.statemachine.specification import (
    OK,
    UNSURE,
    Commit,
    Create,
    Drop,
    Load,
    Operation,
    Recorded,
    Rename,
    Result,
    Transact,
    World,
    explanations,
)
from tests.statemachine.stalling_store import StallingStore

NAMES: Final = ("t", "u", "w")
SENDS_MAX: Final = 4
LATE_MAX: Final = 40
_LABEL: Final = "label."


@dataclass(frozen=True)
class ClientCall:
    """One request of a client. With a key, an undecided one is retried; its first server dies at call `dies_at`."""

    operation: Operation
    number: int
    is_keyed: bool = False
    dies_at: int | None = None

    @property
    def request(self) -> Request:
        return request(f"{self.number} {self.operation}", key=f"key {self.number}" if self.is_keyed else None)


@dataclass
class Catalog:
    """A store under several servers, and every world that explains the answers so far."""

    seed: int
    clock: FixedClock = field(default_factory=FixedClock)
    worlds: set[World] = field(default_factory=lambda: {World()})
    sent: list[ClientCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.kept = MemoryStore(clock=self.clock)
        self.store: ObjectStore = StallingStore(self.kept, seed=self.seed)
        self.servers: list[Lake] = []
        self.is_tidied = False
        self._moments = itertools.count()

    async def open(self, servers: int) -> None:
        await set_up_catalog(make_lake(self.kept, self.clock))
        self.servers = [self.server() for _ in range(servers)]

    def server(self, store: ObjectStore | None = None) -> Lake:
        """A server with empty caches; with every second seed, its requests share reads, as on a bucket."""
        chosen = store or self.store
        return make_lake(SharingStore(chosen) if self.seed % 2 else chosen, self.clock)

    def restart(self, index: int) -> None:
        """Replace the server by one with empty caches."""
        self.servers[index % len(self.servers)] = self.server()

    async def act(self, calls: Sequence[ClientCall], *, with_janitors: bool = False) -> None:
        """Send everything concurrently, load every name at rest, and require an explanation of all answers."""
        self.sent += calls
        tidying = asyncio.create_task(self._tidy()) if with_janitors else None
        history = list(await asyncio.gather(*(self._recorded(one) for one in calls)))
        if tidying:
            await tidying
        await self.rest()
        history += [await self._recorded(ClientCall(Load(name), -1)) for name in NAMES]
        explained = explanations(history, self.worlds)
        assert explained, f"seed {self.seed}: nothing explains {history}"
        self.worlds = explained
        await self.judge()

    async def rest(self) -> None:
        """Wait until no background work is left."""
        for server in self.servers:
            await server.background.drain()
        for _ in range(20):
            await asyncio.sleep(0)

    async def judge(self) -> None:
        """Assert that no commit was applied twice, and all invariants at rest."""
        whole = await check_invariants(make_lake(self.kept, self.clock), pointers_may_be_gone=self.is_tidied)
        for one in self.sent:
            if isinstance(one.operation, Commit | Transact):
                parts = len(one.operation.names) if isinstance(one.operation, Transact) else 1
                times = times_applied(whole, key_hash_of(one.request) or one.request.hash)
                is_right = times <= parts if self.is_tidied else times in {0, parts}
                assert is_right, f"seed {self.seed}: {one} was applied {times} times"

    async def _tidy(self) -> None:
        self.is_tidied = True
        problems: list[str] = []
        await run_janitors(self.server(), {}, on_error=lambda key, error: problems.append(f"{key}: {error}"))

    async def _recorded(self, call: ClientCall) -> Recorded:
        for _ in range(self.chance.randint(0, LATE_MAX)):
            await asyncio.sleep(0)
        began = next(self._moments)
        result = await self._answer(call)
        return Recorded(call.operation, began, next(self._moments), result)

    async def _answer(self, call: ClientCall) -> Result:
        """The final answer to the client. Without a key it does not retry: that would be another request."""
        result: Result = ""
        for sends in range(SENDS_MAX if call.is_keyed else 1):
            server = self.chance.choice(self.servers)
            if call.dies_at and not sends:
                server = self.server(DyingStore(self.store, dies_at=call.dies_at, after=bool(call.number % 2)))
            result = await _outcome(_perform(server, call))
            if call.dies_at and not sends:
                await server.background.drain()
            if result not in UNSURE:
                return result
            self.clock.advance(
                server.settings.claim_timeout_ms // 2
            )  # Another server may have taken over, or cannot yet.
        return result


async def _outcome(answer: Awaitable[Result]) -> Result:
    try:
        return await answer
    except Died:
        return "died"
    except SwapLost:
        raise  # A client never gets this as an answer.
    except SandurError as error:
        return type(error).__name__


async def _perform(server: Lake, call: ClientCall) -> Result:
    sent = call.request
    match call.operation:
        case Create(name, label):
            await create_table(server, NAMESPACE, table(name, properties={_LABEL + label: "1"}), sent)
        case Load(name):
            return _labels(content(await load(server, identifier_of(name)))["properties"])
        case Commit(name, label):
            await commit_table(server, identifier_of(name), commit(set_property(_LABEL + label, "1")), sent)
        case Drop(name):
            await drop_name(server, identifier_of(name), kind="table", request=sent)
        case Rename(name, to):
            await rename(server, identifier_of(name), identifier_of(to), kind="table", request=sent)
        case Transact(names, label):
            change = commit(set_property(_LABEL + label, "1"))
            await commit_transaction(server, "main", [(identifier_of(name), change) for name in names], sent)
        case _:
            assert_never(call.operation)
    return OK


def _labels(properties: Mapping[str, str]) -> frozenset[str]:
    return frozenset(key.removeprefix(_LABEL) for key in properties if key.startswith(_LABEL))


def random_operation(chance: random.Random, number: int, names: Sequence[str] = NAMES) -> Operation:
    name, other = chance.sample(names, 2)
    kinds: list[Operation] = [
        Create(name, f"new{number}"),
        Load(name),
        Commit(name, f"c{number}"),
        Commit(name, f"c{number}"),
        Drop(name),
        Rename(name, other),
        Transact((name, other), f"x{number}"),
    ]
    return chance.choice(kinds)
