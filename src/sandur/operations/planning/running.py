"""Working a plan out: small results in the answer itself, large ones as tasks, nothing in both."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.manifests import DELETES, ManifestFile
from sandur.iceberg.scan.tasks import Tasks
from sandur.operations.planning.selecting import Selected, Selecting
from sandur.operations.planning.tokens import PlanTask, Run, encoded_task, entries_per_task, grouped_runs
from sandur.operations.planning.under_way import Answered

ENTRIES_AT_ONCE: Final = 2_000


class Limits(NamedTuple):
    """How much an answer holds: files in the answer itself, entries behind one task; and how long the looking may take.

    What was not looked at by then is told as tasks.
    """

    inline_files_max: int
    entries_per_task: int
    looking_seconds_max: float


async def run_plan(plan_id: str, selecting: Selecting, limits: Limits) -> Answered:
    """Every file of the scan once: in the answer, or behind one of the tasks."""
    snapshot = selecting.scan.snapshot
    if snapshot is None:
        return Answered(Tasks().fields(), ())
    listed = await selecting.listed()
    looked = await _look(selecting, listed, limits)
    if looked.is_complete:
        return Answered(await _inline(selecting, listed, looked.selected), ())
    places = {manifest.manifest_path: place for place, manifest in enumerate(listed)}
    waiting = [
        (places[manifest.manifest_path], manifest)
        for manifest in looked.to_open
        if manifest.manifest_path not in looked.without_match
    ]
    matched = {places[found.entries.manifest.manifest_path]: found.rows for found in looked.selected}
    size = entries_per_task(listed, limits.entries_per_task)
    groups = grouped_runs(waiting, entries_per_task=size, matched=matched)
    return Answered(Tasks().fields(), [encoded_task(plan_id, snapshot.snapshot_id, group) for group in groups])


async def _selected(selecting: Selecting, manifest: ManifestFile, columns: ManifestColumns) -> Selected:
    """What a scan selects of a manifest; a long one is looked through beside the event loop."""
    found = selecting.remembered(manifest)
    if found is None:
        if columns.count <= ENTRIES_AT_ONCE:
            found = selecting.selected(manifest, columns)
        else:
            found = await asyncio.to_thread(selecting.selected, manifest, columns)
        selecting.remember(found)
    return found


class _Looked(NamedTuple):
    """What was seen of the manifests before it was enough."""

    to_open: Sequence[ManifestFile]
    selected: Sequence[Selected]
    without_match: frozenset[str]
    is_complete: bool


async def _look(selecting: Selecting, listed: Sequence[ManifestFile], limits: Limits) -> _Looked:
    """Look through the manifests until all are seen, or too many files match, or too much time has passed."""
    to_open = selecting.to_open(listed)
    selected: list[Selected] = []
    without_match: list[str] = []
    matches = seen = rows = 0
    # A delete takes rows away that were counted: then no number of files is surely enough.
    rows_wanted = None if any(manifest.content == DELETES for manifest in listed) else selecting.scan.min_rows
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + limits.looking_seconds_max
    async with aclosing(selecting.each(to_open)) as manifests:
        async for manifest, columns in manifests:
            found = await _selected(selecting, manifest, columns)
            seen += 1
            if found.rows:
                selected.append(found)
                matches += len(found.rows)
            else:
                without_match.append(manifest.manifest_path)
            rows += selecting.certain_rows(found)
            if rows_wanted and rows >= rows_wanted:
                return _Looked(
                    to_open, selected, frozenset(without_match), is_complete=matches <= limits.inline_files_max
                )
            if matches > limits.inline_files_max or loop.time() > ends_at:
                break
    is_complete = seen == len(to_open) and matches <= limits.inline_files_max
    return _Looked(to_open, selected, frozenset(without_match), is_complete)


async def _inline(selecting: Selecting, listed: Sequence[ManifestFile], selected: Sequence[Selected]) -> bytes:
    deletes = await selecting.deletes(listed) if selected else None
    tasks = Tasks()

    def add() -> bytes:
        for found in selected:
            if deletes is not None:
                tasks.add(found.entries, found.rows, found.texts, found.residuals(selecting.scan.filter), deletes)
        return tasks.fields()

    return await asyncio.to_thread(add)


async def run_task(selecting: Selecting, task: PlanTask) -> bytes:
    """The files behind a task, as fields of a JSON object. Runs that lead nowhere are empty."""
    listed = await selecting.listed()
    can_match = {manifest.manifest_path for manifest in selecting.to_open(listed)}
    runs = [run for run in task.runs if run.place < len(listed) and listed[run.place].manifest_path in can_match]
    deletes = await selecting.deletes(listed) if runs else None
    tasks = Tasks()
    by_path: dict[str, list[Run]] = {}
    for run in runs:
        by_path.setdefault(listed[run.place].manifest_path, []).append(run)
    wanted = [listed[found[0].place] for found in by_path.values()]
    async for manifest, columns in selecting.each(wanted):
        found = await _selected(selecting, manifest, columns)
        for run in by_path[manifest.manifest_path]:
            start, stop = bisect_left(found.rows, run.start), bisect_left(found.rows, run.stop)
            if start < stop and deletes is not None:
                texts = found.texts.slice(start, stop - start)
                tasks.add(found.entries, found.rows[start:stop], texts, found.residuals(selecting.scan.filter), deletes)
    return tasks.fields()
