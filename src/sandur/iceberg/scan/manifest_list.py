"""Manifests as a manifest list describes them, and the choice of those that a scan has to open."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from sandur.iceberg.expressions.binding import result_type
from sandur.iceberg.expressions.evaluation import (
    Facts,
    FactsOf,
    Values,
    comparable,
    may_match,
    no_values,
    unknown_facts,
)
from sandur.iceberg.expressions.predicates import BoundTerm, Filter
from sandur.iceberg.expressions.projection import inclusive_projection
from sandur.iceberg.expressions.values import FLOATS, value_from_bytes
from sandur.iceberg.partitioning import PartitionSpec, parse_transform
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import Primitive, primitive
from sandur.splicing import Int32, Int64

DATA: Final = 0
DELETES: Final = 1


class FieldSummary(msgspec.Struct, frozen=True):
    """The values of one partition field in all files of a manifest. Without a bound, there are only nulls or NaNs."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest in a manifest list. An absent count is unknown. Without a list, only the path is known."""

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
        """The number of files that are not deleted; None if it is unknown or negative."""
        added, existing = self.added_files_count, self.existing_files_count
        return None if added is None or existing is None or min(added, existing) < 0 else added + existing


_RENAMED: Final = {
    "added_data_files_count": "added_files_count",
    "existing_data_files_count": "existing_files_count",
    "deleted_data_files_count": "deleted_files_count",
}


def manifest_file(record: Mapping[str, object]) -> ManifestFile:
    """A record of a manifest list of any format version; msgspec.ValidationError if it is not such a record."""
    plain = {_RENAMED.get(name, name): value for name, value in record.items() if value is not None}
    return msgspec.convert(plain, ManifestFile, builtin_types=(bytes,))


def partition_types(spec: PartitionSpec, schemas: Sequence[Schema]) -> dict[int, Primitive | None]:
    """The types of a spec's partition fields by id; None if a type is unknown.

    `schemas` begins with the schema of the scan. The others follow because a source column may have been dropped.
    """
    types: dict[int, Primitive | None] = {}
    for field in spec.fields:
        applied = parse_transform(field.transform)
        source = _source_type(field.sources[0], schemas) if len(field.sources) == 1 else None
        types[field.field_id or 0] = None if source is None or not applied.name else result_type(applied, source)
    return types


def _source_type(field_id: int, schemas: Sequence[Schema]) -> Primitive | None:
    for schema in schemas:
        column = schema.columns.get(field_id)
        if column is not None:
            return primitive(column.type) if isinstance(column.type, str) else None
    return None


def manifests_to_open(
    manifests: Sequence[ManifestFile], found: Filter, specs: Mapping[int, PartitionSpec]
) -> list[ManifestFile]:
    """The manifests that may have a file with a matching row, in order. A manifest without live files has none."""
    kept: dict[int, bool] = {}
    by_spec: dict[int, list[int]] = {}
    for place, manifest in enumerate(manifests):
        if manifest.live_files == 0:
            continue
        by_spec.setdefault(manifest.partition_spec_id, []).append(place)
    for spec_id, places in by_spec.items():
        spec = specs.get(spec_id)
        projected: Filter = True if spec is None else inclusive_projection(found, spec)
        group = [manifests[place] for place in places]
        mask = may_match(projected, _summaries(group, spec), len(group))
        kept |= dict(zip(places, mask.tolist(), strict=True))
    return [manifest for place, manifest in enumerate(manifests) if kept.get(place, False)]


def _summaries(group: Sequence[ManifestFile], spec: PartitionSpec | None) -> FactsOf:
    places = {} if spec is None else {field.field_id or 0: place for place, field in enumerate(spec.fields)}

    def facts(column: BoundTerm) -> Facts:
        place = places.get(column.id)
        if place is None:
            return unknown_facts(column, len(group))
        summaries = [_at(manifest.partitions, place) for manifest in group]
        lower = _bound_values(column.type, [None if one is None else one.lower_bound for one in summaries])
        upper = _bound_values(column.type, [None if one is None else one.upper_bound for one in summaries])
        # A field with nulls and without a lower bound has no other values, except NaNs, which bounds do not include.
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
        value = None if data is None else value_from_bytes(kind, data)
        if value is not None and value == value:  # noqa: PLR0124 - NaN is not a bound
            found.values[row] = comparable(value)
            found.valid[row] = True
    return found
