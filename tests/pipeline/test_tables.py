"""Shapes only grow: a column keeps its id, name and kind, because old files are read with them."""

import json
from pathlib import Path

import pytest

from sandur.pipeline.system_tables import iceberg_schema
from sandur.pipeline.tables import SHAPES, shape

GOLDEN = Path(__file__).parent / "shapes.json"


def column_texts(name: str) -> list[str]:
    return [
        f"{column.id} {column.name} {column.kind}{'!' if column.is_required else ''}" for column in SHAPES[name].columns
    ]


@pytest.mark.parametrize("name", sorted(json.loads(GOLDEN.read_text())))
def test_a_shape_only_grows(name: str) -> None:
    once = json.loads(GOLDEN.read_text())[name]

    assert column_texts(name)[: len(once)] == once


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_shape_is_the_same_in_spark_parquet_and_iceberg(name: str) -> None:
    shape = SHAPES[name]

    assert [field.name for field in shape.spark_schema] == shape.arrow_schema.names == shape.column_names
    assert [(field.id, field.required) for field in iceberg_schema(shape).fields] == [
        (int(field.metadata[b"PARQUET:field_id"]), not field.nullable) for field in shape.arrow_schema
    ]
    assert len(set(shape.column_names)) == len(shape.column_names)
    assert set(shape.key) <= set(shape.column_names)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="a kind of"):
        shape("x", "a colour", key="a")
