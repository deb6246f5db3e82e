"""Tables of every format in the Unity Catalog API."""

import json
from typing import Any

import httpx
import pytest

from sandur.settings import UnityCatalogSettings
from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.server.requests import add_snapshot, create_table, create_view, rename, set_properties
from tests.server.unity.client import UNITY, Json, Unity, code

KEY = "0190b6a0-0000-7000-8000-000000000004"
WHERE = {"catalog_name": "main", "schema_name": "s"}
COLUMN = {
    "name": "id",
    "type_text": "bigint",
    "type_json": '{"name":"id","type":"long","nullable":true,"metadata":{}}',
    "type_name": "LONG",
    "position": 0,
    "nullable": True,
}
WIDE: Json = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True, "doc": "the key"},
        {"id": 2, "name": "day", "type": "date", "required": False},
        {"id": 3, "name": "price", "type": "decimal(10, 2)", "required": False},
        {
            "id": 4,
            "name": "tags",
            "type": {"type": "list", "element-id": 5, "element": "string", "element-required": False},
            "required": False,
        },
        {
            "id": 6,
            "name": "attributes",
            "type": {
                "type": "map",
                "key-id": 7,
                "key": "string",
                "value-id": 8,
                "value": "double",
                "value-required": True,
            },
            "required": False,
        },
        {
            "id": 9,
            "name": "point",
            "type": {
                "type": "struct",
                "fields": [{"id": 10, "name": "x", "type": "int", "required": True}],
            },
            "required": False,
        },
        {"id": 11, "name": "at", "type": "timestamptz", "required": False},
        {"id": 12, "name": "plain", "type": "timestamp", "required": False},
    ],
}

pytestmark = pytest.mark.usefixtures("schema")


async def made_by_iceberg(client: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    answer = await client.post("/v1/namespaces/s/tables", json={**create_table(name), **fields})
    assert answer.status_code == 200, answer.text
    metadata: Json = answer.json()["metadata"]
    return metadata


async def root_of(unity: Unity) -> str:
    location: str = (await unity.get("/catalogs/main")).json()["storage_location"]
    return location


async def listed(unity: Unity, **params: Any) -> list[Json]:
    answer = await unity.get("/tables", **WHERE, **params)
    assert answer.status_code == 200, answer.text
    tables: list[Json] = answer.json()["tables"]
    return tables


async def test_an_iceberg_table_is_listed_with_its_columns(unity: Unity, client: httpx.AsyncClient) -> None:
    spec = {"fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}]}
    metadata = await made_by_iceberg(
        client, "t", schema=WIDE, **{"partition-spec": spec}, properties={"comment": "words", "k": "v"}
    )

    table = (await unity.get("/tables/main.s.t")).json()

    assert (table["name"], table["catalog_name"], table["schema_name"]) == ("t", "main", "s")
    assert (table["table_type"], table["data_source_format"]) == ("MANAGED", "ICEBERG")
    assert table["storage_location"] == metadata["location"]
    assert table["table_id"] == metadata["table-uuid"]
    assert table["comment"] == "words"
    assert table["properties"]["k"] == "v"
    assert [(column["name"], column["type_text"], column["type_name"]) for column in table["columns"]] == [
        ("id", "bigint", "LONG"),
        ("day", "date", "DATE"),
        ("price", "decimal(10,2)", "DECIMAL"),
        ("tags", "array<string>", "ARRAY"),
        ("attributes", "map<string,double>", "MAP"),
        ("point", "struct<x:int>", "STRUCT"),
        ("at", "timestamp", "TIMESTAMP"),
        ("plain", "timestamp_ntz", "TIMESTAMP_NTZ"),
    ]
    assert [column["position"] for column in table["columns"]] == list(range(8))
    assert [column["nullable"] for column in table["columns"]] == [False, *[True] * 7]
    assert [column.get("partition_index") for column in table["columns"]] == [None, 0, *[None] * 6]
    assert table["columns"][0]["comment"] == "the key"
    assert (table["columns"][2]["type_precision"], table["columns"][2]["type_scale"]) == (10, 2)
    assert json.loads(table["columns"][4]["type_json"])["type"] == {
        "type": "map",
        "keyType": "string",
        "valueType": "double",
        "valueContainsNull": False,
    }
    assert await listed(unity) == [table]


async def test_a_change_of_columns_or_properties_updates_the_index_and_a_data_commit_does_not(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    metadata = await made_by_iceberg(client, "t")
    before = await listed(unity)

    await client.post("/v1/namespaces/s/tables/t", json=set_properties(k="v"))
    changed = await listed(unity)
    committed = await client.post("/v1/namespaces/s/tables/t", json=add_snapshot(metadata))

    assert committed.status_code == 200, committed.text
    assert before[0]["properties"].get("k") is None
    assert changed[0]["properties"]["k"] == "v"
    (after,) = await listed(unity)
    assert {**after, "updated_at": 0} == {**changed[0], "updated_at": 0}


async def test_a_transaction_that_changes_columns_is_listed(unity: Unity, client: httpx.AsyncClient) -> None:
    metadata = await made_by_iceberg(client, "t")
    await made_by_iceberg(client, "u")
    schema = {**metadata["schemas"][0], "schema-id": 1}
    schema["fields"] = [*schema["fields"], {"id": 3, "name": "more", "type": "int", "required": False}]
    changes = [
        {
            "identifier": {"namespace": ["s"], "name": "t"},
            "requirements": [],
            "updates": [
                {"action": "add-schema", "schema": schema, "last-column-id": 3},
                {"action": "set-current-schema", "schema-id": -1},
            ],
        },
        {"identifier": {"namespace": ["s"], "name": "u"}, **set_properties(k="v")},
    ]

    answer = await client.post("/v1/transactions/commit", json={"table-changes": changes})

    assert answer.status_code == 204, answer.text
    one, other = await listed(unity)
    assert [column["name"] for column in one["columns"]] == ["id", "text", "more"]
    assert other["properties"]["k"] == "v"


async def test_renames_and_drops_by_iceberg_clients_are_listed(unity: Unity, client: httpx.AsyncClient) -> None:
    await made_by_iceberg(client, "a")
    await made_by_iceberg(client, "b")

    await client.post("/v1/tables/rename", json=rename("a", "c", namespace="s"))
    await client.delete("/v1/namespaces/s/tables/b")

    assert [table["name"] for table in await listed(unity)] == ["c"]
    assert code(await unity.get("/tables/main.s.b")) == (404, "TABLE_NOT_FOUND")


async def test_an_iceberg_table_dropped_in_unity_is_gone_for_iceberg_clients(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    await made_by_iceberg(client, "t")

    assert (await unity.delete("/tables/main.s.t")).status_code == 200

    assert (await client.get("/v1/namespaces/s/tables/t")).status_code == 404
    assert await listed(unity) == []
    assert code(await unity.delete("/tables/main.s.t")) == (404, "TABLE_NOT_FOUND")


@pytest.mark.parametrize("damage", [None, b"nonsense"], ids=["gone", "damaged"])
async def test_a_table_with_unreadable_metadata_is_listed_without_columns(
    catalogs: Catalogs, damage: bytes | None
) -> None:
    store = MemoryStore()
    http = await catalogs.open(store=store)
    unity = Unity(http)
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    location = (await http.post("/v1/namespaces/s/tables", json=create_table("t"))).json()["metadata-location"]
    key = location.removeprefix("memory://store/")
    found = await store.get(key)
    assert found is not None
    if damage is None:
        await store.delete(key, expected=found.version)
    else:
        await store.put(key, damage, expected=found.version)
    fresh = Unity(await catalogs.open(store=store, unity_catalog=UnityCatalogSettings(preview_index_enabled=False)))

    (table,) = await listed(fresh)

    assert (table["name"], table["data_source_format"], table["columns"]) == ("t", "ICEBERG", [])
    assert (await fresh.get("/tables/main.s.t")).json() == table


async def test_an_iceberg_view_is_a_table_of_the_type_view(unity: Unity, client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/namespaces/s/views", json=create_view("v", "select 2"))
    assert answer.status_code == 200, answer.text

    (view,) = await listed(unity)

    assert (view["name"], view["table_type"], view["view_definition"]) == ("v", "VIEW", "select 2")
    assert [column["name"] for column in view["columns"]] == ["id", "text"]


async def test_an_external_delta_table_is_created_as_spark_requests_it(unity: Unity) -> None:
    root = await root_of(unity)
    body = {
        **WHERE,
        "name": "d",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [],
        "storage_location": f"{root}/d/",
        "properties": {"k": "v"},
    }

    made = await unity.made("/tables", body)

    assert made == (await unity.get("/tables/main.s.d")).json()
    assert await listed(unity) == [made]
    assert (made["columns"], made["storage_location"], made["properties"]) == ([], f"{root}/d", {"k": "v"})
    assert made["created_at"] > 0


@pytest.mark.parametrize("form", ["CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT", "DELTA"])
async def test_external_tables_of_every_format_keep_their_columns(unity: Unity, form: str) -> None:
    root = await root_of(unity)
    body = {
        **WHERE,
        "name": "x",
        "table_type": "EXTERNAL",
        "data_source_format": form,
        "columns": [COLUMN],
        "storage_location": f"{root}/x",
        "comment": "words",
    }

    made = await unity.made("/tables", body)

    assert (made["data_source_format"], made["comment"]) == (form, "words")
    assert made["columns"] == [COLUMN]
    assert made["properties"] == {}


async def test_iceberg_clients_do_not_see_tables_they_cannot_read(unity: Unity, client: httpx.AsyncClient) -> None:
    root = await root_of(unity)
    where = {"storage_location": f"{root}/x", "table_type": "EXTERNAL", "data_source_format": "CSV"}
    await unity.made("/tables", {**WHERE, **where, "name": "x", "columns": [COLUMN]})

    assert (await client.get("/v1/namespaces/s/tables")).json()["identifiers"] == []
    assert (await client.get("/v1/namespaces/s/tables/x")).status_code == 404
    assert (await client.post("/v1/namespaces/s/tables", json=create_table("x"))).status_code == 409
    assert (await client.delete("/v1/namespaces/s/tables/x")).status_code == 404


async def test_names_are_unique_across_formats(unity: Unity, client: httpx.AsyncClient) -> None:
    await made_by_iceberg(client, "t")
    root = await root_of(unity)
    body = {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}

    answer = await unity.post("/tables", {**body, "storage_location": f"{root}/x"})

    assert code(answer) == (400, "TABLE_ALREADY_EXISTS")


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a.b"},
        {"table_type": "NONSENSE"},
        {"data_source_format": "NONSENSE"},
        {"data_source_format": None},
        {"data_source_format": "ICEBERG"},
        {"storage_location": None},
        {"storage_location": "s3://elsewhere/x"},
        {"columns": [{**COLUMN, "nullable": False}]},
        {"columns": [COLUMN, COLUMN]},
        {"columns": [{"type_text": "int"}]},
        *({"columns": [{**COLUMN, name: 2**31}]} for name in ("position", "partition_index", "type_scale")),
        {"properties": {"sandur.x": "1"}},
        {"table_type": "VIEW"},
        {"table_type": "MANAGED", "data_source_format": "PARQUET"},
    ],
)
async def test_invalid_tables_are_refused(unity: Unity, change: Json) -> None:
    root = await root_of(unity)
    body = {
        **WHERE,
        "name": "x",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [COLUMN],
        "storage_location": f"{root}/x",
    }

    assert code(await unity.post("/tables", {**body, **change})) == (400, "INVALID_ARGUMENT")


async def test_a_managed_table_is_created_from_its_stage(unity: Unity) -> None:
    staged = await unity.made("/staging-tables", {**WHERE, "name": "m"})
    body = {
        **WHERE,
        "name": "m",
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "columns": [COLUMN],
        "storage_location": staged["staging_location"],
        "properties": {"io.unitycatalog.tableId": staged["id"]},
    }

    made = await unity.made("/tables", body)

    assert made["table_id"] == staged["id"]
    assert made["storage_location"] == staged["staging_location"]
    assert code(await unity.post("/staging-tables", {**WHERE, "name": "m"})) == (400, "TABLE_ALREADY_EXISTS")
    unstaged = {**body, "name": "n", "storage_location": staged["staging_location"] + "x"}
    assert code(await unity.post("/tables", unstaged)) == (404, "TABLE_NOT_FOUND")
    assert (await unity.delete("/tables/main.s.m")).status_code == 200
    assert await listed(unity) == []


@pytest.mark.parametrize("name", [{}, {"name": None}, {"name": ""}, {"name": "a.b"}])
async def test_a_stage_needs_a_name(unity: Unity, name: Json) -> None:
    assert code(await unity.post("/staging-tables", {**WHERE, **name})) == (400, "INVALID_ARGUMENT")


async def test_a_schema_dropped_by_force_drops_tables_of_every_format(unity: Unity, client: httpx.AsyncClient) -> None:
    await made_by_iceberg(client, "i")
    staged = await unity.made("/staging-tables", {**WHERE, "name": "m"})
    table = {**WHERE, "data_source_format": "DELTA", "columns": [COLUMN]}
    managed = {"storage_location": staged["staging_location"], "properties": {"io.unitycatalog.tableId": staged["id"]}}
    await unity.made("/tables", {**table, **managed, "name": "m", "table_type": "MANAGED"})
    where = {"storage_location": f"{await root_of(unity)}/x"}
    await unity.made("/tables", {**table, **where, "name": "e", "table_type": "EXTERNAL"})

    assert (await unity.delete("/schemas/main.s", force="true")).status_code == 200

    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    assert await listed(unity) == []
    for name in ("i", "m", "e"):
        assert code(await unity.get(f"/tables/main.s.{name}")) == (404, "TABLE_NOT_FOUND")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"type_json": None}, "Invalid type_json for column id: it is required"),
        ({"type_json": ""}, "Invalid type_json for column id: it is required"),
        ({"type_json": "not json"}, "not JSON"),
        ({"type_json": "[" * 5_000 + "]" * 5_000}, "not JSON"),
        ({"type_json": '{"name":"id","type":"long"}'}, "nullable is required"),
        ({"type_json": '{"name":"id","type":"long","nullable":true}'}, "metadata is required"),
        ({"type_json": '{"name":"id","type":"void","nullable":true,"metadata":{}}'}, "void"),
        ({"type_json": '{"name":"id","type":"interval day","nullable":true,"metadata":{}}'}, "interval day"),
        ({"type_json": '{"name":"id","type":"char(3)","nullable":true,"metadata":{}}'}, "char(3)"),
        ({"type_json": '{"name":"id","type":"geometry(OGC:CRS84)","nullable":true,"metadata":{}}'}, "geometry"),
        ({"type_json": '{"name":"id","type":{"type":"udt"},"nullable":true,"metadata":{}}'}, "udt"),
        ({"type_name": "NONSENSE"}, "NONSENSE"),
    ],
)
async def test_a_column_that_delta_cannot_hold_is_refused(unity: Unity, change: Json, found: str) -> None:
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    table = {**WHERE, "name": "d", "table_type": "EXTERNAL", "data_source_format": "DELTA"}

    refused = await unity.post("/tables", {**table, "columns": [{**COLUMN, **change}], "storage_location": f"{root}/d"})

    assert code(refused) == (400, "INVALID_ARGUMENT")
    assert found in refused.json()["message"]
    assert await listed(unity) == []


async def test_the_json_of_a_type_alone_is_completed(unity: Unity) -> None:
    """Spark's connector before 0.5 sends it."""
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    table = {**WHERE, "name": "d", "table_type": "EXTERNAL", "data_source_format": "DELTA"}

    made = await unity.made(
        "/tables", {**table, "columns": [{**COLUMN, "type_json": '"long"'}], "storage_location": f"{root}/d"}
    )

    assert made["columns"] == [COLUMN]


async def test_the_error_names_the_missing_object(unity: Unity) -> None:
    assert code(await unity.get("/tables/main.s.none")) == (404, "TABLE_NOT_FOUND")
    assert code(await unity.get("/tables/main.none.t")) == (404, "SCHEMA_NOT_FOUND")
    assert code(await unity.get("/tables/none.s.t")) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get("/tables", catalog_name="main")) == (400, "INVALID_ARGUMENT")
    assert code(await unity.get("/tables/t")) == (400, "INVALID_ARGUMENT")


async def test_a_list_without_max_results_is_complete_and_pages_are_in_order(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    names = [f"t{number:03d}" for number in range(130)]
    for name in names:
        await made_by_iceberg(client, name)

    everything = await listed(unity)

    assert [table["name"] for table in everything] == names
    assert await unity.names("/tables", "tables", **WHERE, max_results=50) == names
    assert await unity.names("/tables", "tables", **WHERE, max_results=0) == names


async def test_the_next_page_continues_after_a_table_that_was_dropped_meanwhile(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    for name in "abcd":
        await made_by_iceberg(client, name)
    first = (await unity.get("/tables", **WHERE, max_results=2)).json()
    await unity.delete("/tables/main.s.b")

    second = (await unity.get("/tables", **WHERE, max_results=2, page_token=first["next_page_token"])).json()

    assert [table["name"] for table in second["tables"]] == ["c", "d"]
    assert not second.get("next_page_token")


async def test_columns_and_properties_are_omitted_on_request(unity: Unity, client: httpx.AsyncClient) -> None:
    await made_by_iceberg(client, "t")

    (slim,) = await listed(unity, omit_columns="true", omit_properties="true")

    assert "columns" not in slim
    assert "properties" not in slim
    assert slim["name"] == "t"


async def test_a_table_with_a_key_is_created_once(unity: Unity, catalogs: Catalogs) -> None:
    root = await root_of(unity)
    body = {
        **WHERE,
        "name": "d",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [],
        "storage_location": f"{root}/d",
    }

    first = await unity.post("/tables", body, Idempotency_Key=KEY)
    await catalogs.settled()  # Until the end of its claim, the key is refused as active.
    again = await unity.post("/tables", body, Idempotency_Key=KEY)

    assert first.status_code == 200
    assert again.json() == first.json()


async def test_a_repeated_drop_with_a_key_leaves_what_has_the_name_now(unity: Unity) -> None:
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    table = {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "CSV", "columns": []}
    await unity.made("/tables", {**table, "storage_location": f"{root}/t"})
    headers = {"Idempotency-Key": KEY}

    dropped = await unity.http.delete(UNITY + "/tables/main.s.t", headers=headers)
    await unity.made("/tables", {**WHERE, "name": "t", "table_type": "VIEW", "view_definition": "select 1"})
    repeated = await unity.http.delete(UNITY + "/tables/main.s.t", headers=headers)

    assert (dropped.status_code, repeated.status_code) == (200, 200)
    assert (await unity.get("/tables/main.s.t")).json()["table_type"] == "VIEW"
