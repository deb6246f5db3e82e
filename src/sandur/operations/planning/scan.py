"""Runs one scan of one table: selects manifests and files, and writes them as tasks."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from sandur.iceberg.expressions.evaluation import Array, Mask
from sandur.iceberg.expressions.predicates import Filter
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.deletes import DeleteIndex
from sandur.iceberg.scan.entries import UNPARTITIONED, Entries, projections, specs_by_id
from sandur.iceberg.scan.manifest_list import (
    DATA,
    DELETES,
    ManifestFile,
    PartitionTypes,
    manifests_to_open,
    partition_types,
)
from sandur.iceberg.scan.requests import Scan
from sandur.iceberg.scan.selection import Selected, Wanted
from sandur.iceberg.scan.task_json import Tasks
from sandur.iceberg.schema import Schema
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.planning.cache import Answered
from sandur.operations.planning.manifests import Manifests, aside
from sandur.operations.planning.plan_tasks import PlanTask, Run, encoded_task, entries_per_task, grouped_runs
from sandur.splicing import encode

ENTRIES_AT_ONCE: Final = 10_000
ANSWER_BYTES_MAX: Final = 16 << 20
"""About how long an answer may become: with a long filter, which every file repeats, it tells fewer files."""


class Selecting:
    """What a scan selects. `place` of a manifest is where it stands in the snapshot's manifest list."""

    def __init__(self, scan: Scan, metadata: TableMetadata, manifests: Manifests, *, plan_id: str = "") -> None:
        """What is selected of a manifest is remembered for a plan that has an id: its tasks are fetched one by one."""
        self.scan = scan
        self._plan_id = plan_id
        self._wanted = Wanted.of(scan.filter, scan.stats_ids)
        self._metadata = metadata
        self._manifests = manifests
        self._specs = specs_by_id(metadata.specs)
        self._projections = projections(scan.filter, self._specs)
        self._types: dict[int, PartitionTypes] = {}
        self._listed: tuple[ManifestFile, ...] | None = None
        self._to_open: dict[str, ManifestFile] | None = None
        self._following: dict[str, ManifestFile] = {}
        self._deletes: DeleteIndex | None = None
        self._total: int | None = None

    @property
    def files_told_max(self) -> int:
        """How many files an answer has room for."""
        return max(1, ANSWER_BYTES_MAX // self._wanted.task_bytes)

    async def total_entries(self) -> int:
        """How many entries all manifests have, as far as that is known."""
        if self._total is None:
            self._total = sum(manifest.live_files or 0 for manifest in await self.listed())
        return self._total

    async def listed(self) -> tuple[ManifestFile, ...]:
        """What `_look_up` finds, once; and what is to be opened of it is known then."""
        if self._listed is None:
            listed = await self._look_up()
            await aside(lambda: self.to_open(listed), is_long=self.scan.is_long)
            self._listed = listed
        return self._listed

    async def _look_up(self) -> tuple[ManifestFile, ...]:
        """Every manifest of the snapshot; of a range, those that its snapshots wrote, each once.

        What a snapshot added is told by its own manifests: later ones may have been merged, and call it existing.
        """
        if self.scan.appended is None:
            return () if self.scan.snapshot is None else await self._manifests.listed(self.scan.snapshot)
        ids = self.scan.appended_ids or frozenset()
        found: dict[str, ManifestFile] = {}
        for snapshot in self.scan.appended:
            for manifest in await self._manifests.listed(snapshot):
                if manifest.added_snapshot_id in ids:
                    found.setdefault(manifest.manifest_path, manifest)
        return tuple(found.values())

    def is_of(self, snapshot_id: int | None) -> bool:
        return (None if self.scan.snapshot is None else self.scan.snapshot.snapshot_id) == snapshot_id

    def to_open(self, listed: Sequence[ManifestFile]) -> Mapping[str, ManifestFile]:
        """The data manifests that may have a file for this scan, by their paths."""
        if self._to_open is None:
            data = [manifest for manifest in listed if manifest.content == DATA]
            found = manifests_to_open(data, self.scan.filter, self._specs)
            self._to_open = {manifest.manifest_path: manifest for manifest in found}
            self._following = {one.manifest_path: other for one, other in pairwise(found)}
        return self._to_open

    def entries(self, manifest: ManifestFile, columns: ManifestColumns) -> Entries:
        spec_id = manifest.partition_spec_id
        spec = self._specs.get(spec_id, PartitionSpec(fields=UNPARTITIONED.fields, spec_id=spec_id))
        if spec_id not in self._types:
            self._types[spec_id] = partition_types(spec, self._schemas)
        return Entries(manifest, columns, spec, self._types[spec_id].types)

    @cached_property
    def _schemas(self) -> list[Schema]:
        return [self.scan.schema, *reversed(self._metadata.schemas)]

    def remembered(self, manifest: ManifestFile) -> Selected | None:
        """What was selected of a manifest a moment ago."""
        return self._manifests.selected.get((self._plan_id, manifest.manifest_path)) if self._plan_id else None

    def remember(self, found: Selected) -> None:
        """Not from other threads, as all that changes what is remembered. The next manifest is read ahead."""
        path = found.entries.manifest.manifest_path
        if self._plan_id:
            self._manifests.selected.put((self._plan_id, path), found, found.size_bytes)
        if (following := self._following.get(path)) is not None:
            self._manifests.begin(following)

    async def found(self, manifest: ManifestFile, columns: ManifestColumns) -> Selected:
        """The files of a manifest that may hold a matching row; a long one is looked through beside the event loop."""
        is_long = self.scan.is_long or columns.count > ENTRIES_AT_ONCE
        return await aside(lambda: self.selected(manifest, columns), is_long=is_long)

    def selected(self, manifest: ManifestFile, columns: ManifestColumns) -> Selected:
        """The files of a manifest that may hold a matching row."""
        entries = self.entries(manifest, columns)
        mask = entries.selected(self.scan.filter, self._projected(entries))
        if (appended := self.scan.appended_ids) is not None:
            mask = mask & entries.added_by(appended)
        return Selected(entries, np.flatnonzero(mask), self._wanted)

    def each(self, manifests: Iterable[ManifestFile]) -> AsyncGenerator[tuple[ManifestFile, ManifestColumns]]:
        """The manifests with their entries, in order, read ahead."""
        return self._manifests.each(tuple(manifests))

    def certain_rows(self, found: Selected) -> int:
        """How many rows the files hold at least that match, before deletes; 0 when the filter leaves that open."""
        if self.scan.filter is not True or self.scan.min_rows is None:
            return 0
        return int(found.entries.columns.numbers("record_count").values[found.rows].sum())

    def _projected(self, entries: Entries) -> Filter:
        return self._projections.get(entries.spec.spec_id or 0, True)

    async def deletes(self, listed: Sequence[ManifestFile]) -> DeleteIndex:
        """The delete files that may matter. What was appended is read without: it is told as it came in."""
        if self._deletes is None:
            self._deletes = await self._index_deletes(listed)
        return self._deletes

    async def _index_deletes(self, listed: Sequence[ManifestFile]) -> DeleteIndex:
        if self.scan.appended is not None:
            return DeleteIndex(())
        found = [manifest for manifest in listed if manifest.content == DELETES]
        groups: list[tuple[Entries, Mask]] = []
        async for manifest, columns in self._manifests.each(manifests_to_open(found, self.scan.filter, self._specs)):
            entries = self.entries(manifest, columns)
            mask = await aside(partial(entries.in_partitions, self._projected(entries)), is_long=self.scan.is_long)
            groups.append((entries, mask))
        return await asyncio.to_thread(DeleteIndex, groups) if groups else DeleteIndex(())


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
