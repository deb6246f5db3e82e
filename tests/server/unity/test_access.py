"""Users and tokens over Unity Catalog's control API."""

import base64

import pytest

from sandur.server.context import Bearer, signed_token
from tests.server.conftest import Catalogs
from tests.server.unity.client import CONTROL, Unity, code

EXCHANGE = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
    "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
}
SECRET = "a secret that is long enough to sign with"  # noqa: S105 - a test's


async def test_a_user_is_created_loaded_listed_changed_and_deleted(control: Unity) -> None:
    made = await control.made(
        "/scim2/Users", {"displayName": "Me", "externalId": "7", "emails": [{"value": "me@here.org", "primary": True}]}
    )
    path = f"/scim2/Users/{made['id']}"

    assert (made["displayName"], made["externalId"], made["active"]) == ("Me", "7", True)
    assert made["emails"] == [{"value": "me@here.org", "primary": True}]
    assert (await control.get(path)).json() == made
    listed = (await control.get("/scim2/Users")).json()
    assert listed == {"totalResults": 1, "itemsPerPage": 1, "startIndex": 1, "Resources": [made]}
    changed = await control.http.put(CONTROL + path, json={"displayName": "You", "active": False})
    assert (changed.json()["displayName"], changed.json()["active"]) == ("You", False)
    assert (await control.delete(path)).status_code == 200
    assert code(await control.get(path)) == (404, "NOT_FOUND")
    assert code(await control.delete(path)) == (404, "NOT_FOUND")


async def test_an_address_belongs_to_one_user(control: Unity) -> None:
    body = {"displayName": "Me", "emails": [{"value": "me@here.org"}]}
    made = await control.made("/scim2/Users", body)

    again = await control.post("/scim2/Users", {**body, "emails": [{"value": "ME@here.org"}]})
    moved = await control.http.put(
        f"{CONTROL}/scim2/Users/{made['id']}", json={"emails": [{"value": "other@here.org"}]}
    )

    assert code(again) == (400, "RESOURCE_ALREADY_EXISTS")
    assert code(moved) == (400, "INVALID_ARGUMENT")


async def test_users_are_filtered_and_paged(control: Unity) -> None:
    for number in range(5):
        await control.made("/scim2/Users", {"displayName": f"u{number}", "emails": [{"value": f"u{number}@x.org"}]})

    found = (await control.get("/scim2/Users", filter='displayName eq "u3"')).json()
    page = (await control.get("/scim2/Users", startIndex=4, count=10)).json()

    assert [user["displayName"] for user in found["Resources"]] == ["u3"]
    assert (page["totalResults"], page["itemsPerPage"], page["startIndex"]) == (5, 2, 4)
    assert code(await control.get("/scim2/Users", filter="displayName co 3")) == (501, "UNIMPLEMENTED")
    assert code(await control.get("/scim2/Users", count="x")) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("body", [{}, {"emails": []}, {"emails": [{"value": "nonsense"}]}, {"emails": "x"}])
async def test_a_user_without_an_address_is_refused(control: Unity, body: object) -> None:
    assert code(await control.post("/scim2/Users", body)) == (400, "INVALID_ARGUMENT")


async def test_the_user_of_the_request_is_returned(catalogs: Catalogs) -> None:
    control = Unity(await catalogs.open(authentication="token", token=SECRET), CONTROL)
    control.http.headers["Authorization"] = "Bearer " + signed_token(
        Bearer("me@here.org"), secret=SECRET, expires_at_seconds=4_000_000_000
    )

    unknown = (await control.get("/scim2/Me")).json()
    made = await control.made("/scim2/Users", {"displayName": "Me", "emails": [{"value": "me@here.org"}]})

    assert (unknown["displayName"], unknown["id"]) == ("me@here.org", made["id"])
    assert (await control.get("/scim2/Me")).json() == made


async def test_a_valid_token_is_exchanged_and_an_invalid_one_is_refused(catalogs: Catalogs) -> None:
    control = Unity(await catalogs.open(authentication="token", token=SECRET), CONTROL)

    good = await control.http.post(f"{CONTROL}/auth/tokens", data={**EXCHANGE, "subject_token": SECRET})
    bad = await control.http.post(f"{CONTROL}/auth/tokens", data={**EXCHANGE, "subject_token": "other"})
    basic = base64.b64encode(f"someone:{SECRET}".encode()).decode()
    client = await control.http.post(
        f"{CONTROL}/auth/tokens",
        data={"grant_type": "client_credentials", "scope": "all-apis"},
        headers={"Authorization": f"Basic {basic}"},
    )

    assert good.json() == {
        "access_token": SECRET,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "token_type": "Bearer",
        "expires_in": 3600,
    }
    assert code(bad) == (401, "UNAUTHENTICATED")
    assert client.json()["access_token"] == SECRET


async def test_a_token_is_stored_in_a_cookie_on_request_and_removed_at_logout(control: Unity) -> None:
    given = await control.http.post(
        f"{CONTROL}/auth/tokens", params={"ext": "cookie"}, data={**EXCHANGE, "subject_token": "x"}
    )
    gone = await control.post("/auth/logout", {})

    assert given.headers["set-cookie"].startswith("UC_TOKEN=x; ")
    assert "Max-Age=0" in gone.headers["set-cookie"]


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"grant_type": "password"},
        {"grant_type": EXCHANGE["grant_type"]},
        {**EXCHANGE, "subject_token": "x", "subject_token_type": "nonsense"},
    ],
)
async def test_invalid_forms_are_refused(control: Unity, form: dict[str, str]) -> None:
    assert code(await control.http.post(f"{CONTROL}/auth/tokens", data=form)) == (400, "INVALID_ARGUMENT")


async def test_a_token_cannot_add_attributes_to_the_cookie(control: Unity) -> None:
    form = {**EXCHANGE, "subject_token": "x; Domain=evil\r\nX: y"}

    answer = await control.http.post(f"{CONTROL}/auth/tokens", params={"ext": "cookie"}, data=form)

    assert code(answer) == (400, "INVALID_ARGUMENT")


async def test_an_unknown_route_gets_an_error_of_this_api(control: Unity) -> None:
    assert code(await control.get("/nothing")) == (501, "UNIMPLEMENTED")
