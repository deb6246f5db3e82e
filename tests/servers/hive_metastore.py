"""Hive's Metastore, in Java, with its catalog in Derby and its tables in a folder."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.engines.environments import NotInstalled, installed, java_home, run
from tests.servers.processes import LOOPBACK, free_ports, running

_POM: Final = Path(__file__).parent / "hive_metastore" / "pom.xml"
_CLASS: Final = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_JAVA_VERSION: Final = 17
_OPENED: Final = (
    "java.base/java.lang=ALL-UNNAMED",
    "java.base/java.net=ALL-UNNAMED",
    "java.base/java.util=ALL-UNNAMED",
)


@contextlib.contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """The address of a fresh server; NotInstalled if Java or Maven is missing. Its tables are below `warehouse`."""
    jars = _jars()
    [port] = free_ports(1)
    settings = {
        "metastore.warehouse.dir": str(folder / "warehouse"),
        "metastore.thrift.uris": f"thrift://{LOOPBACK}:{port}",
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/catalog;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    (folder / "metastore-site.xml").write_text(f"<configuration>{properties}</configuration>", encoding="utf-8")
    command: list[str | Path] = [java_home(_JAVA_VERSION) / "bin" / "java", "-Xmx512m"]
    command += [part for opened in _OPENED for part in ("--add-opens", opened)]
    command += ["-cp", f"{folder}:{jars}/*", _CLASS, "-p", str(port)]
    with running(command, answers=f"tcp://{LOOPBACK}:{port}", folder=folder, environment=dict(os.environ)):
        yield f"thrift://{LOOPBACK}:{port}"


def _jars() -> Path:
    def install(home: Path) -> None:
        if (maven := shutil.which("mvn")) is None:
            raise NotInstalled("mvn is not installed")
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}")
        run([maven, "--quiet", "--batch-mode", "--file", _POM, *goal])

    return installed("hive-metastore", [_POM], install) / "jars"
