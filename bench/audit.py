"""The cost of the audit trail: a warm load and a commit with the trail off, for changes, and for everything.

The three servers run in this process, without HTTP parsing, on folders without fsync, and take turns. Each turn ends
with a write of the trail, so that its cost is included.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.measurement import Timing, save, show, timed_side_by_side
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.process import RunningCatalog
from sandur.server.serve import GARBAGE_THRESHOLDS, build
from sandur.settings import Settings
from tests.server.requests import create_table, set_properties

LEVELS: Final = ("off", "changes", "all")
TABLE: Final = "/v1/namespaces/ns/tables/t"
_HEADERS: Final = [
    (b"host", b"localhost"),
    (b"user-agent", b"PyIceberg/0.12.0"),
    (b"content-type", b"application/json"),
]
_OK: Final = 200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench audit", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each server")
    parser.add_argument("--loads", type=int, default=2_000, help="loads per turn")
    parser.add_argument("--commits", type=int, default=50, help="commits per turn")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/audit.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandur-bench-")))
        servers = {level: await _start(stack, folder / level, level) for level in LEVELS}
        loads = {level: _turn(*servers[level], _load, options.loads) for level in LEVELS}
        commits = {level: _turn(*servers[level], _commit, options.commits) for level in LEVELS}
        for step in (*loads.values(), *commits.values()):
            await step()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)  # As in a server.
        found = {
            "load": (options.loads, await timed_side_by_side(loads, rounds=options.rounds, batch=1)),
            "commit": (options.commits, await timed_side_by_side(commits, rounds=options.rounds, batch=1)),
        }
    rows = [_row(what, size, timings) for what, (size, timings) in found.items()]
    show("CPU time per request, and its ratio to a server without the trail", ("", *LEVELS), rows)
    results = {
        what: {
            level: {"cpu_us": round(timing.cpu_us / size, 2), "of_off": round(_ratio(timing, timings["off"]), 3)}
            for level, timing in timings.items()
        }
        for what, (size, timings) in found.items()
    }
    settings = "folders, fsync never, in one process, without HTTP parsing"
    save("audit", {"settings": settings, "results": results}, file=options.json)


def _row(what: str, size: int, timings: Mapping[str, Timing]) -> tuple[str, ...]:
    return (
        what,
        *(f"{timings[level].cpu_us / size:.1f} µs, {_ratio(timings[level], timings['off']):.3f}×" for level in LEVELS),
    )


def _ratio(timing: Timing, off: Timing) -> float:
    return timing.cpu_us / off.cpu_us


async def _start(stack: AsyncExitStack, folder: Path, level: str) -> tuple[App, RunningCatalog]:
    settings = {"store": str(folder), "fsync": "never", "audit": level, "janitors": False, "log_level": "error"}
    app, catalog = build(msgspec.convert(settings, Settings))
    await catalog.start()
    stack.push_async_callback(catalog.close)
    await call(app, "POST", "/v1/namespaces", {"namespace": ["ns"]})
    await call(app, "POST", "/v1/namespaces/ns/tables", create_table("t"))
    return app, catalog


def _turn(
    app: App, catalog: RunningCatalog, request: Callable[[App, int], Awaitable[None]], count: int
) -> Callable[[], Awaitable[None]]:
    """Many requests, then a write of what the trail holds."""

    async def run() -> None:
        for number in range(count):
            await request(app, number)
        await catalog.audit.flush()

    return run


async def _load(app: App, _number: int) -> None:
    await call(app, "GET", TABLE)


async def _commit(app: App, number: int) -> None:
    await call(app, "POST", TABLE, set_properties(k=str(number)))


async def call(app: App, method: str, path: str, body: object = None, *further: tuple[bytes, bytes]) -> None:
    """One request as uvicorn passes it on."""
    data = b"" if body is None else msgspec.json.encode(body)
    headers = [*_HEADERS, *further, *([(b"content-length", b"%d" % len(data))] if data else [])]
    scope = {"method": method, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app({**scope, "client": ("127.0.0.1", 1)}, receive, send)
    if statuses != [_OK]:
        raise RuntimeError(f"{method} {path}: expected {_OK}, found {statuses}")
