"""Delta logs are written by clients: whatever is in them, a server refuses it or shows it, and never fails."""

import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandur.settings import Settings
from tests.server.conftest import Catalogs

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})
PROTOCOL = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'
FORMAT = {"provider": "parquet", "options": {}}
DEEP = "[" * 3_000 + "]" * 3_000
ARRAY = '{"type":"array","elementType":'
FILE = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
MARK = '"delta.identity.highWaterMark"'
YEAR_10000_MS = 253_402_300_800_000


def line(value: object) -> bytes:
    return json.dumps(value).encode()


def metadata(schema: str = SCHEMA, **more: Any) -> bytes:
    fields = {"id": "x", "format": FORMAT, "schemaString": schema, "partitionColumns": [], "configuration": {}}
    return line({"metaData": {**fields, **more}})


def add(**more: Any) -> bytes:
    return line({"add": {**FILE, **more}})


def timed(ms: int, **more: Any) -> bytes:
    return line({"commitInfo": {"timestamp": ms, "operation": "WRITE", **more}})


def domain(name: str, configuration: str) -> bytes:
    return line({"domainMetadata": {"domain": name, "configuration": configuration, "removed": False}})


WITH_TIMES = {"delta.enableInCommitTimestamps": "true"}
ROW_IDS = line(
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}}
)
LINES = {
    "no metadata": b"",
    "text": b"not JSON",
    "bytes": b"\x00\xff\xfe",
    "not UTF-8": b'{"add":{"path":"\xff"}}',
    "deep": b'{"txn":' + DEEP.encode() + b"}",
    "schema that is no JSON": metadata("garbage"),
    "schema that is a list": metadata("[1]"),
    "schema with a number": metadata('{"fields":5}'),
    "schema with numbers": metadata('{"fields":[1,"a",null]}'),
    "schema with a deep type": metadata('{"fields":[{"name":"a","type":' + DEEP + "}]}"),
    "schema with nested arrays": metadata('{"fields":[{"name":"a","type":' + ARRAY * 400 + "0" + "}" * 400 + "}]}"),
    "schema with odd children": metadata('{"fields":[{"name":"a","type":{"type":"struct","fields":[1]}}]}'),
    "schema with an odd list": metadata('{"fields":[{"name":"a","type":{"type":"struct","fields":7}}]}'),
    "schema without names": metadata('{"fields":[{' + MARK + ":1}]}"),
    "identity without a schema": metadata(f"{MARK[1:-1]} garbage"),
    "identity with odd metadata": metadata('{"fields":[{"name":"id","metadata":{' + MARK + ':"x"}}]}'),
    "statistics that are no JSON": metadata() + b"\n" + add(path="b", stats="{{"),
    "deep statistics": metadata() + b"\n" + add(path="b", stats='{"a":' + DEEP + "}"),
    "row ids without a mark": b"\n".join([metadata(), ROW_IDS, domain("delta.rowTracking", "[]")]),
    "a deep mark of row ids": b"\n".join([metadata(), ROW_IDS, domain("delta.rowTracking", DEEP)]),
    "clustering that is no JSON": b"\n".join([metadata(), domain("delta.clustering", "garbage")]),
    "deep clustering": b"\n".join([metadata(), domain("delta.clustering", DEEP)]),
    "a late time": b"\n".join([metadata(), timed(YEAR_10000_MS)]),
    "an early time": b"\n".join([metadata(), timed(-(2**63))]),
    "a huge size": b"\n".join([metadata(), add(path="b", size=2**63 - 1)]),
    "a size of 400 digits": b"\n".join([metadata(), add(path="b", size=10**400)]),
    "a time of 400 digits": b"\n".join([metadata(), timed(10**400)]),
    "a number of rows of 400 digits": metadata() + b"\n" + add(path="b", stats=f'{{"numRecords":{10**400}}}'),
}
PAGES = (
    *("", "/files", "/timeline", "/timeline?at=0", "/snapshots", "/versions/0", "/versions/1", "/diff?from=0&to=1"),
    *("/diff?from=1&to=0", "/health"),
)


LAST_CHECKPOINTS = (
    *(b"\xff", b"[]", b'{"a":"\xff"}', b'{"a":' + DEEP.encode() + b"}"),
    *(b'{"version":-7}', b'{"version":9223372036854775807}', b'{"version":%d}' % 10**400),
)
CHECKPOINTS = {
    "empty": b"",
    "damaged": b"PAR1 and not more PAR1",
    "other columns": pa.table({"x": [1]}),
    "a number": pa.table({"add": [1]}),
    "other types": pa.table({"add": [{"path": 5, "size": "x", "partitionValues": [1], "stats": 7}]}),
    "no path": pa.table({"add": [{"path": None}]}),
    "other actions": pa.table({"metaData": ["x"], "protocol": [7]}),
}
OBJECT = "/api/sandur/v1/objects/main/ns/events"
FINE = {200, 303, 400, 404, 409, 501, 503}
"""A page that takes longer than ten seconds, as on a busy machine, answers 503."""


class Log:
    """The log of an external table, which the test writes."""

    def __init__(self, client: httpx.AsyncClient, folder: Path) -> None:
        self._client = client
        self.folder = folder

    def write(self, version: int, *lines: bytes) -> None:
        (self.folder / f"{version:020d}.json").write_bytes(b"\n".join(lines))

    def clear(self) -> None:
        for file in self.folder.iterdir():
            file.unlink()

    async def failures(self, case: str) -> list[str]:
        """Ask for everything that reads the log, and restore the table; the answers that are failures."""
        paths = [f"/ui/data/main/ns/tables/events{page}" for page in PAGES]
        paths += [f"{OBJECT}/restore?version=0", f"{OBJECT}/history", f"{OBJECT}/changes?from=0&to=1"]
        paths.append("/ui/actions/restore-delta/main/ns/events?version=0&step=preview")
        answers = {path: (await self._client.get(path)).status_code for path in paths}
        body = {"version": 0, "expected_version": 1}
        answers["restore"] = (await self._client.post(f"{OBJECT}/restore", json=body)).status_code
        return [f"{case}: {status} {path}" for path, status in answers.items() if status not in FINE]


@pytest.fixture
async def log(catalogs: Catalogs, tmp_path: Path) -> Log:
    client = await catalogs.open_with(Settings(store=str(tmp_path), fsync="never", log_level="error"))
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    folder = tmp_path / "tables/default/default/main/events/_delta_log"
    folder.mkdir(parents=True)
    body = {
        "name": "events",
        "catalog_name": "main",
        "schema_name": "ns",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": folder.parent.as_uri(),
        "columns": [],
    }
    assert (await client.post("/api/2.1/unity-catalog/tables", json=body)).status_code == 200
    return Log(client, folder)


async def test_a_healthy_log_is_read_and_restored(log: Log) -> None:
    log.write(0, PROTOCOL, metadata(), timed(1))
    log.write(1, timed(1), metadata(description="later"), add())

    assert await log.failures("healthy") == []
    assert (log.folder / f"{2:020d}.json").exists()


@pytest.mark.parametrize("later", [metadata(), metadata(configuration=WITH_TIMES)], ids=["plain", "with times"])
async def test_no_line_of_the_first_commit_fails_the_server(log: Log, later: bytes) -> None:
    failures = []
    for case, first in LINES.items():
        log.clear()
        log.write(0, PROTOCOL, first)
        log.write(1, timed(1), later, add())
        failures += await log.failures(case)

    assert failures == []


async def test_no_line_of_the_last_commit_fails_the_server(log: Log) -> None:
    failures = []
    for case, last in LINES.items():
        log.clear()
        log.write(0, PROTOCOL, metadata(), timed(1))
        log.write(1, last, add())
        failures += await log.failures(case)

    assert failures == []


async def test_no_checkpoint_fails_the_server(log: Log) -> None:
    failures = []
    for case, checkpoint in CHECKPOINTS.items():
        log.clear()
        log.write(0, PROTOCOL, metadata())
        log.write(1, timed(1), add())
        (log.folder / "_last_checkpoint").write_text('{"version":0}', encoding="utf-8")
        file = log.folder / f"{0:020d}.checkpoint.parquet"
        file.write_bytes(checkpoint) if isinstance(checkpoint, bytes) else pq.write_table(checkpoint, file)
        failures += await log.failures(case)

    assert failures == []


async def test_no_note_of_the_last_checkpoint_fails_the_server(log: Log) -> None:
    failures = []
    for last in LAST_CHECKPOINTS:
        log.clear()
        log.write(0, PROTOCOL, metadata())
        log.write(1, timed(1), add())
        (log.folder / "_last_checkpoint").write_bytes(last)
        failures += await log.failures(last[:20].decode("latin-1"))

    assert failures == []
