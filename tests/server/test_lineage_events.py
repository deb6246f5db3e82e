"""The OpenLineage API stores every event before it answers, takes what real clients send, and refuses the rest."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandur.catalog.lineage.events import EVENT_BYTES_MAX, LineageRecord
from sandur.operations.lineage import ingest
from sandur.operations.lineage.ingest import decode_batch
from sandur.storage.contract import ObjectStore, list_all
from sandur.storage.layout import Layout
from sandur.storage.memory import MemoryStore
from tests.crash.gated_store import GatedStore, writes_to
from tests.fakes.openlineage import dataset, dataset_event, job_event, run_event
from tests.server.audited import audited_server
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET
from tests.server.process import server_process

EVENTS = "/api/v1/lineage"
BATCH = "/api/v1/openlineage/lineage"
EVENT = run_event(1, "START", 1)


async def stored(store: ObjectStore) -> Sequence[Sequence[LineageRecord]]:
    """The records of every object in the log."""
    found = []
    for listed in await list_all(store, Layout().lineage_folder()):
        held = await store.get(listed.key)
        assert held
        found.append(decode_batch(held.data))
    return found


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def client(catalogs: Catalogs, store: MemoryStore) -> httpx.AsyncClient:
    return await catalogs.open(store)


@pytest.mark.parametrize(
    "event",
    [EVENT, job_event("nightly", [], [dataset("sales.raw")]), dataset_event(dataset("sales.raw"))],
    ids=["run", "job", "dataset"],
)
async def test_an_event_is_stored_as_it_was_sent(client: httpx.AsyncClient, store: MemoryStore, event: Any) -> None:
    body = json.dumps(event, indent=2).encode()

    answer = await client.post(EVENTS, content=body)

    ((record,),) = await stored(store)
    assert (answer.status_code, answer.content) == (201, b"")
    assert (bytes(record.event), record.host, record.is_trusted, record.is_own) == (body, "localhost", True, False)


async def test_a_compressed_body_without_a_length_is_taken(client: httpx.AsyncClient, store: MemoryStore) -> None:
    body = json.dumps(EVENT).encode()
    packed = gzip.compress(body)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(packed), 100):
            yield packed[start : start + 100]

    answer = await client.post(EVENTS, content=chunks(), headers={"content-encoding": "gzip"})

    ((record,),) = await stored(store)
    assert answer.status_code == 201
    assert bytes(record.event) == body


async def test_an_event_that_is_sent_again_is_stored_once(client: httpx.AsyncClient, store: MemoryStore) -> None:
    for _ in range(3):
        assert (await client.post(EVENTS, json=EVENT)).status_code == 201

    assert [len(records) for records in await stored(store)] == [1]


async def test_a_batch_is_one_object(client: httpx.AsyncClient, store: MemoryStore) -> None:
    events = [run_event(number, "COMPLETE", 1) for number in range(5)]

    answer = await client.post(BATCH, json=[*events, events[0]])

    (records,) = await stored(store)
    assert answer.status_code == 201
    assert sorted(json.loads(bytes(record.event))["run"]["runId"] for record in records) == sorted(
        event["run"]["runId"] for event in events
    )


BAD: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"eventTime": "\xff"}',
    "a number": b"7",
    "an empty batch": b"[]",
    "a batch with a bad event": json.dumps([EVENT, {"eventTime": "x"}]).encode(),
    "no producer": json.dumps({key: value for key, value in EVENT.items() if key != "producer"}).encode(),
    "no time": json.dumps({**EVENT, "eventTime": "yesterday"}).encode(),
    "no run, job or dataset": json.dumps({**EVENT, "run": None, "job": None}).encode(),
    "a run without a job": json.dumps({**EVENT, "job": None}).encode(),
    "a bad run id": json.dumps({**EVENT, "run": {"runId": "1"}}).encode(),
    "an unknown type": json.dumps({**EVENT, "eventType": "DONE"}).encode(),
    "an unnamed dataset": json.dumps({**EVENT, "inputs": [{"namespace": "file", "name": ""}]}).encode(),
    "a long name": json.dumps({**EVENT, "inputs": [{"namespace": "file", "name": "x" * 3_000}]}).encode(),
    "too many datasets": json.dumps({**EVENT, "inputs": [{"namespace": "f", "name": "x"}] * 2_001}).encode(),
    "deeply nested": b'{"run": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_what_is_no_event_is_refused_and_nothing_is_stored(
    client: httpx.AsyncClient, store: MemoryStore, body: bytes
) -> None:
    answer = await client.post(BATCH, content=body)

    assert answer.status_code == 400
    assert answer.json()["message"].startswith(("Invalid", "Event 1: Invalid"))
    assert await stored(store) == []


async def test_a_gzip_bomb_is_refused_and_not_inflated(client: httpx.AsyncClient, store: MemoryStore) -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join([packer.compress(bytes(1 << 20)) for _ in range(32)]) + packer.flush()
    plain = b" " * (EVENT_BYTES_MAX + 1)

    answers = [
        await client.post(EVENTS, content=bomb, headers={"content-encoding": "gzip"}),
        await client.post(EVENTS, content=plain),
    ]

    assert [answer.status_code for answer in answers] == [413, 413]
    assert await stored(store) == []


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [("gzip", b"{}", 400), ("gzip", gzip.compress(b"{}", mtime=0)[:-4], 400), ("br", b"{}", 415)],
)
async def test_a_body_that_is_not_what_its_encoding_says_is_refused(
    client: httpx.AsyncClient, encoding: str, body: bytes, status: int
) -> None:
    answer = await client.post(EVENTS, content=body, headers={"content-encoding": encoding})

    assert answer.status_code == status


async def test_events_that_arrive_together_are_gathered_and_each_waits_for_its_object(
    catalogs: Catalogs, store: MemoryStore
) -> None:
    gated = GatedStore(store, holds=writes_to("lineage/"))
    client = await catalogs.open(gated)
    first = asyncio.create_task(client.post(EVENTS, json=run_event(0, "START", 1)))
    await gated.is_held.wait()
    others = [asyncio.create_task(client.post(EVENTS, json=run_event(n, "START", 1))) for n in range(1, 21)]
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert not any(task.done() for task in (first, *others))

    gated.release()
    answers = await asyncio.gather(first, *others)

    assert {answer.status_code for answer in answers} == {201}
    sizes = [len(records) for records in await stored(store)]
    assert sum(sizes) == 21
    assert len(sizes) < 5


async def test_events_beyond_the_bound_are_refused_until_there_is_room(
    catalogs: Catalogs, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "WAITING_BYTES_MAX", 1_000)
    gated = GatedStore(store, holds=writes_to("lineage/"))
    client = await catalogs.open(gated)
    first = asyncio.create_task(client.post(EVENTS, json=EVENT))
    await gated.is_held.wait()

    refused = [await client.post(EVENTS, json=run_event(n, "START", 1)) for n in range(2, 5)]
    gated.release()
    await first
    again = await client.post(EVENTS, json=run_event(2, "START", 1))

    assert refused[-1].status_code == 429
    assert int(refused[-1].headers["retry-after"]) > 0
    assert again.status_code == 201


async def test_events_need_the_privilege_and_carry_their_principal() -> None:
    async with audited_server(authentication="on", admin_secret=ADMIN_SECRET) as server:
        admin = await server.admin()
        made = (await server.client.post("/api/sandur/v1/principals", json={"name": "spark"}, headers=admin)).json()
        form = {"grant_type": "client_credentials", "client_id": "spark", "client_secret": made["client_secret"]}
        token = (await server.client.post("/v1/oauth/tokens", data=form)).json()["access_token"]
        spark = {"authorization": f"Bearer {token}"}

        unknown = await server.client.post(EVENTS, json=EVENT)
        denied = await server.client.post(EVENTS, json=EVENT, headers=spark)
        change = {"changes": [{"principal": "spark", "add": ["WRITE LINEAGE"], "remove": []}]}
        granted = await server.client.patch("/api/sandur/v1/grants/metastore/metastore", json=change, headers=admin)
        allowed = await server.client.post(EVENTS, json=EVENT, headers=spark)
        by_admin = await server.client.post(EVENTS, json=EVENT, headers=admin)

        assert granted.status_code == 200, granted.text
        assert [answer.status_code for answer in (unknown, denied, allowed, by_admin)] == [401, 403, 201, 201]
        records = [record for one in await stored(server.store) for record in one]
        assert sorted((record.principal, record.is_trusted) for record in records) == [
            ("admin", False),
            ("spark", False),
        ]
        audited = [record for record in await server.records() if record.operation == "postLineage"]
        assert [(record.kind, record.decision) for record in audited[1:]] == [
            ("denial", "denied"),
            ("change", "allowed"),
            ("change", "allowed"),
        ]


def test_every_event_that_a_killed_server_acknowledged_is_stored(tmp_path: Path) -> None:
    """The server dies by SIGKILL while 16 clients send."""
    acknowledged: list[str] = []

    async def send(url: str, number: int, is_over: asyncio.Event) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            for count in range(100_000):
                event = run_event(number * 100_000 + count, "START", 1)
                try:
                    answer = await client.post(EVENTS, json=event)
                except httpx.HTTPError:
                    return
                assert answer.status_code == 201
                acknowledged.append(event["run"]["runId"])
                if len(acknowledged) >= 150:
                    is_over.set()

    async def race(url: str, kill: Any) -> None:
        is_over = asyncio.Event()
        senders = [asyncio.create_task(send(url, number, is_over)) for number in range(16)]
        await is_over.wait()
        kill()
        await asyncio.gather(*senders)

    with server_process(tmp_path, fsync="never", log_level="error") as server:
        asyncio.run(race(server.url, server.process.kill))
        server.process.wait()
    found = [
        json.loads(bytes(record.event))["run"]["runId"]
        for path in (tmp_path / "data").rglob("lineage/*/*.json.gz")
        for record in decode_batch(path.read_bytes())
    ]

    assert len(acknowledged) >= 150
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
