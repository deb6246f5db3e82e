"""Schemas over Unity Catalog's API: the namespaces that Iceberg clients see."""

import asyncio

import httpx

from tests.server.unity.client import Unity, code

KEY = "0190b6a0-0000-7000-8000-000000000002"
SCHEMA = {"catalog_name": "main", "name": "s", "comment": "words", "properties": {"k": "v"}}


async def test_a_schema_is_created_loaded_and_listed(unity: Unity) -> None:
    made = await unity.made("/schemas", SCHEMA)
    loaded = (await unity.get("/schemas/main.s")).json()
    listed = (await unity.get("/schemas", catalog_name="main")).json()

    assert {key: made[key] for key in (*SCHEMA, "full_name")} == {**SCHEMA, "full_name": "main.s"}
    assert made["schema_id"]
    assert loaded == made
    assert listed == {"schemas": [made]}


async def test_iceberg_clients_see_the_schema_and_its_comment(unity: Unity, client: httpx.AsyncClient) -> None:
    await unity.made("/schemas", SCHEMA)

    properties = (await client.get("/v1/namespaces/s")).json()["properties"]

    assert {"comment": "words", "k": "v"}.items() <= properties.items()


async def test_an_iceberg_namespace_is_listed_as_a_schema(unity: Unity, client: httpx.AsyncClient) -> None:
    body = {"namespace": ["n"], "properties": {"comment": "from Iceberg", "owner": "me"}}
    assert (await client.post("/v1/namespaces", json=body)).status_code == 200

    listed = (await unity.get("/schemas", catalog_name="main")).json()["schemas"]

    assert [(entry["name"], entry["comment"]) for entry in listed] == [("n", "from Iceberg")]
    assert (await unity.get("/schemas/main.n")).json() == listed[0]


async def test_a_comment_changed_in_one_protocol_is_changed_in_the_other(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    await unity.made("/schemas", SCHEMA)
    update = {"updates": {"comment": "by Iceberg"}, "removals": []}
    assert (await client.post("/v1/namespaces/s/properties", json=update)).status_code == 200
    by_iceberg = (await unity.get("/schemas/main.s")).json()["comment"]

    assert (await unity.patch("/schemas/main.s", {"comment": "by Unity"})).status_code == 200

    assert by_iceberg == "by Iceberg"
    assert (await client.get("/v1/namespaces/s")).json()["properties"]["comment"] == "by Unity"


async def test_nested_namespaces_are_reached_by_their_dotted_names(unity: Unity, client: httpx.AsyncClient) -> None:
    for levels in (["a"], ["a", "b"]):
        await client.post("/v1/namespaces", json={"namespace": levels})

    nested = (await unity.get("/schemas/main.a.b")).json()

    assert (nested["name"], nested["full_name"]) == ("a.b", "main.a.b")
    assert await unity.names("/schemas", "schemas", catalog_name="main") == ["a"]


async def test_a_level_that_contains_a_dot_is_not_listed(unity: Unity, client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces", json={"namespace": ["x.y"]})

    assert await unity.names("/schemas", "schemas", catalog_name="main") == []
    assert code(await unity.get("/schemas/main.x.y")) == (404, "SCHEMA_NOT_FOUND")


async def test_an_existing_schema_conflicts(unity: Unity) -> None:
    await unity.made("/schemas", SCHEMA)

    assert code(await unity.post("/schemas", SCHEMA)) == (400, "SCHEMA_ALREADY_EXISTS")


async def test_a_schema_needs_its_catalog(unity: Unity) -> None:
    assert code(await unity.post("/schemas", {"catalog_name": "none", "name": "s"})) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get("/schemas", catalog_name="none")) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get("/schemas")) == (400, "INVALID_ARGUMENT")
    assert code(await unity.get("/schemas/main")) == (400, "INVALID_ARGUMENT")
    assert code(await unity.get("/schemas/none.s")) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get("/schemas/main.none")) == (404, "SCHEMA_NOT_FOUND")


async def test_a_change_replaces_all_properties_and_an_empty_change_keeps_them(unity: Unity) -> None:
    made = await unity.made("/schemas", SCHEMA)

    unchanged = (await unity.patch("/schemas/main.s", {"properties": {}})).json()
    changed = (await unity.patch("/schemas/main.s", {"properties": {"other": "1"}})).json()

    assert unchanged == made
    assert (changed["properties"], changed["comment"]) == ({"other": "1"}, "words")
    assert (await unity.get("/schemas", catalog_name="main")).json() == {"schemas": [changed]}


async def test_a_change_repeated_with_its_key_does_not_undo_a_later_one(unity: Unity) -> None:
    await unity.made("/schemas", SCHEMA)
    first = await unity.patch("/schemas/main.s", {"comment": "one"}, Idempotency_Key=KEY)
    await unity.patch("/schemas/main.s", {"comment": "two"})

    again = await unity.patch("/schemas/main.s", {"comment": "one"}, Idempotency_Key=KEY)

    assert again.json()["comment"] == first.json()["comment"] == "one"
    assert (await unity.get("/schemas/main.s")).json()["comment"] == "two"


async def test_a_schema_with_a_table_is_deleted_only_by_force(unity: Unity, client: httpx.AsyncClient) -> None:
    await unity.made("/schemas", SCHEMA)
    table = {"name": "t", "schema": {"type": "struct", "fields": []}}
    assert (await client.post("/v1/namespaces/s/tables", json=table)).status_code == 200

    assert code(await unity.delete("/schemas/main.s")) == (400, "FAILED_PRECONDITION")
    assert (await unity.delete("/schemas/main.s", force="true")).status_code == 200

    assert (await client.get("/v1/namespaces/s/tables/t")).status_code == 404
    assert code(await unity.delete("/schemas/main.s", force="true")) == (404, "SCHEMA_NOT_FOUND")


async def test_exactly_one_of_a_catalog_drop_and_a_schema_creation_wins(
    unity: Unity,
) -> None:
    for _ in range(20):
        await unity.made("/catalogs", {"name": "c"})

        made, dropped = await asyncio.gather(
            unity.post("/schemas", {"catalog_name": "c", "name": "s"}), unity.delete("/catalogs/c")
        )

        assert {made.status_code == 200, dropped.status_code == 200} == {True, False}, (made.text, dropped.text)
        if made.status_code == 200:
            assert (await unity.get("/schemas/c.s")).status_code == 200
            assert (await unity.delete("/catalogs/c", force="true")).status_code == 200


async def test_a_property_named_location_does_not_move_a_schema(unity: Unity) -> None:
    """A location needs a right of its own, which this request does not check."""
    await unity.made("/schemas", {"catalog_name": "main", "name": "plain"})
    before = (await unity.http.get("/v1/main/namespaces/plain")).json()["properties"]["location"]

    changed = await unity.patch("/schemas/main.plain", {"properties": {"location": f"{before}-other", "k": "v"}})

    after = (await unity.http.get("/v1/main/namespaces/plain")).json()["properties"]
    assert changed.json()["properties"] == {"k": "v"}
    assert after == {"location": before, "k": "v"}
