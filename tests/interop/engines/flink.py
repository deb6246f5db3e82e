"""Flink: its Python package with the jars that Iceberg needs put where Flink looks for them."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.engines.conversation import Conversation, conversation
from tests.interop.engines.environments import java_home, maven_files, python_environment
from tests.interop.engines.session_config import session_config
from tests.interop.server_address import Served

JAVA_VERSION: Final = 17


@contextlib.contextmanager
def flink_session(folder: Path, served: Served) -> Iterator[Conversation]:
    """A cluster inside one process, with the catalog `sandur`."""
    interpreter = flink_interpreter()
    command: list[str | Path] = [
        interpreter,
        "-m",
        "tests.interop.engines.sessions.flink_session",
        session_config(served),
    ]
    with conversation(command, folder, environment=flink_environment()) as opened:
        yield opened


def flink_environment() -> dict[str, str]:
    """A Java that Flink knows, and little memory for it."""
    return {"JAVA_HOME": str(java_home(JAVA_VERSION)), "JVM_ARGS": "-Xmx1g"}


def flink_interpreter() -> Path:
    interpreter = python_environment("flink")
    jars = maven_files("flink-jars")
    [library] = interpreter.parents[1].glob("lib/python*/site-packages/pyflink/lib")
    for jar in jars.glob("*.jar"):
        if not (library / jar.name).exists():
            shutil.copy(jar, library)
    return interpreter
