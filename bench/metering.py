"""What calls to a server cost: how long they took, and how much CPU the server used meanwhile."""

import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx


class Cost(NamedTuple):
    """What one call cost, and how many there were in a second."""

    median_ms: float
    cpu_ms: float
    per_second: float


class Meter:
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

    def cost(self) -> Cost:
        spent = time.perf_counter() - self._began
        calls = len(self._walls)
        return Cost(
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
