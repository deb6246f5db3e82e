"""Volumes, functions, models and their versions over Unity Catalog's API."""

from typing import Any

import httpx
import pytest

from tests.server.requests import create_table
from tests.server.unity.client import Json, Unity, code

KEY = "0190b6a0-0000-7000-8000-000000000003"
WHERE = {"catalog_name": "main", "schema_name": "s"}
FUNCTION: Json = {
    **WHERE,
    "name": "f",
    "input_params": {
        "parameters": [
            {"name": "x", "type_text": "int", "type_name": "INT", "type_json": '"integer"', "position": 0},
        ]
    },
    "data_type": "INT",
    "full_data_type": "INT",
    "routine_body": "EXTERNAL",
    "routine_definition": "return x + 1",
    "parameter_style": "S",
    "is_deterministic": True,
    "sql_data_access": "NO_SQL",
    "is_null_call": False,
    "security_type": "DEFINER",
    "specific_name": "f",
    "external_language": "python",
    "comment": "adds one",
    "routine_dependencies": {"dependencies": [{"function": {"function_full_name": "main.s.g"}}]},
}

# For each kind: the body that creates it, its path, and the field of its list.
KINDS: list[Any] = [
    pytest.param("/volumes", {**WHERE, "name": "x", "volume_type": "MANAGED"}, "volumes", "volume", id="volume"),
    pytest.param("/functions", {"function_info": {**FUNCTION, "name": "x"}}, "functions", "function", id="function"),
    pytest.param("/models", {**WHERE, "name": "x"}, "registered_models", "model", id="model"),
]

pytestmark = pytest.mark.usefixtures("schema")


@pytest.mark.parametrize(("path", "body", "key", "kind"), KINDS)
async def test_each_kind_is_created_loaded_listed_and_deleted(
    unity: Unity, path: str, body: Json, key: str, kind: str
) -> None:
    made = await unity.made(path, body)
    loaded = (await unity.get(f"{path}/main.s.x")).json()
    listed = (await unity.get(path, **WHERE)).json()

    assert made == loaded
    assert listed == {key: [made]}
    assert made["full_name"] == "main.s.x"
    assert made["created_at"] == made["updated_at"] > 0
    assert (await unity.delete(f"{path}/main.s.x")).status_code == 200
    for answer in (await unity.get(f"{path}/main.s.x"), await unity.delete(f"{path}/main.s.x")):
        assert code(answer) == (404, "NOT_FOUND")
    assert (await unity.get(path, **WHERE)).json() == {key: []}
    assert kind


@pytest.mark.parametrize(("path", "body", "key", "kind"), KINDS)
async def test_all_kinds_share_their_names(
    unity: Unity, client: httpx.AsyncClient, path: str, body: Json, key: str, kind: str
) -> None:
    assert (await client.post("/v1/namespaces/s/tables", json=create_table("t"))).status_code == 200
    await unity.made(path, body)

    over_a_table = await unity.post(path, _renamed(body, "t"))
    again = await unity.post(path, body)
    table_over_it = await client.post("/v1/namespaces/s/tables", json=create_table("x"))

    assert code(over_a_table) == (400, "TABLE_ALREADY_EXISTS")
    assert code(again) == ((409, "ALREADY_EXISTS") if kind == "model" else (400, "RESOURCE_ALREADY_EXISTS"))
    assert table_over_it.status_code == 409
    assert [entry["name"] for entry in (await unity.get(path, **WHERE)).json()[key]] == ["x"]


@pytest.mark.parametrize(("path", "body", "key", "kind"), KINDS)
async def test_a_schema_with_an_object_of_any_kind_is_not_empty(
    unity: Unity, path: str, body: Json, key: str, kind: str
) -> None:
    await unity.made(path, body)

    assert code(await unity.delete("/schemas/main.s")) == (400, "FAILED_PRECONDITION")
    assert (await unity.delete("/schemas/main.s", force="true")).status_code == 200

    assert code(await unity.get(f"{path}/main.s.x"))[0] == 404
    assert key
    assert kind


@pytest.mark.parametrize(("path", "body", "key", "kind"), KINDS)
async def test_a_creation_repeated_with_its_key_gets_the_same_answer(
    unity: Unity, path: str, body: Json, key: str, kind: str
) -> None:
    first = await unity.post(path, body, Idempotency_Key=KEY)
    again = await unity.post(path, body, Idempotency_Key=KEY)

    assert first.status_code == 200
    assert again.json() == first.json()
    assert key
    assert kind


@pytest.mark.parametrize(("path", "body", "key", "kind"), KINDS)
async def test_each_kind_needs_an_existing_schema_and_catalog(
    unity: Unity, path: str, body: Json, key: str, kind: str
) -> None:
    assert code(await unity.post(path, _at(body, schema_name="none"))) == (404, "SCHEMA_NOT_FOUND")
    assert code(await unity.post(path, _at(body, catalog_name="none"))) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get(path, catalog_name="main", schema_name="none")) == (404, "SCHEMA_NOT_FOUND")
    assert code(await unity.get(f"{path}/main.none.x"))[0] == 404
    assert code(await unity.get(f"{path}/x")) == (400, "INVALID_ARGUMENT")
    assert code(await unity.post(path, _renamed(body, "a.b"))) == (400, "INVALID_ARGUMENT")
    assert key
    assert kind


async def test_iceberg_clients_see_the_names_of_functions_but_no_tables(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    await unity.made("/functions", {"function_info": FUNCTION})

    functions = (await client.get("/v1/namespaces/s/functions")).json()
    tables = (await client.get("/v1/namespaces/s/tables")).json()

    assert functions["identifiers"] == [["s", "f"]]
    assert tables["identifiers"] == []


@pytest.mark.parametrize(
    ("full_type", "type_json", "expected", "text"),
    [
        ("INT", '{"name":"x","type":"integer","nullable":true,"metadata":{}}', "int", "int"),
        ("decimal(9,2)", '"decimal(9,2)"', "decimal(9,2)", "decimal(9,2)"),
        ("TIMESTAMP_NTZ", '"timestamp_ntz"', "timestamp", "timestamp"),
        (
            "array<bigint>",
            '{"name":"x","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}}',
            {"type": "list", "element": "long"},
            '{"type":"list","element":"long"}',
        ),
    ],
)
async def test_a_function_is_loaded_in_the_form_of_iceberg(
    unity: Unity, client: httpx.AsyncClient, full_type: str, type_json: str, expected: object, text: str
) -> None:
    parameter = {"name": "x", "type_text": full_type, "type_json": type_json, "type_name": "INT", "position": 0}
    sent = {**FUNCTION, "full_data_type": full_type, "input_params": {"parameters": [parameter]}, "routine_body": "SQL"}
    made = await unity.made("/functions", {"function_info": sent})

    loaded = (await client.get("/v1/namespaces/s/functions/f")).json()["metadata"]

    (definition,) = loaded["definitions"]
    (version,) = definition["versions"]
    assert (loaded["function-uuid"], loaded["format-version"], loaded["doc"]) == (made["function_id"], 1, "adds one")
    assert definition["parameters"] == [{"name": "x", "type": expected}]
    assert (definition["return-type"], definition["definition-id"]) == (expected, text)
    assert version["representations"] == [{"type": "sql", "dialect": "spark", "sql": FUNCTION["routine_definition"]}]
    assert (version["deterministic"], version["on-null-input"]) == (True, "return-null")
    assert loaded["definition-log"] == [
        {
            "timestamp-ms": made["created_at"],
            "definition-versions": [{"definition-id": text, "version-id": 1}],
        }
    ]


async def test_a_function_in_another_language_names_it_as_its_dialect(unity: Unity, client: httpx.AsyncClient) -> None:
    await unity.made("/functions", {"function_info": FUNCTION})

    loaded = (await client.get("/v1/namespaces/s/functions/f")).json()["metadata"]

    assert loaded["definitions"][0]["versions"][0]["representations"][0]["dialect"] == "python"


async def test_a_function_is_returned_as_it_was_created(unity: Unity) -> None:
    made = await unity.made("/functions", {"function_info": FUNCTION})

    assert {name: made[name] for name in FUNCTION} == FUNCTION
    assert made["function_id"]


@pytest.mark.parametrize("field", sorted(set(FUNCTION) - {"comment", "external_language", "routine_dependencies"}))
async def test_a_function_without_a_required_field_is_refused(unity: Unity, field: str) -> None:
    body = {name: value for name, value in FUNCTION.items() if name != field}

    assert code(await unity.post("/functions", {"function_info": body})) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(("path", "body", "key", "kind"), [kind for kind in KINDS if kind.id != "function"])
async def test_a_comment_and_a_name_are_changed(unity: Unity, path: str, body: Json, key: str, kind: str) -> None:
    made = await unity.made(path, {**body, "comment": "old"})

    commented = (await unity.patch(f"{path}/main.s.x", {"comment": "new"})).json()
    renamed = (await unity.patch(f"{path}/main.s.x", {"new_name": "y", "comment": "newer"})).json()

    assert (commented["comment"], commented["name"]) == ("new", "x")
    assert (renamed["comment"], renamed["name"], renamed["full_name"]) == ("newer", "y", "main.s.y")
    same = ("volume_id", "id", "storage_location", "created_at")
    assert {name: renamed[name] for name in same if name in renamed} == {
        name: made[name] for name in same if name in made
    }
    assert (await unity.get(f"{path}/main.s.y")).json() == renamed
    assert code(await unity.get(f"{path}/main.s.x")) == (404, "NOT_FOUND")
    assert (await unity.get(path, **WHERE)).json() == {key: [renamed]}
    assert kind


@pytest.mark.parametrize(("path", "body", "key", "kind"), [kind for kind in KINDS if kind.id != "function"])
async def test_a_repeated_keyed_change_of_name_and_comment_gets_the_same_answer(
    unity: Unity, path: str, body: Json, key: str, kind: str
) -> None:
    await unity.made(path, body)
    change = {"new_name": "y", "comment": "c"}
    first = await unity.patch(f"{path}/main.s.x", change, Idempotency_Key=KEY)
    await unity.patch(f"{path}/main.s.y", {"comment": "later"})

    again = await unity.patch(f"{path}/main.s.x", change, Idempotency_Key=KEY)

    assert first.status_code == again.status_code == 200, again.text
    assert again.json()["comment"] == "c"
    assert (await unity.get(f"{path}/main.s.y")).json()["comment"] == "later"
    assert key
    assert kind


async def test_a_change_of_a_missing_object_is_not_found(unity: Unity) -> None:
    for path in ("/volumes/main.s.none", "/models/main.s.none"):
        for body in ({"comment": "c"}, {"new_name": "y"}):
            assert code(await unity.patch(path, body)) == (404, "NOT_FOUND")


async def test_an_external_volume_has_the_requested_location_if_that_is_allowed(unity: Unity) -> None:
    managed = await unity.made("/volumes", {**WHERE, "name": "m", "volume_type": "MANAGED"})
    root = managed["storage_location"].partition("/__unitystorage/")[0]
    external = {**WHERE, "name": "e", "volume_type": "EXTERNAL"}

    made = await unity.made("/volumes", {**external, "storage_location": f"{root}/here/"})

    assert made["storage_location"] == f"{root}/here"
    assert code(await unity.post("/volumes", {**external, "name": "n"})) == (400, "INVALID_ARGUMENT")
    elsewhere = {**external, "name": "n", "storage_location": "s3://elsewhere/x"}
    assert code(await unity.post("/volumes", elsewhere)) == (400, "INVALID_ARGUMENT")
    placed = {**WHERE, "name": "n", "volume_type": "MANAGED", "storage_location": f"{root}/there"}
    assert code(await unity.post("/volumes", placed)) == (400, "INVALID_ARGUMENT")


async def test_comments_are_bounded_and_an_empty_one_is_absent(unity: Unity) -> None:
    volume = {**WHERE, "name": "v", "volume_type": "MANAGED"}

    made = await unity.made("/volumes", {**volume, "comment": ""})

    assert "comment" not in made
    assert code(await unity.patch("/volumes/main.s.v", {"comment": "x" * 65_537})) == (400, "INVALID_ARGUMENT")


async def test_versions_are_numbered_finalized_changed_and_dropped(unity: Unity) -> None:
    model = await unity.made("/models", {**WHERE, "name": "m"})
    version = {**WHERE, "model_name": "m", "source": "runs:/1", "run_id": "1", "comment": "c"}
    first = await unity.made("/models/versions", version)
    second = await unity.made("/models/versions", version)

    assert (first["version"], second["version"]) == (1, 2)
    assert first["status"] == "PENDING_REGISTRATION"
    assert first["storage_location"].startswith(model["storage_location"] + "/")
    assert (await unity.get("/models/main.s.m/versions")).json() == {"model_versions": [first, second]}
    final = {"full_name": "main.s.m", "version": 1}
    ready = (await unity.patch("/models/main.s.m/versions/1/finalize", final)).json()
    assert ready["status"] == "READY"
    assert code(await unity.patch("/models/main.s.m/versions/1/finalize", final)) == (400, "INVALID_ARGUMENT")
    changed = (await unity.patch("/models/main.s.m/versions/1", {"comment": "d"})).json()
    assert (changed["comment"], changed["status"]) == ("d", "READY")
    assert (await unity.delete("/models/main.s.m/versions/1")).status_code == 200
    assert code(await unity.get("/models/main.s.m/versions/1")) == (404, "NOT_FOUND")
    third = await unity.made("/models/versions", version)
    assert third["version"] == 3
    assert [entry["version"] for entry in (await unity.get("/models/main.s.m/versions")).json()["model_versions"]] == [
        2,
        3,
    ]


async def test_a_change_of_a_model_or_version_must_change_something(unity: Unity) -> None:
    model = await unity.made("/models", {**WHERE, "name": "m"})
    version = await unity.made("/models/versions", {**WHERE, "model_name": "m", "source": "x"})

    assert code(await unity.patch("/models/main.s.m", {})) == (400, "INVALID_ARGUMENT")
    assert code(await unity.patch("/models/main.s.m/versions/1", {})) == (400, "INVALID_ARGUMENT")
    assert (await unity.get("/models/main.s.m")).json() == model
    assert (await unity.get("/models/main.s.m/versions/1")).json() == version


async def test_versions_are_listed_in_pages(unity: Unity) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})
    for _ in range(12):
        await unity.made("/models/versions", {**WHERE, "model_name": "m", "source": "x"})

    seen: list[int] = []
    token = ""
    for _ in range(20):
        params = {"max_results": 5, **({"page_token": token} if token else {})}
        page = (await unity.get("/models/main.s.m/versions", **params)).json()
        seen += [entry["version"] for entry in page["model_versions"]]
        token = page.get("next_page_token", "")
        if not token:
            break

    assert seen == list(range(1, 13))


async def test_a_version_repeated_with_its_key_is_the_same_version(unity: Unity) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})
    version = {**WHERE, "model_name": "m", "source": "x"}

    first = await unity.post("/models/versions", version, Idempotency_Key=KEY)
    again = await unity.post("/models/versions", version, Idempotency_Key=KEY)

    assert again.json() == first.json()
    assert len((await unity.get("/models/main.s.m/versions")).json()["model_versions"]) == 1


async def test_a_model_with_versions_is_deleted_only_by_force(unity: Unity) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})
    await unity.made("/models/versions", {**WHERE, "model_name": "m", "source": "x"})

    assert code(await unity.delete("/models/main.s.m")) == (409, "ABORTED")
    assert (await unity.delete("/models/main.s.m", force="true")).status_code == 200

    await unity.made("/models", {**WHERE, "name": "m"})
    assert (await unity.get("/models/main.s.m/versions")).json() == {"model_versions": []}


@pytest.mark.parametrize("version", ["x", "-1", "9" * 30])
async def test_versions_that_are_not_numbers_are_refused(unity: Unity, version: str) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})

    assert code(await unity.get(f"/models/main.s.m/versions/{version}"))[0] == 400


async def test_a_finalization_repeated_with_its_key_succeeds(unity: Unity) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})
    await unity.made("/models/versions", {**WHERE, "model_name": "m", "source": "x"})
    path, final = "/models/main.s.m/versions/1/finalize", {"full_name": "main.s.m", "version": 1}

    first = await unity.patch(path, final, Idempotency_Key=KEY)
    again = await unity.patch(path, final, Idempotency_Key=KEY)

    assert first.json()["status"] == "READY"
    assert again.json() == first.json()


async def test_a_finalization_that_contradicts_itself_is_refused(unity: Unity) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})
    await unity.made("/models/versions", {**WHERE, "model_name": "m", "source": "x"})

    answer = await unity.patch("/models/main.s.m/versions/1/finalize", {"full_name": "main.s.m", "version": 2})

    assert code(answer) == (400, "INVALID_ARGUMENT")


async def test_models_of_all_schemas_are_listed_in_pages(unity: Unity) -> None:
    await unity.made("/catalogs", {"name": "c"})
    for catalog, schema in (("c", "a"), ("c", "b"), ("main", "z")):
        await unity.made("/schemas", {"catalog_name": catalog, "name": schema})
        for number in range(3):
            await unity.made("/models", {"catalog_name": catalog, "schema_name": schema, "name": f"m{number}"})

    everything = (await unity.get("/models")).json()["registered_models"]
    paged: list[str] = []
    token = ""
    for _ in range(20):
        params = {"max_results": 2, **({"page_token": token} if token else {})}
        page = (await unity.get("/models", **params)).json()
        paged += [entry["full_name"] for entry in page["registered_models"]]
        token = page.get("next_page_token", "")
        if not token:
            break

    assert len(everything) == 9
    assert paged == [entry["full_name"] for entry in everything]
    assert len((await unity.get("/models", catalog_name="c")).json()["registered_models"]) == 6
    assert code(await unity.get("/models", catalog_name="none")) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get("/models", schema_name="a")) == (400, "INVALID_ARGUMENT")


def _renamed(body: Json, name: str) -> Json:
    return _at(body, name=name)


def _at(body: Json, **fields: str) -> Json:
    if "function_info" in body:
        return {"function_info": {**body["function_info"], **fields}}
    return {**body, **fields}
