"""Users and tokens over Unity Catalog's control API."""

import pytest

from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, token_of
from tests.server.unity.client import CONTROL, Unity, code

EXCHANGE = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
    "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
}


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


async def test_the_principal_of_the_request_is_returned(catalogs: Catalogs) -> None:
    control = Unity(await catalogs.open_with(SECURED), CONTROL)
    control.http.headers.update(await bearer(control.http))

    assert (await control.get("/scim2/Me")).json()["displayName"] == "admin"


async def test_an_invalid_token_is_refused_with_an_error_of_this_api(catalogs: Catalogs) -> None:
    control = Unity(await catalogs.open_with(SECURED), CONTROL)
    valid = await token_of(control.http)

    good = await control.http.post(f"{CONTROL}/auth/tokens", data={**EXCHANGE, "subject_token": valid})
    bad = await control.http.post(f"{CONTROL}/auth/tokens", data={**EXCHANGE, "subject_token": "other"})

    assert good.json().keys() == {"access_token", "issued_token_type", "token_type", "expires_in"}
    assert good.json()["token_type"] == "Bearer"  # noqa: S105 - a name
    assert code(bad) == (401, "UNAUTHENTICATED")


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
