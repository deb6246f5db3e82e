"""Run a benchmark against one worker on an unsynced folder, and compare its CPU time with a reference server."""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import msgspec

from bench.load.servers import sandur_on_folder
from bench.measurement import save, show
from bench.meters import Cost, Meter

UNITY: Final = "/api/2.1/unity-catalog"
COLUMNS: Final = ("operation", "size", "median ms", "CPU ms", "per second", "growth", "less CPU", "goal")

Step = Callable[[int], Awaitable[httpx.Response]]


class Row(msgspec.Struct, frozen=True):
    """The cost of an operation with `size` objects in the catalog."""

    operation: str
    size: int
    median_ms: float
    cpu_ms: float
    per_second: float


class Reference(NamedTuple):
    """The minimum and maximum CPU time of the reference server, and the goal as a factor.

    With a `size`, it applies only to that number of tables.
    """

    cpu_ms: float
    most_cpu_ms: float
    times: float
    size: int | None = None


class Server:
    """A server under load, and its measurements so far."""

    def __init__(self, client: httpx.AsyncClient, pids: Sequence[int], *, is_quick: bool) -> None:
        self.client = client
        self.is_quick = is_quick
        self.rows: list[Row] = []
        self._pids = pids

    async def measure(self, operation: str, size: int, calls: int, step: Step, *, at_once: int = 1) -> None:
        """Make `calls` calls, at most `at_once` at the same time."""
        remaining = iter(range(calls))
        meter = Meter(self._pids, calls)

        async def worker() -> None:
            for call in remaining:
                await meter.time(step, call)

        await asyncio.gather(*(worker() for _ in range(at_once)))
        self.add(operation, size, meter.cost())

    def add(self, operation: str, size: int, cost: Cost) -> None:
        self.rows.append(Row(operation, size, *cost))


def run(
    name: str,
    title: str,
    description: str | None,
    references: Mapping[str, Reference],
    measure: Callable[[Server], Awaitable[None]],
) -> None:
    """Start a server, measure it, print the result and save it."""
    options = _options(name, description)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        place = Path(folder) / name
        place.mkdir()
        with sandur_on_folder(name, place, fsync="never", workers=1) as target:
            rows = asyncio.run(_measured(f"http://{target.address}", target.pids, measure, is_quick=options.quick))
    compared = [_compared(row, rows, references) for row in rows]
    table_rows = [[_render(value) for value in one.values()] for one in compared]
    show(f"{title}: one worker on a folder, not synced", COLUMNS, table_rows)
    result = {
        "settings": "one worker on a folder, fsync never",
        "load_average_before": round(load_before, 2),
        "rows": compared,
        "reference_cpu_ms": {operation: [one.cpu_ms, one.most_cpu_ms] for operation, one in references.items()},
    }
    save(name, result, file=options.json)


def _options(name: str, description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=description)
    parser.add_argument("--quick", action="store_true", help="fewer calls and sizes")
    parser.add_argument("--json", type=Path, help=f"the result file; the default is bench/results/{name}.json")
    return parser.parse_args()


async def _measured(
    url: str, pids: Sequence[int], measure: Callable[[Server], Awaitable[None]], *, is_quick: bool
) -> list[Row]:
    async with httpx.AsyncClient(base_url=url + UNITY, timeout=120) as client:
        (await client.post("/schemas", json={"catalog_name": "main", "name": "s"})).raise_for_status()
        server = Server(client, pids, is_quick=is_quick)
        await measure(server)
    return server.rows


def _compared(row: Row, rows: Sequence[Row], references: Mapping[str, Reference]) -> dict[str, object]:
    """A row with its growth since the smallest size, and its ratio to the reference."""
    first = next(one for one in rows if one.operation == row.operation)
    growth = None if first is row else round(row.cpu_ms / first.cpu_ms, 2)
    reference = references.get(row.operation)
    if reference is None or reference.size not in {None, row.size}:
        return {**msgspec.to_builtins(row), "growth": growth, "times_less_cpu": None, "goal": None}
    times = round(reference.cpu_ms / row.cpu_ms, 1)
    goal = {"times": reference.times, "reference_cpu_ms": reference.cpu_ms, "is_met": times >= reference.times}
    return {**msgspec.to_builtins(row), "growth": growth, "times_less_cpu": times, "goal": goal}


def _render(value: object) -> object:
    if isinstance(value, dict):
        return f"≥ {value['times']:g}×: {'yes' if value['is_met'] else 'no'}"
    return "" if value is None else value
