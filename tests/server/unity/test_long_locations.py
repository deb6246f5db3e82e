"""A location that no storage has is refused wherever the APIs accept one."""

import httpx
import pytest

from sandur.catalog.locations import LOCATION_CHARS_MAX
from tests.server.requests import create_table, create_view
from tests.server.unity.client import Json, Unity
from tests.server.unity.delta_requests import SCHEMA, T, add_commit, creation, problem, staged, update

ROOT = "memory://store/tables/default/default/main"
LONG = f"{ROOT}/x{'/x' * 35_000}"
WHERE = {"catalog_name": "main", "schema_name": "s"}
EXTERNAL = {**WHERE, "name": "e", "storage_location": LONG}

pytestmark = pytest.mark.usefixtures("schema")


def check_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 400, answer.text[:500]
    assert f"at most {LOCATION_CHARS_MAX} are allowed" in answer.text
    assert len(answer.text) < 1_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/catalogs", {"name": "c", "storage_root": LONG}),
        ("/schemas", {"catalog_name": "main", "name": "e", "storage_root": LONG}),
        ("/tables", {**EXTERNAL, "table_type": "EXTERNAL", "data_source_format": "CSV", "columns": []}),
        ("/tables", {**EXTERNAL, "table_type": "MANAGED", "data_source_format": "DELTA", "columns": []}),
        ("/volumes", {**EXTERNAL, "volume_type": "EXTERNAL"}),
        ("/models/versions", {**WHERE, "model_name": "m", "source": LONG}),
        ("/external-locations", {"name": "l", "credential_name": "k", "url": f"s3://b{'/x' * 35_000}"}),
        ("/temporary-path-credentials", {"url": LONG, "operation": "PATH_READ"}),
    ],
)
async def test_unity_refuses_a_long_location(unity: Unity, path: str, body: Json) -> None:
    await unity.made("/models", {**WHERE, "name": "m"})
    await unity.made("/credentials", {"name": "k"})

    check_refused(await unity.post(path, body))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/namespaces", {"namespace": ["n"], "properties": {"location": LONG}}),
        ("/namespaces/s/tables", {**create_table("t"), "location": LONG}),
        ("/namespaces/s/tables", {**create_table("t"), "properties": {"write.data.path": LONG}}),
        ("/namespaces/s/views", {**create_view("v"), "location": LONG}),
        ("/namespaces/s/register", {"name": "t", "metadata-location": f"{LONG}/00000-x.metadata.json"}),
    ],
)
async def test_iceberg_refuses_a_long_location(client: httpx.AsyncClient, path: str, body: Json) -> None:
    check_refused(await client.post(f"/v1{path}", json=body))


async def test_iceberg_refuses_to_move_a_table_to_a_long_location(client: httpx.AsyncClient) -> None:
    await client.post("/v1/namespaces/s/tables", json=create_table("t"))
    move = {"requirements": [], "updates": [{"action": "set-location", "location": LONG}]}

    check_refused(await client.post("/v1/namespaces/s/tables/t", json=move))


async def test_delta_refuses_a_long_location(unity: Unity) -> None:
    stage = await staged(unity)
    external: Json = {"table_type": "EXTERNAL", "protocol": {"min-reader-version": 1, "min-writer-version": 2}}

    check_refused(await unity.post(f"{SCHEMA}/tables", creation(stage, location=LONG)))
    check_refused(await unity.post(f"{SCHEMA}/tables", creation(stage, location=LONG, **external)))

    assert (await unity.get(T)).status_code == 404


async def test_delta_refuses_a_long_location_of_iceberg_metadata(unity: Unity) -> None:
    stage = await staged(unity)
    formats = {"delta.universalFormat.enabledFormats": "iceberg"}
    properties = {**stage["required-properties"], **formats}

    def uniform(suffix: str, version: int) -> Json:
        iceberg = {"metadata-location": f"{stage['location']}/_uniform/v1.json{suffix}"}
        times = {"converted-delta-version": version, "converted-delta-timestamp": 1_700_000_000_000}
        return {"iceberg": iceberg | times}

    pad = f"?pad={'x' * 70_000}"
    refused = await unity.post(f"{SCHEMA}/tables", creation(stage, properties=properties, uniform=uniform(pad, 0)))
    made = await unity.made(f"{SCHEMA}/tables", creation(stage, properties=properties, uniform=uniform("", 0)))
    later = {**add_commit(1), "uniform": uniform(pad, 1)}
    moved = await unity.post(T, update(made["metadata"]["table-uuid"], later))

    for answer in (refused, moved):
        check_refused(answer)
        assert problem(answer) == (400, "InvalidParameterValueException")
    assert (await unity.get(T)).json() == made
