"""SCIM users and groups are the principals of the catalog, for administrators only."""

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import PRINCIPALS, SECURED, bearer, make_principal
from tests.server.unity.client import CONTROL, Unity, code

GROUPS = "/api/sandur/v1/groups"


@pytest.fixture
async def secured(catalogs: Catalogs) -> Unity:
    """The control API, as its administrator."""
    control = Unity(await catalogs.open_with(SECURED), CONTROL)
    control.http.headers.update(await bearer(control.http))
    return control


async def principal(control: Unity, name: str) -> httpx.Response:
    return await control.http.get(f"{PRINCIPALS}/{name}")


async def made_user(control: Unity, name: str) -> str:
    return str((await control.made("/scim2/Users", {"emails": [{"value": name}]}))["id"])


async def test_a_user_is_a_principal(secured: Unity) -> None:
    id_ = await made_user(secured, "ann@x.org")

    found = (await principal(secured, "Ann@X.org")).json()

    assert (found["id"], found["kind"], found["disabled"]) == (id_, "user", False)
    assert (await secured.http.delete(f"{PRINCIPALS}/ann@x.org")).status_code == 204
    assert code(await secured.get(f"/scim2/Users/{id_}")) == (404, "NOT_FOUND")


@pytest.mark.parametrize("value", [False, "False"])
async def test_a_directory_disables_a_user_by_a_patch(secured: Unity, value: object) -> None:
    id_ = await made_user(secured, "ann@x.org")
    patches = [{"op": "replace", "path": "active", "value": value}, {"op": "Replace", "value": {"active": value}}]

    for patch in patches:
        await secured.http.put(f"{CONTROL}/scim2/Users/{id_}", json={"active": True})
        answer = await secured.http.patch(f"{CONTROL}/scim2/Users/{id_}", json={"Operations": [patch]})
        assert answer.json()["active"] is False
    assert (await principal(secured, "ann@x.org")).json()["disabled"] is True
    refused = await secured.http.patch(
        f"{CONTROL}/scim2/Users/{id_}", json={"Operations": [{"op": "remove", "path": "emails"}]}
    )
    assert code(refused) == (501, "UNIMPLEMENTED")


async def test_a_group_is_created_loaded_listed_changed_and_deleted(secured: Unity) -> None:
    ann, bob = [await made_user(secured, name) for name in ("ann@x.org", "bob@x.org")]
    made = await secured.made("/scim2/Groups", {"displayName": "analysts", "members": [{"value": ann}]})
    path = f"/scim2/Groups/{made['id']}"

    assert (await secured.get(path)).json() == made
    listed = (await secured.get("/scim2/Groups", filter='displayName eq "analysts"')).json()
    assert (listed["totalResults"], listed["Resources"]) == (1, [made])
    renamed = await secured.http.put(CONTROL + path, json={"displayName": "readers", "members": [{"value": bob}]})
    assert (renamed.json()["displayName"], renamed.json()["members"]) == ("readers", [{"value": bob}])
    assert (await principal(secured, "bob@x.org")).json()["groups"] == ["readers"]
    assert (await secured.delete(path)).status_code == 200
    assert code(await secured.get(path)) == (404, "NOT_FOUND")
    assert (await principal(secured, "bob@x.org")).json()["groups"] == []


async def test_members_of_a_group_are_patched(secured: Unity) -> None:
    ann, bob = [await made_user(secured, name) for name in ("ann@x.org", "bob@x.org")]
    made = await secured.made("/scim2/Groups", {"displayName": "analysts"})

    async def patched(*operations: object) -> list[str]:
        answer = await secured.http.patch(f"{CONTROL}/scim2/Groups/{made['id']}", json={"Operations": list(operations)})
        assert answer.status_code == 200, answer.text
        return [member["value"] for member in answer.json().get("members", [])]

    both = [{"value": ann}, {"value": bob}]
    assert await patched({"op": "add", "path": "members", "value": both}) == [ann, bob]
    assert await patched({"op": "remove", "path": f'members[value eq "{ann}"]'}) == [bob]
    assert await patched({"op": "Replace", "path": "members", "value": [{"value": ann}]}) == [ann]
    assert await patched({"op": "remove", "path": "members", "value": [{"value": ann}]}) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "INVALID_ARGUMENT")),
        ({"displayName": "everyone"}, (400, "INVALID_ARGUMENT")),
        ({"displayName": "admin"}, (400, "RESOURCE_ALREADY_EXISTS")),
        ({"displayName": "g", "members": [{"value": "unknown"}]}, (404, "NOT_FOUND")),
    ],
)
async def test_an_invalid_group_is_refused(secured: Unity, body: object, expected: tuple[int, str]) -> None:
    assert code(await secured.post("/scim2/Groups", body)) == expected


async def test_only_administrators_see_and_change_users_and_groups(secured: Unity) -> None:
    ann = await made_user(secured, "ann@x.org")
    etl = await make_principal(secured.http, {}, "etl")
    body = {"emails": [{"value": "eve@x.org"}]}

    for method, path, sent in (
        ("POST", "/scim2/Users", body),
        ("GET", "/scim2/Users", None),
        ("GET", f"/scim2/Users/{ann}", None),
        ("PUT", f"/scim2/Users/{ann}", {"active": False}),
        ("PATCH", f"/scim2/Users/{ann}", {"Operations": []}),
        ("DELETE", f"/scim2/Users/{ann}", None),
        ("POST", "/scim2/Groups", {"displayName": "g"}),
        ("GET", "/scim2/Groups", None),
        ("DELETE", "/scim2/Groups/x", None),
    ):
        refused = await secured.http.request(method, CONTROL + path, json=sent, headers=etl)
        assert code(refused) == (403, "PERMISSION_DENIED"), path
    me = (await secured.http.get(f"{CONTROL}/scim2/Me", headers=etl)).json()
    assert (me["emails"][0]["value"], me["active"]) == ("etl", True)


async def test_roles_nest_and_a_group_cannot_contain_itself(secured: Unity) -> None:
    http = secured.http
    etl = await make_principal(http, {}, "etl", "writers")
    role = await http.post(GROUPS, json={"name": "lake-admins", "kind": "role", "members": ["writers"]})

    me = (await http.get("/api/sandur/v1/me", headers=etl)).json()
    cycle = await http.put(f"{GROUPS}/writers/members", json=["lake-admins"])
    emptied = await http.put(f"{GROUPS}/writers/members", json={"members": []})

    assert (role.status_code, role.json()["kind"], role.json()["members"]) == (201, "role", ["writers"])
    assert me["groups"] == ["lake-admins", "writers"]
    assert cycle.status_code == 400
    assert emptied.json()["members"] == []
    assert (await http.get("/api/sandur/v1/me", headers=etl)).json()["groups"] == []
    assert [one["name"] for one in (await http.get(GROUPS)).json()["groups"]] == ["lake-admins", "writers"]
    assert (await http.delete(f"{GROUPS}/lake-admins")).status_code == 204
    assert (await http.get(f"{GROUPS}/lake-admins")).status_code == 404
    assert (await secured.get("/scim2/Groups", filter='displayName eq "lake-admins"')).json()["totalResults"] == 0
