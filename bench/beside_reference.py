"""The frame of benchmarks that ask one worker on a folder, and hold what it needs against a reference server's CPU."""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import msgspec

from bench.load.starting import sandur_on_folder
from bench.measuring import save, show
from bench.metering import Cost, Meter

UNITY: Final = "/api/2.1/unity-catalog"
COLUMNS: Final = ("operation", "size", "median ms", "CPU ms", "per second", "growth", "less CPU", "goal")

Step = Callable[[int], Awaitable[httpx.Response]]


class Row(msgspec.Struct, frozen=True):
    """What an operation cost with so many things there already."""

    operation: str
    size: int
    median_ms: float
    cpu_ms: float
    per_second: float


class Reference(NamedTuple):
    """The least CPU that the reference server was seen to need, and how many times less is asked for.

    For a list of everything it is that for `size` tables, and counts for no other size.
    """

    cpu_ms: float
    times: float
    size: int | None = None


class Server:
    """A server under load: what was measured of it so far."""

    def __init__(self, client: httpx.AsyncClient, pids: Sequence[int], *, is_quick: bool) -> None:
        self.client = client
        self.is_quick = is_quick
        self.rows: list[Row] = []
        self._pids = pids

    async def measure(self, operation: str, size: int, calls: int, step: Step, *, at_once: int = 1) -> None:
        """So many calls, at most so many of them under way at a time."""
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
    """Start a server, measure it, show what came of it and write that to the results."""
    asked = _arguments(name, description)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        place = Path(folder) / name
        place.mkdir()
        with sandur_on_folder(name, place, fsync="never", workers=1) as target:
            rows = asyncio.run(_measured(f"http://{target.address}", target.pids, measure, is_quick=asked.quick))
    compared = [_compared(row, rows, references) for row in rows]
    shown = [[_shown(value) for value in one.values()] for one in compared]
    show(f"{title}: one worker on a folder, not synced", COLUMNS, shown)
    save(name, {"load_average_before": round(load_before, 2), "rows": compared}, file=asked.json)


def _arguments(name: str, description: str | None) -> argparse.Namespace:
    ask = argparse.ArgumentParser(prog=f"python -m bench {name}", description=description)
    ask.add_argument("--quick", action="store_true", help="a part of the calls, and of the sizes")
    ask.add_argument("--json", type=Path, help=f"where the figures go; bench/results/{name}.json unless said")
    return ask.parse_args()


async def _measured(
    url: str, pids: Sequence[int], measure: Callable[[Server], Awaitable[None]], *, is_quick: bool
) -> list[Row]:
    async with httpx.AsyncClient(base_url=url + UNITY, timeout=120) as client:
        (await client.post("/schemas", json={"catalog_name": "main", "name": "s"})).raise_for_status()
        server = Server(client, pids, is_quick=is_quick)
        await measure(server)
    return server.rows


def _compared(row: Row, rows: Sequence[Row], references: Mapping[str, Reference]) -> dict[str, object]:
    """A row with how its cost has grown since the smallest size, and what it is beside the reference."""
    first = next(one for one in rows if one.operation == row.operation)
    growth = None if first is row else round(row.cpu_ms / first.cpu_ms, 2)
    reference = references.get(row.operation)
    if reference is None or reference.size not in {None, row.size}:
        return {**msgspec.to_builtins(row), "growth": growth, "times_less_cpu": None, "goal": None}
    times = round(reference.cpu_ms / row.cpu_ms, 1)
    goal = {"times": reference.times, "reference_cpu_ms": reference.cpu_ms, "is_met": times >= reference.times}
    return {**msgspec.to_builtins(row), "growth": growth, "times_less_cpu": times, "goal": goal}


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return f"≥ {value['times']:g}×: {'yes' if value['is_met'] else 'no'}"
    return "" if value is None else value
