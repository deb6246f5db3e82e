"""Every operator with every kind of value: no file or manifest with a matching row is skipped."""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, pairwise
from typing import Any, Final

import pyarrow as pa
import pytest

from sandur.iceberg.expressions.binding import bind_filter, result_type
from sandur.iceberg.expressions.projection import inclusive_projection
from sandur.iceberg.expressions.transform_functions import apply_transform
from sandur.iceberg.expressions.values import value_to_json
from sandur.iceberg.partitioning import PartitionField, PartitionSpec, parse_transform
from sandur.iceberg.scan.entries import Entries
from sandur.iceberg.scan.manifests import (
    FieldSummary,
    ManifestFile,
    PartitionColumn,
    manifests_to_open,
)
from sandur.iceberg.scan.selection import residuals
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import INTEGERS, Primitive, primitive
from sandur.splicing import decode
from tests.planning.filters import compares
from tests.planning.planners import manifest_columns

VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "boolean": (False, True),
    "int": (-(2**31), -4, -1, 0, 2**31 - 1),
    "long": (-(2**63), -1, 0, 7, 2**63 - 1),
    "float": (math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf),
    "double": (math.nan, -1.5, -0.0, 0.0, 1e300),
    "date": (-366, -1, 0, 31),
    "time": (0, 1, 86_399_999_999),
    "timestamp": (-31_622_400_000_000, -1, 0, 3_600_000_000),
    "timestamptz": (-3_600_000_001, 0, 86_400_000_000),
    "timestamp_ns": (-31_622_400_000_000_000, -1, 0, 999, 1_000),
    "decimal(9, 2)": (-999_999_999, -51, 0, 49, 999_999_999),
    "decimal(38, 2)": (1 - 10**38, -1, 0, 10**30, 10**38 - 1),
    "string": ("", "a", "a\x00", "abc", "ab\uffee", "ab\U0001f600", "\U0010ffff\U0010ffffa"),
    "uuid": tuple(bytes([first]) + bytes(15) for first in (0, 0x7F, 0x80, 0xFF)),
    "fixed[2]": (b"\x00\x00", b"\x7f\x00", b"\x80\x00", b"\xff\xff"),
    "binary": (b"", b"\x00", b"\xab", b"\xab\x00", b"\xff\xff\x00"),
}
TRANSFORMS: Final = (
    "identity",
    "bucket[2]",
    "truncate[1]",
    "truncate[2]",
    "truncate[10]",
    "year",
    "month",
    "day",
    "hour",
)
WIDTH: Final = 2


def transforms_of(kind: Primitive) -> list[str]:
    return [text for text in TRANSFORMS if parse_transform(text).accepts(kind)]


def made(text: str, kind: Primitive, value: Any) -> Any:
    """The transform of a value."""
    return None if value is None or text == "void" else apply_transform(parse_transform(text), kind, value)


def value_bytes(kind: Primitive, value: Any) -> bytes:
    """The binary form of a single value."""
    match kind.name:
        case "boolean":
            return b"\x01" if value else b"\x00"
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "decimal":
            return int(value).to_bytes(17, signed=True)
        case name if name in INTEGERS:
            return struct.pack("<i" if name in {"int", "date"} else "<q", value)
        case _:
            return value.encode() if isinstance(value, str) else bytes(value)


def known(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None and value == value]  # noqa: PLR0124 - NaN has no place


def bounds(kind: Primitive, values: Sequence[Any], *, is_cut: bool) -> tuple[bytes | None, bytes | None]:
    """Bounds as writers store them: texts and bytes may be truncated, and the upper bound is then increased."""
    ordered = known(values)
    if not ordered:
        return None, None
    # Old versions of Java order UUIDs as signed numbers.
    order = (lambda value: value[0] ^ 0x80) if kind.name == "uuid" and is_cut else None
    lowest, highest = min(ordered, key=order), max(ordered, key=order)
    if not is_cut or kind.name not in {"string", "binary"}:
        return value_bytes(kind, lowest), value_bytes(kind, highest)
    return value_bytes(kind, lowest[:WIDTH]), raised(kind, highest)


def raised(kind: Primitive, highest: Any) -> bytes | None:
    """The lowest short value above all values with this prefix; None if there is none."""
    if len(highest) <= WIDTH:
        return value_bytes(kind, highest)
    top = "\U0010ffff" if kind.name == "string" else b"\xff"
    kept = highest[:WIDTH].rstrip(top)
    if not kept:
        return None
    last = chr(ord(kept[-1]) + 1) if kind.name == "string" else bytes([kept[-1] + 1])
    return value_bytes(kind, kept[:-1] + last)


def statistics(kind: Primitive, rows: Sequence[Any], *, has_counts: bool) -> dict[str, Any]:
    lower, upper = bounds(kind, rows, is_cut=not has_counts)
    nans = sum(value is not None and value != value for value in rows)  # noqa: PLR0124 - NaN is not itself
    counts = {"value_counts": len(rows), "null_value_counts": rows.count(None), "nan_value_counts": nans}
    found = {"lower_bounds": lower, "upper_bounds": upper, **(counts if has_counts else {})}
    return {which: [{"key": 1, "value": value}] for which, value in found.items() if value is not None}


def files_of(kind: Primitive, text: str) -> list[tuple[Any, ...]]:
    """One or two rows of the same partition."""
    values = (None, *VALUES[kind.text])
    pairs = [*((value,) for value in values), *combinations_with_replacement(values, 2)]
    return [rows for rows in pairs if len({repr(made(text, kind, value)) for value in rows}) == 1]


class Partitioned:
    """Files of one column with all values, and one manifest for each file."""

    def __init__(self, kind: Primitive, text: str) -> None:
        applied = parse_transform(text)
        result = result_type(applied, kind)
        field = PartitionField(name="p", transform=text, source_id=1, field_id=1000)
        self.spec = PartitionSpec(fields=(field,), spec_id=1)
        self.files = [(rows, has_counts) for rows in files_of(kind, text) for has_counts in (True, False)]
        partitions = [made(text, kind, rows[0]) for rows, _ in self.files]
        records = [
            {
                "status": 1,
                "data_file": {
                    "file_path": "p",
                    "file_format": "PARQUET",
                    "record_count": len(rows),
                    "file_size_in_bytes": 1,
                    "partition": {"p": stored(result, value)},
                    **statistics(kind, rows, has_counts=has_counts),
                },
            }
            for (rows, has_counts), value in zip(self.files, partitions, strict=True)
        ]
        columns = manifest_columns(records, [PartitionColumn(1000, "p", stored_as(result))], {})
        self.manifests = [
            ManifestFile(manifest_path=str(place), partition_spec_id=1, partitions=(summary(result, value),))
            for place, value in enumerate(partitions)
        ]
        self.entries = Entries(self.manifests[0], columns, self.spec, {1000: result})


def stored(kind: Primitive, value: Any) -> Any:
    return value_bytes(kind, value) if value is not None and stored_as(kind) == pa.binary() else value


def stored_as(kind: Primitive) -> pa.DataType:
    if kind.name in INTEGERS:
        return pa.int64()
    return {"boolean": pa.bool_(), "float": pa.float64(), "double": pa.float64()}.get(kind.name, pa.binary())


def summary(kind: Primitive, value: Any) -> FieldSummary:
    lower, upper = bounds(kind, [value], is_cut=False)
    is_nan = isinstance(value, float) and math.isnan(value)
    return FieldSummary(contains_null=value is None, contains_nan=is_nan, lower_bound=lower, upper_bound=upper)


def predicates_of(kind: Primitive, text: str) -> Iterator[dict[str, Any]]:
    """Every operator with every value of a term."""
    term: Any = "c" if text == "identity" else {"type": "transform", "transform": text, "term": "c"}
    result = kind if text == "void" else result_type(parse_transform(text), kind)
    unary = ["is-null", "not-null"] + (["is-nan", "not-nan"] if result.name in {"float", "double"} else [])
    yield from ({"type": operator, "term": term} for operator in unary)
    # JSON has no infinity and no NaN.
    plain = [value for value in VALUES[kind.text] if not isinstance(value, float) or math.isfinite(value)]
    literals = list(dict.fromkeys(value if text == "void" else made(text, kind, value) for value in plain))
    operators = ["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq"]
    operators += ["starts-with", "not-starts-with"] if result.name == "string" else []
    for value in literals:
        said = {"term": term, "value": value_to_json(result, value), "raw": [value]}
        yield from ({"type": operator, **said} for operator in operators)
    for pair in pairwise(literals):
        said = {"term": term, "values": [value_to_json(result, value) for value in pair], "raw": list(pair)}
        yield from ({"type": operator, **said} for operator in ("in", "not-in"))


def holds(test: dict[str, Any], value: Any) -> bool:
    """Whether a value matches. A null equals nothing, and is neither smaller nor greater than anything."""
    operator, is_nan = test["type"], isinstance(value, float) and math.isnan(value)
    match operator:
        case "is-null":
            return value is None
        case "is-nan":
            return is_nan
        case "not-null" | "not-nan" | "not-eq" | "not-in" | "not-starts-with":
            positive = operator.replace("not-", "is-" if operator in {"not-null", "not-nan"} else "", 1)
            return not holds({**test, "type": positive}, value)
        case _ if value is None:
            return False
        case _:
            return compares(operator, value, test["raw"])


def schema_of(kind: str) -> Schema:
    field = {"id": 1, "name": "c", "required": False, "type": kind}
    return decode(json.dumps({"type": "struct", "fields": [field]}).encode(), Schema, "schema")


@pytest.mark.parametrize("text", VALUES)
def test_no_predicate_skips_a_file_with_a_match(text: str) -> None:
    kind, schema = primitive(text), schema_of(text)
    transforms = transforms_of(kind)
    groups = [Partitioned(kind, partitioned) for partitioned in (*transforms, "void")]
    for applied in (*transforms, "void"):
        for test in predicates_of(kind, applied):
            found = bind_filter({key: test[key] for key in test if key != "raw"}, schema)
            for group in groups:
                expected = [[holds(test, made(applied, kind, value)) for value in rows] for rows, _ in group.files]
                check(group, found, expected, test)


def check(group: Partitioned, found: Any, expected: list[list[bool]], test: Any) -> None:
    entries = group.entries
    selected = entries.select(found, inclusive_projection(found, group.spec))
    opened = {one.manifest_path for one in manifests_to_open(group.manifests, found, {1: group.spec})}
    left = residuals(found, entries)
    for place, matching in enumerate(expected):
        case = (group.spec.fields[0].transform, test, group.files[place])
        residual = left.texts[left.kinds[place]]
        assert selected[place] or not any(matching), case
        assert str(place) in opened or not any(matching), case
        assert residual != b"true" or all(matching), case
        assert residual != b"false" or not any(matching), case
