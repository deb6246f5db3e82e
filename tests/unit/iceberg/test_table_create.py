"""Creation of tables: ids, sources, properties, location."""

import json
from typing import Any

import pytest

from sandur.errors import Invalid
from sandur.iceberg.requests import CreateTable, decode_create_table
from sandur.iceberg.table_create import create_table_metadata
from sandur.iceberg.table_metadata import TableMetadata
from tests.unit.iceberg.tables import (
    LOCATION,
    NOW_MS,
    UUID,
    Json,
    column,
    schema,
    sort_field,
    spec_field,
    written,
)

LIST = {"type": "list", "element-id": 41, "element": schema(column(42, "e")), "element-required": True}


def request(*fields: Json, **more: Any) -> CreateTable:
    identifiers = {"identifier-field-ids": more.pop("identifiers")} if "identifiers" in more else {}
    return decode_create_table(json.dumps({"name": "t", "schema": schema(*fields, **identifiers), **more}).encode())


def create(*fields: Json, location: Any = LOCATION, **more: Any) -> TableMetadata:
    return create_table_metadata(request(*fields, **more), location=location, table_uuid=UUID, now_ms=NOW_MS)


def refusal(*fields: Json, **more: Any) -> str:
    with pytest.raises(Invalid) as refused:
        create(*fields, **more)
    return str(refused.value)


class TestIds:
    def test_fields_are_numbered_level_by_level(self) -> None:
        made = create(
            column(30, "a", schema(column(31, "b", schema(column(32, "c"))), column(33, "d"))),
            column(40, "l", LIST),
            column(
                50,
                "m",
                {
                    "type": "map", "key-id": 51, "key": schema(column(52, "k")),
                    "value-id": 53, "value": schema(column(54, "v")), "value-required": False,
                },
            ),
            column(60, "z"),
        )  # fmt: skip

        assert made.current_schema.ids_by_path == {
            "a": 1, "l": 2, "m": 3, "z": 4,
            "a.b": 5, "a.d": 6, "a.b.c": 7,
            "l.element": 8, "l.element.e": 9,
            "m.key": 10, "m.value": 11, "m.key.k": 12, "m.value.v": 13,
        }  # fmt: skip
        assert made.last_column_id == 13

    def test_spark_numbers_its_columns_from_0(self) -> None:
        made = create(
            column(0, "id", required=True),
            column(1, "ts", "timestamp"),
            identifiers=[0],
            **{
                "partition-spec": {"spec-id": 0, "fields": [spec_field(1, "ts_day", "day"), spec_field(0, "id")]},
                "write-order": {"order-id": 1, "fields": [sort_field(0)]},
            },
        )

        assert made.current_schema.identifiers == {1}
        assert [(field.sources, field.field_id) for field in made.default_spec.fields] == [((2,), 1000), ((1,), 1001)]
        assert made.last_partition_id == 1001
        assert made.default_sort_order.order_id == 1
        assert made.default_sort_order.fields[0].sources == (1,)

    def test_field_ids_of_the_requested_spec_are_ignored(self) -> None:
        wanted = {"spec-id": 7, "fields": [spec_field(3, "x", "bucket[2]", **{"field-id": 1234})]}

        made = create(column(3, "a"), **{"partition-spec": wanted})

        assert written(made)["partition-specs"] == [
            {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "x", "transform": "bucket[2]"}]}
        ]

    def test_a_table_without_spec_and_order_is_unpartitioned_and_unsorted(self) -> None:
        fields = written(create(column(3, "a")))

        assert fields["partition-specs"] == [{"spec-id": 0, "fields": []}]
        assert fields["last-partition-id"] == 999
        assert fields["sort-orders"] == [{"order-id": 0, "fields": []}]
        assert fields["schemas"][0]["schema-id"] == 0

    @pytest.mark.parametrize(
        ("more", "text"),
        [
            (
                {"partition-spec": {"fields": [spec_field(9, "x")]}},
                "Cannot find source column for partition field: x: identity(9)",
            ),
            (
                {"write-order": {"order-id": 1, "fields": [sort_field(9)]}},
                "Cannot find source column for sort field: identity(9) ASC NULLS FIRST",
            ),
            ({"identifiers": [9]}, "Cannot add fieldId 9 as an identifier field: field does not exist"),
            (
                {"write-order": {"order-id": 0, "fields": [sort_field(1)]}},
                "Sort order ID 0 is reserved for unsorted order",
            ),
        ],
    )
    def test_a_reference_to_a_missing_column_is_refused(self, more: Json, text: str) -> None:
        assert refusal(column(1, "a"), **more) == text


class TestProperties:
    def test_reserved_keys_are_not_stored_and_new_tables_get_a_codec(self) -> None:
        made = create(column(1, "a"), properties={"owner": "ada", "uuid": "x", "format-version": "3"})

        assert made.format_version == 3
        assert made.properties == {"write.parquet.compression-codec": "zstd", "owner": "ada"}

    def test_a_given_codec_wins(self) -> None:
        made = create(column(1, "a"), properties={"write.parquet.compression-codec": "snappy"})

        assert made.properties == {"write.parquet.compression-codec": "snappy"}

    def test_the_default_format_version_is_2(self) -> None:
        assert create(column(1, "a")).format_version == 2

    @pytest.mark.parametrize(
        ("properties", "text"),
        [
            ({"format-version": "5"}, "Unsupported format version: v5 (supported: v4)"),
            ({"format-version": "x"}, "Table property format-version must have integer value: x"),
            (
                {"write.metadata.metrics.column.zz": "full"},
                (
                    "Invalid metrics config, could not find column zz "
                    "from table prop write.metadata.metrics.column.zz in schema"
                ),
            ),
            (
                {"commit.retry.num-retries": "-1"},
                "Table property commit.retry.num-retries must have non negative integer value",
            ),
            (
                {"commit.retry.min-wait-ms": "soon"},
                "Table property commit.retry.min-wait-ms must have integer value: soon",
            ),
            ({"encryption.key-id": "k"}, "Invalid properties for v2: [encryption.key-id]"),
        ],
    )
    def test_a_property_that_breaks_a_rule_is_refused(self, properties: Json, text: str) -> None:
        assert refusal(column(1, "a"), properties=properties) == text

    def test_metrics_of_existing_columns_and_encryption_in_v3_are_accepted(self) -> None:
        properties = {"write.metadata.metrics.column.s.a": "full", "encryption.key-id": "k", "format-version": "3"}

        assert create(column(1, "s", schema(column(2, "a"))), properties=properties).format_version == 3

    def test_a_variant_needs_v3(self) -> None:
        assert "variant is not supported until v3" in refusal(column(1, "a", "variant"))


@pytest.mark.parametrize(
    ("given", "stored"),
    [("s3://b/t/", "s3://b/t"), ("file:/tmp/x", "file:/tmp/x"), ("s3://b///", "s3://b"), ("s3://", "s3://")],
)
def test_a_location_is_stored_without_slashes_at_its_end(given: str, stored: str) -> None:
    assert create(column(1, "a"), location=given).location == stored
