"""Filters as JSON: both generations, every operator, and binding to a schema."""

import json
from typing import Any

import pytest

from sandur.errors import BadRequest
from sandur.iceberg.expressions.binding import bind_filter
from sandur.iceberg.expressions.filter_json import filter_to_json
from sandur.iceberg.expressions.transform_functions import apply_transform, murmur3
from sandur.iceberg.expressions.values import partition_value_to_json, value_to_json
from sandur.iceberg.partitioning import parse_transform
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import primitive
from sandur.splicing import decode

KINDS = {
    "id": "long",
    "i": "int",
    "name": "string",
    "d": "date",
    "t": "time",
    "ts": "timestamp",
    "tz": "timestamptz",
    "ns": "timestamp_ns",
    "x": "double",
    "f": "float",
    "b": "boolean",
    "amount": "decimal(9, 2)",
    "wide": "decimal(38, 2)",
    "u": "uuid",
    "bin": "binary",
    "fix": "fixed[2]",
    "v": "variant",
}
SCHEMA = decode(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                *(
                    {"id": place, "name": name, "type": kind, "required": name == "id"}
                    for place, (name, kind) in enumerate(KINDS.items(), 1)
                ),
                {
                    "id": 100,
                    "name": "l",
                    "required": False,
                    "type": {"type": "list", "element-id": 101, "element": "int", "element-required": True},
                },
                {
                    "id": 110,
                    "name": "s",
                    "required": False,
                    "type": {
                        "type": "struct",
                        "fields": [{"id": 111, "name": "Inner", "type": "int", "required": True}],
                    },
                },
            ],
        }
    ).encode(),
    Schema,
    "schema",
)


def bound(given: Any, *, is_case_sensitive: bool = True) -> Any:
    return filter_to_json(bind_filter(given, SCHEMA, is_case_sensitive=is_case_sensitive))


def of(operator: str, term: Any, value: Any) -> dict[str, Any]:
    return {"type": operator, "term": term, "value": value}


@pytest.mark.parametrize(
    "newer",
    [
        {"type": "lt", "left": {"type": "reference", "name": "id"}, "right": 5},
        {"type": "lt", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": 5}},
        {
            "type": "gt",
            "left": {"type": "literal", "value": 5, "data-type": "long"},
            "right": {"type": "reference", "name": "id"},
        },
        {"type": "lt", "term": {"type": "reference", "term": "id"}, "value": 5},
        {"type": "not", "child": {"type": "gt-eq", "left": {"type": "reference", "name": "id"}, "right": 5}},
        {"type": "and", "left": True, "right": {"type": "lt", "term": "id", "value": 5}},
        {"type": "or", "left": {"type": "false"}, "right": {"type": "lt", "term": "id", "value": 5}},
    ],
)
def test_both_generations_of_the_json_form_are_parsed_alike(newer: Any) -> None:
    assert bound(newer) == {"type": "lt", "term": "id", "value": 5}


def test_set_and_null_predicates_have_two_forms_too() -> None:
    literals = {"type": "literals", "values": [1, 2], "data-type": "long"}

    assert bound({"type": "in", "child": {"type": "reference", "name": "id"}, "values": literals}) == {
        "type": "in",
        "term": "id",
        "values": [1, 2],
    }
    assert bound({"type": "is-null", "child": {"type": "reference", "name": "name"}}) == {
        "type": "is-null",
        "term": "name",
    }


@pytest.mark.parametrize(
    "term",
    [
        {"type": "transform", "transform": "bucket[4]", "term": "id"},
        {"type": "transform", "transform": "bucket[4]", "term": {"type": "reference", "term": "id"}},
        {"type": "apply", "function": "bucket[4]", "arguments": [{"type": "reference", "name": "id"}]},
        {
            "type": "apply",
            "function": "bucket",
            "arguments": [{"type": "literal", "value": 4}, {"type": "reference", "name": "id"}],
        },
    ],
)
def test_a_transform_of_a_column_can_be_compared(term: Any) -> None:
    operand = "left" if term["type"] == "apply" else "term"
    value = "right" if term["type"] == "apply" else "value"

    assert bound({"type": "eq", operand: term, value: 3}) == {
        "type": "eq",
        "term": {"type": "transform", "transform": "bucket[4]", "term": "id"},
        "value": 3,
    }


@pytest.mark.parametrize(
    ("term", "given", "parsed"),
    [
        ("d", "2024-02-29", "2024-02-29"),
        ("d", 19_782, "2024-02-29"),
        ("t", "10:20:30.5", "10:20:30.500000"),
        ("ts", "2024-02-29T10:20:30", "2024-02-29T10:20:30.000000"),
        ("ts", 1_000_001, "1970-01-01T00:00:01.000001"),
        ("tz", "2024-02-29T10:20:30+02:00", "2024-02-29T08:20:30.000000+00:00"),
        ("tz", "2024-02-29T10:20:30Z", "2024-02-29T10:20:30.000000+00:00"),
        ("ns", "1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000001"),
        ("ns", 1, "1970-01-01T00:00:00.000001000"),
        ("amount", "1.50", "1.50"),
        ("amount", -0.25, "-0.25"),
        ("u", "F79C3E09-677C-4BBD-A479-3F349CB785E7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("bin", "00ff", "00FF"),
        ("x", 3, 3.0),
        ("f", 0.1, pytest.approx(0.1)),
        ("id", 3.0, 3),
        ("b", True, True),
    ],
)
def test_literals_are_parsed_as_the_type_of_their_column(term: str, given: Any, parsed: Any) -> None:
    assert bound(of("eq", term, given)) == of("eq", term, parsed)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("date", 0, "1970-01-01"),
        ("date", 2_932_896, "9999-12-31"),
        ("date", 2_932_897, "+10000-01-01"),
        ("date", 6_585_322, "+20000-01-01"),
        ("date", -719_162, "0001-01-01"),
        ("date", -719_163, "0000-12-31"),
        ("date", -721_354, "-0005-01-01"),
        ("timestamp", 568_971_820_800_000_001, "+20000-01-01T00:00:00.000001"),
        ("timestamptz", -62_324_985_600_000_000, "-0005-01-01T00:00:00.000000+00:00"),
        ("timestamp", -1, "1969-12-31T23:59:59.999999"),
        ("timestamp_ns", 2**63 - 1, "2262-04-11T23:47:16.854775807"),
    ],
)
def test_days_are_written_as_text_and_in_filters_only_for_years_of_four_digits(
    kind: str, value: int, text: str
) -> None:
    is_near = text[0] not in "+-" and not text.startswith("0000")

    assert partition_value_to_json(primitive(kind), value) == text
    assert value_to_json(primitive(kind), value) == (text if is_near else value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (of("lt", "i", 2**31), of("lt-eq", "i", 2**31 - 1)),
        (of("gt", "i", 2**40), of("gt", "i", 2**31 - 1)),
        (of("gt-eq", "i", -(2**40)), of("gt-eq", "i", -(2**31))),
        (of("eq", "i", 2**31), False),
        (of("not-eq", "i", 2**31), True),
        (of("lt", "amount", "1.005"), of("lt-eq", "amount", "1.00")),
        (of("gt-eq", "amount", "1.005"), of("gt", "amount", "1.00")),
        (of("lt-eq", "amount", "-1.005"), of("lt", "amount", "-1.00")),
        (of("eq", "amount", "1.005"), False),
        (of("lt", "amount", "1e50"), of("lt-eq", "amount", "46116860184273879.04")),
        (of("gt", "amount", "-1e50"), of("gt-eq", "amount", "-46116860184273879.04")),
        (of("gt", "amount", "-10000000"), of("gt", "amount", "-10000000.00")),
        (
            of("lt", "wide", "-123456789012345678901234567890.125"),
            of("lt", "wide", "-123456789012345678901234567890.12"),
        ),
        (of("eq", "wide", "123456789012345678901234567890.12"), of("eq", "wide", "123456789012345678901234567890.12")),
        ({"type": "in", "term": "amount", "values": ["1", "1e50"]}, of("eq", "amount", "1.00")),
        (of("lt", "f", 1e300), of("lt-eq", "f", 3.4028234663852886e38)),
        (of("gt", "f", -(10**400)), of("gt-eq", "f", -3.4028234663852886e38)),
        (of("gt", "x", 10**400), of("gt", "x", 1.7976931348623157e308)),
        (of("lt-eq", "x", "-1e999"), of("lt", "x", -1.7976931348623157e308)),
        (of("eq", "x", 10**400), False),
        ({"type": "in", "term": "i", "values": [2**31, 5]}, of("eq", "i", 5)),
        ({"type": "not-in", "term": "i", "values": [2**31]}, True),
        ({"type": "in", "term": "i", "values": []}, False),
        ({"type": "is-null", "term": "id"}, False),
        ({"type": "not-null", "term": "id"}, True),
        ({"type": "is-null", "term": "s.Inner"}, {"type": "is-null", "term": "s.Inner"}),
    ],
)
def test_a_literal_outside_the_range_of_the_type_is_still_compared(given: Any, meant: Any) -> None:
    assert bound(given) == meant


@pytest.mark.parametrize(
    "given",
    [
        None,
        5,
        "true",
        [],
        {},
        {"type": "between", "term": "id", "value": 1},
        {"type": "lt", "term": "id"},
        {"type": "lt", "value": 1},
        {"type": "lt", "term": "id", "value": None},
        {"type": "lt", "term": "id", "value": [1]},
        {"type": "lt", "term": "id", "value": "5"},
        {"type": "lt", "term": "id", "value": 1.5},
        {"type": "lt", "term": "id", "value": True},
        {"type": "eq", "term": "d", "value": "2024-02-30"},
        {"type": "eq", "term": "ts", "value": "2024-02-29T10:20:30Z"},
        {"type": "eq", "term": "tz", "value": "2024-02-29T10:20:30"},
        {"type": "eq", "term": "u", "value": "no"},
        {"type": "eq", "term": "fix", "value": "00"},
        {"type": "eq", "term": "amount", "value": "NaN"},
        {"type": "eq", "term": "amount", "value": "1e999999999"},
        {"type": "eq", "term": "v", "value": 1},
        {"type": "eq", "term": "l.element", "value": 1},
        {"type": "eq", "term": "s", "value": 1},
        {"type": "is-nan", "term": "id"},
        {"type": "starts-with", "term": "id", "value": 1},
        {"type": "in", "term": "id", "values": 5},
        {"type": "and", "left": True},
        {"type": "not"},
        {"type": "eq", "term": {"type": "transform", "transform": "day", "term": "name"}, "value": 1},
        {"type": "eq", "term": {"type": "transform", "transform": "zorder", "term": "id"}, "value": 1},
        {"type": "eq", "left": {"type": "reference", "name": "id"}, "right": {"type": "reference", "name": "i"}},
        {"type": "eq", "left": 1, "right": 2},
    ],
    ids=str,
)
def test_json_that_is_not_a_filter_is_refused(given: Any) -> None:
    with pytest.raises(BadRequest):
        bound(given)


def test_a_filter_that_is_nested_too_deeply_is_refused() -> None:
    given: Any = True
    for _ in range(300):
        given = {"type": "not", "child": given}

    with pytest.raises(BadRequest, match="nested"):
        bound(given)


def test_names_are_case_sensitive_only_on_request() -> None:
    given = {"type": "eq", "term": "S.inner", "value": 1}

    assert bound(given, is_case_sensitive=False) == {"type": "eq", "term": "s.Inner", "value": 1}
    with pytest.raises(BadRequest, match=r"Cannot find field 'S\.inner'"):
        bound(given)


def test_buckets_match_the_specification() -> None:
    hashes: dict[tuple[str, Any], int] = {
        ("int", 34): 2017239379,
        ("long", 34): 2017239379,
        ("decimal(9, 2)", 1420): -500754589,
        ("date", 17486): -653330422,
        ("time", 81068000000): -662762989,
        ("timestamp", 1510871468000000): -2047944441,
        ("timestamp_ns", 1510871468000000000): -2047944441,
        ("string", "iceberg"): 1210000089,
        ("uuid", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")): 1488055340,
        ("binary", b"\x00\x01\x02\x03"): -188683207,
    }

    for (kind, value), expected in hashes.items():
        bucket = apply_transform(parse_transform("bucket[1000000]"), primitive(kind), value)
        assert bucket == (expected & 0x7FFF_FFFF) % 1_000_000, kind
    assert murmur3(b"") == 0


@pytest.mark.parametrize(
    ("text", "kind", "value", "expected"),
    [
        ("year", "date", -1, -1),
        ("month", "date", 31, 1),
        ("month", "date", -1, -1),
        ("day", "timestamp", -1, -1),
        ("hour", "timestamp", 3_600_000_000, 1),
        ("hour", "timestamp_ns", -1, -1),
        ("year", "timestamp", 2**62, 146_138),
        ("truncate[10]", "long", -1, -10),
        ("truncate[3]", "string", "\U0001f600bcd", "\U0001f600bc"),
        ("truncate[50]", "decimal(9, 2)", 1065, 1050),
    ],
)
def test_transforms_match_the_specification(text: str, kind: str, value: Any, expected: Any) -> None:
    assert apply_transform(parse_transform(text), primitive(kind), value) == expected
