"""Views in the Unity Catalog API, and the tables and functions that they depend on."""

import pytest

from tests.server.unity.client import Json, Unity, code
from tests.server.unity.test_tables import COLUMN, KEY, WHERE, listed

pytestmark = pytest.mark.usefixtures("schema")


async def source_table(unity: Unity) -> str:
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    table = {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "CSV", "columns": []}
    await unity.made("/tables", {**table, "storage_location": f"{root}/t"})
    return "main.s.t"


async def test_a_view_is_created_and_listed(unity: Unity) -> None:
    source = await source_table(unity)
    body = {
        **WHERE,
        "name": "v",
        "table_type": "VIEW",
        "columns": [COLUMN],
        "view_definition": "select 1",
        "view_dependencies": {"dependencies": [{"table": {"table_full_name": source}}]},
        "properties": {"view.sqlConfig": "x"},
    }

    made = await unity.made("/tables", body)

    assert (made["table_type"], made["view_definition"]) == ("VIEW", "select 1")
    assert made["view_dependencies"] == body["view_dependencies"]
    assert (await listed(unity))[1] == made
    assert (await unity.delete("/tables/main.s.v")).status_code == 200


async def test_a_view_may_name_no_dependencies_but_a_metric_view_must(unity: Unity) -> None:
    view = {**WHERE, "name": "v", "table_type": "VIEW", "view_definition": "select 1"}

    assert (await unity.made("/tables", view))["view_dependencies"] == {"dependencies": []}
    for dependencies in (None, {"dependencies": ()}):
        metric: Json = {**view, "name": "m", "table_type": "METRIC_VIEW", "view_dependencies": dependencies}
        assert code(await unity.post("/tables", metric)) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("table_type", ["VIEW", "METRIC_VIEW"])
@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        ({"table": {"table_full_name": "main.s.missing"}}, (404, "NOT_FOUND")),
        ({"function": {"function_full_name": "main.s.t"}}, (404, "NOT_FOUND")),
        ({"table": {"table_full_name": "main.none.t"}}, (404, "SCHEMA_NOT_FOUND")),
        ({"table": {"table_full_name": "none.s.t"}}, (404, "CATALOG_NOT_FOUND")),
        ({"table": {"table_full_name": "s.t"}}, (400, "INVALID_ARGUMENT")),
        ({"table": {"table_full_name": ""}}, (400, "INVALID_ARGUMENT")),
        ({}, (400, "INVALID_ARGUMENT")),
        (
            {"table": {"table_full_name": "main.s.t"}, "function": {"function_full_name": "main.s.t"}},
            (400, "INVALID_ARGUMENT"),
        ),
    ],
)
async def test_a_view_with_a_dependency_that_does_not_exist_is_refused(
    unity: Unity, table_type: str, dependency: Json, expected: tuple[int, str]
) -> None:
    source = await source_table(unity)
    dependencies = [{"table": {"table_full_name": source}}, dependency]
    view = {**WHERE, "name": "v", "table_type": table_type, "view_definition": "select 1"}

    refused = await unity.post("/tables", {**view, "view_dependencies": {"dependencies": dependencies}})

    assert code(refused) == expected
    assert await unity.names("/tables", "tables", **WHERE) == ["t"]


async def test_a_view_repeated_with_its_key_succeeds_after_its_source_was_dropped(unity: Unity) -> None:
    source = await source_table(unity)
    view: Json = {**WHERE, "name": "v", "table_type": "VIEW", "view_definition": "select 1"}
    view["view_dependencies"] = {"dependencies": [{"table": {"table_full_name": source}}]}

    first = await unity.post("/tables", view, Idempotency_Key=KEY)
    await unity.delete(f"/tables/{source}")
    again = await unity.post("/tables", view, Idempotency_Key=KEY)

    assert first.status_code == 200
    assert again.json() == first.json()
