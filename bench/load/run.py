"""One run over all servers, in short rounds (A B, B A, …), so that a busy machine affects all alike."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.load.loader import Loader, Result
from bench.load.plan import Plan
from bench.load.target import Target

_LOOK_SECONDS: Final = 0.15
_RESTED_SHARE: Final = 0.15
_REST_LOOKS_MAX: Final = 10

Rows = dict[str, dict[str, list[Result]]]


class Run:
    """The results so far, by workload and by server. `deadline` is the planned end of the current workload."""

    def __init__(self, targets: Sequence[Target], plan: Plan, loader: Loader) -> None:
        self.targets = targets
        self.plan = plan
        self.loader = loader
        self.rows: Rows = {}
        self.notes: dict[str, list[str]] = {target.name: [] for target in targets}
        self.skipped: list[str] = []
        self.busy: list[float] = []
        self.turn = 0
        self.deadline = 0.0
        self._began = time.monotonic()

    def spent(self) -> float:
        return time.monotonic() - self._began

    def job(self, row: str, target: Target, kind: str, **job: object) -> Result:
        """Run a job and keep its result under a row."""
        result = self.loader.run(target, kind, **job)
        self.rows.setdefault(row, {}).setdefault(target.name, []).append(result)
        return result

    def in_turns(self) -> Iterator[tuple[int, Target]]:
        """Rounds over the servers, every second one in reverse order, while the workload has time."""
        for number in range(self.plan.rounds):
            if number and self.spent() > self.deadline:
                return
            for target in self.targets if number % 2 == 0 else self.targets[::-1]:
                self.turn += 1
                self.busy.append(_rested())
                yield number, target


def _rested() -> float:
    """Wait until the machine is idle, so that no server pays for another's background work. Returns the load."""
    os.sync()
    busy = _busy_share(_LOOK_SECONDS)
    for _ in range(_REST_LOOKS_MAX):
        if busy < _RESTED_SHARE:
            break
        busy = _busy_share(_LOOK_SECONDS)
    return busy


def _busy_share(seconds: float) -> float:
    """The share of the CPU that other processes use while the servers are idle."""
    total, idle = _ticks()
    time.sleep(seconds)
    total_then, idle_then = _ticks()
    return 1 - (idle_then - idle) / max(1.0, total_then - total)


def _ticks() -> tuple[float, float]:
    ticks = [float(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]
