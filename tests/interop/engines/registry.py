"""The registry of engines: how each is started; it starts on first use and stops with the test run."""

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from tests.interop.engines.conversation import Conversation, conversation
from tests.interop.engines.environments import (
    NotInstalled,
    cargo_program,
    go_program,
    install_duckdb_extensions,
    node_modules,
    python_environment,
)
from tests.interop.engines.flink import flink_session
from tests.interop.engines.machines import JAVA
from tests.interop.engines.session_config import session_config
from tests.interop.engines.trino import trino_server
from tests.interop.matrix import RECORDER
from tests.interop.server_address import Served


class Sql(Protocol):
    """An engine that takes statements."""

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement."""
        ...


Opener = Callable[[Path, Served], AbstractContextManager[Any]]

# Running engines with the configuration of their server and their exit callback; and unavailable ones with the reason.
_opened: Final[dict[str, tuple[str, Any, contextlib.ExitStack]]] = {}
_not_installed: Final[dict[str, str]] = {}


def python_session(name: str) -> Opener:
    """Start `sessions/NAME_session.py` in the environment of the same name."""

    @contextlib.contextmanager
    def open_session(folder: Path, served: Served) -> Iterator[Conversation]:
        interpreter = python_environment(name)
        command: list[str | Path] = [
            interpreter,
            "-m",
            f"tests.interop.engines.sessions.{name}_session",
            session_config(served),
        ]
        with conversation(command, folder) as opened:
            yield opened

    return open_session


@contextlib.contextmanager
def ibis(folder: Path, served: Served) -> Iterator[Conversation]:
    """Ibis, with DuckDB's extensions in its home folder."""
    interpreter = python_environment("ibis")
    install_duckdb_extensions(interpreter, folder)
    command: list[str | Path] = [
        interpreter,
        "-m",
        "tests.interop.engines.sessions.ibis_session",
        session_config(served),
    ]
    with conversation(command, folder, environment={"HOME": str(folder)}) as opened:
        yield opened


def program_session(build: Callable[[str], Path], name: str) -> Opener:
    """Build and start one of our programs."""

    @contextlib.contextmanager
    def open_session(folder: Path, served: Served) -> Iterator[Conversation]:
        with conversation([build(name), session_config(served)], folder) as opened:
            yield opened

    return open_session


@contextlib.contextmanager
def iceberg_js(folder: Path, served: Served) -> Iterator[Conversation]:
    """`sessions/iceberg_js_session.mjs`, with the packages that it needs."""
    home = node_modules("iceberg-js")
    node = shutil.which("node")
    if node is None:
        raise NotInstalled("node is not installed")
    script = Path(__file__).parent / "sessions" / "iceberg_js_session.mjs"
    with conversation([node, script, home, session_config(served)], folder) as opened:
        yield opened


VERSIONS: Final = {
    "chDB": "4.4.0",
    "Daft": "0.7.26",
    "DataFusion": "54.0.0",
    "Sail": "0.7.2",
    "Ibis": "12.0.0",
    "dbt-duckdb": "1.11.1",
    "dlt": "1.31.0",
    "Trino": "476",
    "Flink": "2.1.3",
    "iceberg-js": "0.8.1",
    "iceberg-go": "0.7.0",
    "iceberg-rust": "0.10.1",
}
OPENERS: Final[dict[str, Opener]] = {
    "chDB": python_session("chdb"),
    "Daft": python_session("daft"),
    "DataFusion": python_session("datafusion"),
    "Sail": python_session("sail"),
    "Ibis": ibis,
    "dlt": python_session("dlt"),
    "Trino": trino_server,
    "Flink": flink_session,
    "iceberg-js": iceberg_js,
    "iceberg-go": program_session(go_program, "iceberg_go"),
    "iceberg-rust": program_session(cargo_program, "iceberg_rust"),
}
_ON_JAVA: Final = frozenset({"Trino", "Flink"})


def opened(engine: str, served: Served) -> Any:
    """The running engine, connected to the server; skips the test with the reason if it cannot be installed.

    An engine is connected to one server at a time: some need much memory, and the tests are grouped by server.
    """
    if engine in _not_installed:
        pytest.skip(_not_installed[engine])
    if engine in _opened and _opened[engine][0] != session_config(served):
        _close(engine)
    if engine not in _opened:
        if engine in _ON_JAVA:
            JAVA.take(lambda: _close(engine))
        _opened[engine] = (session_config(served), *_open(engine, served))
    return _opened[engine][1]


def _close(engine: str) -> None:
    """Stop the engine if it is running."""
    if engine in _opened:
        _opened.pop(engine)[2].close()


def _open(engine: str, served: Served) -> tuple[Any, contextlib.ExitStack]:
    with contextlib.ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix=f"sandur-{engine.lower()}-")))
        try:
            running = ending.enter_context(OPENERS[engine](folder, served))
        except NotInstalled as reason:
            _not_installed[engine] = f"{engine} cannot be installed: {reason}"
            pytest.skip(_not_installed[engine])
        RECORDER.version(engine, VERSIONS[engine])
        return running, ending.pop_all()


@atexit.register
def _close_all() -> None:
    for engine in [*_opened]:
        _close(engine)
