"""The wheel in a fresh environment: the command, the server, its pages and one commit; then each extra at its work."""

import contextlib
import http.server
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import grpc
import httpx
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyiceberg.catalog.rest import RestCatalog

from tests.servers.processes import free_ports

REPOSITORY: Final = Path(__file__).parent.parent.parent
UV: Final = Path(sys.executable).with_name("uv")

pytestmark = pytest.mark.slow


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, REPOSITORY)
    (built,) = folder.glob("*.whl")
    return built


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """The folder of commands of a new environment with the wheel."""
    run(UV, "venv", "--python", sys.executable, folder)
    run(UV, "pip", "install", "--python", folder / "bin" / "python", f"{wheel}[{extra}]" if extra else wheel)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without extras."""
    return install(wheel, tmp_path_factory.mktemp("environment"))


@contextlib.contextmanager
def serving(commands: Path, store: Path, **settings: str) -> Iterator[str]:
    """The address of a server of that environment."""
    command = [str(commands / "sandur"), "serve", "--store", str(store), "--port", "0"]
    environment = {**os.environ, **{f"SANDUR_{name.upper()}": value for name, value in settings.items()}}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout
        ready = next((line for line in process.stdout if line.startswith("Sandur is ready at ")), "")
        try:
            assert ready, "the server ended before it was ready"
            yield ready.split()[-1]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def address(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(installed, tmp_path_factory.mktemp("store")) as url:
        yield url


def test_a_base_install_has_no_numpy_and_no_pyarrow_and_stays_slim(installed: Path) -> None:
    packages = run(UV, "pip", "list", "--python", installed / "python")
    size_mib = int(run("du", "-sm", installed.parent).split()[0])

    assert "numpy" not in packages
    assert "pyarrow" not in packages
    assert size_mib < 180


def test_a_base_install_serves_the_pages_and_a_commit(address: str) -> None:
    for page in ("/readyz", "/ui", "/ui/data/main", "/metrics"):
        assert httpx.get(address + page, timeout=60, follow_redirects=True).status_code == 200, page
    catalog = RestCatalog("base", uri=address)
    catalog.create_namespace("ns")

    table = catalog.create_table("ns.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))

    assert catalog.load_table("ns.t").scan().to_arrow().num_rows == 3
    for page in ("ns", "ns/tables/t", "ns/tables/t/snapshots", "ns/tables/t/timeline", "ns/tables/t/health"):
        assert httpx.get(f"{address}/ui/data/main/{page}", timeout=60).status_code == 200, page
    assert httpx.get(f"{address}/ui/activity", timeout=60).status_code == 200


def test_a_base_install_does_not_offer_scan_planning_and_says_what_is_missing(address: str) -> None:
    endpoints = httpx.get(f"{address}/v1/config", timeout=60).json()["endpoints"]
    refused = httpx.post(f"{address}/v1/namespaces/ns/tables/t/plan", json={}, timeout=60)

    assert not [one for one in endpoints if "/plan" in one or "/tasks" in one]
    assert refused.status_code == 501
    assert "pip install 'sandur[planning]'" in refused.json()["error"]["message"]


class Extra(NamedTuple):
    """A server of an environment that has one extra."""

    commands: Path
    store: Path
    url: str
    grpc_port: int
    traces: "queue.Queue[str]"

    def sandur(self, *arguments: str | Path) -> str:
        return run(self.commands / "sandur", *arguments)


def plans_scans(extra: Extra) -> None:
    assert [one for one in httpx.get(f"{extra.url}/v1/config", timeout=60).json()["endpoints"] if "/plan" in one]


def answers_grpc(extra: Extra) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{extra.grpc_port}") as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def previews_rows(extra: Extra) -> None:
    extra.sandur("create", "namespace", "main.ns", "--server", extra.url)
    extra.sandur("create", "table", "main.ns.t", "--columns", "id BIGINT", "--server", extra.url)
    RestCatalog("extra", uri=extra.url).load_table("ns.t").append(pa.table({"id": [1, 2]}))
    assert json.loads(extra.sandur("preview", "main.ns.t", "--server", extra.url, "-o", "json")) == [
        {"id": 1},
        {"id": 2},
    ]


def sends_traces(extra: Extra) -> None:
    httpx.get(f"{extra.url}/v1/config", timeout=60)
    assert extra.traces.get(timeout=120) == "/v1/traces"


def knows_google(extra: Extra) -> None:
    run(extra.commands / "python", "-c", "import google.auth.transport.requests")


def runs_jobs(extra: Extra) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs Java 17")
    extra.sandur("run", "compact", "--store", extra.store)


EXTRAS: Final[Mapping[str, Callable[[Extra], None]]] = {
    "gcs": knows_google,
    "grpc": answers_grpc,
    "otel": sends_traces,
    "planning": plans_scans,
    "preview": previews_rows,
    "spark": runs_jobs,
}


@contextlib.contextmanager
def collector() -> Iterator[tuple[int, "queue.Queue[str]"]]:
    """A collector of traces: its port, and the paths of the requests that it got."""
    paths: queue.Queue[str] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.put(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, paths
        server.shutdown()


@pytest.mark.parametrize("name", EXTRAS)
def test_each_extra_does_its_work_in_a_fresh_environment(wheel: Path, tmp_path: Path, name: str) -> None:
    commands, store, (port,) = install(wheel, tmp_path / "environment", name), tmp_path / "store", free_ports(1)
    with collector() as (traces_port, paths):
        settings = {"grpc_port": str(port)} if name == "grpc" else {}
        if name == "otel":
            settings = {"traces_endpoint": f"http://127.0.0.1:{traces_port}/v1/traces", "traces_sampled": "1"}
        with serving(commands, store, **settings) as url:
            for page in ("/readyz", "/ui"):
                assert httpx.get(url + page, timeout=60, follow_redirects=True).status_code == 200, page
            EXTRAS[name](Extra(commands, store, url, port, paths))
