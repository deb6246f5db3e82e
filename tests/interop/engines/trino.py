"""Trino: a server of one node with a catalog on Sandur, used through its own protocol."""

import contextlib
import os
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from sandur.settings import S3Settings
from tests.interop.engines.conversation import EngineError
from tests.interop.engines.environments import PINS, fetch_maven_files, installed, java_home
from tests.interop.engines.recipes import s3_recipe
from tests.interop.server_address import Served
from tests.servers.processes import LOOPBACK, free_ports

JAVA_VERSION: Final = 24
USER: Final = "sandur"
# Without the second, times come back cut to milliseconds.
HEADERS: Final = {"X-Trino-User": USER, "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
BOLD: Final = {
    "iceberg.register-table-procedure.enabled": "true",
    "iceberg.expire-snapshots.min-retention": "0s",
    "iceberg.remove-orphan-files.min-retention": "0s",
}
VENDED: Final = "iceberg.rest-catalog.vended-credentials-enabled"
SECURED: Final = {"iceberg.rest-catalog.security": "OAUTH2"}

_LOOKS_MAX: Final = 600
_LOOK_SECONDS: Final = 1.0
_STOP_SECONDS_MAX: Final = 60
_ANSWER_SECONDS_MAX: Final = 120
_PAGES_MAX: Final = 10_000
_CAUSES_MAX: Final = 20
_LOG_TAIL_BYTES: Final = 3_000


class Trino:
    """A running server with the catalog `sandur`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = httpx.Client(timeout=_ANSWER_SECONDS_MAX, headers=HEADERS)

    def sql(self, statement: str, *, user: str = USER) -> list[list[Any]]:
        """The rows of a statement; EngineError with Trino's own words."""
        posted = self._client.post(f"{self._url}/v1/statement", content=statement, headers={"X-Trino-User": user})
        page = posted.raise_for_status().json()
        rows: list[list[Any]] = []
        for _ in range(_PAGES_MAX):
            if "error" in page:
                raise EngineError(_words(page["error"]))
            rows += page.get("data", [])
            if "nextUri" not in page:
                return rows
            page = self._client.get(page["nextUri"]).raise_for_status().json()
        raise EngineError(f"more than {_PAGES_MAX} pages")

    def is_ready(self) -> bool:
        """Whether the server has started and knows itself as a node that runs queries."""
        try:
            info = self._client.get(f"{self._url}/v1/info")
            if info.status_code != httpx.codes.OK or info.json()["starting"]:
                return False
            return self.sql("SELECT count(*) FROM system.runtime.nodes WHERE state = 'active'") == [[1]]
        except (httpx.HTTPError, EngineError):
            return False

    def close(self) -> None:
        self._client.close()


def _words(error: dict[str, Any]) -> str:
    """The name of an error, its message, and those of its causes."""
    words = [f"{error['errorName']}: {error['message']}"]
    cause = error.get("failureInfo", {}).get("cause")
    for _ in range(_CAUSES_MAX):
        if not cause:
            break
        words.append(str(cause.get("message", cause.get("type"))))
        cause = cause.get("cause")
    return "; ".join(words)


@contextlib.contextmanager
def trino_server(folder: Path, served: Served) -> Iterator[Trino]:
    """A server with a catalog as the page has it, which keeps its own files in the folder, until the block ends."""
    with trino_with(folder, catalog_properties(served)) as opened:
        yield opened


@contextlib.contextmanager
def trino_with(folder: Path, properties: str, environment: Mapping[str, str] | None = None) -> Iterator[Trino]:
    """A server with these properties of the catalog `sandur`."""
    home = trino_home()
    java = java_home(JAVA_VERSION)
    [port] = free_ports(1)
    _configure(folder / "etc", folder / "data", port, properties)
    with_java = {"JAVA_HOME": str(java), "PATH": f"{java}/bin:{os.environ['PATH']}"}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [home / "bin" / "launcher", "run", f"--etc-dir={folder}/etc"],
            env={**os.environ, **with_java, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        client = Trino(f"http://{LOOPBACK}:{port}")
        try:
            _wait_for(client, process, log)
            yield client
        finally:
            client.close()
            _stop(process)


def trino_home() -> Path:
    """The server with the one plugin that Iceberg needs, unpacked."""

    def install(home: Path) -> None:
        packed = home / "packed"
        fetch_maven_files(PINS / "trino.txt", packed)
        [archive] = packed.glob("*.tar.gz")
        with tarfile.open(archive) as server:
            server.extractall(home, filter="data")
        [root] = home.glob("trino-server-core-*")
        root.rename(home / "server")
        [plugin] = packed.glob("*.zip")
        with zipfile.ZipFile(plugin) as files:
            files.extractall(home / "plugin")  # noqa: S202 - pinned by version, from the same registry as the server
        [unpacked] = (home / "plugin").iterdir()
        unpacked.rename(home / "server" / "plugin" / "iceberg")

    return installed("trino", [PINS / "trino.txt"], install) / "server"


def _configure(etc: Path, data: Path, port: int, catalog: str) -> None:
    (etc / "catalog").mkdir(parents=True)
    data.mkdir()
    files = {
        "node.properties": {"node.environment": "interop", "node.id": "one", "node.data-dir": str(data)},
        "config.properties": {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(port),
            "discovery.uri": f"http://{LOOPBACK}:{port}",
            "query.max-memory-per-node": "300MB",
        },
    }
    for name, properties in files.items():
        lines = "".join(f"{key}={value}\n" for key, value in properties.items())
        (etc / name).write_text(lines, encoding="utf-8")
    (etc / "catalog" / "sandur.properties").write_text(catalog, encoding="utf-8")
    (etc / "jvm.config").write_text("-Xmx1G\n-Djdk.attach.allowAttachSelf=true\n", encoding="utf-8")


def catalog_properties(served: Served) -> str:
    """`etc/catalog/sandur.properties`: what the page says, and what lets tests do what is rarely wanted."""
    assert served.s3 is not None, "Trino reads no local files"
    recipe = s3_recipe("trino-catalog", address=f"{LOOPBACK}:{served.server.port}", s3_address=_address(served.s3))
    more = {**SECURED, "iceberg.rest-catalog.oauth2.token": served.token} if served.token else {}
    text = recipe.text
    if served.has_keys:
        # Trino refuses to register tables with the credentials of a catalog.
        text = text.replace(f"{VENDED}=true\n", "")
        keys = {"s3.aws-access-key": served.s3.access_key_id, "s3.aws-secret-key": served.s3.secret_access_key}
        more = BOLD | keys | more
    return text + "".join(f"{name}={value}\n" for name, value in more.items())


def _address(s3: S3Settings) -> str:
    return s3.endpoint.removeprefix("http://")


def _wait_for(client: Trino, process: "subprocess.Popen[bytes]", log: Path) -> None:
    pause = threading.Event()
    for _ in range(_LOOKS_MAX):
        if process.poll() is not None:
            break
        if client.is_ready():
            return
        pause.wait(_LOOK_SECONDS)
    tail = log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
    raise RuntimeError(f"Trino did not start, exit code {process.poll()}:\n{tail}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
