"""Bounds as writers store them: truncated, absent or invalid, and what follows from them."""

import json
import math
import struct
from typing import Any

import pytest

from sandur.iceberg.expressions.binding import bind_filter
from sandur.iceberg.partitioning import PartitionField, PartitionSpec
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.manifests import FieldSummary, ManifestFile, manifests_to_open
from sandur.iceberg.schema import Schema
from sandur.splicing import decode
from tests.planning.planners import manifest_columns

MANIFEST = ManifestFile(manifest_path="m")


def bound(kind: str, test: dict[str, Any]) -> Any:
    field = {"id": 1, "name": "c", "required": False, "type": kind}
    schema = decode(json.dumps({"type": "struct", "fields": [field]}).encode(), Schema, "schema")
    return bind_filter({"term": "c", **test}, schema)


def is_read(kind: str, lower: bytes | None, upper: bytes | None, test: dict[str, Any], **counts: int) -> bool:
    """Whether a scan reads a file of two rows with these bounds; without nulls by default."""
    found = {"lower_bounds": lower, "upper_bounds": upper, "value_counts": 2, "null_value_counts": 0, **counts}
    file = {"file_path": "p", "file_format": "PARQUET", "record_count": 2, "file_size_in_bytes": 1, "partition": {}}
    statistics = {which: [{"key": 1, "value": value}] for which, value in found.items() if value is not None}
    columns = manifest_columns([{"status": 1, "data_file": {**file, **statistics}}], [], {})
    return bool(Entries(MANIFEST, columns, PartitionSpec(fields=()), {}).select(bound(kind, test), projected=True)[0])


def of(value: float) -> bytes:
    return struct.pack("<d", value)


def test_a_bound_is_ignored_if_the_other_bound_is_nan() -> None:
    assert is_read("double", of(math.nan), of(1.0), {"type": "eq", "value": 5.0})
    assert is_read("double", of(1.0), of(math.nan), {"type": "lt", "value": 0.5})
    assert not is_read("double", of(1.0), of(1.0), {"type": "eq", "value": 5.0})


@pytest.mark.parametrize(("nans", "nulls"), [(1, 0), (2, 0), (1, 1)])
def test_files_with_a_nan_are_read_for_greater_than(nans: int, nulls: int) -> None:
    upper = None if nans + nulls == 2 else of(1.0)
    counts = {"nan_value_counts": nans, "null_value_counts": nulls}

    assert is_read("double", upper, upper, {"type": "gt", "value": 5.0}, **counts)
    assert is_read("double", upper, upper, {"type": "gt-eq", "value": 5.0}, **counts)
    assert not is_read("double", upper, upper, {"type": "eq", "value": 5.0}, **counts)
    assert not is_read("double", upper, upper, {"type": "lt", "value": 0.5}, **counts)


@pytest.mark.parametrize("count", [0, -1])
def test_a_column_without_counted_values_does_not_count_as_all_null(count: int) -> None:
    counts = {"value_counts": count, "null_value_counts": count}

    assert is_read("int", None, None, {"type": "eq", "value": 5}, **counts)
    assert is_read("int", None, None, {"type": "not-null"}, **counts)
    assert not is_read("int", None, None, {"type": "not-null"}, value_counts=2, null_value_counts=2)


@pytest.mark.parametrize(("operator", "zero", "bound"), [("lt", 0.0, -0.0), ("gt", -0.0, 0.0)])
def test_zeros_of_both_signs_are_read(operator: str, zero: float, bound: float) -> None:
    assert is_read("double", of(bound), of(bound), {"type": operator, "value": zero})
    assert is_read("double", of(bound), of(bound), {"type": "eq", "value": zero})


def test_a_text_truncated_inside_a_character_has_no_transformed_bound() -> None:
    cut = {"type": "transform", "transform": "truncate[2]", "term": "c"}

    assert is_read("string", "a\u00e9".encode()[:2], b"b", {"type": "eq", "term": cut, "value": "a\u00e9"})
    assert not is_read("string", b"ab", b"b", {"type": "eq", "term": cut, "value": "aa"})


def test_bytes_that_are_not_a_decimal_of_the_type_are_not_a_bound() -> None:
    assert is_read("decimal(9, 2)", b"\x7f" * 12, None, {"type": "lt", "value": "1.00"})


@pytest.mark.parametrize(("kind", "year"), [("timestamp_ns", 9999), ("timestamp", 300_000)])
def test_a_day_outside_the_range_of_timestamps_is_not_a_bound(kind: str, year: int) -> None:
    """A date column may be promoted to a timestamp column."""
    first, last = (struct.pack("<i", days) for days in (0, (year - 1970) * 365))
    field = PartitionField(name="p", transform="identity", source_id=1, field_id=1000)
    after = {"type": "gt", "value": "2020-01-01T00:00:00"}
    summary = FieldSummary(contains_null=False, lower_bound=first, upper_bound=last)
    manifest = ManifestFile(manifest_path="m", partitions=(summary,))

    assert is_read(kind, first, last, after)
    assert manifests_to_open([manifest], bound(kind, after), {0: PartitionSpec(fields=(field,), spec_id=0)})
    assert not is_read(kind, first, first, after)


@pytest.mark.parametrize("test", [{"type": "lt", "value": 5}, {"type": "not-null"}])
def test_a_manifest_without_bounds_is_skipped_only_if_it_has_nulls(test: dict[str, Any]) -> None:
    field = PartitionField(name="p", transform="identity", source_id=1, field_id=1000)
    spec = PartitionSpec(fields=(field,), spec_id=0)
    manifests = [
        ManifestFile(manifest_path=str(has_nulls), partitions=(FieldSummary(contains_null=has_nulls),))
        for has_nulls in (False, True)
    ]

    assert manifests_to_open(manifests, bound("int", test), {0: spec}) == manifests[:1]
