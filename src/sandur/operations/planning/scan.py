"""Runs one scan of one table: selects manifests and files, and writes them as tasks.

A small result is complete in the answer. A large one is a list of plan tasks, which the client fetches one by one.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from sandur.iceberg.expressions.evaluation import Array, Mask
from sandur.iceberg.expressions.predicates import Filter
from sandur.iceberg.expressions.projection import inclusive_projection
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.deletes import DeleteIndex
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.manifests import DATA, DELETES, ManifestFile, manifests_to_open, partition_types
from sandur.iceberg.scan.requests import Scan
from sandur.iceberg.scan.selection import Selected, TaskContent
from sandur.iceberg.scan.task_json import Tasks
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import Primitive
from sandur.operations.planning.cache import PlanResult
from sandur.operations.planning.manifests import Manifests, run_aside
from sandur.operations.planning.plan_tasks import PlanTask, Run, encode_task, entries_per_task, group_runs
from sandur.splicing import encode

ENTRIES_AT_ONCE: Final = 10_000
ANSWER_BYTES_MAX: Final = 16 << 20
"""The approximate size of an answer. Every task repeats the filter, so a long filter leaves room for fewer tasks."""


class ScanRunner:
    """The state of one scan: its manifests, its delete files, and the data files that it selects."""

    def __init__(self, scan: Scan, metadata: TableMetadata, manifests: Manifests, *, plan_id: str = "") -> None:
        """With a plan id, the selected files of a manifest are cached, because tasks are fetched one by one."""
        self.scan = scan
        self._plan_id = plan_id
        self._content = TaskContent.of(scan.filter, scan.stats_ids)
        self._metadata = metadata
        self.manifests = manifests
        self._specs = {spec.spec_id or 0: spec for spec in metadata.specs}
        self._projections = {id_: inclusive_projection(scan.filter, spec) for id_, spec in self._specs.items()}
        self._types: dict[int, Mapping[int, Primitive | None]] = {}
        self._listed: tuple[ManifestFile, ...] | None = None
        self._to_open: dict[str, ManifestFile] | None = None
        self._following: dict[str, str] = {}
        self._deletes: DeleteIndex | None = None

    @property
    def answer_files_max(self) -> int:
        """The number of files that fit into one answer."""
        return max(1, ANSWER_BYTES_MAX // self._content.task_bytes)

    def is_of(self, snapshot_id: int | None) -> bool:
        return (None if self.scan.snapshot is None else self.scan.snapshot.snapshot_id) == snapshot_id

    async def listed(self) -> tuple[ManifestFile, ...]:
        """Every manifest of the scan, in the order of the manifest list. A run refers to them by position."""
        if self._listed is None:
            listed = await self._list()
            await run_aside(lambda: self.to_open(listed), is_long=self.scan.is_long)
            self._listed = listed
        return self._listed

    async def _list(self) -> tuple[ManifestFile, ...]:
        """The manifests of the snapshot. For an incremental scan, the manifests that its snapshots wrote.

        Only a snapshot's own manifests say what it added: later ones may be merged, and call the files existing. Old
        lists may not say which snapshot wrote a manifest.
        """
        if self.scan.appended is None:
            return () if self.scan.snapshot is None else await self.manifests.listed(self.scan.snapshot)
        ids = self.scan.appended_ids or frozenset()
        found: dict[str, ManifestFile] = {}
        for snapshot in self.scan.appended:
            for manifest in await self.manifests.listed(snapshot):
                if manifest.added_snapshot_id is None or manifest.added_snapshot_id in ids:
                    found.setdefault(manifest.manifest_path, manifest)
        return tuple(found.values())

    def to_open(self, listed: Sequence[ManifestFile]) -> Mapping[str, ManifestFile]:
        """The data manifests that may have a file for this scan, by path."""
        if self._to_open is None:
            data = [manifest for manifest in listed if manifest.content == DATA]
            found = manifests_to_open(data, self.scan.filter, self._specs)
            self._to_open = {manifest.manifest_path: manifest for manifest in found}
            self._following = {one.manifest_path: other.manifest_path for one, other in pairwise(found)}
        return self._to_open

    def cached_selection(self, manifest: ManifestFile) -> Selected | None:
        if not self._plan_id:
            return None
        return self.manifests.cache.selected.get((self._plan_id, manifest.manifest_path))

    def cache_selection(self, found: Selected) -> None:
        """Cache the selected files of a manifest and prefetch the next manifest. Call only from the event loop."""
        path = found.entries.manifest.manifest_path
        if self._plan_id:
            self.manifests.cache.selected.put((self._plan_id, path), found, found.size_bytes)
        if (following := self._following.get(path)) is not None:
            self.manifests.prefetch(following)

    async def select(self, manifest: ManifestFile, columns: ManifestColumns) -> Selected:
        """The files of a manifest that may hold a matching row."""
        is_long = self.scan.is_long or columns.count > ENTRIES_AT_ONCE
        return await run_aside(lambda: self._select(manifest, columns), is_long=is_long)

    def _select(self, manifest: ManifestFile, columns: ManifestColumns) -> Selected:
        entries = self._entries(manifest, columns)
        mask = entries.select(self.scan.filter, self._projection(entries))
        if (appended := self.scan.appended_ids) is not None:
            mask = mask & entries.added_by(appended)
        return Selected(entries, np.flatnonzero(mask), self._content)

    def certain_rows(self, found: Selected) -> int:
        """The number of rows that certainly match, before deletes; 0 if there is a filter."""
        if self.scan.filter is not True or self.scan.min_rows is None:
            return 0
        return int(found.entries.columns.numbers("record_count").values[found.rows].sum())

    async def deletes(self, listed: Sequence[ManifestFile]) -> DeleteIndex:
        """The delete files that may apply. An incremental scan has none: it returns rows as they were appended."""
        if self._deletes is None:
            found = [one for one in listed if one.content == DELETES] if self.scan.appended is None else []
            groups: list[tuple[Entries, Mask]] = []
            async for manifest, columns in self.manifests.each(manifests_to_open(found, self.scan.filter, self._specs)):
                entries = self._entries(manifest, columns)
                select = partial(entries.in_partitions, self._projection(entries))
                groups.append((entries, await run_aside(select, is_long=self.scan.is_long)))
            self._deletes = await asyncio.to_thread(DeleteIndex, groups) if groups else DeleteIndex(())
        return self._deletes

    def _entries(self, manifest: ManifestFile, columns: ManifestColumns) -> Entries:
        spec_id = manifest.partition_spec_id
        spec = self._specs.get(spec_id, PartitionSpec(fields=(), spec_id=spec_id))
        if spec_id not in self._types:
            schemas = [self.scan.schema, *reversed(self._metadata.schemas)]
            self._types[spec_id] = partition_types(spec, schemas)
        return Entries(manifest, columns, spec, self._types[spec_id])

    def _projection(self, entries: Entries) -> Filter:
        return self._projections.get(entries.spec.spec_id or 0, True)


class Limits(NamedTuple):
    """The limits of an answer: its files, the entries of one task, and the time for selecting files.

    Manifests that were not read in that time become plan tasks.
    """

    inline_files_max: int
    entries_per_task: int
    select_seconds_max: float


async def run_plan(plan_id: str, runner: ScanRunner, limits: Limits) -> PlanResult:
    """Every file of the scan once: either in the answer, or in one of the plan tasks."""
    snapshot = runner.scan.snapshot
    if snapshot is None:
        return PlanResult(Tasks().fields(), ())
    listed = await runner.listed()
    result = await _select_files(runner, listed, limits)
    if result.is_complete:
        return PlanResult(result.tasks.fields(), ())
    places = {manifest.manifest_path: place for place, manifest in enumerate(listed)}
    remaining = [
        (places[path], manifest)
        for path, manifest in runner.to_open(listed).items()
        if path not in result.matched or len(result.matched[path])
    ]
    matched = {places[path]: rows for path, rows in result.matched.items()}
    size = entries_per_task(sum(manifest.live_files or 0 for manifest in listed), limits.entries_per_task)
    groups = group_runs(remaining, entries_per_task=size, matched=matched)
    return PlanResult(Tasks().fields(), [encode_task(plan_id, snapshot.snapshot_id, group) for group in groups])


class _Selection(NamedTuple):
    """The matching rows of the manifests that were read, and the tasks. `is_complete` says that no file is missing."""

    matched: Mapping[str, Array]
    tasks: Tasks
    is_complete: bool


async def _select_files(runner: ScanRunner, listed: Sequence[ManifestFile], limits: Limits) -> _Selection:
    """Read manifests until all are read, too many files match, enough rows are found, or the time is over.

    Each manifest's tasks are written at once, so that only a few manifests are in memory.
    """
    to_open = runner.to_open(listed)
    matched: dict[str, Array] = {}
    tasks = Tasks()
    matches = rows = 0
    # Deletes remove rows that were counted, so that no number of files is certainly enough.
    rows_wanted = None if any(manifest.content == DELETES for manifest in listed) else runner.scan.min_rows
    inline_files_max = min(limits.inline_files_max, runner.answer_files_max)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + limits.select_seconds_max
    async with aclosing(runner.manifests.each(tuple(to_open.values()))) as manifests:
        async for manifest, columns in manifests:
            found = await runner.select(manifest, columns)
            matched[manifest.manifest_path] = found.rows
            matches += len(found.rows)
            if matches > inline_files_max:
                runner.cache_selection(found)
                return _Selection(matched, tasks, is_complete=False)
            if len(found.rows):
                deletes = await runner.deletes(listed)
                await run_aside(partial(found.write_all, tasks, deletes), is_long=runner.scan.is_long)
            rows += runner.certain_rows(found)
            if rows_wanted and rows >= rows_wanted:
                return _Selection(matched, tasks, is_complete=True)
            if loop.time() > ends_at:
                break
    return _Selection(matched, tasks, is_complete=len(matched) == len(to_open))


async def run_task(runner: ScanRunner, task: PlanTask) -> bytes:
    """The files of a plan task, as fields of a JSON object. A run that does not exist has no files.

    Files that do not fit into the answer are named by another plan task in it.
    """
    listed = await runner.listed()
    can_match = runner.to_open(listed)
    by_path: dict[str, list[Run]] = {}
    for run in task.runs:
        path = listed[run.place].manifest_path if run.place < len(listed) else ""
        if path in can_match:
            by_path.setdefault(path, []).append(run)
    tasks = Tasks()
    if not by_path:
        return tasks.fields()
    room = runner.answer_files_max
    rest: list[Run] = []
    deletes = await runner.deletes(listed)
    async with aclosing(_selections(runner, [can_match[path] for path in by_path])) as selections:
        async for found in selections:
            for run in by_path.pop(found.entries.manifest.manifest_path):
                write = partial(found.write, tasks, run.start, run.stop, deletes, files_max=room)
                written = await run_aside(write, is_long=runner.scan.is_long)
                room -= written.files
                if written.stop < run.stop:
                    rest.append(run._replace(start=written.stop))
            if room == 0:
                break
    rest += [run for runs in by_path.values() for run in runs]
    if not rest:
        return tasks.fields()
    return tasks.fields() + b',"plan-tasks":' + encode([encode_task(task.plan_id, task.snapshot_id, rest)])


async def _selections(runner: ScanRunner, manifests: Sequence[ManifestFile]) -> AsyncGenerator[Selected]:
    """The selected files of each manifest, the cached ones first."""
    cached = {manifest.manifest_path: runner.cached_selection(manifest) for manifest in manifests}
    for found in cached.values():
        if found is not None:
            yield found
    missing = [manifest for manifest in manifests if cached[manifest.manifest_path] is None]
    async with aclosing(runner.manifests.each(missing)) as opened:
        async for manifest, columns in opened:
            selected = await runner.select(manifest, columns)
            runner.cache_selection(selected)
            yield selected
