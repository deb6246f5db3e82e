"""Manifests as a manifest list describes them, and which of them a scan has to open."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from sandur.iceberg.expressions.binding import result_type
from sandur.iceberg.expressions.evaluation import Facts, FactsOf, Values, may_match, no_values, raw, unknown
from sandur.iceberg.expressions.predicates import Column, Filter
from sandur.iceberg.expressions.projection import inclusive
from sandur.iceberg.expressions.values import FLOATS, from_bytes
from sandur.iceberg.partitioning import PartitionSpec, parse_transform
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import Primitive, primitive
from sandur.splicing import Int32, Int64

DATA: Final = 0
DELETES: Final = 1


class FieldSummary(msgspec.Struct, frozen=True):
    """What all files of a manifest have in one partition field. Beside nulls, an absent bound means: nothing else."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest in a manifest list. Counts that are absent are not known, as is everything of a bare path."""

    manifest_path: str
    manifest_length: Int64 = 0
    partition_spec_id: Int32 = 0
    content: Int32 = DATA
    sequence_number: Int64 = 0
    min_sequence_number: Int64 = 0
    added_snapshot_id: Int64 | None = None
    added_files_count: Int32 | None = None
    existing_files_count: Int32 | None = None
    deleted_files_count: Int32 | None = None
    added_rows_count: Int64 | None = None
    existing_rows_count: Int64 | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: Int64 | None = None

    @property
    def live_files(self) -> int | None:
        """How many files are in it that are not deleted; None when that is not known, or told as less than none."""
        added, existing = self.added_files_count, self.existing_files_count
        return None if added is None or existing is None or min(added, existing) < 0 else added + existing


_RENAMED: Final = {
    "added_data_files_count": "added_files_count",
    "existing_data_files_count": "existing_files_count",
    "deleted_data_files_count": "deleted_files_count",
}


def manifest_file(record: Mapping[str, object]) -> ManifestFile:
    """A record of a manifest list, of any format version; msgspec.ValidationError when it is none."""
    plain = {_RENAMED.get(name, name): value for name, value in record.items() if value is not None}
    return msgspec.convert(plain, ManifestFile, builtin_types=(bytes,))


class PartitionTypes(NamedTuple):
    """The partition fields of one spec by id: where each stands, and what type it has; None when that is not known."""

    positions: Mapping[int, int]
    types: Mapping[int, Primitive | None]


def partition_types(spec: PartitionSpec, schemas: Sequence[Schema]) -> PartitionTypes:
    """`schemas`: the one that is read with, then all others: a source may have been dropped since."""
    types: dict[int, Primitive | None] = {}
    for field in spec.fields:
        applied = parse_transform(field.transform)
        source = _source_type(field.sources[0], schemas) if len(field.sources) == 1 else None
        types[field.field_id or 0] = None if source is None or not applied.name else result_type(applied, source)
    return PartitionTypes({field.field_id or 0: place for place, field in enumerate(spec.fields)}, types)


def _source_type(field_id: int, schemas: Sequence[Schema]) -> Primitive | None:
    for schema in schemas:
        column = schema.columns.get(field_id)
        if column is not None:
            return primitive(column.type) if isinstance(column.type, str) else None
    return None


def manifests_to_open(
    manifests: Sequence[ManifestFile], found: Filter, specs: Mapping[int, PartitionSpec]
) -> list[ManifestFile]:
    """Those that may have a file with a matching row, in their order. One without live files has none."""
    kept: dict[int, bool] = {}
    by_spec: dict[int, list[int]] = {}
    for place, manifest in enumerate(manifests):
        if manifest.live_files == 0:
            continue
        by_spec.setdefault(manifest.partition_spec_id, []).append(place)
    for spec_id, places in by_spec.items():
        spec = specs.get(spec_id)
        projected: Filter = True if spec is None else inclusive(found, spec)
        group = [manifests[place] for place in places]
        mask = may_match(projected, _summaries(group, spec), len(group))
        kept |= dict(zip(places, mask.tolist(), strict=True))
    return [manifest for place, manifest in enumerate(manifests) if kept.get(place, False)]


def _summaries(group: Sequence[ManifestFile], spec: PartitionSpec | None) -> FactsOf:
    places = {} if spec is None else {field.field_id or 0: place for place, field in enumerate(spec.fields)}

    def facts(column: Column) -> Facts:
        place = places.get(column.id)
        if place is None:
            return unknown(column, len(group))
        summaries = [_at(manifest.partitions, place) for manifest in group]
        lower = _bound_values(column.type, [None if one is None else one.lower_bound for one in summaries])
        upper = _bound_values(column.type, [None if one is None else one.upper_bound for one in summaries])
        # Where a field with nulls has no lower bound it has no value, except that NaNs have no place among bounds.
        may_nan = column.type.name in FLOATS
        empty = [
            one is not None
            and one.contains_null
            and one.lower_bound is None
            and not (may_nan and one.contains_nan is not False)
            for one in summaries
        ]
        return Facts(
            lower,
            upper,
            may_have_null=np.array([one is None or one.contains_null for one in summaries], dtype=np.bool_),
            is_only_null=np.array(empty, dtype=np.bool_),
            may_have_nan=np.array([one is None or one.contains_nan is not False for one in summaries], dtype=np.bool_),
            has_nan=np.array([one is not None and one.contains_nan is True for one in summaries], dtype=np.bool_),
            is_only_nan=np.zeros(len(group), dtype=np.bool_),
        )

    return facts


def _at(summaries: tuple[FieldSummary, ...] | None, place: int) -> FieldSummary | None:
    return summaries[place] if summaries is not None and place < len(summaries) else None


def _bound_values(kind: Primitive, bounds: Sequence[bytes | None]) -> Values:
    found = no_values(kind, len(bounds))
    for row, data in enumerate(bounds):
        value = None if data is None else from_bytes(kind, data)
        if value is not None and value == value:  # noqa: PLR0124 - NaN is no bound
            found.values[row] = raw(value)
            found.valid[row] = True
    return found
