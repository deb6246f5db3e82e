"""Running Spark processes, each with a session on a server and statements in its own namespace."""

import atexit
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.interop.engines.conversation import Conversation, conversation
from tests.interop.engines.environments import ROOT, NotInstalled, java_home, python_environment
from tests.interop.engines.machines import JAVA
from tests.interop.server_address import Served
from tests.interop.spark.flavours import OLDEST, Flavour

JAVA_VERSION: Final = 17


class Sparks:
    """The running Spark; a request for another one ends it."""

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self._conversation: Conversation | None = None
        self._key: tuple[Flavour, str, str] | None = None
        self._not_installed: dict[Flavour, NotInstalled] = {}

    def on(self, flavour: Flavour, served: Served) -> Conversation:
        """The Spark on the server, started if it is not running; NotInstalled if it is not available."""
        if flavour in self._not_installed:
            raise self._not_installed[flavour]
        key = (flavour, served.url, served.token)
        if self._conversation is None or self._key != key:
            self.end()
            JAVA.take(self.end)
            self._conversation = self._started(flavour, served)
            self._key = key
        return self._conversation

    def end(self) -> None:
        self._conversation = None
        self._running.close()

    def _started(self, flavour: Flavour, served: Served) -> Conversation:
        folder = Path(self._running.enter_context(tempfile.TemporaryDirectory(prefix="sandur-spark-")))
        try:
            return self._running.enter_context(running_spark(flavour, folder, _catalogs(served)))
        except NotInstalled as reason:
            self._not_installed[flavour] = reason
            raise


SPARKS: Final = Sparks()
atexit.register(SPARKS.end)


class Sql:
    """Statements and jobs of one Spark; `{here}` in a text is the current namespace, that of the test."""

    def __init__(self, spark: Conversation, here: str) -> None:
        self.here = here
        self._spark = spark

    def __call__(self, statement: str, **values: object) -> list[list[Any]]:
        """The rows of a statement after the values are filled in."""
        return self._spark.sql(self.filled(statement, **values))

    def filled(self, text: str, **values: object) -> str:
        """The text with the values filled in."""
        for name, value in (values | {"here": self.here}).items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def job(self, function: str, **arguments: object) -> Any:
        """The result of a function of `jobs.py`."""
        return self._spark.ask(job=function, arguments=arguments)

    def at_once(self, *sessions: Sequence[str]) -> list[str]:
        """Run lists of statements concurrently, each in its own session; returns the error messages."""
        filled = [[self.filled(statement) for statement in statements] for statements in sessions]
        failures: list[str] = self.job("run_at_once", sessions=filled)
        return failures

    def column(self, statement: str, **values: object) -> list[Any]:
        """The first column of the result of a statement."""
        return [row[0] for row in self(statement, **values)]

    def snapshots(self, table: str = "t") -> list[int]:
        """The ids of a table's snapshots, the oldest first."""
        return self.column("SELECT snapshot_id FROM {here}.{table}.snapshots ORDER BY committed_at", table=table)


def catalog_of(served: Served, **more: object) -> dict[str, object]:
    """A connection to the server, in the form that `spark_session.py` reads."""
    token = {"token": served.token} if served.token else {}
    config: dict[str, object] = {"uri": served.url, **token, **more}
    if served.s3 is not None and not served.has_keys:
        config["s3"] = {}  # The server says where the bucket is.
    elif served.s3 is not None:
        config["s3"] = {
            "endpoint": served.s3.endpoint,
            "region": served.s3.region,
            "access_key_id": served.s3.access_key_id,
            "secret_access_key": served.s3.secret_access_key,
        }
    return config


def _catalogs(served: Served) -> list[dict[str, object]]:
    """The catalog twice: with the default options, and as `lazy`, with paged lists and snapshots on demand."""
    lazy = {"snapshot-loading-mode": "refs", "rest-page-size": "2"}
    return [catalog_of(served), catalog_of(served, name="lazy", properties=lazy)]


@contextlib.contextmanager
def running_spark(
    flavour: Flavour, folder: Path, catalogs: Sequence[Mapping[str, object]], **options: str
) -> Iterator[Conversation]:
    """A Spark that runs until the end of the block; NotInstalled if it is not available."""
    config = {
        "catalogs": list(catalogs),
        "versions": {"spark": flavour.spark, "iceberg": flavour.iceberg},
        "options": _options(folder) | options,
    }
    interpreter = python_environment("spark-3.5") if flavour.spark == OLDEST.spark else Path(sys.executable)
    command: list[str | Path] = [interpreter, "-m", "tests.interop.spark.spark_session", json.dumps(config)]
    environment = {"JAVA_HOME": str(java_home(JAVA_VERSION)), "PYTHONPATH": str(ROOT / "src")}
    with conversation(command, folder, environment=environment) as spark:
        yield spark


def _options(folder: Path) -> dict[str, str]:
    return {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
    }
