"""`sandur serve` in its own process."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

READY: Final = "Sandur is ready at "
_START_SECONDS_MAX: Final = 240
_STOP_SECONDS_MAX: Final = 60


class ServerProcess:
    """A server that is ready: its address, its process, and its output so far."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.printed: list[str] = []
        self.url = ""
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """The output on standard error."""
        return (self.folder / "stderr").read_text(encoding="utf-8")

    def wait_until_ready(self) -> None:
        if not self._is_ready.wait(_START_SECONDS_MAX) or not self.url:
            raise RuntimeError(f"server: not ready, exit code {self.process.poll()}:\n{self.log}")

    def end(self) -> int:
        """Send SIGTERM, as a supervisor does, and return the exit code."""
        self.process.terminate()
        try:
            code = self.process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.printed.append(line.rstrip("\n"))
                if line.startswith(READY):
                    self.url = line.removeprefix(READY).strip()
                    self._is_ready.set()
        self._is_ready.set()


@contextlib.contextmanager
def server_process(folder: Path, *arguments: str, **settings: str) -> Iterator[ServerProcess]:
    """`sandur serve` on a free port, with its data in the folder, until the block ends."""
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "serve", "--port", "0"]
    if "--store" not in arguments:
        command += ["--store", str(folder / "data")]
    environment = {**os.environ, **{f"SANDUR_{name.upper()}": value for name, value in settings.items()}}
    with (folder / "stderr").open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        running = ServerProcess(process, folder)
        try:
            running.wait_until_ready()
            yield running
        finally:
            running.end()
