"""Catalogs over Unity Catalog's API."""

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer
from tests.server.unity.client import Json, Unity, code

KEY = "0190b6a0-0000-7000-8000-000000000001"


async def test_a_catalog_is_created_loaded_and_listed(unity: Unity) -> None:
    made = await unity.made("/catalogs", {"name": "c", "comment": "words", "properties": {"k": "v"}})
    loaded = (await unity.get("/catalogs/c")).json()
    listed = (await unity.get("/catalogs")).json()

    assert made == loaded
    assert {key: made[key] for key in ("name", "comment", "properties")} == {
        "name": "c",
        "comment": "words",
        "properties": {"k": "v"},
    }
    assert made["id"]
    assert made["created_at"] == made["updated_at"] > 0
    assert made["storage_location"]
    assert [entry["name"] for entry in listed["catalogs"]] == ["c", "main"]
    assert listed["catalogs"][0] == made
    assert "next_page_token" not in listed


async def test_an_existing_catalog_conflicts(unity: Unity) -> None:
    assert code(await unity.post("/catalogs", {"name": "main"})) == (400, "CATALOG_ALREADY_EXISTS")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "x" * 256, "ä"])
async def test_names_that_would_break_full_names_are_refused(unity: Unity, name: str) -> None:
    assert code(await unity.post("/catalogs", {"name": name})) == (400, "INVALID_ARGUMENT")


async def test_a_root_outside_the_allowed_locations_is_refused(unity: Unity) -> None:
    answer = await unity.post("/catalogs", {"name": "c", "storage_root": "s3://elsewhere/x"})

    assert code(answer) == (400, "INVALID_ARGUMENT")


async def test_a_catalog_is_changed_and_the_list_shows_it(unity: Unity) -> None:
    await unity.made("/catalogs", {"name": "c", "comment": "old", "properties": {"a": "1", "b": "2"}})

    changed = (await unity.patch("/catalogs/c", {"comment": "new", "properties": {"a": "3"}})).json()

    assert (changed["comment"], changed["properties"]) == ("new", {"a": "3"})
    assert (await unity.get("/catalogs")).json()["catalogs"][0] == changed


async def test_an_empty_change_changes_nothing(unity: Unity) -> None:
    made = await unity.made("/catalogs", {"name": "c", "properties": {"a": "1"}})

    bodies: list[Json] = [{}, {"properties": {}}, {"new_name": "c"}]
    for body in bodies:
        assert (await unity.patch("/catalogs/c", body)).json() == made


async def test_properties_of_the_catalog_itself_are_refused(unity: Unity) -> None:
    assert code(await unity.post("/catalogs", {"name": "c", "properties": {"sandur.x": "1"}}))[0] == 400
    assert code(await unity.patch("/catalogs/main", {"properties": {"Sandur.x": "1"}}))[0] == 400


async def test_an_empty_catalog_is_deleted(unity: Unity) -> None:
    made = await unity.made("/catalogs", {"name": "c"})

    assert (await unity.delete("/catalogs/c")).status_code == 200

    assert code(await unity.get("/catalogs/c")) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.delete("/catalogs/c")) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.patch("/catalogs/c", {"comment": "x"})) == (404, "CATALOG_NOT_FOUND")
    assert code(await unity.get("/schemas", catalog_name="c")) == (404, "CATALOG_NOT_FOUND")
    assert await unity.names("/catalogs", "catalogs") == ["main"]
    again = await unity.made("/catalogs", {"name": "c"})
    assert again["id"] != made["id"]


async def test_a_catalog_with_a_schema_is_deleted_only_by_force(unity: Unity) -> None:
    await unity.made("/catalogs", {"name": "c"})
    await unity.made("/schemas", {"catalog_name": "c", "name": "s"})

    assert code(await unity.delete("/catalogs/c")) == (400, "FAILED_PRECONDITION")
    assert await unity.names("/schemas", "schemas", catalog_name="c") == ["s"]
    assert (await unity.delete("/catalogs/c", force="true")).status_code == 200

    assert code(await unity.get("/schemas/c.s"))[0] == 404
    await unity.made("/catalogs", {"name": "c"})
    assert await unity.names("/schemas", "schemas", catalog_name="c") == []


async def test_a_forced_deletion_also_deletes_what_iceberg_clients_created(
    unity: Unity, client: httpx.AsyncClient
) -> None:
    await unity.made("/catalogs", {"name": "c"})
    for levels in (["a"], ["a", "b"]):
        assert (await client.post("/v1/c/namespaces", json={"namespace": levels})).status_code == 200
    table = {"name": "t", "schema": {"type": "struct", "fields": []}}
    assert (await client.post("/v1/c/namespaces/a%1Fb/tables", json=table)).status_code == 200

    assert (await unity.delete("/catalogs/c", force="true")).status_code == 200

    assert (await client.get("/v1/c/namespaces/a%1Fb/tables/t")).status_code == 404
    assert (await client.get("/v1/c/namespaces/a")).status_code == 404


async def test_the_default_catalog_cannot_be_deleted(unity: Unity) -> None:
    assert code(await unity.delete("/catalogs/main", force="true")) == (400, "INVALID_ARGUMENT")


async def test_a_creation_repeated_with_its_key_gets_the_same_answer(unity: Unity) -> None:
    first = await unity.post("/catalogs", {"name": "c"}, Idempotency_Key=KEY)
    again = await unity.post("/catalogs", {"name": "c"}, Idempotency_Key=KEY)
    other = await unity.post("/catalogs", {"name": "d"}, Idempotency_Key=KEY)

    assert first.status_code == 200
    assert again.json() == first.json()
    assert code(other) == (409, "ABORTED")


async def test_a_replay_still_answers_after_its_catalog_was_changed_and_dropped(unity: Unity) -> None:
    first = await unity.post("/catalogs", {"name": "c"}, Idempotency_Key=KEY)
    await unity.patch("/catalogs/c", {"comment": "another"})
    await unity.delete("/catalogs/c")

    again = await unity.post("/catalogs", {"name": "c"}, Idempotency_Key=KEY)

    assert again.json()["id"] == first.json()["id"]
    assert code(await unity.get("/catalogs/c"))[0] == 404


async def test_lists_have_pages_only_on_request(unity: Unity) -> None:
    for number in range(5):
        await unity.made("/catalogs", {"name": f"c{number}"})

    everything = (await unity.get("/catalogs")).json()
    first = (await unity.get("/catalogs", max_results=2)).json()
    at_server_size = (await unity.get("/catalogs", max_results=0)).json()

    assert len(everything["catalogs"]) == len(at_server_size["catalogs"]) == 6
    assert len(first["catalogs"]) == 2
    assert await unity.names("/catalogs", "catalogs", max_results=2) == [
        entry["name"] for entry in everything["catalogs"]
    ]


@pytest.mark.parametrize("params", [{"max_results": -1}, {"max_results": "x"}, {"page_token": "nonsense"}])
async def test_a_list_request_with_bad_parameters_is_refused(unity: Unity, params: dict[str, str]) -> None:
    assert code(await unity.get("/catalogs", **params)) == (400, "INVALID_ARGUMENT")


async def test_a_page_token_is_valid_for_its_own_list_only(unity: Unity) -> None:
    await unity.made("/catalogs", {"name": "c"})
    token = (await unity.get("/catalogs", max_results=1)).json()["next_page_token"]

    assert code(await unity.get("/schemas", catalog_name="main", page_token=token)) == (400, "INVALID_ARGUMENT")


async def test_tenants_do_not_see_each_other(unity: Unity) -> None:
    await unity.made("/catalogs", {"name": "c"})

    listed = await unity.http.get("/api/2.1/unity-catalog/catalogs", headers={"X-Sandur-Tenant": "other"})
    loaded = await unity.http.get("/api/2.1/unity-catalog/catalogs/c", headers={"X-Sandur-Tenant": "other"})

    assert [entry["name"] for entry in listed.json()["catalogs"]] in ([], ["main"])
    assert code(loaded) == (404, "CATALOG_NOT_FOUND")


async def test_an_unknown_route_gets_an_error_of_this_api(unity: Unity) -> None:
    assert code(await unity.get("/nothing/here")) == (501, "UNIMPLEMENTED")
    assert code(await unity.get("")) == (501, "UNIMPLEMENTED")
    assert code(await unity.get("Xcatalogs")) == (501, "UNIMPLEMENTED")
    assert code(await unity.http.put("/api/2.1/unity-catalog/catalogs", json={})) == (405, "UNIMPLEMENTED")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"name":1}', b"\xff", b"{}"])
async def test_malformed_bodies_are_refused(unity: Unity, body: bytes) -> None:
    answer = await unity.http.post("/api/2.1/unity-catalog/catalogs", content=body)

    assert code(answer) == (400, "INVALID_ARGUMENT")


async def test_requests_without_a_token_are_refused(catalogs: Catalogs) -> None:
    closed = Unity(await catalogs.open_with(SECURED))

    assert code(await closed.get("/catalogs")) == (401, "UNAUTHENTICATED")
    closed.http.headers.update(await bearer(closed.http))
    assert (await closed.get("/catalogs")).status_code == 200
    made = await closed.made("/catalogs", {"name": "c"})
    assert (made["owner"], made["created_by"]) == ("admin", "admin")
