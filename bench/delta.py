"""Measure Delta tables under load: creations, loads and commits over the Delta API, and their CPU time.

Commits are made by one writer and by eight, on one table and on eight, and again when a table has a long history. Each
writer acts like a client: it stages a file, commits, publishes, and reports with its next commit. The reference
server, measured once on a machine like this, needs 14–18 ms of CPU for a creation, 8–27 ms for a load, 23–40 ms for a
commit, and 106–124 ms with 8 writers on one table.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx

from bench.beside_reference import Reference, Server, run

SCHEMA: Final = "/delta/v1/catalogs/main/schemas/s"
TABLES: Final = 8
CREATES: Final = 400
LOADS: Final = 600
COMMITS: Final = 600
TIME_MS: Final = 1_767_225_600_000
REFERENCES: Final = {
    "stage and create": Reference(14.0, 18.0, times=5),
    "load": Reference(8.0, 27.0, times=10),
    "commit, 1 writer, 1 table": Reference(23.0, 40.0, times=5),
    "commit, 8 writers, 1 table": Reference(106.0, 124.0, times=5),
    "commit, 8 writers, 8 tables": Reference(23.0, 40.0, times=5),
}

_FEATURES: Final = ["catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"]
_FIELDS: Final = [{"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}} for number in range(10)]


def main() -> None:
    run("delta", "The Delta API", __doc__, REFERENCES, _measure)


async def _measure(server: Server) -> None:
    """The size is the number of versions of the tables; for creations, the number of tables."""
    share = 10 if server.is_quick else 1
    client = server.client
    tables: list[DeltaTable] = []
    for _ in range(2):
        await server.measure("stage and create", len(tables), CREATES // share, lambda _: create(client, tables))
    await _commits(server, tables[:TABLES], COMMITS // share)
    await _commits(server, tables[:TABLES], COMMITS // share)


async def _commits(server: Server, tables: list["DeltaTable"], commits: int) -> None:
    client = server.client
    await server.measure("load", tables[0].version, LOADS, lambda call: client.get(tables[call % TABLES].path))
    for writers, count in ((1, 1), (8, 1), (8, 8)):
        operation = f"commit, {writers} writer{'s' * (writers > 1)}, {count} table{'s' * (count > 1)}"
        step = _writing(client, tables[:count], writers)
        await server.measure(operation, tables[0].version, commits, step, at_once=writers)


class DeltaTable:
    """The state of a table that a writer keeps."""

    def __init__(self, loaded: dict[str, Any], name: str) -> None:
        self.path = f"{SCHEMA}/tables/{name}"
        self.uuid: str = loaded["metadata"]["table-uuid"]
        self.log = Path(loaded["metadata"]["location"].removeprefix("file://")) / "_delta_log"
        self.version: int = loaded["latest-table-version"]
        self.published = self.version

    def stage(self, name: str) -> None:
        """Write the file to commit, as clients do before the request."""
        folder = self.log / "_staged_commits"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")

    def accept(self, version: int, name: str) -> None:
        """Publish an accepted commit, as clients do at once."""
        (self.log / f"{version:020d}.json").write_text(name, encoding="utf-8")
        self.version = max(self.version, version)
        self.published = max(self.published, version)


async def create(client: httpx.AsyncClient, tables: list[DeltaTable]) -> httpx.Response:
    """Stage and create: two calls that are one operation."""
    name = f"t{len(tables)}"
    staged = (await client.post(f"{SCHEMA}/staging-tables", json={"name": name})).raise_for_status().json()
    body = {
        "name": name,
        "location": staged["location"],
        "table-type": "MANAGED",
        "columns": {"type": "struct", "fields": _FIELDS},
        "protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": _FEATURES,
            "writer-features": [*_FEATURES, "inCommitTimestamp"],
        },
        "properties": staged["required-properties"],
        "last-commit-timestamp-ms": TIME_MS,
    }
    answer = await client.post(f"{SCHEMA}/tables", json=body)
    tables.append(DeltaTable(answer.raise_for_status().json(), name))
    return answer


def _writing(client: httpx.AsyncClient, tables: list[DeltaTable], writers: int) -> Callable[[int], Any]:
    """A step that commits to one of the tables; with as many tables as writers, each writer has its own."""
    free = asyncio.Queue[DeltaTable]()
    for number in range(writers):
        free.put_nowait(tables[number % len(tables)])

    async def commit(call: int) -> httpx.Response:
        table = free.get_nowait()
        try:
            return await _committed(client, table, call)
        finally:
            free.put_nowait(table)

    return commit


async def _committed(client: httpx.AsyncClient, table: DeltaTable, call: int) -> httpx.Response:
    """One commit; if its version is taken, the table is loaded and the next version is tried."""
    tries = 0
    while True:
        version, tries = table.version + 1, tries + 1
        name = f"{version:020d}.{call}-{tries}.json"
        table.stage(name)
        answer = await client.post(table.path, json=commit_body(table, version, name))
        if answer.status_code != httpx.codes.CONFLICT:
            table.accept(version, name)
            return answer
        table.version = max(table.version, (await client.get(table.path)).json()["latest-table-version"])


def commit_body(table: DeltaTable, version: int, name: str) -> dict[str, Any]:
    commit = {
        "version": version,
        "timestamp": TIME_MS + version,
        "file-name": name,
        "file-size": 1_000,
        "file-modification-timestamp": TIME_MS,
    }
    updates: list[dict[str, Any]] = [{"action": "add-commit", "commit": commit}]
    if table.published:
        updates.append({"action": "set-latest-backfilled-version", "latest-published-version": table.published})
    return {"requirements": [{"type": "assert-table-uuid", "uuid": table.uuid}], "updates": updates}
