"""Columns of the classic API and their fields."""

import pytest

from sandur.delta.columns import (
    ColumnInfo,
    columns_from_api,
    complete_columns,
    decode_columns,
    encode_columns,
    field_from_column,
    partition_names,
    struct_for_api,
    with_partitions,
)
from sandur.errors import Invalid

STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "decimal(10,2)", "nullable": False, "metadata": {"comment": "c"}},
        {"name": "b", "type": {"type": "array", "element-type": "long", "contains-null": True}}
        | {"nullable": True, "metadata": {"delta.columnMapping.id": 2}},
    ],
}


def test_columns_are_unchanged_after_encoding_and_decoding() -> None:
    columns = columns_from_api(STRUCT, ["b"])

    assert struct_for_api(decode_columns(encode_columns(columns))) == STRUCT
    assert partition_names(columns) == ["b"]
    first = columns[0]
    assert (first.type_text, first.type_precision, first.type_scale) == ("decimal(10,2)", 10, 2)
    assert (first.comment, first.nullable, first.position) == ("c", False, 0)


def test_partition_columns_keep_the_order_in_which_they_are_named() -> None:
    columns = columns_from_api(STRUCT, ["B", "a"])

    assert partition_names(columns) == ["b", "a"]
    assert partition_names(with_partitions(columns, [])) == []


@pytest.mark.parametrize("partitions", [["c"], ["a", "A"]])
def test_missing_and_repeated_partition_columns_are_refused(partitions: list[str]) -> None:
    with pytest.raises(Invalid, match="partition-columns"):
        columns_from_api(STRUCT, partitions)


@pytest.mark.parametrize("struct", [None, [], {"type": "long"}, {"type": "struct", "fields": []}])
def test_a_table_without_columns_is_refused(struct: object) -> None:
    with pytest.raises(Invalid):
        columns_from_api(struct, None)


def test_the_field_of_a_stored_column_without_json_follows_from_its_text() -> None:
    first = ColumnInfo(name="a", type_text="BIGINT")
    second = ColumnInfo(name="b", type_name="DECIMAL", type_precision=5)

    assert field_from_column(first) == {"name": "a", "type": "long", "nullable": True, "metadata": {}}
    assert field_from_column(second)["type"] == "decimal(5,0)"


@pytest.mark.parametrize("json", [None, ""])
@pytest.mark.parametrize("is_delta", [True, False])
def test_a_new_column_without_json_is_refused(json: str | None, *, is_delta: bool) -> None:
    with pytest.raises(Invalid, match="type_json for column a: it is required"):
        complete_columns([ColumnInfo(name="a", type_text="int", type_json=json)], is_delta=is_delta)


@pytest.mark.parametrize(
    ("json", "kind"),
    [
        ('"integer"', "integer"),
        ('"decimal(5,0)"', "decimal(5,0)"),
        ('{"type":"string"}', "string"),
        (
            '{"type":"array","elementType":"long","containsNull":true}',
            {"type": "array", "elementType": "long", "containsNull": True},
        ),
        ('{"type":"struct","fields":[]}', {"type": "struct", "fields": []}),
    ],
)
def test_the_json_of_a_type_alone_is_completed_to_a_field(json: str, kind: object) -> None:
    column = complete_columns([ColumnInfo(name="a", type_json=json, nullable=True)], is_delta=False)[0]

    assert field_from_column(column) == {"name": "a", "type": kind, "nullable": True, "metadata": {}}
    assert (column.position, column.nullable) == (0, True)
    assert "metadata" in (column.type_json or "")


def test_a_column_must_not_contradict_its_json() -> None:
    json = '{"name":"a","type":"long","nullable":true,"metadata":{}}'

    assert complete_columns([ColumnInfo(name="a", type_json=json)], is_delta=True)[0].nullable is True
    with pytest.raises(Invalid, match="names"):
        complete_columns([ColumnInfo(name="b", type_json=json)], is_delta=True)
    with pytest.raises(Invalid, match="nullable"):
        complete_columns([ColumnInfo(name="a", type_json=json, nullable=False)], is_delta=True)


def test_only_a_delta_table_refuses_types_that_delta_does_not_have() -> None:
    column = ColumnInfo(name="a", type_text="something else", type_json='"something else"')

    assert complete_columns([column], is_delta=False)[0].type_text == "something else"
    with pytest.raises(Invalid, match="unknown type"):
        complete_columns([column], is_delta=True)


def test_invalid_json_of_a_type_is_ignored() -> None:
    assert field_from_column(ColumnInfo(name="a", type_text="int", type_json="{not json"))["type"] == "integer"


@pytest.mark.parametrize("names", [("a", "A"), ("",)])
def test_empty_and_duplicate_column_names_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(Invalid):
        complete_columns([ColumnInfo(name=name, type_json='"integer"') for name in names], is_delta=False)
