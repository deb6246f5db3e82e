"""Shapes only grow: a column keeps its id, its name and its kind for ever, for files of before are read by them."""

import json
from pathlib import Path

import pytest

from sandur.pipeline.system_tables import iceberg_schema
from sandur.pipeline.tables import SHAPES, shape

GOLDEN = Path(__file__).parent / "shapes.json"


def spelled(name: str) -> list[str]:
    return [
        f"{column.id} {column.name} {column.kind}{'!' if column.is_required else ''}" for column in SHAPES[name].columns
    ]


@pytest.mark.parametrize("name", sorted(json.loads(GOLDEN.read_text())))
def test_a_shape_still_begins_as_it_once_was(name: str) -> None:
    once = json.loads(GOLDEN.read_text())[name]

    assert spelled(name)[: len(once)] == once


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_shape_is_the_same_to_spark_to_parquet_and_to_iceberg(name: str) -> None:
    told = SHAPES[name]

    assert [field.name for field in told.spark_schema] == told.arrow_schema.names == told.column_names
    assert [(field.id, field.required) for field in iceberg_schema(told).fields] == [
        (int(field.metadata[b"PARQUET:field_id"]), not field.nullable) for field in told.arrow_schema
    ]
    assert len(set(told.column_names)) == len(told.column_names)
    assert set(told.key) <= set(told.column_names)


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="a kind of"):
        shape("x", "a colour", key="a")
