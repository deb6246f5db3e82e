"""Grants and the metastore over Unity Catalog's API."""

import asyncio
from typing import Any

import pytest

from tests.server.unity.client import Json, Unity, code

ME, YOU = "me@x.org", "you@x.org"
WHERE = {"catalog_name": "main", "schema_name": "s"}


@pytest.fixture(autouse=True)
async def users(control: Unity) -> None:
    for email in (ME, YOU):
        await control.made("/scim2/Users", {"emails": [{"value": email}]})


def grant(principal: str, add: list[str] | None = None, remove: list[str] | None = None) -> Json:
    return {"changes": [{"principal": principal, "add": add or [], "remove": remove or []}]}


async def everything(unity: Unity) -> dict[str, str]:
    """One object of each kind, by its full name."""
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    root = (await unity.get("/catalogs/main")).json()["storage_location"]
    table = {**WHERE, "name": "t", "table_type": "EXTERNAL", "data_source_format": "CSV", "columns": []}
    await unity.made("/tables", {**table, "storage_location": f"{root}/t"})
    await unity.made("/volumes", {**WHERE, "name": "v", "volume_type": "MANAGED"})
    await unity.made("/models", {**WHERE, "name": "m"})
    await unity.made("/credentials", {"name": "k"})
    await unity.made("/external-locations", {"name": "l", "url": "s3://b/x", "credential_name": "k"})
    metastore = (await unity.get("/metastore_summary")).json()["metastore_id"]
    return {
        "metastore": metastore,
        "catalog": "main",
        "schema": "main.s",
        "table": "main.s.t",
        "volume": "main.s.v",
        "registered_model": "main.s.m",
        "credential": "k",
        "external_location": "l",
    }


async def test_privileges_are_granted_listed_and_revoked_on_every_securable(unity: Unity) -> None:
    for kind, name in (await everything(unity)).items():
        path = f"/permissions/{kind}/{name}"
        assert (await unity.get(path)).json() == {"privilege_assignments": []}

        granted = (await unity.patch(path, grant(ME, ["SELECT", "USE CATALOG"]))).json()
        await unity.patch(path, grant(YOU, ["SELECT"]))
        taken = (await unity.patch(path, grant(ME, ["MODIFY"], ["SELECT"]))).json()

        assert granted == {"privilege_assignments": [{"principal": ME, "privileges": ["USE CATALOG", "SELECT"]}]}
        assert taken["privilege_assignments"] == [
            {"principal": ME, "privileges": ["USE CATALOG", "MODIFY"]},
            {"principal": YOU, "privileges": ["SELECT"]},
        ]
        assert (await unity.get(path, principal=YOU)).json()["privilege_assignments"] == [
            {"principal": YOU, "privileges": ["SELECT"]}
        ]
        assert (await unity.get(path, principal="nobody@x.org")).json()["privilege_assignments"] == []


async def test_grants_follow_a_rename_and_end_with_a_drop(unity: Unity) -> None:
    await everything(unity)
    await unity.patch("/permissions/volume/main.s.v", grant(ME, ["READ VOLUME"]))

    await unity.patch("/volumes/main.s.v", {"new_name": "w"})

    renamed = (await unity.get("/permissions/volume/main.s.w")).json()
    assert renamed["privilege_assignments"] == [{"principal": ME, "privileges": ["READ VOLUME"]}]
    assert code(await unity.get("/permissions/volume/main.s.v")) == (404, "NOT_FOUND")
    await unity.delete("/volumes/main.s.w")
    await unity.made("/volumes", {**WHERE, "name": "w", "volume_type": "MANAGED"})
    assert (await unity.get("/permissions/volume/main.s.w")).json() == {"privilege_assignments": []}


async def test_concurrent_grants_are_all_kept(unity: Unity, control: Unity) -> None:
    names = [f"user{number}@x.org" for number in range(20)]
    for name in names:
        await control.made("/scim2/Users", {"emails": [{"value": name}]})

    await asyncio.gather(*(unity.patch("/permissions/catalog/main", grant(name, ["USE CATALOG"])) for name in names))

    listed = (await unity.get("/permissions/catalog/main")).json()["privilege_assignments"]
    assert [entry["principal"] for entry in listed] == sorted(names)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("catalog/none", grant(ME, ["SELECT"]), (404, "CATALOG_NOT_FOUND")),
        ("schema/main.none", grant(ME, ["SELECT"]), (404, "SCHEMA_NOT_FOUND")),
        ("table/main.s.none", grant(ME, ["SELECT"]), (404, "SCHEMA_NOT_FOUND")),
        ("metastore/none", grant(ME, ["SELECT"]), (404, "NOT_FOUND")),
        ("nonsense/main", grant(ME, ["SELECT"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", grant(ME, ["NONSENSE"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", grant("", ["SELECT"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", grant(ME, ["SELECT"], ["SELECT"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", {}, (400, "INVALID_ARGUMENT")),
    ],
)
async def test_invalid_changes_are_refused(unity: Unity, path: str, body: Json, expected: Any) -> None:
    assert code(await unity.patch(f"/permissions/{path}", body)) == expected


async def test_a_grant_to_an_unknown_principal_is_refused_and_grants_nothing(unity: Unity) -> None:
    path = "/permissions/catalog/main"
    both = {"changes": [*grant(ME, ["SELECT"])["changes"], *grant("nobody@x.org", ["SELECT"])["changes"]]}

    refused = await unity.patch(path, both)

    assert code(refused) == (404, "NOT_FOUND")
    assert "nobody@x.org" in refused.json()["message"]
    assert code(await unity.patch(path, grant("nobody@x.org", remove=["SELECT"]))) == (404, "NOT_FOUND")
    assert (await unity.get(path)).json() == {"privilege_assignments": []}
    assert (await unity.patch(path, grant("anonymous", ["SELECT"]))).status_code == 200  # The caller.


async def test_a_dropped_user_takes_its_privileges_along(unity: Unity, control: Unity) -> None:
    path = "/permissions/catalog/main"
    await unity.patch(path, grant(ME, ["SELECT", "MODIFY"]))
    await unity.patch(path, grant(YOU, ["SELECT"]))
    listed = (await control.get("/scim2/Users", filter=f'userName eq "{ME}"')).json()
    await control.delete(f"/scim2/Users/{listed['Resources'][0]['id']}")

    left = (await unity.get(path)).json()["privilege_assignments"]
    await control.made("/scim2/Users", {"emails": [{"value": ME}]})

    assert left == [{"principal": YOU, "privileges": ["SELECT"]}]
    assert (await unity.get(path, principal=ME)).json() == {"privilege_assignments": []}  # A3


async def test_the_metastore_has_one_id_for_concurrent_first_requests(unity: Unity) -> None:
    answers = await asyncio.gather(*(unity.get("/metastore_summary") for _ in range(5)))

    assert len({answer.json()["metastore_id"] for answer in answers}) == 1
