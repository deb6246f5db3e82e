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
_LOCKS: Final = """
CREATE TABLE NEXT_LOCK_ID (NL_NEXT BIGINT NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE AUX_TABLE (
    MT_KEY1 VARCHAR(128) NOT NULL, MT_KEY2 BIGINT NOT NULL, MT_COMMENT VARCHAR(255), PRIMARY KEY (MT_KEY1, MT_KEY2)
);
CREATE TABLE HIVE_LOCKS (
    HL_LOCK_EXT_ID BIGINT NOT NULL, HL_LOCK_INT_ID BIGINT NOT NULL, HL_TXNID BIGINT NOT NULL,
    HL_DB VARCHAR(128) NOT NULL, HL_TABLE VARCHAR(128), HL_PARTITION VARCHAR(767),
    HL_LOCK_STATE CHAR(1) NOT NULL, HL_LOCK_TYPE CHAR(1) NOT NULL, HL_LAST_HEARTBEAT BIGINT NOT NULL,
    HL_ACQUIRED_AT BIGINT, HL_USER VARCHAR(128) NOT NULL, HL_HOST VARCHAR(128) NOT NULL,
    HL_HEARTBEAT_COUNT INTEGER, HL_AGENT_INFO VARCHAR(128), HL_BLOCKEDBY_EXT_ID BIGINT, HL_BLOCKEDBY_INT_ID BIGINT,
    PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID)
);
"""
"""The tables of locks, which Hive's own scripts make; DataNucleus makes all other tables."""

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
    database = f"jdbc:derby:;databaseName={folder}/catalog;create=true"
    java = java_home(_JAVA_VERSION) / "bin" / "java"
    (folder / "locks.sql").write_text(f"CONNECT '{database};user=APP';\n{_LOCKS}", encoding="utf-8")
    run([java, "-cp", f"{jars}/*", "org.apache.derby.tools.ij", folder / "locks.sql"], folder=folder)
    settings = {
        "metastore.warehouse.dir": str(folder / "warehouse"),
        "metastore.thrift.uris": f"thrift://{LOOPBACK}:{port}",
        "javax.jdo.option.ConnectionURL": database,
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    (folder / "metastore-site.xml").write_text(f"<configuration>{properties}</configuration>", encoding="utf-8")
    command: list[str | Path] = [java, "-Xmx512m"]
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
