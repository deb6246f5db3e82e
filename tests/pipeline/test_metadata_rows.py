"""Metadata files as rows: columns at every depth with their field ids, schemas, specs, snapshots and refs."""

import json

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import DeltaTable
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.table_metadata import decode_table_metadata
from sandur.iceberg.updates import AddSnapshot
from sandur.iceberg.view_metadata import decode_view_metadata
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_document
from sandur.operations.tables.views import create_view, load_view
from sandur.pipeline.sources.metadata import column_id, delta_rows, table_rows, view_rows
from sandur.splicing import INT64_MAX
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, append, create, identifier_of, request, set_up_catalog, view

NESTED = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True, "doc": "who"},
        {
            "id": 2,
            "name": "places",
            "required": False,
            "type": {
                "type": "list",
                "element-id": 3,
                "element-required": True,
                "element": {
                    "type": "struct",
                    "fields": [{"id": 4, "name": "x", "type": "double", "required": True}],
                },
            },
        },
        {
            "id": 5,
            "name": "tags",
            "required": False,
            "type": {
                "type": "map",
                "key-id": 6,
                "key": "string",
                "value-id": 7,
                "value": "int",
                "value-required": False,
            },
        },
    ],
}


async def test_columns_of_every_depth_have_rows_with_their_field_ids() -> None:
    lake = make_lake()
    await set_up_catalog(lake)
    made = await create(lake, "t", schema=NESTED)
    metadata = decode_table_metadata(made.metadata, metadata_location=made.metadata_location)

    rows = table_rows("uuid", metadata)["columns"]

    columns = {row["path"]: (row["field_id"], row["parent_field_id"], row["type"], row["is_required"]) for row in rows}
    assert columns["id"] == (1, None, "long", True)
    assert columns["places"][2] == "list<struct<x: double>>"
    assert columns["places.element.x"][2:] == ("double", True)
    assert columns["places.element.x"][1] == columns["places.element"][0]
    assert columns["tags.value"][2:] == ("int", False)
    assert {row["path"] for row in rows if row["is_identifier"]} == {"id"}
    assert {row["id"] for row in rows} == {column_id("uuid", field_id) for field_id in range(1, 8)}


async def test_snapshots_refs_schemas_and_specs_have_rows() -> None:
    lake = make_lake()
    await set_up_catalog(lake)
    await create(lake, "t")
    await commit_table(lake, identifier_of("t"), append(1), request("one"))
    await commit_table(lake, identifier_of("t"), append(2, 1), request("two"))
    metadata = (await current_document(lake, identifier_of("t"))).metadata

    rows = table_rows("uuid", metadata)

    assert [(row["snapshot_id"], row["is_current"]) for row in rows["snapshots"]] == [(1, False), (2, True)]
    assert rows["snapshots"][1]["operation"] == "append"
    assert [(row["ref"], row["snapshot_id"]) for row in rows["refs"]] == [("main", 2)]
    assert [json.loads(str(row["schema_json"]))["schema-id"] for row in rows["schema_history"]] == [0]
    assert [(row["spec_id"], row["is_default"]) for row in rows["partition_spec_history"]] == [(0, True)]
    assert rows["tables"][0]["snapshot_count"] == 2


async def test_a_number_that_does_not_fit_is_unknown() -> None:
    """Writers choose the texts of a summary. One that is no number of 64 bits must not end a job for all tables."""
    lake = make_lake()
    await set_up_catalog(lake)
    await create(lake, "t")
    made = append(1)
    (snapshot, move), large = made.updates, "9" * 19
    assert isinstance(snapshot, AddSnapshot)
    fields = ("added-records", "total-records", "total-data-files", "total-files-size", "deleted-records")
    summary = {**(snapshot.snapshot.summary or {}), **dict.fromkeys(fields, large)}
    update = replace(snapshot, snapshot=replace(snapshot.snapshot, summary=summary))
    await commit_table(lake, identifier_of("t"), TableCommit(made.requirements, (update, move)), request("one"))
    metadata = (await current_document(lake, identifier_of("t"))).metadata

    rows = table_rows("uuid", metadata)

    assert int(large) > INT64_MAX
    assert [rows["snapshots"][0][name] for name in ("added_records", "total_records", "deleted_records")] == [None] * 3
    assert (rows["tables"][0]["file_count"], rows["tables"][0]["size_bytes"]) == (None, None)


async def test_views_have_columns_and_schemas_too() -> None:
    lake = make_lake()
    await set_up_catalog(lake)
    await create_view(lake, NAMESPACE, view("v"), request("view"))
    loaded = await load_view(lake, identifier_of("v"))
    metadata = decode_view_metadata(loaded.metadata, metadata_location=loaded.metadata_location)

    rows = view_rows("uuid", metadata)

    assert [row["path"] for row in rows["columns"]] == ["x"]
    assert rows["tables"][0]["column_count"] == 1
    assert len(rows["schema_history"]) == 1


def test_columns_of_a_delta_table_are_identified_by_their_positions() -> None:
    columns = (
        b'[{"name":"a","type_text":"bigint","position":0,"nullable":false},{"name":"b","position":1,"comment":"c"}]'
    )
    table = DeltaTable(
        uuid="u", table_uuid="u", state="live", location="file:///d", columns=msgspec.Raw(columns), last_version=3
    )

    rows = delta_rows("u", table)

    assert [(row["path"], row["type"], row["is_required"]) for row in rows["columns"]] == [
        ("a", "bigint", True),
        ("b", "", False),
    ]
    assert (rows["tables"][0]["column_count"], rows["tables"][0]["last_sequence_number"]) == (2, 3)
