"""The server of the demo, in its own process."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_READY = re.compile(r"Sandur is ready at (\S+)")


@contextlib.contextmanager
def running_server(store: Path, **settings: str) -> Iterator[str]:
    """Start a server with these variables set and yield its address; it stops when the block ends."""
    command = [
        sys.executable,
        "-c",
        "from sandur.cli.main import run; run()",
        "serve",
        "--store",
        str(store),
        "--port",
        "0",
    ]
    with (store.parent / f"{store.name}.log").open("w") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, "SANDUR_LOG_FORMAT": "text", **settings},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _address(process: "subprocess.Popen[str]") -> str:
    for line in process.stdout or ():
        if found := _READY.search(line):
            return found[1]
    raise RuntimeError("the server exited before it was ready")
