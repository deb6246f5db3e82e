"""Garbage collection beside committers that stall and die: in a thousand runs, no live file is deleted.

The clock of the collectors is days ahead, so every file is old enough for them. Only the order of reads, bumps and
deletes protects the work in progress.
"""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import pytest

from sandur.catalog.records import Request
from sandur.errors import SandurError, SwapLost
from sandur.operations.janitors.garbage import collect_garbage
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.collection import collect_each
from tests.operations.invariants import check_invariants, visible_names
from tests.operations.janitor_runs import LONG_MS, Cluster, ReportedErrors
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
)
from tests.statemachine.stalling_store import StallingStore

NAMES: Final = ("t", "u")
CLIENTS: Final = 3
STEPS: Final = 4
SEEDS_PER_PART: Final = 50
PARTS: Final = range(20)
DEFAULT_PARTS: Final = 4


@dataclass
class Race:
    """One run: the store, the answers of the clients, and whether they are still running."""

    cluster: Cluster
    seed: int
    chance: random.Random
    committed: dict[str, set[str]] = field(default_factory=dict)
    transacted: set[str] = field(default_factory=set)
    is_over: bool = False

    async def commit(self, server: Lake, label: str) -> None:
        name = self.chance.choice(NAMES)
        after = await commit_table(server, identifier_of(name), commit(set_property(label, "1")), self._sent(label))
        self.committed.setdefault(after.table_uuid, set()).add(label)

    async def shorten(self, server: Lake, label: str) -> None:
        """Shorten the log and let the table delete old files: they may be deleted at once."""
        wish = set_property("write.metadata.delete-after-commit.enabled", self.chance.choice(["true", "false"]))
        short = set_property("write.metadata.previous-versions-max", "1")
        await commit_table(server, identifier_of(self.chance.choice(NAMES)), commit(short, wish), self._sent(label))

    async def transact(self, server: Lake, label: str) -> None:
        changes = [(identifier_of(name), commit(set_property(label, "1"))) for name in NAMES]
        made = (identifier_of(f"new {label}"), create_commit(self.cluster.clock.new_uuid()))
        await commit_transaction(server, "main", [*changes, made], self._sent(label))
        self.transacted.add(label)

    async def rename(self, server: Lake, label: str) -> None:
        there, back = identifier_of(self.chance.choice(NAMES)), identifier_of("away")
        for one, other in ((there, back), (back, there)):
            await rename(server, one, other, kind="table", request=self._sent(f"{label} {one}"))

    def _sent(self, label: str) -> Request:
        label = f"{label} of {self.seed}"
        return keyed_request(label) if self.chance.random() < 0.5 else request(label)


Work = Callable[[Race, Lake, str], Awaitable[None]]
WORKS: Final[tuple[Work, ...]] = (Race.commit, Race.commit, Race.commit, Race.shorten, Race.transact, Race.rename)


async def _client(race: Race, number: int) -> None:
    server = _dying_server(race)
    for step in range(STEPS):
        try:
            await race.chance.choice(WORKS)(race, server, f"{number}.{step}")
        except SwapLost:
            raise  # A client never gets this as an answer.
        except SandurError:
            continue
        except Died:
            await server.background.drain()
            server = _dying_server(race)
    await server.background.drain()


def _dying_server(race: Race) -> Lake:
    """A server that stalls at any call, and dies at some point."""
    slow = StallingStore(race.cluster.store, seed=race.chance.randint(0, 1 << 30))
    dies_at = race.chance.randint(5, 120)
    return race.cluster.server(DyingStore(slow, dies_at=dies_at, after=race.chance.random() < 0.5))


async def _collector(race: Race, number: int) -> None:
    ahead = FixedClock(race.cluster.clock.now_ms() + LONG_MS, seed=race.seed + number)
    while not race.is_over:
        store = StallingStore(race.cluster.store, seed=race.chance.randint(0, 1 << 30))
        server = make_lake(store, ahead)
        if race.chance.random() < 0.5:
            await collect_each(server)
        else:
            await collect_garbage(server, position="", on_error=ReportedErrors())
        if race.chance.random() < 0.3:
            await run_janitors(server, {}, on_error=ReportedErrors())
        await server.background.drain()


async def _run(seed: int) -> Race:
    cluster = await Cluster.with_catalog(seed)
    race = Race(cluster, seed, random.Random(seed))
    for name in NAMES:
        await create(cluster.server(), name)
    collectors = [asyncio.create_task(_collector(race, number)) for number in (1, 2)]
    await asyncio.gather(*(_client(race, number) for number in range(CLIENTS)))
    race.is_over = True
    await asyncio.gather(*collectors)
    return race


async def _check(race: Race) -> None:
    server = race.cluster.server()
    seen: set[str] = set()
    for identifier, uuid in (await visible_names(server)).items():
        loaded = content(await load(server, identifier))
        properties = set(loaded["properties"])
        assert race.committed.get(uuid, set()) <= properties, f"{identifier}: acknowledged commits are lost"
        seen |= properties
        for entry in loaded["metadata-log"]:
            assert await server.locations.exists(entry["metadata-file"]), f"{identifier}: {entry} of its log is gone"
    assert race.transacted <= seen, "acknowledged transactions are lost"
    await check_invariants(server, files_may_be_gone=True)


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part < DEFAULT_PARTS else pytest.mark.slow) for part in PARTS]
)
async def test_no_live_file_is_deleted(part: int) -> None:
    for seed in range(part * SEEDS_PER_PART, (part + 1) * SEEDS_PER_PART):
        race = await _run(seed)
        try:
            await _check(race)
        except (AssertionError, SandurError) as error:
            pytest.fail(f"seed {seed}: {error}")
