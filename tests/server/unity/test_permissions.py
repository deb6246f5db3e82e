"""Grants and the metastore over Unity Catalog's API."""

import asyncio
from typing import Any

import pytest

from tests.server.unity.client import Json, Unity, code

WHERE = {"catalog_name": "main", "schema_name": "s"}


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

        granted = (await unity.patch(path, grant("me", ["SELECT", "USE CATALOG"]))).json()
        await unity.patch(path, grant("you", ["SELECT"]))
        taken = (await unity.patch(path, grant("me", ["MODIFY"], ["SELECT"]))).json()

        assert granted == {"privilege_assignments": [{"principal": "me", "privileges": ["USE CATALOG", "SELECT"]}]}
        assert taken["privilege_assignments"] == [
            {"principal": "me", "privileges": ["USE CATALOG", "MODIFY"]},
            {"principal": "you", "privileges": ["SELECT"]},
        ]
        assert (await unity.get(path, principal="you")).json()["privilege_assignments"] == [
            {"principal": "you", "privileges": ["SELECT"]}
        ]
        assert (await unity.get(path, principal="nobody")).json()["privilege_assignments"] == []


async def test_grants_follow_a_rename_and_end_with_a_drop(unity: Unity) -> None:
    await everything(unity)
    await unity.patch("/permissions/volume/main.s.v", grant("me", ["READ VOLUME"]))

    await unity.patch("/volumes/main.s.v", {"new_name": "w"})

    renamed = (await unity.get("/permissions/volume/main.s.w")).json()
    assert renamed["privilege_assignments"] == [{"principal": "me", "privileges": ["READ VOLUME"]}]
    assert code(await unity.get("/permissions/volume/main.s.v")) == (404, "NOT_FOUND")
    await unity.delete("/volumes/main.s.w")
    await unity.made("/volumes", {**WHERE, "name": "w", "volume_type": "MANAGED"})
    assert (await unity.get("/permissions/volume/main.s.w")).json() == {"privilege_assignments": []}


async def test_concurrent_grants_are_all_kept(unity: Unity) -> None:
    names = [f"user{number}" for number in range(20)]

    await asyncio.gather(*(unity.patch("/permissions/catalog/main", grant(name, ["USE CATALOG"])) for name in names))

    listed = (await unity.get("/permissions/catalog/main")).json()["privilege_assignments"]
    assert [entry["principal"] for entry in listed] == sorted(names)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("catalog/none", grant("me", ["SELECT"]), (404, "CATALOG_NOT_FOUND")),
        ("schema/main.none", grant("me", ["SELECT"]), (404, "SCHEMA_NOT_FOUND")),
        ("table/main.s.none", grant("me", ["SELECT"]), (404, "SCHEMA_NOT_FOUND")),
        ("metastore/none", grant("me", ["SELECT"]), (404, "NOT_FOUND")),
        ("nonsense/main", grant("me", ["SELECT"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", grant("me", ["NONSENSE"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", grant("", ["SELECT"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", grant("me", ["SELECT"], ["SELECT"]), (400, "INVALID_ARGUMENT")),
        ("catalog/main", {}, (400, "INVALID_ARGUMENT")),
    ],
)
async def test_invalid_changes_are_refused(unity: Unity, path: str, body: Json, expected: Any) -> None:
    assert code(await unity.patch(f"/permissions/{path}", body)) == expected


async def test_the_metastore_has_one_id_for_concurrent_first_requests(unity: Unity) -> None:
    answers = await asyncio.gather(*(unity.get("/metastore_summary") for _ in range(5)))

    assert len({answer.json()["metastore_id"] for answer in answers}) == 1
