"""Plan tasks: tokens that name a plan, a snapshot, and runs of manifest entries."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from sandur.errors import NotFound
from sandur.iceberg.expressions.evaluation import Array
from sandur.iceberg.scan.manifests import ManifestFile
from sandur.splicing import NOT_JSON

TOKEN_CHARS_MAX: Final = 65_536
PLAN_TASKS_WANTED: Final = 250
"""With more tasks than this, requests cost more than their files. Then each task holds more entries."""

TASK_ENTRIES_WANTED_MAX: Final = 4_096
PLAN_TASKS_MAX: Final = 10_000
"""The approximate maximum. It bounds the answer that names all tasks."""

RUNS_PER_TASK_MAX: Final = 1_000
"""More runs of small manifests would make a token longer than TOKEN_CHARS_MAX."""

_VERSION: Final = 1
_EVERYTHING: Final = 2**31 - 1


class Run(NamedTuple):
    """Some live entries of one manifest. `place` is the manifest's position in the list of manifests."""

    place: int
    start: int
    stop: int


class PlanTask(msgspec.Struct, frozen=True, array_like=True):
    """The content of a token."""

    version: int
    plan_id: str
    snapshot_id: int
    runs: tuple[Run, ...]


def encode_task(plan_id: str, snapshot_id: int, runs: Sequence[Run]) -> str:
    data = msgspec.json.encode(PlanTask(_VERSION, plan_id, snapshot_id, tuple(runs)))
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_task(token: str) -> PlanTask:
    """Decode a token; NotFound if `encode_task` cannot have made it."""
    if len(token) > TOKEN_CHARS_MAX:
        raise no_such_task(token)
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        task = msgspec.json.decode(data, type=PlanTask)
    except (*NOT_JSON, ValueError) as error:
        raise no_such_task(token) from error
    is_sound = all(run.place >= 0 and 0 <= run.start < run.stop <= _EVERYTHING for run in task.runs)
    if task.version != _VERSION or not is_sound:
        raise no_such_task(token)
    return task


def entries_per_task(total: int, wanted: int) -> int:
    """The entries of one task: the wanted number, or more in a large table, which has at most PLAN_TASKS_MAX tasks."""
    larger = min(total // PLAN_TASKS_WANTED, TASK_ENTRIES_WANTED_MAX)
    return max(wanted, larger, -(-total // PLAN_TASKS_MAX))


def no_such_task(token: str) -> NotFound:
    return NotFound(f"The plan task does not exist: {token[:100]}", subject="plan task")


def group_runs(
    manifests: Iterable[tuple[int, ManifestFile]], *, entries_per_task: int, matched: Mapping[int, Array]
) -> list[list[Run]]:
    """Runs over all entries of the manifests, grouped by task. Small manifests share a task.

    `matched` has the matching rows of manifests that were read already. A run without any of them is left out.
    """
    groups: list[list[Run]] = []
    room = 0
    for place, manifest in manifests:
        count = manifest.live_files
        for run in _runs(place, count, entries_per_task):
            if place in matched and not _holds_any(run, matched[place]):
                continue
            size = entries_per_task if count is None else min(entries_per_task, count - run.start)
            if not groups or size > room or len(groups[-1]) >= RUNS_PER_TASK_MAX:
                groups.append([])
                room = entries_per_task
            groups[-1].append(run)
            room -= size
    return groups


def _holds_any(run: Run, rows: Array) -> bool:
    """Whether one of the rows, which are sorted, belongs to the run."""
    following = int(np.searchsorted(rows, run.start))
    return following < len(rows) and int(rows[following]) < run.stop


def _runs(place: int, count: int | None, size: int) -> list[Run]:
    """Runs of `size` entries. The last one has no end, because a manifest may hold more than its list declares."""
    runs = [Run(place, start, start + size) for start in range(0, max(count or 0, 1), size)]
    runs[-1] = Run(place, runs[-1].start, _EVERYTHING)
    return runs
