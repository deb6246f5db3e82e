"""Small files that become large when they are decompressed: refused before they fill the memory."""

import gzip
import json
import sys
import zlib
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandur.decompression import UNCOMPRESSED_BYTES_MAX, uncompressed_bytes_max
from sandur.settings import Settings
from tests.server.conftest import Catalogs
from tests.server.requests import add_snapshot, create_table

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TABLE = "/v1/namespaces/ns/tables/t"
BOMB_BYTES = 80 << 20
SYNC = bytes(16)
# Snappy cannot make a file twenty times as large.
COMPRESS = {
    "deflate": lambda data: zlib.compress(data, wbits=-15),
    "zstandard": zstd.compress,
}
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
    ]
)


@pytest.fixture
async def client(catalogs: Catalogs, tmp_path: Path) -> httpx.AsyncClient:
    client = await catalogs.open_with(Settings(store=str(tmp_path), fsync="never", log_level="error"))
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    return client


def path_of(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def varint(number: int) -> bytes:
    coded = number << 1
    parts = []
    while coded > 0x7F:
        parts.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*parts, coded])


def avro_bomb(codec: str) -> bytes:
    """A container file with one block of zeros."""
    schema = {"type": "record", "name": "manifest_file", "fields": [{"name": "manifest_path", "type": "string"}]}
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    entries = [varint(len(part)) + part for name, value in header.items() for part in (name.encode(), value)]
    block = COMPRESS[codec](bytes(BOMB_BYTES))
    start = b"Obj\x01" + varint(len(header)) + b"".join(entries) + b"\x00" + SYNC
    return start + varint(1) + varint(len(block)) + block + SYNC


async def test_a_metadata_file_that_explodes_cannot_be_registered(client: httpx.AsyncClient) -> None:
    metadata = (await client.get(TABLE)).json()["metadata"]
    location = metadata["location"] + "/metadata/00009-bomb.gz.metadata.json"
    path_of(location).write_bytes(gzip.compress(json.dumps(metadata).encode() + b" " * BOMB_BYTES))

    refused = await client.post("/v1/namespaces/ns/register", json={"name": "u", "metadata-location": location})

    assert refused.status_code == 400
    assert f"larger than {64 << 20} bytes when uncompressed" in refused.text


@pytest.mark.parametrize("codec", list(COMPRESS))
async def test_a_manifest_list_that_explodes_is_not_planned(client: httpx.AsyncClient, codec: str) -> None:
    metadata = (await client.get(TABLE)).json()["metadata"]
    commit = add_snapshot(metadata)
    location = metadata["location"] + "/metadata/snap-bomb.avro"
    commit["updates"][0]["snapshot"]["manifest-list"] = location
    path_of(location).write_bytes(avro_bomb(codec))
    assert (await client.post(TABLE, json=commit)).status_code == 200

    planned = (await client.post(f"{TABLE}/plan", json={})).json()

    assert (planned["status"], planned["error"]["code"]) == ("failed", 400)
    assert "too many bytes" in planned["error"]["message"]


@pytest.mark.parametrize("bomb", ["many rows", "large texts"])
async def test_a_delta_checkpoint_that_explodes_is_not_read(
    client: httpx.AsyncClient, tmp_path: Path, bomb: str
) -> None:
    log = tmp_path / "tables/default/default/main/events/_delta_log"
    log.mkdir(parents=True)
    body = {
        "name": "events",
        "catalog_name": "main",
        "schema_name": "ns",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": log.parent.as_uri(),
        "columns": [],
    }
    assert (await client.post("/api/2.1/unity-catalog/tables", json=body)).status_code == 200
    rows, chars = (600_000, 1) if bomb == "many rows" else (4_000, 40_000)
    checkpoint = log / f"{0:020d}.checkpoint.parquet"
    add = {"path": "a" * chars, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    pq.write_table(pa.table({"add": pa.repeat(pa.scalar(add, ADD), rows)}), checkpoint, compression="zstd")
    for version in range(2):
        (log / f"{version:020d}.json").write_text("{}\n", encoding="utf-8")
    (log / "_last_checkpoint").write_text('{"version":0}', encoding="utf-8")
    assert checkpoint.stat().st_size < 100_000

    restore = await client.get("/api/sandur/v1/objects/main/ns/events/restore?version=0")
    files = await client.get("/ui/data/main/ns/tables/events/files")

    for refused in (restore, files):
        assert refused.status_code == 400
        assert "is larger than" in refused.text


def test_the_bound_grows_with_the_file_up_to_a_limit() -> None:
    assert uncompressed_bytes_max(10) == 64 << 20
    assert uncompressed_bytes_max(1 << 20) == 200 << 20
    assert uncompressed_bytes_max(1 << 30) == UNCOMPRESSED_BYTES_MAX
