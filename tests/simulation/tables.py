"""Clients on one table each: engines that append snapshots to an Iceberg table, and writers of a Delta table."""

import asyncio
import contextlib
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import DeltaTable, Request
from sandur.delta.requests import DeltaChange
from sandur.errors import SwapLost
from sandur.iceberg.requests import TableCommit
from sandur.operations.containers.namespaces import create_namespace, update_namespace_properties
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.publishing import published_location, staged_location
from sandur.operations.delta.tables import create_from_staging, load_delta_table, stage_table
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.receipts import DeltaReceipt
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.contract import list_all
from tests.operations.delta_requests import commit_file, new_delta_table
from tests.operations.invariants import chains, times_applied
from tests.operations.requests import append, at_snapshot, commit, content, load, request, set_property, table
from tests.simulation.fleet import Answer, Fleet, Server
from tests.statemachine.specification import OK, UNSURE

T = TypeVar("T")

SENDS_MAX: Final = 8
PATIENT_SENDS_MAX: Final = 200
_TAKEN: Final = "AlreadyExists"
_TRANSACTIONS: Final = 0.1
_MOVES: Final = 0.3


class Sent(NamedTuple):
    """A commit with its answer, and when it was answered."""

    id: int
    result: str
    ended: float
    request: Request


class TableClients:
    """One table in a namespace of its own; clients load it, change it, and send again what was not answered."""

    kind: str

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.namespace = Namespace("main", (f"{self.kind}{number}",))
        self.identifier = Identifier(*self.namespace, "events")
        self.sent: list[Sent] = []
        self._chance = random.Random(f"{fleet.plan.seed} {self.kind} {number}")
        self._count = 0
        self._seen: list[tuple[float, int]] = []

    async def run(self) -> None:
        await self.insist("namespace", lambda lake, sent: create_namespace(lake, self.namespace, {}, sent))
        await self.begin()
        clients = self.fleet.plan.clients
        await asyncio.gather(*(self._client() for _ in range(clients)))

    async def begin(self) -> None:
        raise NotImplementedError

    async def change(self) -> None:
        raise NotImplementedError

    async def _client(self) -> None:
        for _ in range(self.fleet.plan.epochs):
            await asyncio.sleep(self._chance.random() * self._chance.choice((0.1, 5, 60)))
            await self.change()

    async def insist(self, what: str, work: Callable[[Lake, Request], Awaitable[T]]) -> T | None:
        """Send a keyed request until it is done; None if it was done before, or never."""
        sent = request(f"{self.namespace} {what}", key=f"{self.namespace} {what}")
        for _ in range(PATIENT_SENDS_MAX):
            answer = await self._send(what, lambda lake: work(lake, sent))
            if answer.result == OK:
                return answer.value
            if answer.result not in UNSURE:
                self.fleet.problem(f"{self.namespace} {what}: {answer.result}")
                return None
            await asyncio.sleep(self._chance.random() * 10)
        self.fleet.problem(f"{self.namespace} {what}: never answered")
        return None

    async def repeat(self, what: str, sends_max: int, work: Callable[[Lake], Awaitable[T]]) -> Answer[T]:
        """Send the same request until the answer is definite, at most `sends_max` times."""
        answer = await self._send(what, work)
        for _ in range(sends_max - 1):
            if answer.result not in UNSURE:
                break
            await asyncio.sleep(self._chance.random() * self._chance.choice((0.1, 2, 30)))
            answer = await self._send(what, work)
        return answer

    def see(self, began: float, number: int) -> None:
        """A load showed a number that only grows: never less than what was answered before the load began."""
        known = max((shown for ended, shown in self._seen if ended < began), default=0)
        if number < known:
            self.fleet.problem(f"{self.identifier}: a load showed {number} after {known} had been answered")
        self._seen.append((self.fleet.loop.time(), number))

    def number(self) -> int:
        self._count += 1
        return self._count

    async def _send(self, what: str, work: Callable[[Lake], Awaitable[T]]) -> Answer[T]:
        return await self.fleet.send(self._chance, f"{self.namespace} {what}", work)


class Created(NamedTuple):
    """A table that a client sent, with the answer, and the uuid if it was answered."""

    name: str
    result: str
    uuid: str | None


class Creates(TableClients):
    """Creates without keys, which write ahead (N2), while the namespace gets other locations, one after the other.

    A new table lies where the namespace has its tables during the request. Two clients sometimes send the same name.
    """

    kind = "creates"

    def __init__(self, fleet: Fleet, number: int) -> None:
        super().__init__(fleet, number)
        self._created: list[Created] = []
        self._place_sent = self._place_answered = 0

    async def begin(self) -> None:
        await self._move()

    async def change(self) -> None:
        is_moving = self._place_sent > self._place_answered
        await (self._move() if not is_moving and self._chance.random() < _MOVES else self._create())

    async def _move(self) -> None:
        self._place_sent = number = self._place_sent + 1

        async def move(lake: Lake, sent: Request) -> None:
            updates = {"location": f"{lake.area}/main/{self.kind}/{number}"}
            await update_namespace_properties(lake, self.namespace, removals=[], updates=updates, request=sent)

        await self.insist(f"place {number}", move)
        self._place_answered = number

    async def _create(self) -> None:
        number, least = self.number(), self._place_answered
        name = f"t{number // 2}"
        sent = request(f"{self.namespace} create {number}")
        answer = await self._send(
            f"create {number}", lambda lake: create_table(lake, self.namespace, table(name), sent)
        )
        uuid = None
        if answer.result == OK and answer.value:
            found = content(answer.value)
            uuid = found["table-uuid"]
            place = int(found["location"].partition(f"/{self.kind}/")[2].partition("/")[0] or 0)
            if not least <= place <= self._place_sent:
                self.fleet.problem(f"{self.namespace}.{name} lies in place {place}, which was not its namespace's")
        elif answer.result not in {_TAKEN, *UNSURE}:
            self.fleet.problem(f"{self.namespace}.{name}: a create was answered with {answer.result}")
        self._created.append(Created(name, answer.result, uuid))

    async def judge(self, lake: Lake) -> None:
        """A table that was answered is there, and no other one was answered under its name."""
        names = [one.name for one in self._created]
        for one in self._created:
            if one.result == OK:
                found = content(await load(lake, Identifier(*self.namespace, one.name)))
                if found["table-uuid"] != one.uuid:
                    self.fleet.problem(f"{self.namespace}.{one.name} is {found['table-uuid']}, and not {one.uuid}")
            if one.result == _TAKEN and names.count(one.name) == 1:
                self.fleet.problem(f"{self.namespace}.{one.name}: no other client created it")


class Appends(TableClients):
    """Appends that assert the head of the branch, as engines send them."""

    kind = "appends"

    async def begin(self) -> None:
        await self.insist("create", lambda lake, sent: create_table(lake, self.namespace, table("events"), sent))

    async def change(self) -> None:
        began = self.fleet.loop.time()
        loaded = await self.repeat("load", PATIENT_SENDS_MAX, lambda lake: load(lake, self.identifier))
        if not isinstance(loaded.value, LoadedTable):
            self.fleet.problem(f"{self.identifier}: a load was answered with {loaded.result}")
            return
        found = content(loaded.value)
        self.see(began, found["last-sequence-number"])
        number = self.number()
        is_keyed = self._chance.random() < 0.5
        label = f"{self.namespace} append {number}"
        sent = request(label, key=f"key of {label}" if is_keyed else None)
        change = append(number, _current(found), uuid=found["table-uuid"], number=found["last-sequence-number"] + 1)
        answer = await self.repeat(
            f"append {number}", SENDS_MAX, lambda lake: commit_table(lake, self.identifier, change, sent)
        )
        if answer.result not in {OK, "Conflict", *UNSURE}:
            self.fleet.problem(f"{label}: {answer.result}")
        if answer.result == OK and answer.value:
            self._seen.append((self.fleet.loop.time(), content(answer.value)["last-sequence-number"]))
        self.sent.append(Sent(number, answer.result, self.fleet.loop.time(), sent))

    async def judge(self, lake: Lake) -> None:
        """Every snapshot follows its parent; what was answered is there once, what was refused is not there."""
        found = content(await load(lake, self.identifier))
        snapshots = {one["snapshot-id"]: one for one in found.get("snapshots", ())}
        history: list[int] = []
        at = _current(found)
        while at is not None:
            history.append(at)
            at = snapshots[at].get("parent-snapshot-id")
        if len(history) != len(snapshots):
            self.fleet.problem(f"{self.identifier}: {len(snapshots)} snapshots, {len(history)} of them in the history")
        for sent in self.sent:
            if sent.result == OK and sent.id not in snapshots:
                self.fleet.problem(f"{self.identifier}: append {sent.id} was answered and is lost")
            if sent.result == "Conflict" and sent.id in snapshots:
                self.fleet.problem(f"{self.identifier}: append {sent.id} was refused and is there")


class Batches(TableClients):
    """Compatible commits that arrive at one server in the same moment, so that it makes them by one swap.

    The log has one entry, so that only `passed` and receipts prove a commit. One without a key is sent once. Some are
    transactions, which move the head of a batch in another way.
    """

    kind = "batches"

    async def begin(self) -> None:
        short = table("events", properties={"write.metadata.previous-versions-max": "1"})
        await self.insist("create", lambda lake, sent: create_table(lake, self.namespace, short, sent))
        await self.insist("first", lambda lake, sent: commit_table(lake, self.identifier, append(1), sent))

    async def change(self) -> None:
        server = self.fleet.pick(self._chance)
        members = [self._member(server) for _ in range(self._chance.randint(2, 8))]
        await asyncio.gather(*members)

    async def _member(self, server: Server) -> None:
        number = self.number()
        label = f"{self.namespace} member {number}"
        is_keyed, is_tag = self._chance.random() < 0.7, self._chance.random() < 0.4
        sent = request(label, key=f"key of {label}" if is_keyed else None)
        change = _new_tag(f"tag{number}") if is_tag else commit(set_property("last", str(number)))
        is_transaction = self._chance.random() < _TRANSACTIONS

        async def work(lake: Lake) -> None:
            if is_transaction:
                await commit_transaction(lake, "main", [(self.identifier, change)], sent)
            else:
                await commit_table(lake, self.identifier, change, sent)

        answer = await self.fleet.send(self._chance, label, work, to=server)
        if is_keyed and answer.result in UNSURE:
            answer = await self.repeat(f"member {number}", SENDS_MAX, work)
        if answer.result not in {OK, *UNSURE}:
            self.fleet.problem(f"{label}: {answer.result}")
        self.sent.append(Sent(number, answer.result, self.fleet.loop.time(), sent))

    async def judge(self, lake: Lake) -> None:
        """Every commit that was answered was made once, and no other one more than once."""
        whole = await chains(lake, pointers_may_be_gone=self.fleet.plan.forgets)
        for sent in self.sent:
            times = times_applied(whole, key_hash_of(sent.request) or sent.request.hash)
            if times > 1 or (sent.result == OK and not times):
                self.fleet.problem(f"{self.identifier}: {sent.id} was answered with {sent.result}, made {times} times")


def _new_tag(name: str) -> TableCommit:
    tag = {"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": 1}
    return commit(tag, require=(at_snapshot(None, name),))


class DeltaWriters(TableClients):
    """Commits of a Delta table, with reports of what was published."""

    kind = "delta"

    async def begin(self) -> None:
        stage = await self.insist("stage", lambda lake, sent: stage_table(lake, self.identifier, request=sent))
        if stage:
            wanted = new_delta_table(stage.location, stage.uuid, self.identifier)
            await self.insist("create", lambda lake, sent: create_from_staging(lake, wanted, request=sent))

    async def change(self) -> None:
        began = self.fleet.loop.time()
        found = await self.repeat("load", PATIENT_SENDS_MAX, lambda lake: load_delta_table(lake, self.identifier))
        if not isinstance(found.value, DeltaTable):
            self.fleet.problem(f"{self.identifier}: a load was answered with {found.result}")
            return
        known = found.value
        self.see(began, known.last_version)
        version, number = known.last_version + 1, self.number()
        name = f"{version:020d}.{number}.json"
        published = known.last_version if self._chance.random() < 0.3 else None
        change = DeltaChange(asserted_uuid=known.uuid, commit=commit_file(version, name), published=published)
        sent = request(f"{self.namespace} commit {number}")

        async def work(lake: Lake) -> DeltaTable:
            with contextlib.suppress(SwapLost):  # An earlier try wrote it.
                await lake.locations.create(staged_location(known, name), name.encode())
            if published:
                await self._publish(lake, known, published)
            return await update_table(lake, self.identifier, change, sent)

        answer = await self.repeat(f"commit {number}", SENDS_MAX, work)
        if answer.result not in {OK, "VersionTaken", *UNSURE}:
            self.fleet.problem(f"{self.identifier}: commit {number} was answered with {answer.result}")
        if answer.result == OK:
            self._seen.append((self.fleet.loop.time(), version))
        self.sent.append(Sent(number, answer.result, self.fleet.loop.time(), sent._replace(hash=name)))

    async def _publish(self, lake: Lake, known: DeltaTable, upto: int) -> None:
        for one in known.commits:
            if 0 < one.version <= upto:
                with contextlib.suppress(SwapLost):  # Published before.
                    await lake.locations.create(published_location(known, one.version), one.file_name.encode())

    async def _chain(self, lake: Lake, found: DeltaTable) -> set[str]:
        """The files of all versions, by the receipts and the record; the newest commits may still lack a receipt."""
        by_version = {one.version: one.file_name for one in found.commits}
        for listed in await list_all(lake.store, lake.layout.events_folder()):
            if lake.layout.parse_receipt(listed.key).family == "delta":
                stored = await lake.store.get(listed.key)
                assert stored is not None
                receipt = msgspec.json.decode(stored.data, type=DeltaReceipt)
                if receipt.table_uuid != found.uuid:
                    continue
                other = by_version.setdefault(receipt.version, receipt.file_name)
                if other != receipt.file_name:
                    self.fleet.problem(
                        f"{self.identifier}: version {receipt.version} is {other} and {receipt.file_name}"
                    )
        if holes := set(range(1, found.last_version + 1)) - set(by_version):
            self.fleet.problem(f"{self.identifier}: no receipt of the versions {sorted(holes)}")
        return set(by_version.values())

    async def judge(self, lake: Lake) -> None:
        """One chain of receipts without holes; every answered commit is in it, and no refused one."""
        found = await load_delta_table(lake, self.identifier)
        names = await self._chain(lake, found)
        for sent in self.sent:
            is_there = sent.request.hash in names
            if sent.result == OK and not is_there:
                self.fleet.problem(f"{self.identifier}: {sent.request.hash} was answered and is lost")
            if sent.result == "VersionTaken" and is_there:
                self.fleet.problem(f"{self.identifier}: {sent.request.hash} was refused and is there")


def _current(found: dict[str, Any]) -> int | None:
    current: int | None = found.get("current-snapshot-id")
    return None if current == -1 else current
