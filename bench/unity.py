"""The Unity Catalog API under load: lists, loads and creations, with the server's CPU per operation, as schemas grow.

The reference server, measured once on a machine like this, needs 96–470 ms of CPU for a page of 100 tables, 18–25 s
for a list of 10,000, 14–18 ms for a creation and 8–27 ms for a load.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx
import msgspec

from bench.load.starting import sandur_on_folder
from bench.measuring import save, show

UNITY: Final = "/api/2.1/unity-catalog"
SIZES: Final = (100, 1_000, 10_000)
AT_ONCE: Final = 8
REFERENCE_CPU_MS: Final = {"page of 100": 96.0, "whole list": 18_000.0, "create": 14.0, "load": 8.0}
"""The least of what the reference server was seen to need; that of the whole list is for 10,000 tables."""

_COLUMNS: Final = [
    {
        "name": f"c{number}",
        "type_text": "bigint",
        "type_name": "LONG",
        "type_json": f'{{"name":"c{number}","type":"long","nullable":true,"metadata":{{}}}}',
        "position": number,
        "nullable": True,
    }
    for number in range(10)
]


class Row(msgspec.Struct, frozen=True):
    """What an operation cost with so many tables in the schema."""

    operation: str
    tables: int
    median_ms: float
    cpu_ms: float
    per_second: float


def main() -> None:
    asked = _arguments()
    sizes = SIZES[:2] if asked.quick else SIZES
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        place = Path(folder) / "unity"
        place.mkdir()
        with sandur_on_folder("unity", place, fsync="never", workers=1) as target:
            rows = asyncio.run(_measured(f"http://{target.address}", target.pids, sizes))
    show(
        "The Unity Catalog API: one worker on a folder, not synced",
        ("operation", "tables", "median ms", "CPU ms", "per second", "× less CPU than the reference"),
        [(row.operation, row.tables, row.median_ms, row.cpu_ms, row.per_second, _ratio(row)) for row in rows],
    )
    save("unity", {"rows": rows, "reference_cpu_ms": REFERENCE_CPU_MS}, file=asked.json)


def _arguments() -> argparse.Namespace:
    ask = argparse.ArgumentParser(prog="python -m bench unity", description=__doc__)
    ask.add_argument("--quick", action="store_true", help="without the largest schema")
    ask.add_argument("--json", type=Path, help="where the figures go; bench/results/unity.json unless said")
    return ask.parse_args()


def _ratio(row: Row) -> str:
    reference = REFERENCE_CPU_MS.get(row.operation)
    if reference is None or (row.operation == "whole list" and row.tables != SIZES[-1]):
        return ""
    return f"{reference / row.cpu_ms:.0f}" if row.cpu_ms else "∞"


async def _measured(url: str, pids: Sequence[int], sizes: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    async with httpx.AsyncClient(base_url=url + UNITY, timeout=120) as client:
        catalog = (await client.get("/catalogs/main")).raise_for_status().json()
        (await client.post("/schemas", json={"catalog_name": "main", "name": "s"})).raise_for_status()
        made = 0
        for size in sizes:
            meter = _Meter(pids)
            await _create(client, range(made, size), catalog["storage_location"], meter)
            rows.append(meter.row("create", size))
            made = size
            for operation, calls, step in _reads(client, size):
                meter = _Meter(pids)
                for call in range(calls):
                    await meter.time(step, call)
                rows.append(meter.row(operation, size))
    return rows


def _reads(
    client: httpx.AsyncClient, size: int
) -> Sequence[tuple[str, int, Callable[[int], Awaitable[httpx.Response]]]]:
    where = {"catalog_name": "main", "schema_name": "s"}
    slim = {"omit_columns": "true", "omit_properties": "true"}
    few = max(5, min(100, 20_000 // size))
    return (
        ("page of 100", 100, lambda _: client.get("/tables", params={**where, "max_results": "100"})),
        ("whole list", few, lambda _: client.get("/tables", params=where)),
        ("whole list, slim", few, lambda _: client.get("/tables", params={**where, **slim})),
        ("load", 200, lambda call: client.get(f"/tables/main.s.t{call * 37 % size:06d}")),
    )


async def _create(client: httpx.AsyncClient, numbers: range, root: str, meter: "_Meter") -> None:
    remaining = iter(numbers)

    async def make(number: int) -> httpx.Response:
        body = {
            "catalog_name": "main",
            "schema_name": "s",
            "name": f"t{number:06d}",
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": _COLUMNS,
            "storage_location": f"{root}/t{number}",
            "properties": {"owner": "bench"},
        }
        return await client.post("/tables", json=body)

    async def worker() -> None:
        for number in remaining:
            await meter.time(make, number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


class _Meter:
    """Times calls, and the CPU that the server used meanwhile."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._walls: list[float] = []
        self._cpu = _cpu_seconds(pids)
        self._began = time.perf_counter()

    async def time(self, step: Callable[[int], Awaitable[httpx.Response]], call: int) -> None:
        began = time.perf_counter()
        answer = await step(call)
        self._walls.append(time.perf_counter() - began)
        answer.raise_for_status()

    def row(self, operation: str, tables: int) -> Row:
        spent = time.perf_counter() - self._began
        calls = len(self._walls)
        return Row(
            operation=operation,
            tables=tables,
            median_ms=round(statistics.median(self._walls) * 1e3, 2),
            cpu_ms=round((_cpu_seconds(self._pids) - self._cpu) / calls * 1e3, 3),
            per_second=round(calls / spent, 1),
        )


def _cpu_seconds(pids: Sequence[int]) -> float:
    """What the processes, and those they started, have used so far."""
    parents = _parents()
    family = set(pids)
    for _ in range(3):  # A server, its workers, and what those start.
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(_ticks(pid) for pid in family) / os.sysconf("SC_CLK_TCK")


def _parents() -> Mapping[int, int]:
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            found[int(entry.name)] = int(fields[1])
    return found


def _ticks(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _fields(pid: int) -> list[str]:
    """The fields behind the name of the program, the state first; none when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
