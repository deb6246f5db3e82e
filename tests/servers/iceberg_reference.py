"""Iceberg's reference server of the REST protocol, in Java, with its tables in a folder and its catalog in SQLite."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.engines.environments import NotInstalled, installed, java_home, run
from tests.servers.processes import LOOPBACK, free_ports, running

_POM: Final = Path(__file__).parent / "iceberg_reference" / "pom.xml"
_CLASS: Final = "org.apache.iceberg.rest.RESTCatalogServer"
_JAVA_VERSION: Final = 17


@contextlib.contextmanager
def iceberg_reference(folder: Path) -> Iterator[str]:
    """The address of a fresh server; NotInstalled if Java or Maven is missing. Its tables are below `warehouse`."""
    jars = _jars()
    [port] = free_ports(1)
    (folder / "warehouse").mkdir()
    environment = {
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_REST_PORT": str(port),
    }
    command: list[str | Path] = [java_home(_JAVA_VERSION) / "bin" / "java", "-Xmx256m", "-cp", f"{jars}/*", _CLASS]
    url = f"http://{LOOPBACK}:{port}"
    with running(command, answers=f"{url}/v1/config", folder=folder, environment={**os.environ, **environment}):
        yield url


def _jars() -> Path:
    def install(home: Path) -> None:
        if (maven := shutil.which("mvn")) is None:
            raise NotInstalled("mvn is not installed")
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}")
        run([maven, "--quiet", "--batch-mode", "--file", _POM, *goal])

    return installed("iceberg-reference", [_POM], install) / "jars"
