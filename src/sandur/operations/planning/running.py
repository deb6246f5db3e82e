"""Working a plan out: small results in the answer itself, large ones as tasks, nothing in both."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from sandur.iceberg.expressions.arrays import Array
from sandur.iceberg.scan.manifests import DELETES, ManifestFile
from sandur.iceberg.scan.selected import Selected
from sandur.iceberg.scan.tasks import Tasks
from sandur.operations.planning.reading import aside
from sandur.operations.planning.selecting import Selecting
from sandur.operations.planning.tokens import PlanTask, Run, encoded_task, entries_per_task, grouped_runs
from sandur.operations.planning.under_way import Answered
from sandur.splicing import encode


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
        return Answered(looked.tasks.fields(), ())
    places = {manifest.manifest_path: place for place, manifest in enumerate(listed)}
    waiting = [
        (places[path], manifest)
        for path, manifest in selecting.to_open(listed).items()
        if path not in looked.matched or len(looked.matched[path])
    ]
    matched = {places[path]: rows for path, rows in looked.matched.items()}
    size = entries_per_task(await selecting.total_entries(), limits.entries_per_task)
    groups = grouped_runs(waiting, entries_per_task=size, matched=matched)
    return Answered(Tasks().fields(), [encoded_task(plan_id, snapshot.snapshot_id, group) for group in groups])


class _Looked(NamedTuple):
    """What was seen of the manifests before it was enough: the rows that match in each, and their tasks if complete."""

    matched: Mapping[str, Array]
    tasks: Tasks
    is_complete: bool


async def _look(selecting: Selecting, listed: Sequence[ManifestFile], limits: Limits) -> _Looked:
    """Look through the manifests until all are seen, or too many files match, or too much time has passed.

    Tasks are written as their files are found, so that no more than a few manifests are in memory.
    """
    to_open = selecting.to_open(listed)
    matched: dict[str, Array] = {}
    tasks = Tasks()
    matches = rows = 0
    # A delete takes rows away that were counted: then no number of files is surely enough.
    rows_wanted = None if any(manifest.content == DELETES for manifest in listed) else selecting.scan.min_rows
    inline_files_max = min(limits.inline_files_max, selecting.files_told_max)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + limits.looking_seconds_max
    async with aclosing(selecting.each(to_open.values())) as manifests:
        async for manifest, columns in manifests:
            found = await selecting.found(manifest, columns)
            matched[manifest.manifest_path] = found.rows
            matches += len(found.rows)
            if matches > inline_files_max:
                selecting.remember(found)
                return _Looked(matched, tasks, is_complete=False)
            if len(found.rows):
                deletes = await selecting.deletes(listed)
                await aside(partial(found.write_all, tasks, deletes), is_long=selecting.scan.is_long)
            rows += selecting.certain_rows(found)
            if rows_wanted and rows >= rows_wanted:
                return _Looked(matched, tasks, is_complete=True)
            if loop.time() > ends_at:
                break
    return _Looked(matched, tasks, is_complete=len(matched) == len(to_open))


async def run_task(selecting: Selecting, task: PlanTask) -> bytes:
    """The files behind a task, as fields of a JSON object. Runs that lead nowhere are empty.

    What an answer has no room for is behind another task.
    """
    listed = await selecting.listed()
    can_match = selecting.to_open(listed)
    by_path: dict[str, list[Run]] = {}
    for run in task.runs:
        path = listed[run.place].manifest_path if run.place < len(listed) else ""
        if path in can_match:
            by_path.setdefault(path, []).append(run)
    tasks = Tasks()
    if not by_path:
        return tasks.fields()
    room = selecting.files_told_max
    rest: list[Run] = []
    deletes = await selecting.deletes(listed)
    async with aclosing(_selected(selecting, [can_match[path] for path in by_path])) as found:
        async for one in found:
            for run in by_path.pop(one.entries.manifest.manifest_path):
                write = partial(one.write, tasks, run.start, run.stop, deletes, files_max=room)
                written = await aside(write, is_long=selecting.scan.is_long)
                room -= written.files
                if written.stop < run.stop:
                    rest.append(run._replace(start=written.stop))
            if room == 0:
                break
    rest += [run for runs in by_path.values() for run in runs]
    if not rest:
        return tasks.fields()
    return tasks.fields() + b',"plan-tasks":' + encode([encoded_task(task.plan_id, task.snapshot_id, rest)])


async def _selected(selecting: Selecting, manifests: Sequence[ManifestFile]) -> AsyncGenerator[Selected]:
    """What a scan selects of each manifest, remembered where that was a moment ago."""
    remembered = {manifest.manifest_path: selecting.remembered(manifest) for manifest in manifests}
    for found in remembered.values():
        if found is not None:
            yield found
    missing = [manifest for manifest in manifests if remembered[manifest.manifest_path] is None]
    async with aclosing(selecting.each(missing)) as opened:
        async for manifest, columns in opened:
            selected = await selecting.found(manifest, columns)
            selecting.remember(selected)
            yield selected
