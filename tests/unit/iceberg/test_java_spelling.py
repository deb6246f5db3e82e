"""Texts and ids in which a table written by Java differs from what a client sends."""

import pytest

from sandur.iceberg.partitioning import PartitionField, PartitionSpec, with_field_ids
from sandur.iceberg.schema import Schema, checked_schema, same_schema
from sandur.iceberg.types import Default, NestedField


def schema_with_default(kind: str, default: Default) -> Schema:
    field = NestedField(id=1, name="x", type=kind, required=False, initial_default=default, write_default=default)
    return Schema(fields=(field,))


def spec(*fields: tuple[int, str, int | None]) -> PartitionSpec:
    return PartitionSpec(
        fields=tuple(
            PartitionField(name=f"{transform}_{source}", transform=transform, source_id=source, field_id=field_id)
            for source, transform, field_id in fields
        )
    )


@pytest.mark.parametrize(
    ("kind", "sent", "written"),
    [
        ("binary", "78797a", "78797A"),
        ("fixed[2]", "0a0b", "0A0B"),
        ("uuid", "EB26BDB1-A1D8-4AA6-990E-DA940875492C", "eb26bdb1-a1d8-4aa6-990e-da940875492c"),
        ("string", "aB", "aB"),
    ],
)
def test_a_default_is_written_like_java_and_recognized_as_equal(kind: str, sent: str, written: str) -> None:
    checked = checked_schema(schema_with_default(kind, sent))

    assert checked.fields[0].initial_default == written
    assert checked.fields[0].write_default == written
    assert same_schema(schema_with_default(kind, sent), checked)


def test_different_default_values_make_another_schema() -> None:
    assert not same_schema(schema_with_default("binary", "78"), schema_with_default("binary", "79"))
    assert not same_schema(schema_with_default("string", "a"), schema_with_default("string", "A"))


def test_an_empty_list_of_identifiers_is_omitted() -> None:
    schema = Schema(fields=schema_with_default("int", 3).fields, identifier_field_ids=())

    assert checked_schema(schema).identifier_field_ids is None


def test_fields_with_the_same_id_in_older_specs_get_different_ids_in_one_spec() -> None:
    older = [spec((1, "identity", 1000)), spec((2, "void", 1000))]

    assigned = with_field_ids(spec((1, "identity", None), (2, "void", None)), older, last_id=1000, format_version=2)

    assert [field.field_id for field in assigned.fields] == [1000, 1001]
