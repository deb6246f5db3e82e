"""The cost of traces: a warm load and a commit with traces off, on but not sampled, and sampled.

The servers run in this process, without HTTP parsing, on folders without fsync, and take turns. The collector is
another process, its work is not measured; that of the exporter is. `declared`: the client sends an unsampled context.
"""

import argparse
import asyncio
import contextlib
import gc
import multiprocessing
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec

from bench.audit import TABLE, call
from bench.measurement import save, show, timed_side_by_side
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.serve import GARBAGE_THRESHOLDS, build
from sandur.settings import Settings
from tests.server.requests import create_table, set_properties

SAMPLED: Final = {"off": None, "unsampled": 0.0, "declared": 0.0, "one percent": 0.01, "sampled": 1.0}
"""The fraction of requests that each server traces; None is a server without traces."""

_DECLARED: Final = (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench traces", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each server")
    parser.add_argument("--loads", type=int, default=2_000, help="loads per turn")
    parser.add_argument("--commits", type=int, default=50, help="commits per turn")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/traces.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    with _collector() as endpoint:
        asyncio.run(_measure(options, endpoint))


async def _measure(options: argparse.Namespace, endpoint: str) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandur-bench-")))
        servers = {level: await _start(stack, folder / level, endpoint, SAMPLED[level]) for level in SAMPLED}
        loads = {level: _turn(app, options.loads, level, "GET") for level, app in servers.items()}
        commits = {level: _turn(app, options.commits, level, "POST") for level, app in servers.items()}
        for step in (*loads.values(), *commits.values()):
            await step()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)  # As in a server.
        found = {
            "load": (options.loads, await timed_side_by_side(loads, rounds=options.rounds, batch=1)),
            "commit": (options.commits, await timed_side_by_side(commits, rounds=options.rounds, batch=1)),
        }
    results = {
        what: {
            level: {"cpu_us": round(one.cpu_us / size, 2), "of_off": round(one.cpu_us / timings["off"].cpu_us, 3)}
            for level, one in timings.items()
        }
        for what, (size, timings) in found.items()
    }
    rows = [
        (what, *(f"{one['cpu_us']:.1f} µs, {one['of_off']:.3f}×" for one in levels.values()))
        for what, levels in results.items()
    ]
    show("CPU time per request, and its ratio to a server without traces", ("", *SAMPLED), rows)
    settings = "folders, fsync never, in one process, without HTTP parsing"
    save("traces", {"settings": settings, "results": results}, file=options.json)


async def _start(stack: AsyncExitStack, folder: Path, endpoint: str, sampled: float | None) -> App:
    settings = {"store": str(folder), "fsync": "never", "janitors": False, "log_level": "error"}
    if sampled is not None:
        settings |= {"traces_endpoint": endpoint, "traces_sampled": sampled}
    app, catalog = build(msgspec.convert(settings, Settings))
    await catalog.start()
    stack.push_async_callback(catalog.close)
    await call(app, "POST", "/v1/namespaces", {"namespace": ["ns"]})
    await call(app, "POST", "/v1/namespaces/ns/tables", create_table("t"))
    return app


def _turn(app: App, count: int, level: str, method: str) -> Callable[[], Awaitable[None]]:
    headers = [_DECLARED] if level == "declared" else []

    async def run() -> None:
        for number in range(count):
            body = set_properties(k=str(number)) if method == "POST" else None
            await call(app, method, TABLE, body, *headers)

    return run


@contextlib.contextmanager
def _collector() -> Iterator[str]:
    """The URL of a collector that discards what it gets."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_collect, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1/traces"
    finally:
        process.terminate()
        process.join()


class _Discard(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def _collect(port: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Discard)
    port.send(server.server_port)
    server.serve_forever()
