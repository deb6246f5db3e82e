"""Servers that are killed, stalled and restarted, each with its own port, all on one store."""

import asyncio
import contextlib
import os
import random  # noqa: TID251 - seeded, and the seed is printed
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx

from tests.servers.processes import LOOPBACK, free_ports

_START_LOOKS_MAX: Final = 2_400
_LOOK_SECONDS: Final = 0.1
_STOP_SECONDS_MAX: Final = 60
_PAUSE_SECONDS_MAX: Final = 0.8
_DOWN_SECONDS_MAX: Final = 0.2
_STALL_CHANCE: Final = 0.25
# Longer than the time after which another server takes over an unfinished request.
_STALL_SECONDS_MAX: Final = 2.5


class Server:
    """`sandur serve` on one port, restarted many times; all its output goes into one file."""

    def __init__(self, port: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.port = port
        self._log = folder / f"server-{port}.log"
        self._environment = {**os.environ, **{f"SANDUR_{name.upper()}": value for name, value in settings.items()}}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "serve", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()

    async def stall(self, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP); it then continues with stale knowledge."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def end(self) -> int:
        """Stop it gracefully; returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        return await asyncio.to_thread(self._process.wait, _STOP_SECONDS_MAX)

    async def wait_until_ready(self) -> None:
        assert self._process is not None
        async with httpx.AsyncClient() as client:
            for _ in range(_START_LOOKS_MAX):
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"{self.url}/readyz")).status_code == httpx.codes.OK:
                        return
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"server {self.port}: not ready, exit code {self._process.poll()}:\n{self.log[-4_000:]}")


class Fleet:
    """Several servers, and the numbers of kills and rounds."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers
        self.rounds = 0
        self.kills = 0

    async def disturb_until(self, is_enough: Callable[[], bool], chance: random.Random) -> None:
        """Kill one or more servers, restart them and wait until they serve, or stall one; repeatedly.

        The pace depends on the machine: the next kill waits for the servers, not for a time.
        """
        while not is_enough():
            if chance.random() < _STALL_CHANCE:
                await chance.choice(self.servers).stall(chance.uniform(0, _STALL_SECONDS_MAX))
            else:
                self.rounds += 1
                await self._kill(chance.sample(self.servers, chance.choice((1, 1, 1, 1, 2, len(self.servers)))), chance)
            await asyncio.sleep(chance.uniform(0, _PAUSE_SECONDS_MAX))

    async def _kill(self, victims: Sequence[Server], chance: random.Random) -> None:
        for victim in victims:
            victim.kill()
            self.kills += 1
        await asyncio.sleep(chance.uniform(0, _DOWN_SECONDS_MAX))
        for victim in victims:
            victim.start()
        await asyncio.gather(*(victim.wait_until_ready() for victim in victims))

    def kill_all(self) -> None:
        for server in self.servers:
            server.kill()


@contextlib.asynccontextmanager
async def fleet_of(count: int, folder: Path, settings: Mapping[str, str]) -> AsyncIterator[Fleet]:
    """A number of ready servers; the remaining ones are killed at the end."""
    fleet = Fleet([Server(port, folder, settings) for port in free_ports(count)])
    try:
        for server in fleet.servers:
            server.start()
        await asyncio.gather(*(server.wait_until_ready() for server in fleet.servers))
        yield fleet
    finally:
        fleet.kill_all()
