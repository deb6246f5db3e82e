"""The store proxy of the benchmarks: its latency, requests on one connection, and throttling."""

import asyncio
import contextlib
import math
import random  # noqa: TID251 - seeded
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import NormalDist

import pytest

from bench.store_proxy import PROFILES, Latency, StoreProxy
from tests.servers.processes import LOOPBACK

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

QUICK = Latency(p50_ms=0.1, p99_ms=0.2)
REQUESTS = (
    b"GET /bucket/a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"PUT /bucket/b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /bucket/c HTTP/1.1\r\n\r\n",
)


@pytest.mark.parametrize("cloud", PROFILES)
def test_the_latency_has_the_median_and_the_99th_percentile_of_its_profile(cloud: str) -> None:
    latency, chance = PROFILES[cloud], random.Random(7)

    drawn_ms = [latency.draw_seconds(chance) * 1_000 for _ in range(20_000)]

    assert statistics.median(drawn_ms) == pytest.approx(latency.p50_ms, rel=0.05)
    assert statistics.quantiles(drawn_ms, n=100)[98] == pytest.approx(latency.p99_ms, rel=0.1)


@asynccontextmanager
async def proxied(latency: Latency, reached: list[bytes]) -> AsyncIterator[int]:
    """The port of a proxy in front of a store that answers each request with what it got."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(5) if head.startswith(b"PUT") else b""
                reached.append(head + body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(head + body), head + body))
        writer.close()
        await writer.wait_closed()

    connections: list[asyncio.Task[None] | None] = []

    def noted(serve: Serve) -> Serve:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(asyncio.current_task())
            await serve(reader, writer)

        return run

    store = await asyncio.start_server(noted(answer), LOOPBACK, 0)
    proxy = StoreProxy(store.sockets[0].getsockname()[1], latency, seed=1)
    server = await asyncio.start_server(noted(proxy.connected), LOOPBACK, 0)
    async with store, server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, connections))


async def send_all(port: int) -> list[bytes]:
    """The answers to all requests, one after the other on one connection."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    found = []
    async with asyncio.timeout(30):
        for request in REQUESTS:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found.append(head.partition(b"\r\n")[0] + b" " + await reader.readexactly(length))
    writer.close()
    await writer.wait_closed()
    return found


async def test_requests_and_answers_pass_unchanged_one_after_the_other_on_a_connection() -> None:
    reached: list[bytes] = []

    async with proxied(QUICK, reached) as port:
        found = await send_all(port)

    assert tuple(reached) == REQUESTS
    assert found == [b"HTTP/1.1 200 OK " + request for request in REQUESTS]


async def test_a_throttled_request_gets_slow_down_and_does_not_reach_the_store() -> None:
    reached: list[bytes] = []

    async with proxied(Latency(0.1, 0.2, throttled=1.0), reached) as port:
        found = await send_all(port)

    assert reached == []
    assert all(answer.startswith(b"HTTP/1.1 503") and b"<Code>SlowDown</Code>" in answer for answer in found)


def test_a_round_of_several_calls_ends_with_its_slowest() -> None:
    latency = Latency(20, 60)
    deviation = math.log(3) / 2.326

    one, two, both = (latency.median_rounds(widths) for widths in ((1,), (2,), (2, 1)))

    assert one == pytest.approx(1, abs=0.02)
    assert two == pytest.approx(math.exp(deviation * NormalDist().inv_cdf(math.sqrt(0.5))), abs=0.02)
    assert two + one < both < two + 2 * one
    assert latency.median_rounds((2, 1)) == both, "seeded"


def test_no_client_that_waits_for_each_answer_gets_more_than_the_latency_allows() -> None:
    """The mean of a log-normal latency of 20 and 60 ms is 22.4 ms."""
    latency = PROFILES["s3"]

    assert latency.rate_max(32, calls=1) == pytest.approx(32 / 0.0224, rel=0.02)
    assert latency.rate_max(256, calls=1) == pytest.approx(8 * latency.rate_max(32, calls=1), rel=0.001)
    assert latency.rate_max(32, calls=4) < latency.rate_max(32, calls=3) < latency.rate_max(32, calls=1)
