"""Catalogs and schemas get another name: both protocols see it at once, and the old name is free."""

import json
import re

import httpx

from tests.compatibility.tour import GETS, KeptStore, fill
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, create_view, set_properties
from tests.server.unity.client import UNITY, Json, Unity, code

KEY = "0190b6a0-0000-7000-8000-000000000009"


async def _tables(client: httpx.AsyncClient, base: str) -> list[object]:
    answer = await client.get(f"{base}/tables")
    assert answer.status_code == 200, answer.text
    found: list[object] = answer.json()["identifiers"]
    return found


async def test_a_renamed_schema_has_its_new_name_in_both_protocols(unity: Unity, client: httpx.AsyncClient) -> None:
    made = await unity.made("/schemas", {"catalog_name": "main", "name": "n"})
    table = (await client.post("/v1/namespaces/n/tables", json=create_table("t"))).json()

    renamed = await unity.patch("/schemas/main.n", {"new_name": "m"})

    assert renamed.status_code == 200, renamed.text
    assert {key: renamed.json()[key] for key in ("name", "full_name", "schema_id")} == {
        "name": "m",
        "full_name": "main.m",
        "schema_id": made["schema_id"],
    }
    assert (await client.get("/v1/namespaces/m/tables/t")).json()["metadata-location"] == table["metadata-location"]
    assert await _tables(client, "/v1/namespaces/m") == [{"namespace": ["m"], "name": "t"}]
    assert (await client.get("/v1/namespaces")).json()["namespaces"] == [["m"]]
    assert (await client.get("/v1/namespaces/n/tables/t")).status_code == 404
    assert (await client.get("/v1/namespaces/n")).status_code == 404
    assert code(await unity.get("/schemas/main.n"))[0] == 404
    assert (await unity.get("/schemas", catalog_name="main")).json()["schemas"] == [
        (await unity.get("/schemas/main.m")).json()
    ]
    listed = (await unity.get("/tables", catalog_name="main", schema_name="m")).json()["tables"]
    assert listed == [(await unity.get("/tables/main.m.t")).json()]
    assert (listed[0]["catalog_name"], listed[0]["schema_name"]) == ("main", "m")


async def test_the_old_name_can_be_used_for_a_new_schema(unity: Unity, client: httpx.AsyncClient) -> None:
    first = await unity.made("/schemas", {"catalog_name": "main", "name": "n"})
    await client.post("/v1/namespaces/n/tables", json=create_table("t"))
    await unity.patch("/schemas/main.n", {"new_name": "m"})

    second = await unity.made("/schemas", {"catalog_name": "main", "name": "n"})
    made = await client.post("/v1/namespaces/n/tables", json=create_table("t"))

    assert made.status_code == 200, made.text
    assert second["schema_id"] != first["schema_id"]
    assert await unity.names("/schemas", "schemas", catalog_name="main") == ["m", "n"]
    assert await _tables(client, "/v1/namespaces/n") == [{"namespace": ["n"], "name": "t"}]
    both = [(await unity.get(f"/tables/main.{name}.t")).json()["table_id"] for name in ("m", "n")]
    assert both[0] != both[1]
    assert (await unity.delete("/schemas/main.n", force="true")).status_code == 200
    assert await unity.names("/schemas", "schemas", catalog_name="main") == ["m"]
    assert (await unity.patch("/schemas/main.m", {"new_name": "n"})).status_code == 200
    assert await _tables(client, "/v1/namespaces/n") == [{"namespace": ["n"], "name": "t"}]


async def test_a_renamed_catalog_takes_everything_with_it(unity: Unity, client: httpx.AsyncClient) -> None:
    made = await unity.made("/catalogs", {"name": "a"})
    for levels in (["s"], ["s", "x"]):
        assert (await client.post("/v1/a/namespaces", json={"namespace": levels})).status_code == 200
    await client.post("/v1/a/namespaces/s%1Fx/tables", json=create_table("t"))

    renamed = await unity.patch("/catalogs/a", {"new_name": "b", "comment": "moved"})

    assert renamed.status_code == 200, renamed.text
    assert (renamed.json()["id"], renamed.json()["name"], renamed.json()["comment"]) == (made["id"], "b", "moved")
    assert await _tables(client, "/v1/b/namespaces/s%1Fx") == [{"namespace": ["s", "x"], "name": "t"}]
    assert (await unity.get("/tables/b.s.x.t")).json()["catalog_name"] == "b"
    assert (await client.get("/v1/a/namespaces/s%1Fx/tables/t")).status_code == 404
    assert "a" not in await unity.names("/catalogs", "catalogs")
    again = await unity.made("/catalogs", {"name": "a"})
    assert again["storage_location"] != made["storage_location"]
    assert (await client.get("/v1/a/namespaces")).json()["namespaces"] == []


async def test_a_nested_namespace_is_renamed_within_its_parent(unity: Unity, client: httpx.AsyncClient) -> None:
    for levels in (["a"], ["a", "b"], ["a", "b", "c"]):
        await client.post("/v1/namespaces", json={"namespace": levels})

    assert (await unity.patch("/schemas/main.a.b", {"new_name": "z"})).status_code == 200

    assert (await client.get("/v1/namespaces", params={"parent": "a"})).json()["namespaces"] == [["a", "z"]]
    assert (await client.get("/v1/namespaces", params={"parent": "a\x1fz"})).json()["namespaces"] == [["a", "z", "c"]]
    assert (await client.get("/v1/namespaces/a%1Fb%1Fc")).status_code == 404


async def test_a_name_that_is_taken_refuses_the_rename(unity: Unity) -> None:
    for name in ("n", "m"):
        await unity.made("/schemas", {"catalog_name": "main", "name": name})

    taken = await unity.patch("/schemas/main.n", {"new_name": "m"})
    missing = await unity.patch("/schemas/main.x", {"new_name": "y"})
    default = await unity.patch("/catalogs/main", {"new_name": "other"})

    assert (taken.status_code, missing.status_code, default.status_code) == (400, 404, 400)
    assert await unity.names("/schemas", "schemas", catalog_name="main") == ["m", "n"]


async def test_a_retry_under_a_key_gets_the_same_answer(unity: Unity) -> None:
    await unity.made("/schemas", {"catalog_name": "main", "name": "n"})

    first = await unity.patch("/schemas/main.n", {"new_name": "m"}, idempotency_key=KEY)
    again = await unity.patch("/schemas/main.n", {"new_name": "m"}, idempotency_key=KEY)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()


def _as_renamed(text: str) -> str:
    """A path or an answer about the schema `s` as that of the schema `z`."""
    for part in ("/{}/", "main.{}", "schema_name={}", '"{}"', "exist: {}."):
        text = text.replace(part.format("s"), part.format("z"))
    for written in ('"of":"{}"', "main.{}.g"):  # A property and a definition keep what their author wrote.
        text = text.replace(written.format("z"), written.format("s"))
    return f"{text[:-2]}/z" if text.endswith("/s") else text


async def test_every_answer_about_a_renamed_schema_has_its_new_name(unity: Unity, client: httpx.AsyncClient) -> None:
    await fill(client)
    before = {path: await client.get(path) for path in GETS}

    renamed = await unity.patch("/schemas/main.s", {"new_name": "z"})

    assert renamed.status_code == 200, renamed.text
    for path, was in before.items():
        now = await client.get(_as_renamed(path))
        assert now.status_code == was.status_code, path
        # Locations keep the first name.
        shown, expected = (re.sub(r"memory:[^\"]*", "…", text) for text in (now.text, _as_renamed(was.text)))
        assert json.loads(shown) == json.loads(expected), path


def _name(namespace: str, name: str) -> Json:
    return {"namespace": [namespace], "name": name}


_TABLE = "/v1/namespaces/s/tables/i"
_DELTA = f"{UNITY}/delta/v1/catalogs/main/schemas/s"
_STALE = [
    ("GET", _TABLE, None),
    ("HEAD", _TABLE, None),
    ("POST", _TABLE, set_properties(a="b")),
    ("POST", f"{_TABLE}/plan", {}),
    ("GET", f"{_TABLE}/credentials", None),
    ("DELETE", _TABLE, None),
    ("POST", "/v1/namespaces/s/tables", create_table("new")),
    ("POST", "/v1/namespaces/s/views", create_view("new")),
    ("GET", "/v1/namespaces/s/tables", None),
    ("GET", "/v1/namespaces/s/views/v", None),
    ("DELETE", "/v1/namespaces/s/views/v", None),
    ("GET", "/v1/namespaces/s", None),
    ("DELETE", "/v1/namespaces/s", None),
    ("POST", "/v1/namespaces/s/properties", {"updates": {"a": "b"}, "removals": []}),
    ("POST", "/v1/tables/rename", {"source": _name("s", "i"), "destination": _name("s", "j")}),
    ("POST", "/v1/transactions/commit", {"table-changes": [{"identifier": _name("s", "i"), **set_properties(a="b")}]}),
    ("GET", f"{UNITY}/schemas/main.s", None),
    ("PATCH", f"{UNITY}/schemas/main.s", {"comment": "x"}),
    ("PATCH", f"{UNITY}/schemas/main.s", {"new_name": "y"}),
    ("DELETE", f"{UNITY}/schemas/main.s?force=true", None),
    ("GET", f"{UNITY}/tables?catalog_name=main&schema_name=s", None),
    ("GET", f"{UNITY}/tables/main.s.t", None),
    ("DELETE", f"{UNITY}/tables/main.s.t", None),
    ("GET", f"{UNITY}/volumes/main.s.vol", None),
    ("PATCH", f"{UNITY}/volumes/main.s.vol", {"comment": "x"}),
    ("PATCH", f"{UNITY}/models/main.s.m", {"comment": "x"}),
    ("DELETE", f"{UNITY}/functions/main.s.f", None),
    ("POST", f"{UNITY}/models", {"catalog_name": "main", "schema_name": "s", "name": "new"}),
    ("GET", f"{UNITY}/permissions/schema/main.s", None),
    ("PATCH", f"{UNITY}/permissions/schema/main.s", {"changes": [{"principal": "me@x.org", "add": ["SELECT"]}]}),
    ("GET", f"{_DELTA}/tables/t", None),
    ("DELETE", f"{_DELTA}/tables/t", None),
    ("POST", f"{_DELTA}/staging-tables", {"name": "new"}),
    ("POST", f"{_DELTA}/tables/t/rename", {"new-name": "u"}),
    ("GET", "/api/sandur/v1/contents/main/s", None),
    ("GET", "/api/sandur/v1/objects/main/s/i", None),
]


async def test_a_server_that_has_not_heard_of_a_rename_does_nothing_under_the_old_name(catalogs: Catalogs) -> None:
    store = KeptStore()
    stale, other = await catalogs.open(store, janitors=False), await catalogs.open(store, janitors=False)
    await fill(stale)
    for path in GETS:
        await stale.get(path)

    found: dict[tuple[str, str], int] = {}
    for method, path, body in _STALE:
        renamed = await Unity(other).patch("/schemas/main.s", {"new_name": "z"})
        assert renamed.status_code == 200, renamed.text
        answer = await stale.request(method, path, json=body)
        found[method, path] = answer.status_code
        # Back again, by the other server: the first one has heard of neither.
        back = await Unity(other).patch("/schemas/main.z", {"new_name": "s"})
        assert back.status_code == 200, (method, path, back.text)
        assert (await stale.get(_TABLE)).status_code == 200
    assert {request: status for request, status in found.items() if status != 404} == {}
