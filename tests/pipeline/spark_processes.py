"""Spark processes for tests: a standalone cluster and a Spark Connect server, on the loopback only."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from tests.servers.processes import free_ports

HOME: Final = Path(pyspark.__file__).parent
WAIT_SECONDS: Final = 240
_MEMORY: Final = "512m"
_HOST: Final = "127.0.0.1"


def environment(folder: Path) -> dict[str, str]:
    """The environment of every process: the same Python, little memory, and only the loopback address."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    options = {
        "spark.driver.memory": _MEMORY,
        "spark.executor.memory": _MEMORY,
        "spark.driver.host": _HOST,
        "spark.driver.bindAddress": _HOST,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    options = {
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "640m",  # A Connect server is a daemon that also computes.
    }
    return kept | options


class Process:
    """A process whose output is read line by line; it ends with the `with` block."""

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(part) for part in command], env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._has_ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait for the first line that matches the pattern."""
        found: list[re.Match[str]] = []

        def has_matched() -> bool:
            found.extend(match for line in tuple(self.lines) if (match := re.search(pattern, line)))
            return bool(found) or self._has_ended

        with self._news:
            self._news.wait_for(has_matched, timeout=WAIT_SECONDS)
        assert found, f"never said {pattern!r}:\n{''.join(self.lines[-40:])}"
        return found[0]

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()


@contextlib.contextmanager
def cluster(folder: Path, *, workers: int) -> Iterator[tuple[str, list[Path]]]:
    """The address of a standalone master, and the log folder of each worker."""
    env = environment(folder)
    spark_class = HOME / "bin" / "spark-class"
    with contextlib.ExitStack() as ends:
        (port,) = free_ports(1)
        command: list[str | Path] = [spark_class, "org.apache.spark.deploy.master.Master", "--host", _HOST]
        master = Process([*command, "--port", str(port), "--webui-port", "0"], env)
        ends.callback(master.end)
        master.wait_for("I have been elected leader|New state: ALIVE")
        folders = [folder / f"worker-{number}" for number in range(workers)]
        for one in folders:
            options: list[str | Path] = ["--cores", "1", "--memory", "1g", "--host", _HOST, "--webui-port", "0"]
            begun: list[str | Path] = [spark_class, "org.apache.spark.deploy.worker.Worker", *options]
            worker = Process([*begun, "--work-dir", one, f"spark://{_HOST}:{port}"], env)
            ends.callback(worker.end)
            worker.wait_for("Successfully registered with master")
        yield f"spark://{_HOST}:{port}", folders


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a Spark Connect server with two threads."""
    (port,) = free_ports(1)
    command: list[str | Path] = [
        HOME / "bin" / "spark-submit",
        "--master",
        "local[2]",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        f"spark.connect.grpc.binding.address={_HOST}",
        "spark-internal",
    ]
    server = Process(command, environment(folder))
    try:
        server.wait_for("Spark Connect server started")
        yield f"sc://{_HOST}:{port}"
    finally:
        server.end()
