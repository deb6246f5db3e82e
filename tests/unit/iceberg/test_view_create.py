"""The first metadata of a view: which ids are replaced, which are kept, and what is refused."""

import json

import pytest

from sandur.errors import Invalid
from sandur.iceberg.view_commit import CreateView, create_view_metadata, decode_create_view
from tests.unit.iceberg.views import (
    BASE_MS,
    COLUMNS,
    LOCATION,
    NOW_MS,
    VIEW_UUID,
    Json,
    column,
    query,
    schema,
    version,
    written,
)


def request(**more: object) -> CreateView:
    fields: Json = {
        "name": "v",
        "schema": schema(*COLUMNS, **{"schema-id": 5}),
        "view-version": version(9, schema_id=5),
        "properties": {"comment": "a view"},
        **more,
    }
    return decode_create_view(json.dumps(fields).encode())


def created(**more: object) -> Json:
    return written(create_view_metadata(request(**more), location=LOCATION, view_uuid=VIEW_UUID, now_ms=NOW_MS))


def refusal(**more: object) -> str:
    with pytest.raises(Invalid) as refused:
        created(**more)
    return str(refused.value)


def test_the_schema_gets_id_0_and_the_version_id_1() -> None:
    fields = created()

    assert fields == {
        "view-uuid": VIEW_UUID,
        "format-version": 1,
        "location": LOCATION,
        "properties": {"comment": "a view"},
        "schemas": [schema(*COLUMNS, **{"schema-id": 0})],
        "current-version-id": 1,
        "versions": [version(9) | {"version-id": 1, "schema-id": 0}],
        "version-log": [{"timestamp-ms": BASE_MS + 9, "version-id": 1}],
    }


@pytest.mark.parametrize("schema_id", [-1, 0, 404])
def test_the_schema_id_of_the_requested_version_is_ignored(schema_id: int) -> None:
    fields = created(**{"view-version": version(1, schema_id=schema_id)})

    assert fields["versions"][0]["schema-id"] == 0


def test_columns_keep_their_ids() -> None:
    fields = created(schema=schema(column(42, "b"), column(5, "a", schema(column(1, "c")))))

    assert [field["id"] for field in fields["schemas"][0]["fields"]] == [42, 5]
    assert fields["schemas"][0]["fields"][1]["type"]["fields"][0]["id"] == 1


def test_absent_properties_are_not_written() -> None:
    assert "properties" not in created(properties=None)


def test_a_view_without_a_query_is_refused() -> None:
    incomplete = version(1) | {"representations": []}

    assert refusal(**{"view-version": incomplete}) == "Cannot create view without specifying a query"


def test_two_queries_for_one_dialect_are_refused() -> None:
    text = refusal(**{"view-version": version(1, query("trino", "SELECT 1"), query("Trino", "SELECT 2"))})

    assert text == "Invalid view version: Cannot add multiple queries for dialect trino"


def test_a_broken_schema_is_refused() -> None:
    assert refusal(schema=schema(column(1, "a", "number"))) == "Cannot parse type string to primitive: number"


def test_a_history_limit_that_is_not_positive_is_refused() -> None:
    text = refusal(properties={"version.history.num-entries": "0"})

    assert text == "version.history.num-entries must be positive but was 0"


def test_an_invalid_uuid_is_refused() -> None:
    with pytest.raises(Invalid, match="Cannot assign uuid, not a UUID: x"):
        create_view_metadata(request(), location=LOCATION, view_uuid="x", now_ms=NOW_MS)


def test_an_empty_location_is_refused() -> None:
    with pytest.raises(Invalid, match="Cannot set location: path must not be null or empty"):
        create_view_metadata(request(), location="", view_uuid=VIEW_UUID, now_ms=NOW_MS)
