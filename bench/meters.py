"""The cost of calls to a server: their time, and the CPU time of the server."""

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx

SLICES: Final = 20
_PROCESSES: Final = Path("/proc")
_NANOSECONDS: Final = 1e9


class Cost(NamedTuple):
    """The cost of one call, and the calls per second."""

    median_ms: float
    cpu_ms: float
    per_second: float


class Meter:
    """Measures the time of calls and the CPU time of the server.

    The CPU time per call is the median over slices of the run, so that a short disturbance affects few slices.
    """

    def __init__(self, pids: Sequence[int], calls: int) -> None:
        self._pids = pids
        self._per_slice = max(1, calls // SLICES)
        self._walls: list[float] = []
        self._slices: list[float] = []
        self._cpu = cpu_seconds(pids)
        self._began = time.perf_counter()

    async def time(self, step: Callable[[int], Awaitable[httpx.Response]], call: int) -> None:
        began = time.perf_counter()
        answer = await step(call)
        self._walls.append(time.perf_counter() - began)
        answer.raise_for_status()
        if len(self._walls) % self._per_slice == 0:
            self._end_slice()

    def cost(self) -> Cost:
        spent = time.perf_counter() - self._began
        return Cost(
            median_ms=round(statistics.median(self._walls) * 1e3, 2),
            cpu_ms=round(statistics.median(self._slices) * 1e3, 3),
            per_second=round(len(self._walls) / spent, 1),
        )

    def _end_slice(self) -> None:
        cpu = cpu_seconds(self._pids)
        self._slices.append((cpu - self._cpu) / self._per_slice)
        self._cpu = cpu


def cpu_seconds(pids: Sequence[int]) -> float:
    """The CPU time of the processes and their descendants so far."""
    parents = _parents()
    family = set(pids)
    for _ in range(3):  # A server, its workers, and their children.
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(_nanoseconds(pid) for pid in family) / _NANOSECONDS


def _parents() -> Mapping[int, int]:
    found: dict[int, int] = {}
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit() and (text := _read(entry / "stat")):
            found[int(entry.name)] = int(
                text.rpartition(")")[2].split()[1]
            )  # The fields after the name of the program.
    return found


def _nanoseconds(pid: int) -> int:
    tasks = (_PROCESSES / str(pid) / "task").glob("*/schedstat")
    return sum(int(text.split()[0]) for task in tasks if (text := _read(task)))


def _read(file: Path) -> str:
    """The content of a file below /proc; empty if the process is gone."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
