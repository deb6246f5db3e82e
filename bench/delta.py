"""Delta tables under load: creations, loads and commits over the Delta API, with the server's CPU per operation.

Commits are made by one writer and by eight, on one table and on eight. Each writer does what a client does: it stages a
file, commits, publishes, and reports with its next commit. The reference server, measured once on a machine like this,
needs 14–18 ms of CPU for a creation, 8–27 ms for a load, 23–40 ms for a commit, and 106–124 ms with 8 writers on one
table.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from bench.load.starting import sandur_on_folder
from bench.measuring import save, show
from bench.metering import Meter
from bench.unity import UNITY

SCHEMA: Final = "/delta/v1/catalogs/main/schemas/s"
TABLES: Final = 8
CREATES: Final = 100
LOADS: Final = 500
COMMITS: Final = 400
TIME_MS: Final = 1_767_225_600_000
REFERENCE_CPU_MS: Final = {
    "create": 14.0,
    "load": 8.0,
    "commit, 1 writer, 1 table": 23.0,
    "commit, 8 writers, 1 table": 106.0,
    "commit, 8 writers, 8 tables": 23.0,
}
"""The least of what the reference server was seen to need."""

_FEATURES: Final = ["catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"]
_FIELDS: Final = [{"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}} for number in range(10)]


class Row(msgspec.Struct, frozen=True):
    """What an operation cost. `lost` counts commits that were told that their version was taken."""

    operation: str
    median_ms: float
    cpu_ms: float
    per_second: float
    lost: int = 0


def main() -> None:
    asked = _arguments()
    share = 10 if asked.quick else 1
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        place = Path(folder) / "delta"
        place.mkdir()
        with sandur_on_folder("delta", place, fsync="never", workers=1) as target:
            rows = asyncio.run(_measured(f"http://{target.address}", target.pids, share))
    show(
        "The Delta API: one worker on a folder, not synced",
        ("operation", "median ms", "CPU ms", "per second", "versions taken", "× less CPU than the reference"),
        [(row.operation, row.median_ms, row.cpu_ms, row.per_second, row.lost, _ratio(row)) for row in rows],
    )
    save("delta", {"rows": rows, "reference_cpu_ms": REFERENCE_CPU_MS}, file=asked.json)


def _arguments() -> argparse.Namespace:
    ask = argparse.ArgumentParser(prog="python -m bench delta", description=__doc__)
    ask.add_argument("--quick", action="store_true", help="a tenth of the calls")
    ask.add_argument("--json", type=Path, help="where the figures go; bench/results/delta.json unless said")
    return ask.parse_args()


def _ratio(row: Row) -> str:
    reference = REFERENCE_CPU_MS.get(row.operation)
    return f"{reference / row.cpu_ms:.0f}" if reference and row.cpu_ms else ""


async def _measured(url: str, pids: Sequence[int], share: int) -> list[Row]:
    async with httpx.AsyncClient(base_url=url + UNITY, timeout=60) as client:
        (await client.post("/schemas", json={"catalog_name": "main", "name": "s"})).raise_for_status()
        meter = Meter(pids)
        tables = [await _created(client, f"t{number}", meter) for number in range(max(TABLES, CREATES // share))]
        rows = [_row(meter, "create")]
        meter = Meter(pids)
        for number in range(LOADS // share):
            await meter.time(lambda at: client.get(tables[at % TABLES].path), number)
        rows.append(_row(meter, "load"))
        for writers, count in ((1, 1), (8, 1), (8, 8)):
            meter = Meter(pids)
            each = COMMITS // share // writers
            work = [_written(client, tables[number % count], each, meter, number) for number in range(writers)]
            lost = sum(await asyncio.gather(*work))
            named = f"commit, {writers} writer{'s' * (writers > 1)}, {count} table{'s' * (count > 1)}"
            rows.append(_row(meter, named, lost))
    return rows


class _Table:
    """A table as a writer knows it."""

    def __init__(self, loaded: dict[str, Any], name: str) -> None:
        self.path = f"{SCHEMA}/tables/{name}"
        self.uuid: str = loaded["metadata"]["table-uuid"]
        self.log = Path(loaded["metadata"]["location"].removeprefix("file://")) / "_delta_log"
        self.version: int = loaded["latest-table-version"]
        self.published = self.version

    def stage(self, name: str) -> None:
        """Write what is to be committed, as clients do before they ask."""
        folder = self.log / "_staged_commits"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")

    def accept(self, version: int, name: str) -> None:
        """The commit happened: publish it, as clients do at once."""
        (self.log / f"{version:020d}.json").write_text(name, encoding="utf-8")
        self.version = max(self.version, version)
        self.published = max(self.published, version)


async def _created(client: httpx.AsyncClient, name: str, meter: Meter) -> _Table:
    """Stage and create; the meter counts the two calls as one operation."""
    answers: list[dict[str, Any]] = []

    async def make(_: int) -> httpx.Response:
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
        answers.append(answer.json())
        return answer

    await meter.time(make, 0)
    return _Table(answers[0], name)


async def _written(client: httpx.AsyncClient, table: _Table, commits: int, meter: Meter, writer: int) -> int:
    """So many commits of one writer; how many more were told that their version was taken."""
    lost = 0

    async def commit(number: int) -> httpx.Response:
        nonlocal lost
        while True:
            version = table.version + 1
            name = f"{version:020d}.{writer}-{number}-{lost}.json"
            table.stage(name)
            answer = await client.post(table.path, json=_commit(table, version, name))
            if answer.status_code != httpx.codes.CONFLICT:
                table.accept(version, name)
                return answer
            lost += 1
            table.version = max(table.version, (await client.get(table.path)).json()["latest-table-version"])

    for number in range(commits):
        await meter.time(commit, number)
    return lost


def _commit(table: _Table, version: int, name: str) -> dict[str, Any]:
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


def _row(meter: Meter, operation: str, lost: int = 0) -> Row:
    return Row(operation, *meter.cost(), lost)
