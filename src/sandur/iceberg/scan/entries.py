"""The entries of a manifest as one scan sees them: with what they inherit, and which of them may hold matching rows."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from sandur.iceberg.expressions.evaluation import Array, Facts, Mask, Values, ValuesOf, matches, may_match
from sandur.iceberg.expressions.predicates import Column, Filter, leaves
from sandur.iceberg.expressions.projection import inclusive
from sandur.iceberg.expressions.values import FLOATS
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.scan.columns import ADDED, PARTITION, ManifestColumns
from sandur.iceberg.scan.manifest_list import DATA, ManifestFile
from sandur.iceberg.types import Primitive

UNPARTITIONED: Final = PartitionSpec(fields=())


class Entries:
    """The entries of one manifest, as its manifest list describes it."""

    def __init__(
        self,
        manifest: ManifestFile,
        columns: ManifestColumns,
        spec: PartitionSpec,
        types: Mapping[int, Primitive | None],
    ) -> None:
        self.manifest = manifest
        self.columns = columns
        self.spec = spec
        self.types = types
        self._values: dict[tuple[str, Primitive], Values] = {}

    @property
    def count(self) -> int:
        return self.columns.count

    @cached_property
    def sequence_numbers(self) -> Array:
        """An entry without a number of its own was added by the commit that wrote the manifest."""
        own = self.columns.numbers("sequence_number")
        return np.where(own.valid, own.values, self.manifest.sequence_number)

    @cached_property
    def first_row_ids(self) -> Values:
        """Files without an id of their own are numbered through, from the manifest's first one."""
        own = self.columns.numbers("first_row_id")
        first = self.manifest.first_row_id
        if first is None or self.manifest.content != DATA or own.valid.all():
            return own
        rows = np.where(own.valid, 0, self.columns.numbers("record_count").values)
        numbered = first + np.cumsum(rows) - rows
        return Values(np.where(own.valid, own.values, numbered), np.ones(self.count, dtype=np.bool_))

    def added_by(self, snapshots: frozenset[int]) -> Mask:
        """Which entries were added, and by one of these snapshots."""
        status = self.columns.numbers("status").values
        own = self.columns.numbers("snapshot_id")
        added_by = np.where(own.valid, own.values, self.manifest.added_snapshot_id or 0)
        mask = (status == ADDED) & np.isin(added_by, np.array(sorted(snapshots), dtype=np.int64))
        return np.asarray(mask, dtype=np.bool_)

    @property
    def partition_values(self) -> ValuesOf:
        return lambda column: self._typed(f"{PARTITION}{column.id}", column.type)

    def _typed(self, name: str, kind: Primitive) -> Values:
        """Values of a column that may be asked for several times in one scan."""
        found = self._values.get((name, kind))
        if found is None:
            found = self._values[name, kind] = self.columns.typed(name, kind)
        return found

    def selected(self, found: Filter, projected: Filter) -> Mask:
        """Which data files may hold a matching row: by their partition, and by the bounds of their columns."""
        is_filled: Mask = np.asarray(self.columns.numbers("record_count").values != 0, dtype=np.bool_)
        mask = is_filled & self.in_partitions(projected)
        return mask & may_match(found, self._facts, self.count) if mask.any() else mask

    def in_partitions(self, projected: Filter) -> Mask:
        """Which files, of data or of deletes, lie in a partition that may hold a matching row."""
        if any(not self.columns.has(f"partition.{leaf.column.id}") for leaf in leaves(projected)):
            # A manifest that does not say in which partition its files lie: nothing is known of them.
            return np.ones(self.count, dtype=np.bool_)
        return matches(projected, self.partition_values, self.count)

    def _facts(self, column: Column) -> Facts:
        columns, field_id = self.columns, column.id
        total = columns.numbers(f"value_counts.{field_id}")
        nulls = columns.numbers(f"null_value_counts.{field_id}")
        nans = columns.numbers(f"nan_value_counts.{field_id}")
        both = total.valid & nulls.valid
        # Where a writer counted no value at all, it said nothing of the rows that are there.
        is_only_null = both & (total.values == nulls.values) & (total.values > 0)
        not_null = np.where(both, total.values - nulls.values, total.values)
        is_only_nan = nans.valid & total.valid & (nans.values == not_null) & (nans.values > 0)
        return Facts(
            self._typed(f"lower_bounds.{field_id}", column.source),
            self._typed(f"upper_bounds.{field_id}", column.source),
            may_have_null=~nulls.valid | (nulls.values != 0),
            is_only_null=is_only_null,
            may_have_nan=~nans.valid | (nans.values != 0),
            has_nan=nans.valid & (nans.values > 0),
            is_only_nan=is_only_nan & (column.source.name in FLOATS),
        )


def projections(found: Filter, specs: Mapping[int, PartitionSpec]) -> dict[int, Filter]:
    """What every partition with a matching row satisfies, by spec."""
    return {spec_id: inclusive(found, spec) for spec_id, spec in specs.items()}


def specs_by_id(specs: Sequence[PartitionSpec]) -> dict[int, PartitionSpec]:
    return {spec.spec_id or 0: spec for spec in specs}
