"""The Unity Catalog API under load: lists, loads and creations, with the server's CPU per operation, as schemas grow.

The reference server, measured once on a machine like this, needs 96–470 ms of CPU for a page of 100 tables, 18–25 s
for a list of 10,000, 14–18 ms for a creation and 8–27 ms for a load.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import httpx
import msgspec

from bench.load.starting import sandur_on_folder
from bench.measuring import save, show
from bench.metering import Meter

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
            meter = Meter(pids)
            await _create(client, range(made, size), catalog["storage_location"], meter)
            rows.append(Row("create", size, *meter.cost()))
            made = size
            for operation, calls, step in _reads(client, size):
                meter = Meter(pids)
                for call in range(calls):
                    await meter.time(step, call)
                rows.append(Row(operation, size, *meter.cost()))
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


async def _create(client: httpx.AsyncClient, numbers: range, root: str, meter: Meter) -> None:
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
