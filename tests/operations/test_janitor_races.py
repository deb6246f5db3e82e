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
from tests.operations.janitor_runs import LONG_MS, Shore, Trouble
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    called,
    commit,
    content,
    create,
    created_by_commit,
    keyed,
    load,
    request,
    set_property,
    table,
)

NAMES = ("t", "u", "w")
CLIENTS = 4
STEPS = 5


@dataclass
class Day:
    """The answers that clients received in one run."""

    shore: Shore
    seed: int
    chance: random.Random
    created: set[str] = field(default_factory=set)
    committed: dict[str, set[str]] = field(default_factory=dict)
    transacted: set[str] = field(default_factory=set)
    drops: int = 0
    is_over: bool = False

    def name(self) -> Identifier:
        return called(self.chance.choice(NAMES))

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
        uuid = self.shore.clock.new_uuid()
        changes = [(called(first), commit(set_property(label, "1"))), (called(second), created_by_commit(uuid))]
        await commit_transaction(server, "main", changes, self._sent(label))
        self.created.add(uuid)
        self.transacted.add(label)

    def _sent(self, label: str) -> Request:
        label = f"{label} of {self.seed}"
        return keyed(label) if self.chance.random() < 0.5 else request(label)


Work = Callable[[Day, Lake, str], Awaitable[None]]


class Mix(NamedTuple):
    """The operations of the clients, and the janitors that run; all by default."""

    works: tuple[Work, ...]
    janitors: tuple[Janitor, ...] = ()


async def _client(day: Day, number: int, works: tuple[Work, ...]) -> None:
    """A client and its servers: each server dies at some call, and the next one takes over."""
    server = _mortal(day)
    for step in range(STEPS):
        try:
            await day.chance.choice(works)(day, server, f"{number}.{step}")
        except SwapLost:
            raise  # A client never gets this as an answer.
        except SandurError:
            continue
        except Died:
            await server.background.drain()
            server = _mortal(day)
    await server.background.drain()


def _mortal(day: Day) -> Lake:
    dies_at = day.chance.randint(1, 150)
    return day.shore.server(DyingStore(day.shore.store, dies_at=dies_at, after=day.chance.random() < 0.5))


async def _hasty_janitors(day: Day, janitors: tuple[Janitor, ...]) -> None:
    """Run until the clients have ended, then once more: a drop that died has left its pointer."""
    ahead = FixedClock(day.shore.clock.now_ms() + LONG_MS, seed=day.seed + 1)
    while not day.is_over:
        server = make_lake(day.shore.store, ahead, purge_delay="PT0S")
        for janitor in janitors:
            await sweep(server, janitor, position="", on_error=Trouble())
        if not janitors:
            await run_janitors(server, {}, on_error=Trouble())
        await server.background.drain()
    await run_janitors(make_lake(day.shore.store, ahead, purge_delay="PT0S"), {}, on_error=Trouble())


async def _run(seed: int, mix: Mix) -> Day:
    shore = await Shore.furnished(seed)
    day = Day(shore, seed, random.Random(seed))
    for name in NAMES[:2]:
        made = await create(shore.server(), name)
        day.created.add(made.table_uuid)
    janitors = asyncio.create_task(_hasty_janitors(day, mix.janitors))
    await asyncio.gather(*(_client(day, number, mix.works) for number in range(CLIENTS)))
    day.is_over = True
    await janitors
    return day


async def _judge(day: Day) -> None:
    server = day.shore.server()
    shown = await visible_names(server)
    assert len(set(shown.values())) == len(shown), "a table under two names"
    seen: set[str] = set()
    for identifier, uuid in shown.items():
        loaded = await load(server, identifier)
        properties = set(content(loaded)["properties"])
        assert day.committed.get(uuid, set()) <= properties, f"{identifier}: acknowledged commits are lost"
        seen |= properties
    assert day.drops or day.transacted <= seen, "acknowledged transactions are lost"
    living = {uuid for uuid, pointer in (await all_pointers(server)).items() if pointer.value.state == "live"}
    assert living <= set(shown.values()), "a table that lives and has no name"
    missing = day.created - set(shown.values())
    assert len(missing) <= day.drops, f"{len(missing)} tables are gone, and {day.drops} drops were requested"


ALL: Final = Mix((Day.create, Day.commit, Day.commit, Day.drop, Day.rename, Day.transact))
MIXES: Final = {
    "create": Mix((Day.create, Day.drop, Day.create)),
    "create beside pointers": Mix((Day.create, Day.drop, Day.create), (POINTERS,)),
    "commit": Mix((Day.commit,)),
    "rename": Mix((Day.rename, Day.commit, Day.create)),
    "rename beside names": Mix((Day.rename, Day.rename, Day.create), (NAMES_JANITOR,)),
    "drop": Mix((Day.create, Day.drop, Day.commit)),
    "transaction": Mix((Day.transact, Day.commit, Day.drop)),
    "transaction beside records": Mix((Day.transact, Day.commit), (TRANSACTIONS,)),
    "all": ALL,
}


@pytest.mark.parametrize("mix", MIXES)
async def test_no_living_record_is_deleted(mix: str) -> None:
    for seed in range(50):
        day = await _run(seed, MIXES[mix])
        try:
            await _judge(day)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")


async def test_at_rest_only_living_records_remain() -> None:
    """After the clients have ended, the janitors settle everything: no record of work in progress remains."""
    for seed in range(20):
        day = await _run(seed, ALL)
        shore = day.shore
        before = await visible_names(shore.server())
        for _ in range(4):
            shore.clock.advance(LONG_MS)
            await shore.sweep()

        layout = shore.server().layout
        assert await visible_names(shore.server()) == before, f"seed {seed}"
        for folder in (
            layout.transactions_folder(),
            layout.claims_folder(),
            layout.commit_claims_folder(),
            layout.marks_folder(),
            layout.purge_orders_folder(),
        ):
            assert await shore.keys(folder) == [], f"seed {seed}"
        assert len(await shore.keys(layout.all_names_folder())) == len(before), f"seed {seed}"
        assert len(await shore.keys(layout.pointers_folder())) == len(before), f"seed {seed}"
