"""How benchmarks measure and show: medians and CPU time per call, side by side in one run, as ratios."""

import asyncio
import gc
import json
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

RESULTS: Final = Path(__file__).parent / "results"

Step = Callable[[], Awaitable[object]]


class Timing(msgspec.Struct, frozen=True):
    """What one kind of call cost."""

    median_us: float
    p99_us: float
    cpu_us: float
    calls: int

    @property
    def per_second(self) -> float:
        return 1e6 / self.median_us


async def timed_side_by_side(steps: Mapping[str, Step], *, rounds: int, batch: int) -> Mapping[str, Timing]:
    """Time every step, in turns: what disturbs the machine for a while disturbs all of them alike."""
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
    """Calls per second with a number of them under way at the same time."""
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
    """Write a result beside the others, or to the file that was asked for, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine()}
    document = {"machine": machine, **result}
    text = json.dumps(document, indent=2, default=msgspec.to_builtins, ensure_ascii=False)
    (file or RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
