"""Snapshots that name the manifests of another table: refused at the commit, and never opened."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandur.pipeline.iceberg_manifests import DataFile, SnapshotIds, encode_manifest, encode_manifest_list, list_entry
from sandur.settings import Settings
from tests.server.conftest import Catalogs
from tests.server.requests import SCHEMA, SNAPSHOT_ID, add_snapshot, create_table

VICTIM, ATTACKER = "/v1/namespaces/ns/tables/victim", "/v1/namespaces/ns/tables/attacker"
HIDDEN_FILE = "salaries-of-2027.parquet"
IDS = SnapshotIds(SNAPSHOT_ID, None, 1)


@pytest.fixture
async def client(catalogs: Catalogs, tmp_path: Path) -> httpx.AsyncClient:
    """A victim with one snapshot, and an attacker with an empty table."""
    allowed = (f"file://{tmp_path}-shared",)
    settings = Settings(store=str(tmp_path), fsync="never", log_level="error", allowed_locations=allowed)
    client = await catalogs.open_with(settings)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    for name in ("victim", "attacker"):
        await client.post("/v1/namespaces/ns/tables", json=create_table(name))
    victim = await loaded(client, VICTIM)
    manifest = write_manifest(victim["location"], HIDDEN_FILE)
    committed = await commit_list(client, VICTIM, write_list(victim["location"], manifest))
    assert committed.status_code == 200, committed.text
    return client


async def loaded(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    metadata: dict[str, Any] = (await client.get(path)).json()["metadata"]
    return metadata


def path_of(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def write(location: str, data: bytes) -> str:
    path_of(location).write_bytes(data)
    return location


def write_manifest(table: str, name: str) -> str:
    files = [DataFile(f"{table}/data/{name}", 1, 1)]
    data = encode_manifest(files, schema_json=json.dumps(SCHEMA), schema_id=0, snapshot_id=SNAPSHOT_ID)
    return write(f"{table}/metadata/m0.avro", data)


def write_list(table: str, manifest: str) -> str:
    entry = list_entry(manifest, path_of(manifest).read_bytes(), [DataFile("", 1, 1)], IDS)
    return write(f"{table}/metadata/snap-0.avro", encode_manifest_list([entry], IDS))


async def commit_list(client: httpx.AsyncClient, path: str, location: str) -> httpx.Response:
    commit = add_snapshot(await loaded(client, path))
    commit["updates"][0]["snapshot"]["manifest-list"] = location
    return await client.post(path, json=commit)


async def plan(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    body: dict[str, Any] = (await client.post(f"{path}/plan", json={})).json()
    return body


async def test_the_own_manifests_of_a_table_are_planned(client: httpx.AsyncClient) -> None:
    planned = await plan(client, VICTIM)

    assert planned["status"] == "completed"
    assert planned["file-scan-tasks"][0]["data-file"]["file-path"].endswith(HIDDEN_FILE)


@pytest.mark.parametrize("spelling", ["file:/", "file:///", "FILE:///", "file://localhost/", "/"])
async def test_a_snapshot_with_the_manifest_list_of_another_table_is_refused(
    client: httpx.AsyncClient, spelling: str
) -> None:
    victim = await loaded(client, VICTIM)
    listed = spelling + victim["snapshots"][0]["manifest-list"].removeprefix("file:/")

    refused = await commit_list(client, ATTACKER, listed)

    assert refused.status_code == 400
    assert "is not below the table's location" in refused.text
    assert (await loaded(client, ATTACKER))["snapshots"] == []


async def test_a_way_out_of_the_own_folder_is_refused(client: httpx.AsyncClient) -> None:
    attacker, victim = await loaded(client, ATTACKER), await loaded(client, VICTIM)
    folder = victim["location"].rpartition("/")[2]

    refused = await commit_list(client, ATTACKER, f"{attacker['location']}/../{folder}/metadata/snap-0.avro")

    assert refused.status_code == 400


async def test_the_manifests_of_an_old_format_are_checked_too(client: httpx.AsyncClient) -> None:
    victim = await loaded(client, VICTIM)
    commit = add_snapshot(await loaded(client, ATTACKER))
    snapshot = commit["updates"][0]["snapshot"]
    del snapshot["manifest-list"]
    snapshot["manifests"] = [f"{victim['location']}/metadata/m0.avro"]

    assert (await client.post(ATTACKER, json=commit)).status_code == 400


async def test_a_transaction_and_a_create_are_checked_too(client: httpx.AsyncClient) -> None:
    victim = await loaded(client, VICTIM)
    commit = add_snapshot(await loaded(client, ATTACKER))
    commit["updates"][0]["snapshot"]["manifest-list"] = victim["snapshots"][0]["manifest-list"]
    change = {**commit, "identifier": {"namespace": ["ns"], "name": "attacker"}}
    staged = await client.post("/v1/namespaces/ns/tables", json=create_table("new", stage_create=True))
    made = staged.json()["metadata"]
    building = [
        {"action": "assign-uuid", "uuid": made["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": made["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": made["location"]},
        *commit["updates"],
    ]
    creation = {"requirements": [{"type": "assert-create"}], "updates": building}

    in_transaction = await client.post("/v1/transactions/commit", json={"table-changes": [change]})
    created = await client.post("/v1/namespaces/ns/tables/new", json=creation)

    for refused in (in_transaction, created):
        assert refused.status_code == 400, refused.text
        assert "is not below the table's location" in refused.text


async def test_a_manifest_of_another_table_inside_an_own_list_is_not_opened(client: httpx.AsyncClient) -> None:
    victim, attacker = await loaded(client, VICTIM), await loaded(client, ATTACKER)
    listed = write_list(attacker["location"], f"{victim['location']}/metadata/m0.avro")
    assert (await commit_list(client, ATTACKER, listed)).status_code == 200
    await plan(client, VICTIM)  # Now the manifest is in the cache.

    planned = await plan(client, ATTACKER)

    assert (planned["status"], planned["error"]["code"]) == ("failed", 400)
    assert "is not in a folder of the table" in planned["error"]["message"]
    assert HIDDEN_FILE not in json.dumps(planned)


async def test_a_file_that_names_the_manifests_of_another_table_cannot_be_registered(
    client: httpx.AsyncClient,
) -> None:
    stolen = await loaded(client, VICTIM)
    attacker = await loaded(client, ATTACKER)
    await client.delete(ATTACKER)
    forged = {**stolen, "location": attacker["location"], "table-uuid": attacker["table-uuid"], "metadata-log": []}
    location = write(f"{attacker['location']}/metadata/00009-x.metadata.json", json.dumps(forged).encode())

    refused = await client.post("/v1/namespaces/ns/register", json={"name": "attacker", "metadata-location": location})

    assert refused.status_code == 400
    assert "it names files in" in refused.text


@pytest.mark.parametrize("field", ["snapshots", "metadata-log"])
async def test_a_file_with_the_uuid_of_another_table_names_none_of_its_files(
    client: httpx.AsyncClient, tmp_path: Path, field: str
) -> None:
    """Whoever writes the file chooses its uuid: it does not show whose file it is."""
    answer = (await client.get(VICTIM)).json()
    stolen = answer["metadata"]
    location = f"file:{tmp_path}/tables/default/default/main/mine"
    path_of(f"{location}/metadata").mkdir(parents=True)
    log = [{"metadata-file": answer["metadata-location"], "timestamp-ms": stolen["last-updated-ms"]}]
    own = {"snapshots": [], "current-snapshot-id": -1, "refs": {}, "snapshot-log": [], "metadata-log": []}
    forged = {**stolen, **own, "location": location, field: {"metadata-log": log}.get(field, stolen[field])}
    file = write(f"{location}/metadata/00009-x.metadata.json", json.dumps(forged).encode())
    await client.delete(ATTACKER)

    refused = await client.post("/v1/namespaces/ns/register", json={"name": "attacker", "metadata-location": file})

    assert refused.status_code == 400, refused.text
    assert "it names files in" in refused.text


async def test_a_file_that_names_an_earlier_file_of_another_workspace_cannot_be_registered(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """Its uuid is free in this workspace, so the place that was generated for it would get credentials."""
    other = {"X-Sandur-Workspace": "other"}
    assert (await client.post("/v1/namespaces", json={"namespace": ["ns"]}, headers=other)).is_success
    answer = await client.post("/v1/namespaces/ns/tables", json=create_table("hidden"), headers=other)
    stolen, named = answer.json()["metadata"], answer.json()["metadata-location"]
    location = f"file:{tmp_path}/tables/default/default/main/mine"
    path_of(f"{location}/metadata").mkdir(parents=True)
    log = [{"metadata-file": named, "timestamp-ms": stolen["last-updated-ms"]}]
    forged = json.dumps({**stolen, "location": location, "metadata-log": log})
    file = write(f"{location}/metadata/00009-x.metadata.json", forged.encode())

    refused = await client.post("/v1/namespaces/ns/register", json={"name": "mine", "metadata-location": file})

    assert refused.status_code == 400, refused.text
    assert "it names files in" in refused.text


async def test_a_table_that_moved_keeps_its_old_manifests(client: httpx.AsyncClient, tmp_path: Path) -> None:
    moved = {"action": "set-location", "location": f"file:{tmp_path}-shared/moved"}

    changed = await client.post(VICTIM, json={"requirements": [], "updates": [moved]})
    planned = await plan(client, VICTIM)

    assert changed.status_code == 200, changed.text
    assert planned["status"] == "completed", planned
    assert planned["file-scan-tasks"][0]["data-file"]["file-path"].endswith(HIDDEN_FILE)


async def test_a_table_whose_manifests_lie_elsewhere_is_registered_and_planned(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    source = await loaded(client, VICTIM)
    old = f"file:{tmp_path}-shared/imported/old"
    for folder in ("imported/old/metadata", "imported/new/metadata"):
        path_of(f"file:{tmp_path}-shared/{folder}").mkdir(parents=True)
    listed = write_list(old, write_manifest(old, "imported.parquet"))
    snapshots = [{**source["snapshots"][0], "manifest-list": listed}]
    uuid = "5b6b2b4e-0000-4000-8000-00000000000b"
    new = f"file:{tmp_path}-shared/imported/new"
    metadata = {**source, "location": new, "table-uuid": uuid, "snapshots": snapshots, "metadata-log": []}
    location = write(f"{new}/metadata/00001-x.metadata.json", json.dumps(metadata).encode())

    registered = await client.post("/v1/namespaces/ns/register", json={"name": "i", "metadata-location": location})
    planned = await plan(client, "/v1/namespaces/ns/tables/i")

    assert registered.status_code == 200, registered.text
    assert planned["status"] == "completed", planned
    assert planned["file-scan-tasks"][0]["data-file"]["file-path"].endswith("imported.parquet")
