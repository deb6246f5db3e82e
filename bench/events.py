"""Events: the time from the answer to a commit until its delivery, and the rate of pulling a long feed.

One server runs in this process, without HTTP parsing, on a folder without fsync. The receiver is a real HTTP server.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
from cryptography.fernet import Fernet

from bench.measurement import save, show
from sandur.catalog.records import Head
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts
from sandur.server.logs import configure_logging
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.settings import Settings
from tests.events.receivers import Behaviour, Got, receiver
from tests.server.requests import create_table, set_properties

API: Final = "/api/sandur/v1"
TABLES: Final = "/v1/namespaces/ns/tables"
PAGE: Final = 1_000
WRITES_AT_ONCE: Final = 64
_SECONDS_MAX: Final = 120.0
_FIRST_MS: Final = 1_767_225_600_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench events", description=__doc__)
    parser.add_argument("--commits", type=int, default=300, help="commits that are delivered")
    parser.add_argument("--tables", type=int, default=10, help="tables that they go to")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two commits")
    parser.add_argument("--events", type=int, default=100_000, help="events that are pulled")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/events.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandur-bench-")))
        lags = await _delivery_lags(await _start(stack, folder / "delivery"), options)
        pulled = await _pull(await _start(stack, folder / "pull"), options.events)
    lags.sort()
    median, p99 = lags[len(lags) // 2], lags[len(lags) * 99 // 100]
    rows = [
        ("from the answer to its delivery, median", f"{1_000 * median:.0f} ms"),
        ("from the answer to its delivery, 99 %", f"{1_000 * p99:.0f} ms"),
        (f"pull of {options.events:,} events", f"{pulled:,.0f}/s"),
    ]
    show("Events on one server", ("", ""), rows)
    results = {
        "delivery": {
            "commits": options.commits,
            "tables": options.tables,
            "median_ms": round(1_000 * median, 1),
            "p99_ms": round(1_000 * p99, 1),
            "under_a_second": round(sum(lag < 1 for lag in lags) / len(lags), 4),
        },
        "pull": {"events": options.events, "page": PAGE, "per_second": round(pulled)},
    }
    settings = (
        "a folder, fsync never, in one process, without HTTP parsing; the receiver in threads of the same process"
    )
    save("events", {"settings": settings, "results": results}, file=options.json)


class _Running:
    def __init__(self, catalog: RunningCatalog, client: httpx.AsyncClient) -> None:
        self.catalog = catalog
        self.client = client

    async def send(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        answer = (await self.client.request(method, path, json=body)).raise_for_status()
        return answer.json() if answer.content else None


async def _start(stack: AsyncExitStack, folder: Path) -> _Running:
    settings = Settings(
        store=str(folder),
        fsync="never",
        log_level="error",
        sealing_keys=(Fernet.generate_key().decode(),),
        delivery_addresses=("127.0.0.0/8",),
        janitors=False,
    )
    app, catalog = build(settings)
    await catalog.start()
    stack.push_async_callback(catalog.close)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60)
    return _Running(catalog, await stack.enter_async_context(client))


async def _delivery_lags(server: _Running, options: argparse.Namespace) -> list[float]:
    """The seconds from the answer to each commit until its delivery arrived."""
    answered: dict[tuple[str, int], float] = {}
    arrived: dict[tuple[str, int], float] = {}

    def arrive(got: Got) -> Behaviour:
        data = got.event["data"]
        arrived.setdefault((data["name"], data["version"]), time.perf_counter())
        return 200

    with receiver(arrive) as hook:
        await server.send("POST", "/v1/namespaces", {"namespace": ["ns"]})
        names = [f"t{number}" for number in range(options.tables)]
        for name in names:
            await server.send("POST", TABLES, create_table(name))
        body = {"url": hook.url, "filter": {"kinds": ["committed"]}, "begin": "oldest"}
        await server.send("POST", f"{API}/subscriptions", body)
        await _until(lambda: len(arrived) == len(names))
        for number in range(options.commits):
            name, version = names[number % len(names)], number // len(names) + 1
            await server.send("POST", f"{TABLES}/{name}", set_properties(step=str(number)))
            answered[name, version] = time.perf_counter()
            await asyncio.sleep(options.pause)
        await _until(lambda: answered.keys() <= arrived.keys())
    return [max(arrived[key] - at, 0.0) for key, at in answered.items()]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.01)


async def _pull(server: _Running, events: int) -> float:
    """Events per second, of a feed with that many commits of one table; the first page gives them positions."""
    lake = server.catalog.lakes.lake("default", "default")
    await _write_receipts(lake, events)
    page = await server.send("GET", f"{API}/events?kind=committed&page_size=1")
    count, began = len(page["events"]), time.perf_counter()
    while page["has_more"]:
        page = await server.send(
            "GET", f"{API}/events?kind=committed&page_size={PAGE}&page_token={page['next_page_token']}"
        )
        count += len(page["events"])
    seconds = time.perf_counter() - began
    if count != events:
        raise RuntimeError(f"pulled {count} of {events} events")
    return events / seconds


async def _write_receipts(lake: Lake, count: int) -> None:
    """The receipts of the commits to one table, which itself is gone."""
    receipts, uuid = lake.feature(Receipts), lake.clock.new_uuid()
    heads = [
        Head(metadata_location=f"file:/t/{number:08d}.json", last_updated_ms=_FIRST_MS + number, operation="append")
        for number in range(count)
    ]
    for start in range(0, count, WRITES_AT_ONCE):
        some = heads[start : start + WRITES_AT_ONCE]
        await asyncio.gather(*(receipts.ensure(uuid, head) for head in some))
