"""One scan of one table: its manifests, its deletes, and the files that it has to read."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from sandur.iceberg.expressions.arrays import Mask
from sandur.iceberg.expressions.predicates import Filter
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.scan.columns import ManifestColumns
from sandur.iceberg.scan.deletes import DeleteIndex
from sandur.iceberg.scan.entries import UNPARTITIONED, Entries, projections, specs_by_id
from sandur.iceberg.scan.manifests import (
    DATA,
    DELETES,
    ManifestFile,
    PartitionTypes,
    manifests_to_open,
    partition_types,
)
from sandur.iceberg.scan.requests import Scan
from sandur.iceberg.scan.residuals import Residuals, residuals
from sandur.iceberg.scan.tasks import file_texts
from sandur.iceberg.schema import Schema
from sandur.iceberg.table_metadata import TableMetadata
from sandur.operations.caches import Recent
from sandur.operations.planning.reading import Manifests

SELECTED_MAX: Final = 2


class Selected:
    """Data files of one manifest that a scan reads: their rows, in order, and each of them as JSON."""

    def __init__(self, entries: Entries, rows: Sequence[int], stats_ids: frozenset[int]) -> None:
        self.entries = entries
        self.rows = rows
        self._stats_ids = stats_ids
        self._residuals: Residuals | None = None

    def residuals(self, found: Filter) -> Residuals:
        """What is left of the filter for each entry."""
        if self._residuals is None:
            self._residuals = residuals(found, self.entries)
        return self._residuals

    @cached_property
    def texts(self) -> pa.Array:
        """Made for all files at once: the tasks of a manifest are mostly fetched one after the other."""
        return file_texts(self.entries, self.rows, self._stats_ids)


class Selecting:
    """What a scan selects. `place` of a manifest is where it stands in the snapshot's manifest list."""

    def __init__(self, scan: Scan, metadata: TableMetadata, manifests: Manifests) -> None:
        self.scan = scan
        self._metadata = metadata
        self._manifests = manifests
        self._specs = specs_by_id(metadata.specs)
        self._projections = projections(scan.filter, self._specs)
        self._types: dict[int, PartitionTypes] = {}
        self._listed: tuple[ManifestFile, ...] | None = None
        self._to_open: list[ManifestFile] | None = None
        self._deletes: DeleteIndex | None = None
        # Tasks of one manifest are mostly fetched one after the other.
        self._selected: Recent[str, Selected] = Recent(SELECTED_MAX)

    async def listed(self) -> tuple[ManifestFile, ...]:
        """What `_look_up` finds, once."""
        if self._listed is None:
            self._listed = await self._look_up()
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

    def to_open(self, listed: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The data manifests that may have a file for this scan."""
        if self._to_open is None:
            data = [manifest for manifest in listed if manifest.content == DATA]
            self._to_open = manifests_to_open(data, self.scan.filter, self._specs)
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
        return self._selected.get(manifest.manifest_path)

    def remember(self, found: Selected) -> None:
        """Not from other threads, as all that changes what is remembered."""
        self._selected[found.entries.manifest.manifest_path] = found

    def selected(self, manifest: ManifestFile, columns: ManifestColumns) -> Selected:
        """The files of a manifest that may hold a matching row."""
        return self._select(self.entries(manifest, columns))

    def _select(self, entries: Entries) -> Selected:
        mask = entries.selected(self.scan.filter, self._projected(entries))
        if (appended := self.scan.appended_ids) is not None:
            mask = mask & entries.added_by(appended)
        return Selected(entries, np.flatnonzero(mask).tolist(), self.scan.stats_ids)

    def each(self, manifests: Sequence[ManifestFile]) -> AsyncGenerator[tuple[ManifestFile, ManifestColumns]]:
        """The manifests with their entries, in order, read ahead."""
        return self._manifests.each(manifests)

    def certain_rows(self, found: Selected) -> int:
        """How many rows the files hold at least that match, before deletes; 0 when the filter leaves that open."""
        if self.scan.filter is not True or self.scan.min_rows is None:
            return 0
        return int(found.entries.columns.numbers("record_count").values[list(found.rows)].sum())

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
            groups.append((entries, entries.in_partitions(self._projected(entries))))
        return await asyncio.to_thread(DeleteIndex, groups)
