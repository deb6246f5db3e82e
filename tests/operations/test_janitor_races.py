"""Janitors beside all kinds of clients: no living record is ever deleted.

The clock of the janitors is days ahead, so every object is old enough for them. Only marks, reads and conditional
deletes protect the work in progress.
"""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request
from sandur.errors import SandurError, SwapLost
from sandur.operations.janitors.leftovers import TRANSACTIONS
from sandur.operations.janitors.records import NAMES as NAMES_JANITOR
from sandur.operations.janitors.records import POINTERS
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.janitors.sweep import Janitor, sweep
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.invariants import all_pointers, visible_names
from tests.operations.janitor_runs import LONG_MS, Cluster, ReportedErrors
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    table,
)

NAMES = ("t", "u", "w")
CLIENTS = 4
STEPS = 5


@dataclass
class JanitorRace:
    """The answers that clients received in one run."""

    cluster: Cluster
    seed: int
    chance: random.Random
    created: set[str] = field(default_factory=set)
    committed: dict[str, set[str]] = field(default_factory=dict)
    transacted: set[str] = field(default_factory=set)
    drops: int = 0
    is_over: bool = False

    def name(self) -> Identifier:
        return identifier_of(self.chance.choice(NAMES))

    async def create(self, server: Lake, label: str) -> None:
        made = await create_table(server, NAMESPACE, table(self.name().name), self._sent(label))
        self.created.add(made.table_uuid)

    async def commit(self, server: Lake, label: str) -> None:
        after = await commit_table(server, self.name(), commit(set_property(label, "1")), self._sent(label))
        self.committed.setdefault(after.table_uuid, set()).add(label)

    async def drop(self, server: Lake, label: str) -> None:
        self.drops += 1  # It may have happened, even if the answer is an error.
        purge = self.chance.random() < 0.5
        await drop_name(server, self.name(), kind="table", purge=purge, request=self._sent(label))

    async def rename(self, server: Lake, label: str) -> None:
        await rename(server, self.name(), self.name(), kind="table", request=self._sent(label))

    async def transact(self, server: Lake, label: str) -> None:
        """One change and one creation in a transaction; the result is read from the tables."""
        first, second = self.chance.sample(NAMES, 2)
        uuid = self.cluster.clock.new_uuid()
        changes = [
            (identifier_of(first), commit(set_property(label, "1"))),
            (identifier_of(second), create_commit(uuid)),
        ]
        await commit_transaction(server, "main", changes, self._sent(label))
        self.created.add(uuid)
        self.transacted.add(label)

    def _sent(self, label: str) -> Request:
        label = f"{label} of {self.seed}"
        return keyed_request(label) if self.chance.random() < 0.5 else request(label)


Work = Callable[[JanitorRace, Lake, str], Awaitable[None]]


class Mix(NamedTuple):
    """The operations of the clients, and the janitors that run; all by default."""

    works: tuple[Work, ...]
    janitors: tuple[Janitor, ...] = ()


async def _client(race: JanitorRace, number: int, works: tuple[Work, ...]) -> None:
    """A client and its servers: each server dies at some call, and the next one takes over."""
    server = _dying_server(race)
    for step in range(STEPS):
        try:
            await race.chance.choice(works)(race, server, f"{number}.{step}")
        except SwapLost:
            raise  # A client never gets this as an answer.
        except SandurError:
            continue
        except Died:
            await server.background.drain()
            server = _dying_server(race)
    await server.background.drain()


def _dying_server(race: JanitorRace) -> Lake:
    dies_at = race.chance.randint(1, 150)
    return race.cluster.server(DyingStore(race.cluster.store, dies_at=dies_at, after=race.chance.random() < 0.5))


async def _hasty_janitors(race: JanitorRace, janitors: tuple[Janitor, ...]) -> None:
    """Run until the clients have ended, then once more: a drop that died has left its pointer."""
    ahead = FixedClock(race.cluster.clock.now_ms() + LONG_MS, seed=race.seed + 1)
    while not race.is_over:
        server = make_lake(race.cluster.store, ahead, purge_delay="PT0S")
        for janitor in janitors:
            await sweep(server, janitor, position="", on_error=ReportedErrors())
        if not janitors:
            await run_janitors(server, {}, on_error=ReportedErrors())
        await server.background.drain()
    await run_janitors(make_lake(race.cluster.store, ahead, purge_delay="PT0S"), {}, on_error=ReportedErrors())


async def _run(seed: int, mix: Mix) -> JanitorRace:
    cluster = await Cluster.with_catalog(seed)
    race = JanitorRace(cluster, seed, random.Random(seed))
    for name in NAMES[:2]:
        made = await create(cluster.server(), name)
        race.created.add(made.table_uuid)
    janitors = asyncio.create_task(_hasty_janitors(race, mix.janitors))
    await asyncio.gather(*(_client(race, number, mix.works) for number in range(CLIENTS)))
    race.is_over = True
    await janitors
    return race


async def _check(race: JanitorRace) -> None:
    server = race.cluster.server()
    shown = await visible_names(server)
    assert len(set(shown.values())) == len(shown), "a table under two names"
    seen: set[str] = set()
    for identifier, uuid in shown.items():
        loaded = await load(server, identifier)
        properties = set(content(loaded)["properties"])
        assert race.committed.get(uuid, set()) <= properties, f"{identifier}: acknowledged commits are lost"
        seen |= properties
    assert race.drops or race.transacted <= seen, "acknowledged transactions are lost"
    living = {uuid for uuid, pointer in (await all_pointers(server)).items() if pointer.value.state == "live"}
    assert living <= set(shown.values()), "a table that lives and has no name"
    missing = race.created - set(shown.values())
    assert len(missing) <= race.drops, f"{len(missing)} tables are gone, and {race.drops} drops were requested"


ALL: Final = Mix(
    (
        JanitorRace.create,
        JanitorRace.commit,
        JanitorRace.commit,
        JanitorRace.drop,
        JanitorRace.rename,
        JanitorRace.transact,
    )
)
MIXES: Final = {
    "create": Mix((JanitorRace.create, JanitorRace.drop, JanitorRace.create)),
    "create beside pointers": Mix((JanitorRace.create, JanitorRace.drop, JanitorRace.create), (POINTERS,)),
    "commit": Mix((JanitorRace.commit,)),
    "rename": Mix((JanitorRace.rename, JanitorRace.commit, JanitorRace.create)),
    "rename beside names": Mix((JanitorRace.rename, JanitorRace.rename, JanitorRace.create), (NAMES_JANITOR,)),
    "drop": Mix((JanitorRace.create, JanitorRace.drop, JanitorRace.commit)),
    "transaction": Mix((JanitorRace.transact, JanitorRace.commit, JanitorRace.drop)),
    "transaction beside records": Mix((JanitorRace.transact, JanitorRace.commit), (TRANSACTIONS,)),
    "all": ALL,
}


@pytest.mark.parametrize("mix", MIXES)
async def test_no_living_record_is_deleted(mix: str) -> None:
    for seed in range(50):
        race = await _run(seed, MIXES[mix])
        try:
            await _check(race)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")


async def test_at_rest_only_living_records_remain() -> None:
    """After the clients have ended, the janitors settle everything: no record of work in progress remains."""
    for seed in range(20):
        race = await _run(seed, ALL)
        cluster = race.cluster
        before = await visible_names(cluster.server())
        for _ in range(6):  # Of a create that died three times, two rounds remove one file.
            cluster.clock.advance(LONG_MS)
            await cluster.sweep()

        layout = cluster.server().layout
        assert await visible_names(cluster.server()) == before, f"seed {seed}"
        for folder in (
            layout.transactions_folder(),
            layout.claims_folder(),
            layout.commit_claims_folder(),
            layout.marks_folder(),
            layout.purge_orders_folder(),
        ):
            assert await cluster.keys(folder) == [], f"seed {seed}"
        assert len(await cluster.keys(layout.all_names_folder())) == len(before), f"seed {seed}"
        assert len(await cluster.keys(layout.pointers_folder())) == len(before), f"seed {seed}"
