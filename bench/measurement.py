"""Measure and print: medians and CPU time per call, side by side in one run; result files."""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.provenance import RESULTS, provenance

Step = Callable[[], Awaitable[object]]


class Timing(msgspec.Struct, frozen=True):
    """The cost of one kind of call."""

    median_us: float
    p99_us: float
    cpu_us: float
    calls: int

    @property
    def per_second(self) -> float:
        return 1e6 / self.median_us


async def timed_side_by_side(steps: Mapping[str, Step], *, rounds: int, batch: int) -> Mapping[str, Timing]:
    """Time every step in turns, so that a disturbance of the machine affects all of them."""
    walls: dict[str, list[float]] = {name: [] for name in steps}
    cpus: dict[str, float] = dict.fromkeys(steps, 0.0)
    gc.collect()
    for _ in range(rounds):
        for name, step in steps.items():
            cpu = time.process_time()
            for _ in range(batch):
                begin = time.perf_counter()
                await step()
                walls[name].append(time.perf_counter() - begin)
            cpus[name] += time.process_time() - cpu
    return {name: _timing(walls[name], cpus[name]) for name in steps}


async def rate(step: Step, *, calls: int, at_once: int) -> float:
    """Calls per second with `at_once` calls running at the same time."""
    remaining = iter(range(calls))

    async def worker() -> None:
        for _ in remaining:
            await step()

    begin = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return calls / (time.perf_counter() - begin)


def _timing(walls: Sequence[float], cpu: float) -> Timing:
    ordered = sorted(walls)
    return Timing(
        median_us=round(statistics.median(ordered) * 1e6, 2),
        p99_us=round(ordered[int(len(ordered) * 0.99)] * 1e6, 2),
        cpu_us=round(cpu / len(ordered) * 1e6, 2),
        calls=len(ordered),
    )


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    Console(width=120).print(table)


def save(name: str, result: Mapping[str, object], *, file: Path | None = None) -> None:
    """Write a result with its provenance to bench/results/NAME.json or to the given file."""
    RESULTS.mkdir(exist_ok=True)
    document = {**provenance(name), **result}
    text = json.dumps(document, indent=2, default=msgspec.to_builtins, ensure_ascii=False)
    (file or RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
