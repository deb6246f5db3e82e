"""A catalog moves while its tables stay: from a bucket to another root of it, and to a folder, with real clients."""

import json
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store
from pyiceberg.catalog.rest import RestCatalog

from sandur.settings import Settings
from tests.cli.commands import User
from tests.interop.server_address import Served, server_settings
from tests.server.process import server_process
from tests.servers.seaweedfs import BUCKET

pytestmark = pytest.mark.slow

OLD: Final = f"s3://{BUCKET}/moved/old"
BACKUPS: Final = f"s3://{BUCKET}/moved/backups"
DELTA: Final = "/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/ns/tables/"
TIME_MS: Final = 1_767_225_600_000
ROWS: Final = pa.table({"id": pa.array([1, 2], pa.int64())})


class Bucket:
    """The bucket of the test, for a writer of Delta tables and for a copy of all objects."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        s3 = settings.s3
        self.environment = server_settings(s3)
        self.user = User(folder, **{f"SANDUR_{key.upper()}": value for key, value in self.environment.items()})
        self.s3 = s3
        self.store = S3Store(
            BUCKET,
            endpoint=s3.endpoint,
            region=s3.region,
            access_key_id=s3.access_key_id,
            secret_access_key=s3.secret_access_key,
            client_options={"allow_http": True},
        )

    def keys(self, prefix: str) -> list[str]:
        return [one["path"] for page in self.store.list(prefix) for one in page]

    def write(self, location: str, data: bytes) -> None:
        self.store.put(location.removeprefix(f"s3://{BUCKET}/"), data, mode="create")


@pytest.fixture(scope="module")
def bucket(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    return Bucket(seaweedfs_settings, tmp_path_factory.mktemp("user"))


def iceberg(url: str, bucket: Bucket, served: Any) -> RestCatalog:
    return RestCatalog("moved", uri=url, **Served(OLD, served, bucket.s3).pyiceberg_properties)


def append_delta(url: str, bucket: Bucket, version: int, *, publishes: bool) -> None:
    """Append two rows to a managed table as an engine does: data file, staged commit, catalog, log."""
    loaded = httpx.get(url, timeout=60).json()["metadata"]
    location, file = loaded["location"], pa.BufferOutputStream()
    pq.write_table(ROWS, file)
    data = file.getvalue().to_pybytes()
    bucket.write(f"{location}/{version}.parquet", data)
    at_ms = TIME_MS + version
    info = {"inCommitTimestamp": at_ms, "timestamp": at_ms, "operation": "WRITE", "txnId": str(version)}
    add = {"path": f"{version}.parquet", "partitionValues": {}, "size": len(data), "modificationTime": at_ms}
    add |= {"dataChange": True, "stats": '{"numRecords":2}'}
    lines = "".join(json.dumps(one) + "\n" for one in ({"commitInfo": info}, {"add": add})).encode()
    name = f"{version:020d}.{version:08d}-0000-4000-8000-000000000000.json"
    bucket.write(f"{location}/_delta_log/_staged_commits/{name}", lines)
    commit = {"version": version, "timestamp": at_ms, "file-name": name, "file-size": len(lines)}
    update = {"action": "add-commit", "commit": {**commit, "file-modification-timestamp": at_ms}}
    requirement = {"type": "assert-table-uuid", "uuid": loaded["table-uuid"]}
    answer = httpx.post(url, json={"requirements": [requirement], "updates": [update]}, timeout=60)
    assert answer.status_code == 200, answer.text
    if publishes:
        bucket.write(f"{location}/_delta_log/{version:020d}.json", lines)


@pytest.fixture(scope="module")
def backup(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A backup that was taken beside a running server, and commits after it; then the server is gone."""
    with server_process(tmp_path_factory.mktemp("old"), "--store", OLD, **bucket.environment) as served:
        catalog = iceberg(served.url, bucket, served)
        catalog.create_namespace("ns")
        catalog.create_table("ns.i", ROWS.schema).append(ROWS)
        for name in ("root", "folder", "copy"):  # One for each test, because all moved catalogs share the tables.
            made = bucket.user.run(
                "delta", "create", f"main.ns.{name}", "--columns", "id BIGINT", "--server", served.url
            )
            assert made.code == 0, made.err
            append_delta(served.url + DELTA + name, bucket, 1, publishes=True)
            append_delta(served.url + DELTA + name, bucket, 2, publishes=False)
        taken = bucket.user.run("backup", "create", BACKUPS, "--store", OLD, "--json")
        assert taken.json["files_unread"] == 0
        catalog.load_table("ns.i").append(ROWS)


def check(bucket: Bucket, store: str, folder: Path, table: str, *, rows: int) -> None:
    """A server on the moved catalog reads and changes both tables where they are, and new ones lie beside them."""
    allowed = ("--allow-location", OLD)
    sound = bucket.user.run("verify", "--store", store, *allowed)
    assert sound.code == 0, sound.out
    with server_process(folder, "--store", store, *allowed, preview="rows", **bucket.environment) as served:
        catalog = iceberg(served.url, bucket, served)
        moved = catalog.load_table("ns.i")
        assert moved.metadata_location.startswith(OLD)
        assert moved.scan().to_arrow().num_rows == rows
        moved.append(ROWS)
        assert catalog.load_table("ns.i").scan().to_arrow().num_rows == rows + 2
        at = ("--server", served.url)
        delta = f"main.ns.{table}"
        assert bucket.user.run("history", delta, *at, "-o", "json").json[0]["version"] == 2
        back = bucket.user.run("rollback", delta, "--to", "1", "--yes", *at)
        assert back.code == 0, back.err
        assert bucket.user.run("history", delta, *at, "-o", "json").json[0]["version"] == 3
        shown = bucket.user.run("preview", delta, *at, "-o", "json").json
        assert sorted(row["id"] for row in shown) == [1, 2]
        made = bucket.user.run("create", "table", "main.ns.new", "--columns", "id BIGINT", *at)
        assert made.code == 0, made.err
        new = httpx.get(f"{served.url}/v1/main/namespaces/ns/tables/new", timeout=60)
        assert new.json()["metadata-location"].startswith(OLD)  # A catalog keeps its root.
    assert bucket.user.run("verify", "--store", store, *allowed).code == 0


@pytest.mark.usefixtures("backup")
def test_all_objects_of_a_store_are_copied_to_another_root(bucket: Bucket, tmp_path: Path) -> None:
    for key in bucket.keys("moved/old/"):
        bucket.store.copy(key, key.replace("moved/old/", "moved/copied/", 1))

    check(bucket, f"s3://{BUCKET}/moved/copied", tmp_path, "copy", rows=4)


@pytest.mark.usefixtures("backup")
def test_a_backup_of_a_bucket_is_restored_into_another_root(bucket: Bucket, tmp_path: Path) -> None:
    store = f"s3://{BUCKET}/moved/restored"

    refused = bucket.user.run("restore", BACKUPS, "--store", store)
    restored = bucket.user.run("restore", BACKUPS, "--store", store, "--allow-location", OLD, "--json")

    assert refused.code != 0
    assert "--allow-location" in refused.err
    assert restored.code == 0, restored.err
    check(bucket, store, tmp_path, "root", rows=2)


@pytest.mark.usefixtures("backup")
def test_a_backup_of_a_bucket_is_restored_into_a_folder(bucket: Bucket, tmp_path: Path) -> None:
    store = str(tmp_path / "store")

    restored = bucket.user.run("restore", BACKUPS, "--store", store, "--allow-location", OLD, "--json")

    assert restored.code == 0, restored.err
    check(bucket, store, tmp_path, "folder", rows=2)
