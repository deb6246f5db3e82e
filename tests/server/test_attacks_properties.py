"""Properties that would configure the programs of other readers: refused in every API, and never given out."""

import json
from pathlib import Path

import httpx
import pytest

from sandur.settings import Settings
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, create_view, set_properties

UNITY = "/api/2.1/unity-catalog"
TABLE = "/v1/namespaces/ns/tables/t"
ATTACKS = [
    *("py-io-impl", "io-impl", "IO-Impl", "write.location-provider.impl", "write.py-location-provider.impl"),
    *("metrics-reporter-impl", "encryption.kms-impl", "client.factory", "s3.client-factory-impl"),
    *("s3.endpoint", "s3.signer", "s3.signer.uri", "signer.uri", "s3.access-key-id", "s3.proxy-uri", "s3.role-arn"),
    *("token", "credential", "uri", "oauth2-server-uri", "header.Authorization", "rest.sigv4-enabled", "auth.type"),
    *(
        "gcs.oauth2.token",
        "gcs.service.host",
        "adls.sas-token",
        "adls.connection-string",
        "hf.token",
        "fs.s3a.endpoint",
    ),
]
HARMLESS = [
    *("write.format.default", "write.metadata.compression-codec", "read.split.target-size", "commit.retry.num-retries"),
    *(
        "history.expire.min-snapshots-to-keep",
        "gc.enabled",
        "comment",
        "owner",
        "delta.appendOnly",
    ),
    *("io.unitycatalog.tableId", "engine.hive.enabled", "designer", "tokens", "uris", "simple", "s3", "team.s3.owner"),
]


@pytest.fixture
async def client(client: httpx.AsyncClient) -> httpx.AsyncClient:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    await client.post("/v1/namespaces/ns/views", json=create_view("v"))
    return client


def check_refused(answer: httpx.Response, key: str) -> None:
    assert answer.status_code == 400, answer.text
    assert key in answer.text
    assert "configure the clients" in answer.text


@pytest.mark.parametrize("key", ATTACKS)
async def test_a_property_that_configures_clients_is_refused(client: httpx.AsyncClient, key: str) -> None:
    bad = {key: "x"}
    view = {**create_view("w"), "properties": bad}
    commit = set_properties(**bad)
    identified = {**commit, "identifier": {"namespace": ["ns"], "name": "t"}}
    creation = {"requirements": [{"type": "assert-create"}], "updates": commit["updates"]}

    for path, body in [
        ("/v1/namespaces", {"namespace": ["other"], "properties": bad}),
        ("/v1/namespaces/ns/properties", {"updates": bad}),
        ("/v1/namespaces/ns/tables", create_table("u", properties=bad)),
        ("/v1/namespaces/ns/tables", create_table("u", properties=bad, stage_create=True)),
        (TABLE, commit),
        ("/v1/namespaces/ns/tables/u", creation),
        ("/v1/transactions/commit", {"table-changes": [identified]}),
        ("/v1/namespaces/ns/views", view),
        ("/v1/namespaces/ns/views/v", commit),
        (f"{UNITY}/catalogs", {"name": "c", "properties": bad}),
        (f"{UNITY}/schemas", {"catalog_name": "main", "name": "s", "properties": bad}),
    ]:
        check_refused(await client.post(path, json=body), key)
    check_refused(await client.patch(f"{UNITY}/catalogs/main", json={"properties": bad}), key)
    check_refused(await client.patch(f"{UNITY}/schemas/main.ns", json={"properties": bad}), key)
    assert key not in (await client.get(TABLE)).json()["metadata"]["properties"]


async def test_the_properties_of_engines_are_kept(client: httpx.AsyncClient) -> None:
    properties = dict.fromkeys(HARMLESS, "1")

    made = await client.post("/v1/namespaces/ns/tables", json=create_table("u", properties=properties))

    assert made.status_code == 200, made.text
    assert properties.items() <= made.json()["metadata"]["properties"].items()


async def test_the_access_keys_that_spark_adds_are_not_stored(catalogs: Catalogs, tmp_path: Path) -> None:
    client = await catalogs.open(allowed_locations=(f"file://{tmp_path}",))
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    table = {
        "catalog_name": "main",
        "schema_name": "ns",
        "name": "t",
        "table_type": "EXTERNAL",
        "data_source_format": "PARQUET",
        "columns": [],
        "storage_location": f"file://{tmp_path}/t",
        "properties": {"fs.s3a.secret.key": "hush", "option.fs.s3a.secret.key": "hush", "kept": "1"},
    }

    made = await client.post(f"{UNITY}/tables", json=table)
    refused = await client.post(f"{UNITY}/tables", json={**table, "name": "u", "properties": {"s3.endpoint": "x"}})

    assert made.status_code == 200, made.text
    assert made.json()["properties"] == {"kept": "1"}
    check_refused(refused, "s3.endpoint")


def folder(path: Path) -> Settings:
    return Settings(store=str(path), fsync="never", log_level="error")


def stored_file(tmp_path: Path, location: str) -> Path:
    path = Path("/" + location.removeprefix("file:").lstrip("/"))
    assert path.is_relative_to(tmp_path)
    return path


async def test_metadata_that_has_such_a_property_cannot_be_registered(catalogs: Catalogs, tmp_path: Path) -> None:
    client = await catalogs.open_with(folder(tmp_path))
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    made = (await client.post("/v1/namespaces/ns/tables", json=create_table("t", properties={"x": "1"}))).json()
    file = stored_file(tmp_path, made["metadata-location"])
    metadata = json.loads(file.read_text(encoding="utf-8"))
    metadata["properties"]["py-io-impl"] = "evil.FileIO"
    evil = made["metadata-location"].replace("00000-", "00007-")
    stored_file(tmp_path, evil).write_text(json.dumps(metadata), encoding="utf-8")
    await client.delete("/v1/namespaces/ns/tables/t")

    refused = await client.post("/v1/namespaces/ns/register", json={"name": "t", "metadata-location": evil})

    check_refused(refused, "py-io-impl")


async def test_a_property_that_an_earlier_release_stored_is_not_given_out(catalogs: Catalogs, tmp_path: Path) -> None:
    writer = await catalogs.open_with(folder(tmp_path))
    await writer.post("/v1/namespaces", json={"namespace": ["ns"]})
    made = (await writer.post("/v1/namespaces/ns/tables", json=create_table("t", properties={"x": "1"}))).json()
    file = stored_file(tmp_path, made["metadata-location"])
    metadata = json.loads(file.read_text(encoding="utf-8"))
    metadata["properties"] |= {"py-io-impl": "evil.FileIO", "s3.endpoint": "http://evil.example"}
    file.write_text(json.dumps(metadata), encoding="utf-8")
    client = await catalogs.open_with(folder(tmp_path))

    loaded = await client.get(TABLE)
    committed = await client.post(TABLE, json=set_properties(y="2"))

    assert loaded.json()["metadata"]["properties"]["x"] == "1"
    assert loaded.json()["config"] == {}
    assert "evil" not in loaded.text
    assert committed.status_code == 200
    assert "evil" not in stored_file(tmp_path, committed.json()["metadata-location"]).read_text(encoding="utf-8")
