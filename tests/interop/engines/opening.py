"""Engines that run: each is started when it is first asked for, once per server, and ended with the run."""

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
from tests.interop.engines.flink import flink_session
from tests.interop.engines.installing import NotInstalled, node_modules, python_environment
from tests.interop.engines.telling import told
from tests.interop.engines.trino import trino_server
from tests.interop.serving import Served


class Sql(Protocol):
    """An engine that takes statements."""

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement."""
        ...


Opening = Callable[[Path, Served], AbstractContextManager[Any]]

_running: Final = contextlib.ExitStack()
_opened: Final[dict[tuple[str, str], Any]] = {}
_not_installed: Final[dict[str, str]] = {}

atexit.register(_running.close)


def python_session(name: str) -> Opening:
    """How to start `sessions/NAME_session.py` in the environment of the same name."""

    @contextlib.contextmanager
    def opening(folder: Path, served: Served) -> Iterator[Conversation]:
        interpreter = python_environment(name)
        command: list[str | Path] = [interpreter, "-m", f"tests.interop.engines.sessions.{name}_session", told(served)]
        with conversation(command, folder) as opened:
            yield opened

    return opening


@contextlib.contextmanager
def iceberg_js(folder: Path, served: Served) -> Iterator[Conversation]:
    """`sessions/iceberg_js_session.mjs`, with the packages that it needs."""
    home = node_modules("iceberg-js")
    node = shutil.which("node")
    if node is None:
        raise NotInstalled("node is not installed")
    script = Path(__file__).parent / "sessions" / "iceberg_js_session.mjs"
    with conversation([node, script, home, served.url, "main"], folder) as opened:
        yield opened


OPENINGS: Final[dict[str, Opening]] = {
    "chDB": python_session("chdb"),
    "Daft": python_session("daft"),
    "DataFusion": python_session("datafusion"),
    "Sail": python_session("sail"),
    "Trino": trino_server,
    "Flink": flink_session,
    "iceberg-js": iceberg_js,
}


def opened(engine: str, served: Served) -> Any:
    """The engine on the server, running; skips the test, with the reason, when it cannot be had."""
    if engine in _not_installed:
        pytest.skip(_not_installed[engine])
    key = (engine, served.url)
    if key not in _opened:
        folder = Path(_running.enter_context(tempfile.TemporaryDirectory(prefix=f"sandur-{engine.lower()}-")))
        try:
            _opened[key] = _running.enter_context(OPENINGS[engine](folder, served))
        except NotInstalled as reason:
            _not_installed[engine] = f"{engine} cannot be installed: {reason}"
            pytest.skip(_not_installed[engine])
    return _opened[key]
