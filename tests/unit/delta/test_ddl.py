"""Column lists in SQL."""

import pytest

from sandur.delta.create_plan import parse_columns
from sandur.errors import Invalid


def test_columns_of_every_form_are_parsed() -> None:
    fields = parse_columns(
        "id BIGINT NOT NULL COMMENT 'the \\'key\\'', `odd ``name` DECIMAL(10, 2), d decimal, c VARCHAR(10), "
        "tags ARRAY<STRUCT<a: INT, b STRING NOT NULL>>, m map<string, array<double>>"
    )

    assert [field["name"] for field in fields] == ["id", "odd `name", "d", "c", "tags", "m"]
    assert fields[0] == {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "the 'key'"}}
    assert [fields[at]["type"] for at in (1, 2, 3)] == ["decimal(10,2)", "decimal(10,0)", "string"]
    element = fields[4]["type"]["elementType"]  # type: ignore[index] # JSON
    assert [(part["name"], part["type"], part["nullable"]) for part in element["fields"]] == [
        ("a", "integer", True),
        ("b", "string", False),
    ]
    assert fields[5]["type"] == {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "array", "elementType": "double", "containsNull": True},
        "valueContainsNull": True,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id NO_SUCH_TYPE",
        "id BIGINT name STRING",
        "id BIGINT,, name STRING",
        "id ARRAY<INT",
        "id ARRAY INT",
        "id MAP<INT>",
        "id BIGINT NOT",
        "id BIGINT COMMENT 7",
        "id INT(4)",
        "id BIGINT; DROP TABLE t",
        "id " + "ARRAY<" * 300 + "INT" + ">" * 300,
        "a INT, A INT",
    ],
)
def test_a_malformed_column_list_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_columns(text)
