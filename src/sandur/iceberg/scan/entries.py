"""The entries of one manifest in a scan: with inherited values, and the choice of those that may match."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sandur.iceberg.expressions.evaluation import Array, Facts, Mask, Values, ValuesOf, matches, may_match
from sandur.iceberg.expressions.predicates import BoundTerm, Filter, leaves
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.scan.columns import ADDED, PARTITION, ManifestColumns
from sandur.iceberg.scan.manifests import DATA, ManifestFile
from sandur.iceberg.types import FLOATS, Primitive


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one manifest, and its description in the manifest list."""

    manifest: ManifestFile
    columns: ManifestColumns
    spec: PartitionSpec
    types: Mapping[int, Primitive | None]
    _values: dict[tuple[str, Primitive], Values] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.columns.count

    @cached_property
    def sequence_numbers(self) -> Array:
        """An entry without a sequence number inherits the manifest's."""
        own = self.columns.numbers("sequence_number")
        return np.where(own.valid, own.values, self.manifest.sequence_number)

    @cached_property
    def first_row_ids(self) -> Values:
        """Files without an id are numbered from the manifest's first row id."""
        own = self.columns.numbers("first_row_id")
        first = self.manifest.first_row_id
        if first is None or self.manifest.content != DATA or own.valid.all():
            return own
        rows = np.where(own.valid, 0, self.columns.numbers("record_count").values)
        numbered = first + np.cumsum(rows) - rows
        return Values(np.where(own.valid, own.values, numbered), np.ones(self.count, dtype=np.bool_))

    def added_by(self, snapshots: frozenset[int]) -> Mask:
        """The entries that one of these snapshots added."""
        status = self.columns.numbers("status").values
        own = self.columns.numbers("snapshot_id")
        added_by = np.where(own.valid, own.values, self.manifest.added_snapshot_id or 0)
        mask = (status == ADDED) & np.isin(added_by, np.array(sorted(snapshots), dtype=np.int64))
        return np.asarray(mask, dtype=np.bool_)

    @property
    def partition_values(self) -> ValuesOf:
        return lambda column: self._typed(f"{PARTITION}{column.id}", column.type)

    def _typed(self, name: str, kind: Primitive) -> Values:
        """Values of a column, decoded once per scan."""
        found = self._values.get((name, kind))
        if found is None:
            found = self._values[name, kind] = self.columns.typed(name, kind)
        return found

    def select(self, found: Filter, projected: Filter) -> Mask:
        """The data files that may hold a matching row, by partition and by column bounds."""
        is_filled: Mask = np.asarray(self.columns.numbers("record_count").values != 0, dtype=np.bool_)
        mask = is_filled & self.in_partitions(projected)
        return mask & may_match(found, self._facts, self.count) if mask.any() else mask

    def in_partitions(self, projected: Filter) -> Mask:
        """The data or delete files of partitions that may hold a matching row."""
        if any(not self.columns.has(f"partition.{leaf.column.id}") for leaf in leaves(projected)):
            # The manifest does not have this partition field, so nothing is known.
            return np.ones(self.count, dtype=np.bool_)
        return matches(projected, self.partition_values, self.count)

    def _facts(self, column: BoundTerm) -> Facts:
        columns, field_id = self.columns, column.id
        total = columns.numbers(f"value_counts.{field_id}")
        nulls = columns.numbers(f"null_value_counts.{field_id}")
        nans = columns.numbers(f"nan_value_counts.{field_id}")
        both = total.valid & nulls.valid
        # A count of zero values says nothing: the writer did not count.
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
