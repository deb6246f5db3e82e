"""Types and schemas: canonical forms, format versions, defaults, identifier fields, hostile input."""

import json
from typing import Any

import msgspec
import pytest

from sandur.errors import Invalid
from sandur.iceberg.schema import Schema, check_format, checked_schema, same_schema
from sandur.iceberg.types import primitive
from tests.unit.iceberg.tables import COLUMNS, Json, column, committed, schema, table

NESTED_IN_LIST = {
    "type": "list",
    "element-id": 20,
    "element": schema(column(21, "x", required=True)),
    "element-required": True,
}


def read(fields: Json) -> Schema:
    return msgspec.json.decode(json.dumps(fields), type=Schema)


def refusal(*fields: Json, **more: Any) -> str:
    with pytest.raises(Invalid) as refused:
        checked_schema(read(schema(*fields, **more)))
    return str(refused.value)


class TestPrimitives:
    @pytest.mark.parametrize(
        ("text", "canonical"),
        [
            *((name, name) for name in ("boolean", "int", "long", "float", "double", "date", "time", "timestamp")),
            *((name, name) for name in ("timestamptz", "timestamp_ns", "timestamptz_ns", "string", "uuid", "binary")),
            *((name, name) for name in ("unknown", "variant", "geometry", "geography", "fixed[16]")),
            ("LONG", "long"),
            ("decimal(9,2)", "decimal(9, 2)"),
            ("Decimal( 38 , 0 )", "decimal(38, 0)"),
            ("fixed[ 3 ]", "fixed[3]"),
            ("geometry(EPSG:4326)", "geometry(EPSG:4326)"),
            ("geometry( srid:1 )", "geometry(srid:1)"),
            ("geography(OGC:CRS84)", "geography(OGC:CRS84)"),
            ("geography(OGC:CRS84, Karney)", "geography(OGC:CRS84, karney)"),
        ],
    )
    def test_every_type_has_one_canonical_form(self, text: str, canonical: str) -> None:
        assert primitive(text).text == canonical
        assert primitive(canonical).text == canonical

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "Cannot parse type string to primitive: "),
            ("integer", "Cannot parse type string to primitive: integer"),
            ("decimal(39, 2)", "Decimals with precision larger than 38 are not supported: 39"),
            ("decimal(9)", "Cannot parse type string to primitive: decimal(9)"),
            ("fixed[-1]", "Cannot parse type string to primitive: fixed[-1]"),
            ("fixed[9999999999]", "Invalid length for fixed: 9999999999"),
            ("geometry()", "Invalid CRS: (empty string)"),
            ("geography(x, flat)", "Invalid edge interpolation algorithm: flat"),
            ("struct", "Cannot parse type string to primitive: struct"),
        ],
    )
    def test_an_invalid_type_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(Invalid) as refused:
            primitive(text)
        assert str(refused.value) == message

    def test_an_absent_reference_system_is_the_default_one(self) -> None:
        left = read(schema(column(1, "g", "geometry"), column(2, "h", "geography")))
        right = read(schema(column(1, "g", "geometry(ogc:crs84)"), column(2, "h", "geography(OGC:CRS84, spherical)")))

        assert same_schema(left, right)


class TestFormatVersions:
    @pytest.mark.parametrize(
        "kind", ["timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry(EPSG:1)", "geography(EPSG:1)"]
    )
    @pytest.mark.parametrize("version", [1, 2])
    def test_types_of_v3_are_refused_in_earlier_versions(self, kind: str, version: int) -> None:
        with pytest.raises(Invalid) as refused:
            committed(table(version), {"action": "add-schema", "schema": schema(*COLUMNS, column(7, "x", kind))})

        assert str(refused.value) == (
            f"Invalid schema for v{version}:\n- Invalid type for x: {kind} is not supported until v3"
        )

    def test_types_of_v3_are_accepted_in_v3(self) -> None:
        kinds = ("timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry", "geography(EPSG:1, thomas)")
        fields = [column(10 + at, f"c{at}", kind) for at, kind in enumerate(kinds)]

        grown = committed(table(3), {"action": "add-schema", "schema": schema(*COLUMNS, *fields)})

        assert [field.type for field in grown.schemas[1].fields[4:]] == list(kinds)

    def test_all_problems_are_listed_with_their_full_names(self) -> None:
        nested = {
            "type": "map",
            "key-id": 11,
            "key": "string",
            "value-id": 12,
            "value": "variant",
            "value-required": False,
        }
        wanted = read(schema(column(1, "m", nested), column(2, "d", "int", **{"initial-default": 5})))

        with pytest.raises(Invalid) as refused:
            check_format(wanted, 2)

        assert str(refused.value) == (
            "Invalid schema for v2:\n"
            "- Invalid initial default for d: non-null default (5) is not supported until v3\n"
            "- Invalid type for m.value: variant is not supported until v3"
        )

    def test_a_write_default_is_allowed_before_v3(self) -> None:
        check_format(read(schema(column(1, "d", "int", **{"write-default": 5}))), 1)


GOOD_DEFAULTS: list[tuple[str, object]] = [
    ("boolean", True), ("int", -(2**31)), ("int", 0), ("long", 2**63 - 1), ("float", 1.5), ("double", -0.0),
    ("date", "2024-02-29"), ("time", "10:20:30.123456"), ("time", "10:20"), ("timestamp", "2024-01-01T10:20:30.123456"),
    ("timestamptz", "2024-01-01T10:20:30+00:00"), ("timestamp_ns", "2024-01-01T10:20:30.123456789"),
    ("timestamptz_ns", "2024-01-01T10:20:30.123456789+00:00"), ("string", ""), ("decimal(9, 2)", "-12.34"),
    ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"), ("fixed[2]", "00FF"), ("binary", ""),
]  # fmt: skip
BAD_DEFAULTS: list[tuple[str, object]] = [
    ("boolean", 1), ("int", True), ("int", 2**31), ("int", 1.0), ("int", "1"), ("long", 2**63), ("float", 1),
    ("double", "1.0"), ("date", "2023-02-29"), ("date", 5), ("time", "25:00:00"), ("timestamp", "2024-01-01"),
    ("timestamp", "2024-01-01T10:20:30+00:00"), ("timestamptz", "2024-01-01T10:20:30+01:00"), ("string", 1),
    ("decimal(9, 2)", "1.234"), ("decimal(9, 2)", "NaN"), ("decimal(9, 2)", "x"), ("uuid", "x"), ("fixed[2]", "00"),
    ("fixed[2]", "ZZZZ"), ("binary", "0"),
]  # fmt: skip


class TestDefaults:
    @pytest.mark.parametrize(("kind", "value"), GOOD_DEFAULTS)
    def test_a_value_that_fits_is_kept(self, kind: str, value: object) -> None:
        wanted = schema(column(1, "a", kind, **{"initial-default": value, "write-default": value}))

        assert json.loads(msgspec.json.encode(checked_schema(read(wanted)))) == wanted

    @pytest.mark.parametrize(("kind", "value"), BAD_DEFAULTS)
    @pytest.mark.parametrize("which", ["initial-default", "write-default"])
    def test_a_value_that_does_not_fit_is_refused(self, kind: str, value: object, which: str) -> None:
        assert (
            refusal(column(1, "a", kind, **{which: value}))
            == f"Cannot parse default as a {kind} value: {json.dumps(value)}"
        )

    @pytest.mark.parametrize("kind", ["variant", "unknown", "geometry", "geography"])
    def test_some_types_have_no_default(self, kind: str) -> None:
        assert refusal(column(1, "a", kind, **{"write-default": "x"})) == (
            f'Invalid default value for {kind}: "x" (must be null)'
        )

    def test_nested_types_have_no_default(self) -> None:
        text = refusal(column(1, "a", schema(column(2, "b")), **{"write-default": "x"}))

        assert text == 'Invalid default value for struct<b>: "x" (must be null)'


class TestIdentifierFields:
    @pytest.mark.parametrize(
        ("field_id", "text"),
        [
            (99, "Cannot add fieldId 99 as an identifier field: field does not exist"),
            (2, "Cannot add field s as an identifier field: not a primitive type field"),
            (4, "Cannot add field o as an identifier field: not a required field"),
            (5, "Cannot add field f as an identifier field: must not be float or double field"),
            (6, "Cannot add field d as an identifier field: must not be float or double field"),
            (3, "Cannot add field x as an identifier field: must not be nested in an optional field s"),
            (21, "Cannot add field x as an identifier field: must not be nested in l"),
            (7, "Cannot add field v as an identifier field: not a primitive type field"),
        ],
    )
    def test_an_invalid_identifier_field_is_refused(self, field_id: int, text: str) -> None:
        must = {"required": True}

        assert text == refusal(
            column(1, "id", **must),
            column(2, "s", schema(column(3, "x", **must))),
            column(4, "o"),
            column(5, "f", "float", **must),
            column(6, "d", "double", **must),
            column(7, "v", "variant", **must),
            column(10, "l", NESTED_IN_LIST, **must),
            **{"identifier-field-ids": [field_id]},
        )

    def test_a_required_field_in_required_structs_can_be_an_identifier_field(self) -> None:
        must = {"required": True}
        wanted = schema(column(1, "s", schema(column(2, "x", **must)), **must), **{"identifier-field-ids": [2]})

        assert checked_schema(read(wanted)).identifiers == {2}

    def test_the_order_of_identifier_fields_does_not_matter(self) -> None:
        left = read(schema(*COLUMNS, **{"identifier-field-ids": [1, 2]}))
        right = read(schema(*COLUMNS, **{"identifier-field-ids": [2, 1]}))

        assert same_schema(left, right)


class TestShape:
    def test_an_id_used_twice_is_refused(self) -> None:
        text = refusal(column(1, "a"), column(2, "s", schema(column(1, "b"))))

        assert text == "Invalid schema: multiple fields for id 1: a and s.b"

    def test_a_name_used_twice_is_refused(self) -> None:
        assert refusal(column(1, "a"), column(2, "a")) == "Invalid schema: multiple fields for name a: 1 and 2"

    def test_a_name_with_a_dot_cannot_hide_a_nested_field(self) -> None:
        text = refusal(column(1, "s", schema(column(2, "x"))), column(3, "s.x"))

        assert text == "Invalid schema: multiple fields for name s.x: 3 and 2"

    def test_names_that_differ_in_case_are_different(self) -> None:
        assert len(checked_schema(read(schema(column(1, "a"), column(2, "A")))).columns) == 2

    def test_an_unknown_type_cannot_be_required(self) -> None:
        text = refusal(column(1, "u", "unknown", required=True))

        assert text == "Cannot create required field with unknown type: u"

    @pytest.mark.parametrize("depth", [101, 300])
    def test_types_nested_too_deeply_are_refused(self, depth: int) -> None:
        kind: object = "int"
        for level in range(depth):
            kind = schema(column(2 + level, "a", kind))

        assert refusal(column(1, "a", kind)) == "Invalid schema: types are nested more than 100 levels deep"

    def test_types_nested_a_hundred_levels_deep_are_accepted(self) -> None:
        kind: object = "int"
        for level in range(100):
            kind = schema(column(2 + level, "a", kind))

        assert checked_schema(read(schema(column(1, "a", kind)))).highest_field_id == 101

    @pytest.mark.timeout(20)
    def test_a_hundred_thousand_columns_are_accepted(self) -> None:
        fields = [column(at, f"column_{at}") for at in range(1, 100_001)]

        grown = committed(
            table(),
            {"action": "add-schema", "schema": schema(*fields)},
            {"action": "set-current-schema", "schema-id": -1},
        )

        assert grown.last_column_id == 100_000
        assert len(grown.current_schema.columns) == 100_000
