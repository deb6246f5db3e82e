"""Starting a server process on loopback, waiting until it answers, and ending it by its id."""

import contextlib
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
TWIN_OFFSET: Final = 10_000

_FIRST_PORT: Final = 11_000
_PORT_TRIES_MAX: Final = 1_000
_LOOK_SECONDS: Final = 0.1
_START_LOOKS_MAX: Final = 2_400
_STOP_SECONDS_MAX: Final = 20
_LOG_TAIL_BYTES: Final = 4_000


def free_ports(count: int) -> list[int]:
    """Free ports, each with a free twin `TWIN_OFFSET` above it.

    They are below the ephemeral range, so that no connection takes one before the server does. Processes that run tests
    side by side choose from different ones.
    """
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    part = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % parts
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(_PORT_TRIES_MAX):
            chosen = int.from_bytes(os.urandom(4)) % TWIN_OFFSET
            port = _FIRST_PORT + chosen - chosen % parts + part
            if all(_is_held(held, candidate) for candidate in (port, port + TWIN_OFFSET)):
                found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"ports: {count} free ones are needed, {len(found)} found")


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    *,
    answers: str,
    is_ready: Callable[[], bool] = lambda: True,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run the command until the block ends; the block begins with the id of the process.

    It begins when the address answers and the server is ready for the tests.

    The server runs in the folder and writes its output to `log` there.
    """
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait_for(process, answers, is_ready, log)
            yield process.pid
        finally:
            _stop(process)


def _is_held(held: contextlib.ExitStack, port: int) -> bool:
    """Whether the port was free; it is then reserved until all are chosen."""
    listener = held.enter_context(socket.socket())
    try:
        listener.bind((LOOPBACK, port))
    except OSError:
        return False
    return True


def _wait_for(process: subprocess.Popen[bytes], address: str, is_ready: Callable[[], bool], log: Path) -> None:
    for _ in range(_START_LOOKS_MAX):
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=_LOOK_SECONDS)
            raise RuntimeError(f"server {process.args!r}: ended with {code} before it answered:\n{_tail(log)}")
        if _answers(address) and is_ready():
            return
    raise RuntimeError(f"server {process.args!r}: was not ready at {address}:\n{_tail(log)}")


def _answers(address: str) -> bool:
    """Whether an address responds to HTTP, or with `tcp://` accepts connections."""
    try:
        if address.startswith("tcp://"):
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
            return True
        with urllib.request.urlopen(address, timeout=5):  # noqa: S310 - an address on loopback that we made
            return True
    except urllib.error.HTTPError as answer:
        answer.close()
        return answer.code < 500
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
