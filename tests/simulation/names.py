"""Clients on a few names of one namespace: every answer is explained by the sequential model of the catalog."""

import asyncio
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Entry, names_scope
from sandur.catalog.records import Request
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.index.lists import read_page
from sandur.operations.index.truth import list_written_names, read_entries
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.undrop import undrop
from sandur.operations.transactions.coordinator import commit_transaction
from tests.operations.lakes import visit_marks
from tests.operations.requests import commit, content, load, request, set_property, table
from tests.simulation.bucket import LATE_SECONDS_MAX
from tests.simulation.fleet import Answer, Fleet
from tests.statemachine.specification import (
    OK,
    UNSURE,
    CatalogOperation,
    Commit,
    Create,
    CreateNamespace,
    Drop,
    DropNamespace,
    Load,
    Recorded,
    Rename,
    Result,
    Transact,
    Undrop,
    World,
    explanations,
)

NAMES: Final = ("t", "u", "w")
SENDS_MAX: Final = 6
READS_MAX: Final = 200
WORLDS_MAX: Final = 5_000
GAP_SECONDS_MAX: Final = 3 * 3_600
_RACES_SHARE: Final = 0.5
_INDEX_SHARE: Final = 0.4
_KEYED_SHARE: Final = 0.6
_KEYED_CREATES_SHARE: Final = 0.2  # Others may write ahead (N2).
_LABEL: Final = "label."
_CONFLICT: Final = "Conflict"


class Sent(NamedTuple):
    """A commit with its last answer."""

    operation: CatalogOperation
    request: Request
    result: str


class NameClients:
    """One namespace with three names, and the clients that change them."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.namespace = Namespace("main", (f"names{number}",))
        self.sent: list[Sent] = []
        self._chance = random.Random(f"{fleet.plan.seed} names {number}")
        self._worlds = {World(is_open=False, forgets=fleet.plan.forgets)}
        self._count = 0
        self._open: list[Answer[object]] = []

    async def run(self) -> None:
        await self._epoch([CreateNamespace()])
        await self._epoch([Create(name, f"first {name}") for name in NAMES[:2]])
        for _ in range(self.fleet.plan.epochs):
            if self._chance.random() < _RACES_SHARE:
                for operations in self._race():
                    await self._epoch(operations)
            else:
                await self._epoch([self._operation() for _ in range(self._chance.randint(2, self.fleet.plan.clients))])
            if self._chance.random() < 0.15:
                await asyncio.sleep(self._chance.random() * GAP_SECONDS_MAX)

    def _operation(self) -> CatalogOperation:
        """Mostly work on tables; the namespace is rarely dropped, and made again."""
        chance = self._chance
        self._count += 1
        name, other = chance.sample(NAMES, 2)
        label = f"{self.namespace}{self._count}"
        kinds: list[tuple[CatalogOperation, int]] = [
            (Create(name, f"new{label}"), 4),
            (Load(name), 4),
            (Commit(name, f"c{label}"), 6),
            (Drop(name), 3),
            (Rename(name, other), 3),
            (Transact((name, other), f"x{label}"), 4),
            (Undrop(name), 2),
            (CreateNamespace(), 1),
            (DropNamespace(), 2),
        ]
        return chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]

    def _race(self) -> Sequence[Sequence[CatalogOperation]]:
        """Epochs that lead to a race which random operations rarely meet."""
        chance = self._chance
        self._count += 1
        label = f"{self.namespace}{self._count}"
        name, other, third = chance.sample(NAMES, 3)
        empty = [Drop(one) for one in NAMES]
        filled = [Create(name, f"a{label}"), Create(other, f"b{label}")]
        races: list[list[list[CatalogOperation]]] = [
            [
                [CreateNamespace()],
                [*empty],
                [DropNamespace(), Create(name, f"n{label}"), Load(name), CreateNamespace()],
            ],
            [[*empty], [DropNamespace(), Undrop(name), Load(name)], [CreateNamespace()]],
            [
                [CreateNamespace()],
                [*filled],
                [Rename(name, third), Create(third, f"m{label}"), Drop(name), Load(third)],
            ],
            [[*filled], [Rename(name, third), Rename(third, name), Commit(name, f"c{label}"), Load(name)]],
            [
                [*filled],
                [Transact((name, other), f"x{label}"), Transact((other, name), f"y{label}"), Commit(name, f"d{label}")],
            ],
            [[*filled], [Commit(name, f"{one}{label}") for one in "efghi"]],
            [[Drop(name)], [Undrop(name), Create(name, f"k{label}"), Undrop(name), Load(name)]],
        ]
        return chance.choice(races)

    async def _epoch(self, operations: Sequence[CatalogOperation]) -> None:
        """Send everything concurrently, wait until nothing is in flight, load every name, and explain all answers."""
        history = await asyncio.gather(*(self._recorded(operation) for operation in operations))
        await self.fleet.finished(str(self.namespace), *self._open)
        self._open.clear()
        await asyncio.sleep(LATE_SECONDS_MAX + 1)
        known = [recorded for recorded in history if recorded.result != _CONFLICT]
        known += [await self._read(name) for name in NAMES]
        explained = explanations(known, self._worlds)
        if not explained:
            self.fleet.problem(f"{self.namespace}: nothing explains {known}, from {self._worlds}")
        self._worlds = explained or self._worlds
        if len(self._worlds) > WORLDS_MAX:
            self.fleet.problem(f"{self.namespace}: too many worlds")
        if self._chance.random() < _INDEX_SHARE:
            await judge_index(self.fleet, self.fleet.quiet_lake(), self.namespace)

    async def _read(self, name: str) -> Recorded:
        """Load a name until the answer is definite."""
        began = self.fleet.loop.time()
        for _ in range(READS_MAX):
            result = await self._send(Load(name), self._request(Load(name), is_keyed=False))
            if result not in UNSURE:
                return Recorded(Load(name), began, self.fleet.loop.time(), result)
            await asyncio.sleep(self._chance.random() * 10)
        self.fleet.problem(f"{self.namespace}.{name} cannot be loaded")
        return Recorded(Load(name), began, self.fleet.loop.time(), UNSURE[0])

    async def _recorded(self, operation: CatalogOperation) -> Recorded:
        await asyncio.sleep(self._chance.choice((0.0, 0.05, 1.0, 20.0)) * self._chance.random())
        share = _KEYED_CREATES_SHARE if isinstance(operation, Create) else _KEYED_SHARE
        is_keyed = self._chance.random() < share and not isinstance(operation, Load)
        sent = self._request(operation, is_keyed=is_keyed)
        began = self.fleet.loop.time()
        result: Result = ""
        for _ in range(SENDS_MAX if is_keyed else 1):
            result = await self._send(operation, sent)
            if result not in UNSURE:
                break
            await asyncio.sleep(self._chance.random() * self._chance.choice((0.1, 2, 30)))
        if isinstance(operation, Commit | Transact):
            self.sent.append(Sent(operation, sent, str(result)))
        return Recorded(operation, began, self.fleet.loop.time(), result)

    def _request(self, operation: CatalogOperation, *, is_keyed: bool) -> Request:
        self._count += 1
        label = f"{self.namespace} {self._count} {operation}"
        return request(label, key=f"key {label}" if is_keyed else None)

    async def _send(self, operation: CatalogOperation, sent: Request) -> Result:
        what = f"{self.namespace} {operation}"
        answer = await self.fleet.send(self._chance, what, lambda lake: self._perform(lake, operation, sent))
        self._open.append(answer)
        if answer.result == OK and isinstance(answer.value, LoadedTable):
            return _labels(answer.value) if isinstance(operation, Load) else OK
        return answer.result

    def _identifier(self, name: str) -> Identifier:
        return Identifier(*self.namespace, name)

    def _perform(self, lake: Lake, operation: CatalogOperation, sent: Request) -> Awaitable[object]:
        match operation:
            case Drop(name):
                return drop_name(lake, self._identifier(name), kind="table", request=sent)
            case Rename(name, to):
                return rename(lake, self._identifier(name), self._identifier(to), kind="table", request=sent)
            case Undrop(name):
                return undrop(lake, self._identifier(name), kind="table", request=sent)
            case CreateNamespace():
                return create_namespace(lake, self.namespace, {}, sent)
            case DropNamespace():
                return drop_namespace(lake, self.namespace, sent)
            case _:
                return self._perform_on_tables(lake, operation, sent)

    def _perform_on_tables(
        self, lake: Lake, operation: Create | Load | Commit | Transact, sent: Request
    ) -> Awaitable[object]:
        match operation:
            case Create(name, label):
                # Half of the tables forget old files at once, so that only receipts prove their commits.
                short = {"write.metadata.previous-versions-max": "1"} if len(label) % 2 else {}
                return create_table(lake, self.namespace, table(name, properties={_LABEL + label: "1", **short}), sent)
            case Load(name):
                return load(lake, self._identifier(name))
            case Commit(name, label):
                return commit_table(lake, self._identifier(name), commit(set_property(_LABEL + label, "1")), sent)
            case Transact(names, label):
                change = commit(set_property(_LABEL + label, "1"))
                return commit_transaction(lake, "main", [(self._identifier(name), change) for name in names], sent)
            case _:
                assert_never(operation)


async def judge_index(fleet: Fleet, lake: Lake, namespace: Namespace) -> None:
    """When the janitor has worked off the marks, the index shows the names of a namespace with their properties."""
    await visit_marks(lake)
    scope = names_scope(namespace)
    truth = await read_entries(lake, scope, await list_written_names(lake, scope))
    page = await read_page(lake, scope, last=None, wanted=None)
    listed, living = list(map(_shown, page.entries)), [_shown(entry) for _, entry in sorted(truth.items()) if entry]
    if listed != living:
        fleet.problem(f"{namespace}: the index has {listed}, and {living} exist")


def _shown(entry: Entry) -> Mapping[str, object]:
    """What lists show of an entry. Commits that only add data do not update the time of the last change."""
    shown: dict[str, object] = msgspec.json.decode(entry.info)
    return {"name": entry.name, "uuid": entry.uuid, **shown, "updated_at": None, "updated_by": None}


def _labels(loaded: LoadedTable) -> frozenset[str]:
    properties: dict[str, str] = content(loaded)["properties"]
    return frozenset(key.removeprefix(_LABEL) for key in properties if key.startswith(_LABEL))
