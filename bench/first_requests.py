"""The first requests of each kind to a new server, by one client, and the CPU time of the server for each.

The load generator sends what it knows. This process sends the rest: it costs the server the same.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import httpx
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from bench.beside_reference import UNITY
from bench.delta import DeltaTable, commit_body, create
from bench.load.loader import Loader
from bench.load.target import Target
from bench.meters import cpu_seconds

PART: Final = 100
"""Requests per part: five of them are the first 500 requests of a kind."""

PARTS: Final = 5
NAMESPACE: Final = "cold"
COMMITS: Final = frozenset({"append", "properties"})
GENERATED: Final = frozenset({"load", "list", "create"}) | COMMITS
"""What the load generator sends."""

KINDS: Final = (
    "load",
    "list",
    "plan",
    "append",
    "properties",
    "create",
    "rename",
    "drop",
    "transaction",
    "Delta commit",
)
_SECONDS: Final = 60.0
_ALONE: Final = 12
_ALONE_SECONDS: Final = 0.3
_DELTA_TABLES: Final = 8
_COLUMNS: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}],
}


class FirstRequests:
    """The requests of one kind to one new server."""

    def __init__(self, kind: str, target: Target, loader: Loader) -> None:
        self.pid = target.pids[0]
        self._kind = kind
        self._target = target
        self._loader = loader
        self._sent = 0
        self._path = ""
        self._delta: list[DeltaTable] = []
        target.connect(NAMESPACE)
        target.namespace = NAMESPACE
        target.make_namespace(NAMESPACE)

    def costs(self, warm: int) -> Iterator[tuple[str, float]]:
        """The parts with their CPU time in milliseconds per request: the first ones, and some after `warm` more."""
        self._prepare()
        for number in range(PARTS):
            yield f"{number * PART + 1}–{(number + 1) * PART}", self.part(f"p{number}", PART)
        self.part("more", warm)
        yield "warm", self.part("warm", 2 * PART)
        if self._kind in COMMITS:
            yield "alone", self._alone()
            with _busy_machine():
                cost_ms = self.part("busy", 2 * PART)
            yield "busy machine", cost_ms

    def part(self, stem: str, count: int) -> float:
        """The CPU time of so many requests, in milliseconds per request."""
        if self._kind in GENERATED:
            return self._generated(stem, count)
        if self._kind == "Delta commit":
            return self._metered(count, lambda: asyncio.run(self._commit_delta(count)))
        with httpx.Client(base_url=f"http://{self._target.address}{self._target.root}", timeout=_SECONDS) as client:
            send = self._sender(client, stem, count)
            return self._metered(count, lambda: [send(number).raise_for_status() for number in range(count)])

    def _prepare(self) -> None:
        """What the requests need, made by requests of other kinds."""
        tables = f"/namespaces/{NAMESPACE}/tables"
        match self._kind:
            case "load":
                self._path = self._loader.run(self._target, "history", stem="loaded", snapshots=1).extra.path
            case "list":
                self._generate("tables", "listed", PART)
                self._path = tables
            case "plan":
                catalog = load_catalog("cold", type="rest", uri=f"http://{self._target.address}")
                rows = pa.table({"id": [1, 2]})
                catalog.create_table((NAMESPACE, "planned"), rows.schema).append(rows)
            case "Delta commit":
                asyncio.run(self._create_delta())
            case "rename" | "transaction":
                with httpx.Client(base_url=f"http://{self._target.address}{self._target.root}") as client:
                    for name in ("first", "second"):
                        client.post(tables, json={"name": name, "schema": _COLUMNS}).raise_for_status()
            case _:
                pass

    def _generated(self, stem: str, count: int) -> float:
        if self._kind in COMMITS:  # The generator does not count the tables that it creates for them.
            return self._generate(self._kind, stem, count, tables=8)
        sent = ("tables", {}) if self._kind == "create" else ("get", {"path": self._path})
        return self._metered(count, lambda: self._generate(sent[0], stem, count, **sent[1]))

    def _generate(self, kind: str, stem: str, count: int, **job: object) -> float:
        result = self._loader.run(self._target, kind, stem=stem, workers=1, count=count, seconds=_SECONDS, **job)
        if not result.is_good or result.failed or result.ok != count:
            raise RuntimeError(f"{kind}: {result.ok} of {count}: {result.error or result.example}")
        return result.server_cpu_ms

    def _metered(self, count: int, work: Callable[[], object]) -> float:
        """The CPU time of the server; the generator itself counts in hundredths of a second only."""
        cpu = cpu_seconds(self._target.pids)
        work()
        return (cpu_seconds(self._target.pids) - cpu) / count * 1e3

    def _sender(self, client: httpx.Client, stem: str, count: int) -> Callable[[int], httpx.Response]:
        tables = f"/namespaces/{NAMESPACE}/tables"
        match self._kind:
            case "plan":
                return lambda _: client.post(f"{tables}/planned/plan", json={"case-sensitive": True})
            case "rename":
                return lambda number: client.post("/tables/rename", json=_rename(number))
            case "drop":
                names = [f"{stem}_{number}" for number in range(count)]
                for name in names:
                    client.post(tables, json={"name": name, "schema": _COLUMNS}).raise_for_status()
                time.sleep(2)  # What follows the creates ends.
                return lambda number: client.delete(f"{tables}/{names[number]}")
            case _:
                return lambda number: client.post("/transactions/commit", json=_transaction(f"{stem}{number}"))

    async def _create_delta(self) -> None:
        async with self._unity() as client:
            (await client.post("/schemas", json={"catalog_name": "main", "name": "s"})).raise_for_status()
            for _ in range(_DELTA_TABLES):
                await create(client, self._delta)

    async def _commit_delta(self, count: int) -> None:
        async with self._unity() as client:
            for _ in range(count):
                self._sent += 1
                table = self._delta[self._sent % _DELTA_TABLES]
                version, name = table.version + 1, f"{table.version + 1:020d}.a.json"
                table.stage(name)
                (await client.post(table.path, json=commit_body(table, version, name))).raise_for_status()
                table.accept(version, name)

    def _unity(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://{self._target.address}{UNITY}", timeout=_SECONDS)

    def _alone(self) -> float:
        """The CPU time of a commit with a pause after it, with everything that follows its answer."""
        path = f"http://{self._target.address}{self._target.root}/namespaces/{NAMESPACE}/tables"
        with httpx.Client(timeout=_SECONDS) as client:
            made = client.post(path, json={"name": "alone", "schema": _COLUMNS}).raise_for_status()
            location = made.json()["metadata"]["location"]
            time.sleep(2)
            idle = self._idle_share()
            began, cpu = time.perf_counter(), cpu_seconds([self.pid])
            for number in range(1, _ALONE + 1):
                client.post(f"{path}/alone", json=_change(self._kind, location, number)).raise_for_status()
                time.sleep(_ALONE_SECONDS)
            time.sleep(2)  # The index is updated within a second.
            spent = cpu_seconds([self.pid]) - cpu - idle * (time.perf_counter() - began)
        return spent / _ALONE * 1e3

    def _idle_share(self) -> float:
        """The CPU time that the server uses per second without a request."""
        began, cpu = time.perf_counter(), cpu_seconds([self.pid])
        time.sleep(2)
        return (cpu_seconds([self.pid]) - cpu) / (time.perf_counter() - began)


def _rename(number: int) -> Mapping[str, object]:
    """A table goes to a new name, and back with the next request."""
    names = [{"namespace": [NAMESPACE], "name": name} for name in ("first", "other")]
    return {"source": names[number % 2], "destination": names[1 - number % 2]}


def _transaction(value: str) -> Mapping[str, object]:
    update = {"action": "set-properties", "updates": {"value": value}}
    changes = [
        {"identifier": {"namespace": [NAMESPACE], "name": name}, "requirements": [], "updates": [update]}
        for name in ("first", "second")
    ]
    return {"table-changes": changes}


@contextlib.contextmanager
def _busy_machine() -> Iterator[None]:
    """Two processes per CPU that copy memory, as other programs on the same machine do."""
    copy = "data = bytearray(1 << 24)\nwhile True: data = bytearray(data)"
    others = [subprocess.Popen([sys.executable, "-c", copy]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _change(kind: str, location: str, number: int) -> Mapping[str, object]:
    if kind == "properties":
        return {"requirements": [], "updates": [{"action": "set-properties", "updates": {"number": str(number)}}]}
    return {"requirements": [], "updates": append_updates(location, number)}


def append_updates(location: str, number: int) -> Sequence[Mapping[str, object]]:
    """The updates of an append that makes the snapshot of that number, from 1 on."""
    snapshot = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": int(time.time() * 1_000),
        "manifest-list": f"{location}/metadata/{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    if number > 1:
        snapshot["parent-snapshot-id"] = number - 1
    head = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
    return [{"action": "add-snapshot", "snapshot": snapshot}, head]
