"""`sandur serve` as a process: its output, two workers, and an orderly stop."""

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, set_properties
from tests.server.wire import exchange

POLLS_MAX = 1_200
"""How often a test polls for what a server does by itself: for at least a minute, because the machine may be busy."""


# The default of five seconds is too short on a busy machine.
get = functools.partial(httpx.get, timeout=60)


def sandur(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "serve", *arguments]
    environment = {**os.environ, **{f"SANDUR_{name.upper()}": value for name, value in settings.items()}}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


@pytest.fixture(scope="module")
def table(server: ServerProcess) -> str:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        client.post("/v1/namespaces", json={"namespace": ["wire"]})
        made = client.post("/v1/namespaces/wire/tables", json=create_table("t"))
        assert made.status_code == 200, made.text
    return "/v1/namespaces/wire/tables/t"


def test_the_banner_has_a_recipe_for_each_engine_that_reads_folders(server: ServerProcess) -> None:
    printed = "\n".join(server.printed)

    for text in ("Spark", "PyIceberg", "DuckDB", f"uri={server.url}", f"ENDPOINT '{server.url}'", "/readyz"):
        assert text in printed
    assert server.printed[-1] == f"Sandur is ready at {server.url}"


def test_health_and_readiness(server: ServerProcess) -> None:
    assert get(f"{server.url}/healthz").json() == {"status": "alive"}
    assert get(f"{server.url}/readyz").json() == {"status": "ready"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the libraries of a process")
def test_workers_import_what_plans_need_before_the_first_plan(server: ServerProcess) -> None:
    for pid in workers_of(server.process.pid):
        libraries = Path(f"/proc/{pid}/maps")
        for _ in range(POLLS_MAX):
            if "libarrow" in libraries.read_text():
                break
            _pause()
        assert "libarrow" in libraries.read_text()


async def test_a_load_over_the_wire(server: ServerProcess, table: str) -> None:
    answer = await exchange(
        server.port,
        f"GET {table} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\nConnection: close\r\n\r\n".encode(),
    )

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b'\r\nETag: "' in head
    assert b"\r\nCache-Control: private" in head
    assert b"\r\nX-Request-Id: mine" in head
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["metadata-location"]


async def test_head_204_and_304_have_no_body_on_the_wire(server: ServerProcess, table: str) -> None:
    etag = (await asyncio.to_thread(get, server.url + table)).headers["etag"]
    exists = f"HEAD {table} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    missing = f"HEAD {table}x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    unchanged = f"GET {table} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {etag}\r\nConnection: close\r\n\r\n"

    answer = await exchange(server.port, (exists + missing + unchanged).encode())

    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"204", b"404", b"304"]
    assert all(part.endswith(b"\r\n\r\n") and part.count(b"\r\n\r\n") == 1 for part in answer.split(b"HTTP/1.1 ")[1:])


async def test_a_commit_with_an_h2c_upgrade_is_committed(server: ServerProcess, table: str) -> None:
    body = json.dumps(set_properties(sent="upgraded")).encode()
    head = (
        f"POST {table} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        f"HTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    second = f"GET {table} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    answer = await exchange(server.port, head, body, second)

    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.count(b'"sent":"upgraded"') == 2


def test_a_client_that_sends_too_much_gets_an_answer(server: ServerProcess) -> None:
    answer = httpx.post(f"{server.url}/v1/namespaces", content=b" " * (33 << 20), timeout=60)

    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == 413
    assert get(f"{server.url}/healthz").status_code == 200


def test_a_connection_serves_many_requests(server: ServerProcess, table: str) -> None:
    with httpx.Client(base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=1)) as client:
        for path in (table, "/v1/nowhere", f"{table}x", "/healthz", table):
            client.get(path)
        (connection,) = client._transport._pool.connections  # type: ignore[attr-defined] # Where httpx keeps them.

        assert "Request Count: 5" in repr(connection)


def test_the_metrics_of_two_workers_are_added(server: ServerProcess, table: str) -> None:
    for _ in range(60):  # Each request uses its own connection, which the kernel assigns to one of the workers.
        assert get(server.url + table).status_code == 200
    give_up = time.monotonic() + 60
    pages: list[str] = []
    counted: set[float] = set()
    # The numbers of the other worker are a few seconds old.
    while (len(counted) != 1 or min(counted) < 60) and time.monotonic() < give_up:
        pages = [get(f"{server.url}/metrics").text for _ in range(6)]
        counted = {loads_counted(text) for text in pages}

    assert len(counted) == 1, "every worker reports the sum of both"
    assert min(counted) >= 60
    for name in ("sandur_storage_calls_total", "sandur_storage_rounds_bucket", "sandur_requests_under_way"):
        assert name in pages[0]


def loads_counted(text: str) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("sandur_request_seconds_count")
        and 'operation="loadTable"' in line
        and 'status="200"' in line
    )


def test_every_request_logs_one_line(tmp_path: Path) -> None:
    with server_process(tmp_path, log_format="json") as running:
        get(f"{running.url}/v1/namespaces", headers={"X-Request-Id": "abc-1", "X-Sandur-Tenant": "acme"})
        get(f"{running.url}/v1/namespaces/nope/tables/t", headers={"X-Request-Id": 'bad "id'})
    lines = [json.loads(line) for line in running.log.splitlines()]

    first, second = [line for line in lines if line["event"] == "request"]
    assert first["request_id"] == "abc-1"
    assert first["tenant"] == "acme"
    assert first["workspace"] == "default"
    assert first["principal"] == "anonymous"
    assert first["route"] == "/v1/{prefix}/namespaces"
    assert first["method"] == "GET"
    assert first["ms"] > 0
    assert (first["operation"], first["outcome"]) == ("listNamespaces", "done")
    assert first["rounds"] > 0
    assert first["bytes_out"] > 0
    assert first["client"].startswith("python-httpx/")
    assert second["outcome"] == "refused"
    assert second["status"] == 404
    assert second["request_id"] != 'bad "id'


async def test_a_stopping_server_finishes_its_requests(tmp_path: Path) -> None:
    with server_process(tmp_path, fsync="never") as running:
        body = json.dumps({"namespace": ["late"]}).encode()
        head = f"POST /v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head + body[:5])
        await writer.drain()
        assert (await asyncio.to_thread(get, f"{running.url}/healthz")).status_code == 200

        running.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        writer.write(body[5:])
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        code = await asyncio.to_thread(running.process.wait, 60)

    assert answer.startswith(b"HTTP/1.1 200 OK"), answer
    assert code == 0
    with server_process(tmp_path) as again:
        listed = await asyncio.to_thread(get, f"{again.url}/v1/namespaces")
    assert listed.json()["namespaces"] == [["late"]]


SIGNAL_AT_START = """
import signal
import uvicorn
from sandur.cli.main import run


serve = uvicorn.Server.run

def signalled(server, sockets):
    signal.raise_signal(signal.SIGTERM)
    serve(server, sockets)

uvicorn.Server.run = signalled
run()
"""


def test_a_signal_before_uvicorn_handles_signals_stops_the_server(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIGNAL_AT_START, "serve", "--port", "0", "--store", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


def test_a_worker_that_dies_is_replaced_and_all_end_together(tmp_path: Path) -> None:
    with server_process(tmp_path, "--workers", "2", fsync="never") as running:
        workers = workers_of(running.process.pid)
        assert len(workers) == 2
        # A service manager may signal all processes of a server at once: this one has to outlive its workers.
        os.kill(origin_of(running.process.pid), signal.SIGTERM)
        os.kill(workers[0], signal.SIGKILL)
        now = workers
        for _ in range(POLLS_MAX):
            now = workers_of(running.process.pid)
            if len(now) == 2 and workers[0] not in now:
                break
            _pause()
        assert len(now) == 2
        assert workers[1] in now
        for _ in range(20):
            assert get(f"{running.url}/healthz").status_code == 200
        assert running.end() == 0
        assert not any(is_alive(pid) for pid in now)


def test_workers_do_not_outlive_a_killed_server(tmp_path: Path) -> None:
    with server_process(tmp_path, "--workers", "2", fsync="never") as running:
        workers = workers_of(running.process.pid)
        running.process.kill()
        for _ in range(POLLS_MAX):
            if not any(is_alive(pid) for pid in workers):
                break
            _pause()

        assert not any(is_alive(pid) for pid in workers)


def workers_of(pid: int) -> list[int]:
    return children_of(origin_of(pid))


def origin_of(pid: int) -> int:
    """The process that imported the server, and from which the workers are forked."""
    (origin,) = [child for child in children_of(pid) if b"resource_tracker" not in command_of(child)]
    return origin


def children_of(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [int(child) for child in listed]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


def _pause() -> None:
    subprocess.run(["sleep", "0.05"], check=True)  # noqa: S607 - a process is waited for, not the program's own time


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        (("--host", "0.0.0.0"), {}, "authentication is off"),  # noqa: S104 - refused here
        (("--workers", "2", "--store", "memory:"), {}, "a store in memory belongs to one process"),
        (("--store", "ftp://x"), {}, "ftp://"),
        (("--port", "70000"), {}, "setting port"),
        ((), {"authentication": "token"}, "the shared secret has been replaced by principals"),
        ((), {"idempotency_key_lifetime": "1 hour"}, "setting idempotency_key_lifetime"),
        # An invalid host, which fails without a name server.
        (("--host", "fe80::1%nowhere"), {"allow_unauthenticated": "true"}, "cannot listen on"),
    ],
)
def test_an_invalid_setting_prints_one_line_and_exits_with_code_1(
    tmp_path: Path, arguments: tuple[str, ...], settings: dict[str, str], expected: str
) -> None:
    store = () if "--store" in arguments else ("--store", str(tmp_path))

    done = sandur(*store, *arguments, **settings)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("sandur: ")
    assert expected in line


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_reported(server: ServerProcess, tmp_path: Path, workers: str) -> None:
    done = sandur("--store", str(tmp_path), "--port", str(server.port), "--workers", workers)

    assert done.returncode == 1
    expected = f"cannot listen on 127.0.0.1 port {server.port}: the port is in use; choose another with --port"
    assert done.stderr.startswith(f"sandur: {expected}")
    assert len(done.stderr.splitlines()) == 1


def test_the_store_is_checked_before_the_port(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    done = sandur("--store", str(tmp_path / "file"), "--port", str(server.port))

    assert done.stderr.startswith(f"sandur: folder {tmp_path}/file: cannot be used as a store")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"oidc": '[{"issuer":"https://x","audience":"hush"}]'},
            "setting oidc is ignored because authentication is off",
        ),
        ({"admin_secret": "hush", "authentication": "on"}, "setting admin_secret is shorter than 16 characters"),
    ],
)
def test_a_doubtful_setting_is_logged_once_at_the_start(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    with server_process(tmp_path, "--workers", "2", fsync="never", **settings) as running:
        pass

    assert running.log.count(expected) == 1
    assert "hush" not in running.log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_unusable_store_fails_the_start(tmp_path: Path, workers: str) -> None:
    (tmp_path / "file").write_text("not a folder")

    done = sandur("--store", str(tmp_path / "file"), "--port", "0", "--workers", workers)

    assert done.returncode == 7  # unavailable
    (line,) = done.stderr.splitlines()
    assert line.startswith("sandur: ")
