"""Clients that do not know every value of the Unity Catalog API get lists that they can decode."""

import json
from typing import Any

import httpx
import pytest

from tests.server.requests import create_table, create_view
from tests.server.unity.client import Json, Unity

WHERE = {"catalog_name": "main", "schema_name": "s"}
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "at", "type": "timestamp", "required": False},
        {"id": 3, "name": "any", "type": "variant", "required": False},
        {
            "id": 4,
            "name": "times",
            "type": {"type": "list", "element-id": 5, "element": "timestamp", "element-required": False},
            "required": False,
        },
        {
            "id": 6,
            "name": "point",
            "type": {
                "type": "struct",
                "fields": [{"id": 7, "name": "timestamp_ntz", "type": "timestamp", "required": False}],
            },
            "required": False,
        },
    ],
}


@pytest.fixture(autouse=True)
async def tables(unity: Unity, client: httpx.AsyncClient, schema: str) -> None:
    """A Delta table, an Iceberg table, an Iceberg view and a metric view."""
    assert schema == "main.s"
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    column = {"name": "id", "type_text": "bigint", "type_json": '"long"'}
    table = {**WHERE, "name": "d", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": [column]}
    await unity.made("/tables", {**table, "storage_location": f"{root}/d"})
    iceberg = {**create_table("i"), "schema": SCHEMA, "properties": {"format-version": "3"}}
    assert (await client.post("/v1/namespaces/s/tables", json=iceberg)).status_code == 200
    assert (await client.post("/v1/namespaces/s/views", json=create_view("v"))).status_code == 200
    metric = {**WHERE, "name": "m", "table_type": "METRIC_VIEW", "view_definition": "x"}
    on = {"dependencies": [{"table": {"table_full_name": "main.s.d"}}]}
    await unity.made("/tables", {**metric, "view_dependencies": on})


async def listed(unity: Unity, agent: str, **params: Any) -> list[Json]:
    unity.http.headers["User-Agent"] = agent
    found: list[Json] = (await unity.get("/tables", **WHERE, **params)).json()["tables"]
    for table in found if not params else ():
        assert (await unity.get(f"/tables/main.s.{table['name']}")).json() == table
    return found


@pytest.mark.parametrize(
    ("agent", "formats", "types"),
    [
        ("OpenAPI-Generator/0.7.0/python", ["DELTA", "ICEBERG", None, "ICEBERG"], ["EXTERNAL", "METRIC_VIEW", "VIEW"]),
        ("OpenAPI-Generator/0.6.0/python", ["DELTA", None, None, None], ["EXTERNAL", "METRIC_VIEW", "VIEW"]),
        ("OpenAPI-Generator/0.5.1/python", ["DELTA", None, None, None], ["EXTERNAL", "METRIC_VIEW", None]),
        ("OpenAPI-Generator/0.4.1/python", ["DELTA", None, None, None], ["EXTERNAL", None, None]),
        ("OpenAPI-Generator/0.4.1.dev0/python", ["DELTA", None, None, None], ["EXTERNAL", None, None]),
        ("Java-http-client/17.0.1", ["DELTA", None, None, None], ["EXTERNAL", None, None]),
        ("polars/0.55.1", ["DELTA", None, None, None], ["EXTERNAL", None, "VIEW"]),
        ("duckdb/v1.5.5(linux_amd64)", ["DELTA", "ICEBERG", None, "ICEBERG"], ["EXTERNAL", "METRIC_VIEW", "VIEW"]),
        ("curl/8.0", ["DELTA", "ICEBERG", None, "ICEBERG"], ["EXTERNAL", "METRIC_VIEW", "VIEW"]),
        ("OpenAPI-Generator/1.0.0/python", ["DELTA", "ICEBERG", None, "ICEBERG"], ["EXTERNAL", "METRIC_VIEW", "VIEW"]),
    ],
)
async def test_values_that_a_client_does_not_know_are_left_out(
    unity: Unity, agent: str, formats: list[str | None], types: list[str | None]
) -> None:
    found = await listed(unity, agent)

    assert [table["name"] for table in found] == ["d", "i", "m", "v"]
    assert [table.get("data_source_format") for table in found] == formats
    assert [table.get("table_type") for table in found if table["name"] != "i"] == types


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("OpenAPI-Generator/0.4.1/python", "VARIANT"),
        ("OpenAPI-Generator/0.4.1.dev0/python", None),
        ("OpenAPI-Generator/0.2.1/python", None),
    ],
)
async def test_type_names_that_a_client_does_not_know_are_left_out(unity: Unity, agent: str, name: str | None) -> None:
    columns = (await listed(unity, agent))[1]["columns"]

    assert [column.get("type_name") for column in columns] == ["LONG", "TIMESTAMP_NTZ", name, "ARRAY", "STRUCT"]
    assert columns[2]["type_text"] == "variant"


async def test_duckdb_gets_type_texts_that_it_can_parse(unity: Unity) -> None:
    plain = (await listed(unity, "curl/8.0"))[1]["columns"]
    columns = (await listed(unity, "duckdb/v1.5.5(linux_amd64) python/3.11 d8cdaa33fd"))[1]["columns"]

    texts = ["bigint", "timestamp", "string", "array<timestamp>", "struct<timestamp_ntz:timestamp>"]
    assert [column["type_text"] for column in columns] == texts
    assert [{**column, "type_text": ""} for column in columns] == [{**column, "type_text": ""} for column in plain]


@pytest.mark.parametrize(
    ("text", "kind", "is_listed"),
    [
        ("timestamp_ntz", "timestamp_ntz", False),
        (
            "array<timestamp_ntz>",
            {"type": "array", "elementType": "timestamp_ntz", "containsNull": True},
            False,
        ),
        ("variant", "variant", False),
        ("timestamp", "timestamp", True),
        ("BIGINT", "long", True),
    ],
)
async def test_duckdb_does_not_see_delta_tables_whose_types_it_cannot_have(
    unity: Unity, text: str, kind: object, *, is_listed: bool
) -> None:
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    field = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
    column: Json = {"name": "x", "type_text": text, "type_json": json.dumps(field)}
    table = {**WHERE, "name": "x", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": [column]}
    await unity.made("/tables", {**table, "storage_location": f"{root}/x"})

    assert ("x" in [found["name"] for found in await listed(unity, "duckdb/v1.5.5")]) is is_listed
    assert (await unity.get("/tables/main.s.x")).status_code == 200


@pytest.mark.parametrize("agent", ["duckdb/v1.5.5", "OpenAPI-Generator/0.2.1/python"])
async def test_omitted_columns_stay_omitted(unity: Unity, agent: str) -> None:
    assert all("columns" not in table for table in await listed(unity, agent, omit_columns="true"))
