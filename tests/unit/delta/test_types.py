"""Types in the forms of the log, of the Delta API and of SQL."""

import pytest

from sandur.delta.types import fields_from_api, from_api, to_api, type_name, type_text
from sandur.errors import Invalid

NESTED = {
    "type": "map",
    "keyType": "string",
    "valueType": {
        "type": "array",
        "elementType": {
            "type": "struct",
            "fields": [{"name": "a", "type": "decimal(10,2)", "nullable": True, "metadata": {}}],
        },
        "containsNull": False,
    },
    "valueContainsNull": True,
}


def test_a_nested_type_is_unchanged_after_conversion_to_the_api_and_back() -> None:
    converted = to_api(NESTED)

    assert isinstance(converted, dict)
    assert converted["value-type"]["element-type"]["fields"][0]["type"] == "decimal(10,2)"
    assert from_api(converted, "t") == NESTED
    assert from_api(NESTED, "t") == NESTED


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("long", "bigint", "LONG"),
        ("integer", "int", "INT"),
        ("short", "smallint", "SHORT"),
        ("byte", "tinyint", "BYTE"),
        ("timestamp_ntz", "timestamp_ntz", "TIMESTAMP_NTZ"),
        ("decimal(38, 18)", "decimal(38,18)", "DECIMAL"),
        ("variant", "variant", "VARIANT"),
        ("interval day to second", "intervaldaytosecond", "INTERVAL"),
        (NESTED, "map<string,array<struct<a:decimal(10,2)>>>", "MAP"),
    ],
)
def test_types_have_the_text_and_the_name_that_clients_expect(kind: object, text: str, name: str) -> None:
    assert (type_text(kind), type_name(kind)) == (text, name)


@pytest.mark.parametrize(
    "kind",
    [
        "bigint",
        "no such type",
        "decimal(39,0)",
        "decimal(5,6)",
        "decimal(5,-1)",
        None,
        7,
        {"type": "set"},
        {"type": "array", "element-type": "long"},
        {"type": "array", "element-type": "long", "contains-null": "yes"},
        {"type": "map", "key-type": "long", "value-contains-null": True},
        {"type": "struct"},
    ],
)
def test_an_invalid_type_is_refused(kind: object) -> None:
    with pytest.raises(Invalid):
        from_api(kind, "t")


def test_deeply_nested_types_are_refused() -> None:
    kind: object = "long"
    for _ in range(200):
        kind = {"type": "array", "element-type": kind, "contains-null": True}

    with pytest.raises(Invalid, match="nested more than"):
        from_api(kind, "t")


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"name": " ", "type": "long", "nullable": True, "metadata": {}},
        {"name": "a", "nullable": True, "metadata": {}},
        {"name": "a", "type": "long", "metadata": {}},
        {"name": "a", "type": "long", "nullable": True},
        {"name": "a", "type": "long", "nullable": True, "metadata": []},
        "a long",
    ],
)
def test_an_incomplete_field_is_refused(field: object) -> None:
    with pytest.raises(Invalid):
        fields_from_api([field], "columns")


def test_names_that_differ_only_in_case_are_refused() -> None:
    fields: list[dict[str, object]] = [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("a", "A")
    ]

    with pytest.raises(Invalid, match="duplicate"):
        fields_from_api(fields, "columns")
