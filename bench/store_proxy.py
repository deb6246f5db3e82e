"""A proxy in front of an object store that adds what a distant bucket adds: latency per request, and throttling.

The latency is log-normal, given by its median and its 99th percentile, and drawn from a seeded generator. A throttled
request is answered with 503 SlowDown and does not reach the store. `distant` runs the proxy as a process of its own;
by hand: `python -m bench.store_proxy PORT STORE_PORT --p50-ms 20 --p99-ms 60 --throttled 0.01 --seed 1`.
"""

import argparse
import asyncio
import contextlib
import math
import os
import random
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench.provenance import REPOSITORY
from sandur.settings import Settings
from tests.servers.processes import LOOPBACK, free_ports, running


class Latency(msgspec.Struct, frozen=True):
    """The latency of one request, in milliseconds, and the fraction of requests that is throttled."""

    p50_ms: float
    p99_ms: float
    throttled: float = 0.0

    def draw_seconds(self, chance: random.Random) -> float:
        deviation = math.log(self.p99_ms / self.p50_ms) / _P99_DEVIATIONS
        return chance.lognormvariate(math.log(self.p50_ms), deviation) / 1_000

    def median_rounds(self, widths: Sequence[int], *, seed: int = 1) -> float:
        """The median latency of rounds of that many calls at once, divided by that of one call.

        A round ends with its slowest call, so this is what a protocol costs on a machine that costs nothing.
        """
        chance = random.Random(seed)
        sums = (sum(max(self.draw_seconds(chance) for _ in range(width)) for width in widths) for _ in range(_DRAWS))
        return round(statistics.median(sums) * 1_000 / self.p50_ms, 2)

    def rate_max(self, connections: int, *, calls: int, seed: int = 1) -> float:
        """The most requests per second that clients can get that wait for each answer, if it needs such a round.

        No server is faster, whatever its CPU time: a request takes at least as long as the slowest of its calls.
        """
        chance = random.Random(seed)
        rounds = [max(self.draw_seconds(chance) for _ in range(calls)) for _ in range(_DRAWS)]
        return round(connections / statistics.mean(rounds), 1)


PROFILES: Final[Mapping[str, Latency]] = {
    "s3": Latency(20, 60),
    "gs": Latency(30, 90),
    "az": Latency(15, 60),
}
"""Small requests to a bucket in the same region, as assumed in round figures. No cloud account was measured."""

_P99_DEVIATIONS: Final = 2.326
"""The 99th percentile of a normal distribution, in standard deviations."""

_DRAWS: Final = 20_000
_HEAD_BYTES_MAX: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 16
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_EXPECTS: Final = re.compile(rb"\r\nexpect: *100-continue\r\n", re.IGNORECASE)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_SLOW_DOWN_BODY: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_SLOW_DOWN: Final = (
    b"HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\nretry-after: 1\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_SLOW_DOWN_BODY), _SLOW_DOWN_BODY)
)
_GONE: Final = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class StoreProxy:
    """Passes requests on after their latency, one after the other on each connection, as clients send them."""

    def __init__(self, store_port: int, latency: Latency, seed: int) -> None:
        self._store_port = store_port
        self._latency = latency
        self._chance = random.Random(seed)

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self.connected, LOOPBACK, port, limit=_HEAD_BYTES_MAX)
        async with server:
            await server.serve_forever()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client until either side closes it."""
        with contextlib.suppress(*_GONE):
            from_store, to_store = await asyncio.open_connection(LOOPBACK, self._store_port)
            answers = asyncio.create_task(_copy(from_store, writer))
            try:
                await self._pass_on(reader, writer, to_store)
            finally:
                answers.cancel()
                await _close(to_store)
        await _close(writer)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_store: asyncio.StreamWriter
    ) -> None:
        while not writer.is_closing():
            request = await reader.readuntil(b"\r\n\r\n")
            if _EXPECTS.search(request):  # Otherwise the client waits for a moment before it sends the body.
                request = _EXPECTS.sub(b"\r\n", request)
                writer.write(_CONTINUE)
            if length := _LENGTH.search(request):
                request += await reader.readexactly(int(length[1]))
            await asyncio.sleep(self._latency.draw_seconds(self._chance))
            is_throttled = self._latency.throttled and self._chance.random() < self._latency.throttled
            target, message = (writer, _SLOW_DOWN) if is_throttled else (to_store, request)
            target.write(message)
            await target.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass answers on as they come, until the store closes the connection."""
    with contextlib.suppress(*_GONE):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def distant(settings: Settings, latency: Latency, folder: Path, *, seed: int = 1) -> Iterator[Settings]:
    """The settings of an S3 store, reached through a proxy, which runs until the block ends and logs to the folder."""
    port, store_port = free_ports(1)[0], urlsplit(settings.s3.endpoint).port
    endpoint = f"http://{LOOPBACK}:{port}"
    command = [sys.executable, "-m", "bench.store_proxy", str(port), str(store_port)]
    command += ["--p50-ms", str(latency.p50_ms), "--p99-ms", str(latency.p99_ms)]
    command += ["--throttled", str(latency.throttled), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    with running(command, answers=f"{endpoint}/status", folder=folder, environment=environment):
        yield msgspec.structs.replace(settings, s3=msgspec.structs.replace(settings.s3, endpoint=endpoint))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.store_proxy", description=__doc__)
    parser.add_argument("port", type=int, help="the port of the proxy, on loopback")
    parser.add_argument("store_port", type=int, help="the port of the store, on loopback")
    parser.add_argument("--p50-ms", type=float, default=PROFILES["s3"].p50_ms)
    parser.add_argument("--p99-ms", type=float, default=PROFILES["s3"].p99_ms)
    parser.add_argument("--throttled", type=float, default=0.0, help="the fraction of requests that gets 503 SlowDown")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    latency = Latency(options.p50_ms, options.p99_ms, options.throttled)
    uvloop.run(StoreProxy(options.store_port, latency, options.seed).serve(options.port))


if __name__ == "__main__":
    main()
