"""Overload: more clients, connections, bytes and files than a server has room for, and its recovery."""

import asyncio
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import pytest

from sandur.server import protocol
from sandur.server.protocol import SURPLUS_MAX, PlainHttpProtocol, bounded_protocol
from sandur.storage.contract import ABSENT
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table
from tests.server.wire import exchange, serving

T = TypeVar("T")

NAMESPACE = {"namespace": ["a"]}


class StandingStore(WrappingStore):
    """Holds every call back while it stands."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.waiting = 0

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - every call alike
        self.waiting += 1
        try:
            await self.may_go.wait()
        finally:
            self.waiting -= 1
        return await perform()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the condition is about tasks, which set no event
            await asyncio.sleep(0)


async def test_ten_times_the_clients_get_an_answer_or_a_time_to_come_back(catalogs: Catalogs) -> None:
    store = StandingStore()
    client = await catalogs.open(store=store, requests_at_once_max=4)
    await client.post("/v1/namespaces", json=NAMESPACE)
    store.may_go.clear()

    sent = [asyncio.create_task(client.get("/v1/namespaces/a")) for _ in range(40)]
    await _until(lambda: sum(one.done() for one in sent) == 36)
    alive = await client.get("/healthz")
    store.may_go.set()
    answers = await asyncio.gather(*sent)

    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == {200: 4, 503: 36}
    assert 'sandur_requests_refused_total{reason="busy"} 36.0' in (await client.get("/metrics")).text
    assert alive.status_code == 200
    assert all(1 <= int(answer.headers["Retry-After"]) <= 5 for answer in answers if answer.status_code == 503)
    again = await asyncio.gather(*(client.get("/v1/namespaces/a") for _ in range(4)))
    assert [answer.status_code for answer in again] == [200] * 4, "it recovers at once"


async def test_one_principal_leaves_room_for_others_on_a_busy_server(catalogs: Catalogs) -> None:
    store = StandingStore()
    settings = msgspec.structs.replace(SECURED, requests_at_once_max=8)
    client = await catalogs.open_with(settings, store)
    admin = await bearer(client)
    other = await make_principal(client, admin, "other")
    await client.post("/v1/namespaces", json=NAMESPACE, headers=admin)
    store.may_go.clear()

    greedy = [asyncio.create_task(client.get("/v1/namespaces/a", headers=admin)) for _ in range(20)]
    await _until(lambda: sum(one.done() for one in greedy) == 16)
    modest = asyncio.create_task(client.get("/v1/namespaces/a", headers=other))
    await _until(lambda: store.waiting > 4)
    store.may_go.set()
    answers = await asyncio.gather(*greedy)

    assert Counter(answer.status_code for answer in answers) == {200: 4, 429: 16}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers if answer.status_code == 429)
    assert (await modest).status_code == 404, "it was served: it may not see the namespace"
    assert (await client.get("/v1/namespaces/a", headers=admin)).status_code == 200


async def test_bodies_that_do_not_fit_into_memory_are_refused_before_they_are_read(catalogs: Catalogs) -> None:
    store = StandingStore()
    client = await catalogs.open(store=store, bodies_bytes_max=3_000_000)
    large = {"namespace": ["a"], "properties": {"text": "x" * 1_000_000}}
    store.may_go.clear()

    sent = [asyncio.create_task(client.post("/v1/namespaces", json=large)) for _ in range(10)]
    await _until(lambda: sum(one.done() for one in sent) == 8)
    store.may_go.set()
    answers = await asyncio.gather(*sent)

    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 1, 503: 8}
    assert 'sandur_requests_refused_total{reason="bodies"} 8.0' in (await client.get("/metrics")).text
    assert {"Retry-After" in answer.headers for answer in answers if answer.status_code == 503} == {True}
    assert (await client.post("/v1/namespaces", json={**large, "namespace": ["b"]})).status_code == 200


async def test_small_bodies_without_a_length_hold_no_more_room_than_they_take(catalogs: Catalogs) -> None:
    """Agents of OpenLineage send them so, and do not repeat what is refused."""
    store = StandingStore()
    client = await catalogs.open(store=store, bodies_bytes_max=20_000_000)
    store.may_go.clear()

    async def body(number: int) -> AsyncIterator[bytes]:
        yield msgspec.json.encode({"namespace": [f"n{number}"]})

    sent: list[asyncio.Task[httpx.Response]] = []
    for number in range(10):
        sent.append(asyncio.create_task(client.post("/v1/namespaces", content=body(number))))
        await _until(lambda: store.waiting >= len(sent) or sent[-1].done())
    store.may_go.set()

    assert [(await one).status_code for one in sent] == [200] * 10


async def _app(scope: Any, _receive: Any, send: Any) -> None:
    body = scope["raw_path"]
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _connect(port: int, count: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    opened = []
    for _ in range(count):
        one = socket.socket()
        one.settimeout(0)
        await loop.sock_connect(one, ("127.0.0.1", port))
        opened.append(one)
    return opened


async def test_connections_above_the_limit_get_only_the_pages_of_health() -> None:
    request = "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serving(_app, bounded_protocol(5)) as port:
        opened = await _connect(port, 5)
        for one in opened:  # An answer shows that the server has accepted the connection.
            await _get(one, b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\n")
        refused = await exchange(port, request.format("/v1/config").encode())
        healthy = await exchange(port, request.format("/healthz?full").encode())
        for one in opened:
            one.close()
        await asyncio.sleep(0.05)
        accepted = await exchange(port, request.format("/v1/config").encode())

    assert refused.startswith(b"HTTP/1.1 503")
    assert b"\r\nretry-after: 2\r\n" in refused
    assert b"ServiceUnavailableException" in refused
    assert healthy.startswith(b"HTTP/1.1 200")
    assert accepted.endswith(b"/v1/config")
    assert SURPLUS_MAX


async def _get(connection: socket.socket, request: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, request)
    async with asyncio.timeout(30):
        return await loop.sock_recv(connection, 1 << 16)


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"GET /a HTTP/1.1\r\nX-Slow: a", b"HTTP/1.1 408"),
        (b"", b""),
        (b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b", b"408"),
    ],
    ids=["half a head", "nothing", "half a second head"],
)
async def test_a_client_that_never_ends_its_head_is_disconnected(
    sent: bytes, answered: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 0.05)
    loop = asyncio.get_running_loop()
    async with serving(_app) as port:
        [connection] = await _connect(port, 1)
        await loop.sock_sendall(connection, sent)
        answer = b""
        async with asyncio.timeout(30):
            while part := await loop.sock_recv(connection, 1 << 16):
                answer += part
        connection.close()

    assert answered in answer


async def test_a_request_that_is_handled_for_long_is_not_a_slow_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 0.05)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await _app(scope, receive, send)

    async with serving(slow, PlainHttpProtocol) as port:
        answer = await exchange(port, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert answer.endswith(b"/a")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_process(tmp_path, janitors="false") as running:
        yield running


def _limit(server: ServerProcess, kind: int, value: int) -> None:
    _, hard = resource.prlimit(server.process.pid, kind)
    resource.prlimit(server.process.pid, kind, (hard if value < 0 else value, hard))


def _retrying(send: Callable[[], httpx.Response], wanted: int) -> httpx.Response:
    """The first answer with that status, within half a minute."""
    ends = time.monotonic() + 30
    while True:
        try:
            answer = send()
        except httpx.TransportError:
            if time.monotonic() > ends:
                raise
        else:
            if answer.status_code == wanted or time.monotonic() > ends:
                return answer


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit, which only Linux has")
def test_a_full_disk_is_a_clear_error_and_loses_nothing(server: ServerProcess) -> None:
    """No file of the server may grow, which is what a full disk means for it; its log cannot grow either."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.post("/v1/namespaces", json=NAMESPACE).status_code == 200
        _limit(server, resource.RLIMIT_FSIZE, 0)
        refused = client.post("/v1/namespaces", json={"namespace": ["b"]})
        read = client.get("/v1/namespaces/a")
        unready = client.get("/readyz")
        alive = client.get("/healthz")
        _limit(server, resource.RLIMIT_FSIZE, -1)
        ready = _retrying(lambda: client.get("/readyz"), 200)
        listed = client.get("/v1/namespaces")
        accepted = client.post("/v1/namespaces", json={"namespace": ["b"]})

    assert refused.status_code == 503
    assert "Retry-After" in refused.headers
    assert "cannot be written" in refused.text
    assert read.status_code == 200
    assert unready.status_code == 503
    assert alive.status_code == 200
    assert ready.status_code == 200
    assert listed.json()["namespaces"] == [["a"]]
    assert accepted.status_code == 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit, which only Linux has")
def test_a_server_without_free_file_descriptors_recovers(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.post("/v1/namespaces", json=NAMESPACE).status_code == 200
        # A new descriptor gets the lowest free number, which is above those of the standard streams.
        _limit(server, resource.RLIMIT_NOFILE, 3)
        opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        refused = client.post("/v1/namespaces", json={"namespace": ["b"]})
        alive = client.get("/healthz")
        for one in opened:
            one.close()
        _limit(server, resource.RLIMIT_NOFILE, -1)
        ready = _retrying(lambda: client.get("/readyz"), 200)
        with httpx.Client(base_url=server.url, timeout=60) as other:
            accepted = _retrying(lambda: other.post("/v1/namespaces", json={"namespace": ["b"]}), 200)

    assert refused.status_code == 503
    assert "Retry-After" in refused.headers
    assert "Too many open files" in refused.text
    assert alive.status_code == 200
    assert ready.status_code == 200
    assert accepted.status_code == 200
    assert server.process.poll() is None


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("fsync", ["always", "never"])
async def test_no_space_left_is_named_and_leaves_no_file(
    fsync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, fsync=fsync)
    version = await store.put("a/b", b"before", expected=ABSENT)
    before = _files(tmp_path)

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(Exception, match="No space left on device"):
            await store.put("a/b", b"after", expected=version)

    found = await store.get("a/b")
    assert found is not None
    assert found.data == b"before"
    assert _files(tmp_path) == before
    await store.put("a/b", b"after", expected=version)
    await store.close()


_FLOOD = """
import asyncio, collections, json, sys, httpx
async def main(url, clients, tables, seconds):
    counts, acknowledged = collections.Counter(), {}
    ends = asyncio.get_running_loop().time() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=clients)) as client:
        async def one(number):
            path, key, sent = f"/v1/namespaces/a/tables/t{number % tables}", f"client-{number}", 0
            while asyncio.get_running_loop().time() < ends:
                sent += 1
                update = {"action": "set-properties", "updates": {key: str(sent)}}
                commit = {"requirements": [], "updates": [update]}
                for is_commit in (False, True):
                    answer = await (client.post(path, json=commit) if is_commit else client.get(path))
                    counts[f"{'commit' if is_commit else 'load'} {answer.status_code}"] += 1
                    counts["with Retry-After"] += "Retry-After" in answer.headers
                    if is_commit and answer.status_code == 200:
                        acknowledged[key] = sent
        await asyncio.gather(*(one(number) for number in range(clients)))
    print(json.dumps([counts, acknowledged]))
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
"""


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_minute_of_ten_times_the_clients_needs_no_more_memory(tmp_path: Path) -> None:
    """They load tables and commit to them in turn. No commit that was acknowledged is lost."""
    tables = 8
    with (
        server_process(
            tmp_path, janitors="false", requests_at_once_max="2", log_level="warning", cache_bytes_max=str(16 << 20)
        ) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        client.post("/v1/namespaces", json=NAMESPACE)
        for number in range(tables):
            client.post("/v1/namespaces/a/tables", json=create_table(f"t{number}")).raise_for_status()
        before = _resident_bytes(server.process.pid)
        command = [sys.executable, "-c", _FLOOD, server.url, "160", str(tables), "60"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
            health = []
            while flood.poll() is None:
                began = time.monotonic()
                assert client.get("/healthz").status_code == 200
                health.append(time.monotonic() - began)
                time.sleep(0.5)  # noqa: TID251 - the load of a minute is the test
            assert flood.stdout is not None
            counts, acknowledged = json.loads(flood.stdout.read())
        after = _resident_bytes(server.process.pid)
        loaded = [client.get(f"/v1/namespaces/a/tables/t{number}") for number in range(tables)]

    sys.stdout.write(f"{counts}, {before >> 20} to {after >> 20} MiB, health in {max(health):.3f} s at most\n")
    assert counts.keys() <= {"load 200", "load 503", "commit 200", "commit 503", "with Retry-After"}
    assert counts["with Retry-After"] == counts.get("load 503", 0) + counts.get("commit 503", 0) > 0
    found: dict[str, str] = {}
    for answer in loaded:
        found |= answer.json()["metadata"]["properties"]
    assert [key for key, last in acknowledged.items() if int(found[key]) < last] == []
    assert after - before < 64 << 20
