"""The older commit API: the same commits in another form."""

import json

import httpx
import pytest

from tests.server.unity.client import UNITY, Json, Unity, code
from tests.server.unity.delta_requests import TIME_MS, T, created

pytestmark = pytest.mark.usefixtures("schema")

COMMITS = "/delta/preview/commits"


def info(version: int, name: str = "") -> Json:
    return {
        "version": version,
        "timestamp": TIME_MS + version,
        "file_name": name or f"{version:020d}.a.json",
        "file_size": 10,
        "file_modification_timestamp": TIME_MS,
    }


def posted(table: Json, version: int, **fields: object) -> Json:
    metadata = table["metadata"]
    return {
        "table_id": metadata["table-uuid"],
        "table_uri": metadata["location"],
        "commit_info": info(version),
        **fields,
    }


async def listed(client: httpx.AsyncClient, table: Json, **fields: object) -> httpx.Response:
    """The request of the Java client: a GET with a body."""
    body = {"table_id": table["metadata"]["table-uuid"], "start_version": 0, **fields}
    return await client.request("GET", UNITY + COMMITS, content=json.dumps(body))


async def test_commits_of_both_apis_are_the_same(unity: Unity, client: httpx.AsyncClient) -> None:
    table = await created(unity)
    for version in (1, 2, 3):
        await unity.made(COMMITS, posted(table, version))

    assert [row["version"] for row in (await unity.get(T)).json()["commits"]] == [3, 2, 1]
    found = (await listed(client, table)).json()
    assert found == {"commits": [info(3), info(2), info(1)], "latest_table_version": 3}
    part = (await listed(client, table, start_version=2, end_version=2)).json()
    assert part == {"commits": [info(2)], "latest_table_version": 3}


async def test_a_table_without_commits_has_version_0(unity: Unity, client: httpx.AsyncClient) -> None:
    table = await created(unity)

    assert (await listed(client, table)).json() == {"commits": [], "latest_table_version": 0}


async def test_metadata_comes_with_its_commit(unity: Unity) -> None:
    table = await created(unity)
    properties = {**table["metadata"]["properties"], "k": "v"}
    column = {"name": "x", "type_json": '{"type":"integer"}', "position": 0, "nullable": True, "comment": None}
    metadata = {
        "description": "d",
        "properties": {"properties": properties},
        "schema": {"columns": [column]},
    }

    await unity.made(COMMITS, posted(table, 1, metadata=metadata))

    listed = (await unity.get("/tables/main.s.t")).json()
    assert (listed["comment"], listed["properties"]["k"]) == ("d", "v")
    assert [(one["name"], one["type_text"]) for one in listed["columns"]] == [("x", "int")]
    lost = {"properties": {"properties": {"k": "v"}}}
    assert code(await unity.post(COMMITS, posted(table, 2, metadata=lost))) == (400, "INVALID_ARGUMENT")


async def test_a_configuration_is_replaced_and_newer_fields_stay(unity: Unity) -> None:
    """Spark sends the configuration without features; without them clients would bypass the catalog."""
    table = await created(unity)
    before = table["metadata"]["properties"]
    own = {
        key: value for key, value in before.items() if not key.startswith(("delta.feature.", "delta.min", "delta.last"))
    }
    for version, more in ((1, {"k": "v"}), (2, {"l": "w"})):
        metadata = {"properties": {"properties": {**own, **more}}}
        await unity.made(COMMITS, posted(table, version, metadata=metadata))

    after = (await unity.get("/tables/main.s.t")).json()["properties"]

    assert after["delta.feature.catalogManaged"] == "supported"
    assert after == {
        **before,
        "l": "w",
        "delta.lastUpdateVersion": "2",
        "delta.lastCommitTimestamp": str(TIME_MS + 2),
    }


async def test_errors_have_the_body_of_the_classic_api(unity: Unity, client: httpx.AsyncClient) -> None:
    table = await created(unity)
    await unity.made(COMMITS, posted(table, 1))

    other = posted(table, 1) | {"commit_info": info(1, "other.json")}
    assert code(await unity.post(COMMITS, other)) == (409, "COMMIT_VERSION_CONFLICT")
    assert code(await unity.post(COMMITS, posted(table, 5))) == (400, "INVALID_ARGUMENT")
    moved = posted(table, 2) | {"table_uri": "memory://store/elsewhere"}
    assert code(await unity.post(COMMITS, moved)) == (400, "INVALID_ARGUMENT")
    nothing = {key: value for key, value in posted(table, 2).items() if key != "commit_info"}
    assert code(await unity.post(COMMITS, nothing)) == (400, "INVALID_ARGUMENT")
    alone = nothing | {"metadata": {"description": "d"}, "latest_backfilled_version": 0}
    assert code(await unity.post(COMMITS, alone)) == (400, "INVALID_ARGUMENT")
    empty = posted(table, 2, metadata={})
    assert code(await unity.post(COMMITS, empty)) == (400, "INVALID_ARGUMENT")
    missing = posted(table, 2) | {"table_id": "00000000-0000-0000-0000-000000000000"}
    assert code(await unity.post(COMMITS, missing)) == (404, "TABLE_NOT_FOUND")
    assert code(await client.get(UNITY + COMMITS)) == (400, "INVALID_ARGUMENT")
    assert code(await listed(client, table, start_version=-1)) == (400, "INVALID_ARGUMENT")
    assert code(await listed(client, table, start_version=2, end_version=1)) == (400, "INVALID_ARGUMENT")


async def test_a_table_with_too_many_unpublished_commits_is_exhausted(unity: Unity) -> None:
    table = await created(unity)
    for version in range(1, 11):
        await unity.made(COMMITS, posted(table, version))

    assert code(await unity.post(COMMITS, posted(table, 11))) == (429, "RESOURCE_EXHAUSTED")
