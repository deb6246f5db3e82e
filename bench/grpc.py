"""REST beside gRPC: CPU time of the server for a load, a commit and a stream of events, over both ports of one server.

A third way loads a table by REST from a gateway that calls the server by gRPC, which is the hop that Sandur does not
have: its figure is the CPU time of gateway and server together.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import httpx
import uvicorn

from bench.measurement import save, show
from bench.processes import family_cpu_seconds
from sandur.server.http import Receive, Scope, Send
from sandur.v1 import events_pb2, tables_pb2, tables_pb2_grpc
from tests.grpc.stubs import Client, body, grpc_address, table_name
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, set_properties

TABLE: Final = "/v1/main/namespaces/ns/tables/t"
STREAM: Final = "/api/sandur/v1/events/stream?since=1970-01-01T00:00:01Z&kind=committed"
EVENTS: Final = 100_000
_WANTED: Final = events_pb2.EventFilter(since_ms=1_000, kinds=["committed"])
_NAME: Final = table_name("t")
_SNAPSHOT_PROPERTIES: Final = 60
"""Properties of the table: its metadata then has about 8 kB, as a table with some history."""
_START_SECONDS_MAX: Final = 60.0
_EVENT_ROUNDS: Final = 4
"""The turns in which each way reads its events."""

Turn = Callable[[], None]


class Way(NamedTuple):
    """One way to do the same, and the processes whose CPU time it costs."""

    turn: Turn
    pids: tuple[int, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench grpc", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each way")
    parser.add_argument("--loads", type=int, default=1_000, help="loads per turn")
    parser.add_argument("--commits", type=int, default=200, help="commits per turn")
    parser.add_argument("--events", type=int, default=EVENTS, help="events that each way reads")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/grpc.json")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandur-bench-")))
        settings = {"fsync": "never", "log_level": "error", "janitors": "false"}
        server = stack.enter_context(server_process(folder, "--grpc-port", "0", **settings))
        found = _measure(stack, server, options)
    rows = [
        (what, *(f"{ways[way]:.1f} µs, {ways[way] / ways['REST']:.2f}×" if way in ways else "" for way in _WAYS))
        for what, ways in found.items()
    ]
    show("CPU time of the server per operation, and its ratio to REST", ("", *_WAYS), rows)
    results = {
        what: {way: {"cpu_us": round(cpu, 1), "of_rest": round(cpu / ways["REST"], 3)} for way, cpu in ways.items()}
        for what, ways in found.items()
    }
    notes = "one worker, folder, fsync never, one connection, one call at a time; events in pages of 100"
    save("grpc", {"settings": notes, "results": results}, file=options.json)


_WAYS: Final = ("REST", "gRPC", "REST through gRPC")


def _measure(stack: ExitStack, server: ServerProcess, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    address = grpc_address(server.printed)
    http = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
    client = Client(address)
    stack.callback(client.close)
    http.post("/v1/main/namespaces", json={"namespace": ["ns"]}).raise_for_status()
    properties = {f"property-{number}": "x" * 100 for number in range(_SNAPSHOT_PROPERTIES)}
    http.post("/v1/main/namespaces/ns/tables", json=create_table("t", properties=properties)).raise_for_status()
    gateway = _start_gateway(stack, address)
    through = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=60))
    _wait_for(through)

    pid = server.process.pid
    ask = tables_pb2.GetTableRequest(table=_NAME)
    loads = {
        "REST": Way(_times(options.loads, lambda: http.get(TABLE).raise_for_status()), (pid,)),
        "gRPC": Way(_times(options.loads, lambda: client.call("Tables.Get", ask)), (pid,)),
        "REST through gRPC": Way(
            _times(options.loads, lambda: through.get(TABLE).raise_for_status()), (pid, gateway.pid)
        ),
    }
    change = body(set_properties(a="b"))
    sent = tables_pb2.CommitTableRequest(table=_NAME, body=change)
    commits = {
        "REST": Way(
            _times(options.commits, lambda: http.post(TABLE, content=change, headers=_JSON).raise_for_status()), (pid,)
        ),
        "gRPC": Way(_times(options.commits, lambda: client.call("Tables.Commit", sent)), (pid,)),
    }
    found = {
        "load a table": _side_by_side(loads, options.rounds, options.loads),
        "commit": _side_by_side(commits, options.rounds, options.commits),
    }
    # What the commits above left is read again and again until each way has read enough.
    known = _count(client)
    passes = max(1, options.events // known // _EVENT_ROUNDS)
    streams = {
        "REST": Way(_times(passes, lambda: _read_rest(http, known)), (pid,)),
        "gRPC": Way(_times(passes, lambda: _read_grpc(client, known)), (pid,)),
    }
    found["event"] = _side_by_side(streams, _EVENT_ROUNDS, passes * known)
    return found


_JSON: Final = {"content-type": "application/json"}


def _times(count: int, act: Callable[[], object]) -> Turn:
    def turn() -> None:
        for _ in range(count):
            act()

    return turn


def _side_by_side(ways: Mapping[str, Way], rounds: int, size: int) -> dict[str, float]:
    """The CPU time of each way per operation in µs: the median of its turns, which alternate in both directions."""
    for way in ways.values():  # Without a first turn, caches would be part of the figure.
        way.turn()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in list(ways.items())[:: -1 if number % 2 else 1]:
            before = sum(map(family_cpu_seconds, way.pids))
            way.turn()
            taken[name].append(sum(map(family_cpu_seconds, way.pids)) - before)
    return {name: statistics.median(times) / size * 1e6 for name, times in taken.items()}


def _count(client: Client) -> int:
    """The events that are there."""
    found, position = 0, ""
    for _ in range(EVENTS):
        sent = events_pb2.QueryEventsRequest(filter=_WANTED, page={"token": position, "size": 1_000})
        page = client.call("Events.Query", sent)
        found, position = found + len(page.events), page.position
        if not page.has_more:
            break
    return found


def _read_rest(http: httpx.Client, wanted: int) -> None:
    seen = 0
    with http.stream("GET", STREAM) as answer:
        for line in answer.iter_lines():
            seen += line.startswith("event: table.committed")
            if seen >= wanted:
                return
    raise RuntimeError(f"the stream ended after {seen} of {wanted} events")


def _read_grpc(client: Client, wanted: int) -> None:
    stream = client.stream("Events.Subscribe", events_pb2.SubscribeRequest(filter=_WANTED))
    seen = 0
    for part in stream:
        seen += len(part.events)
        if seen >= wanted:
            stream.cancel()
            return
    raise RuntimeError(f"the stream ended after {seen} of {wanted} events")


class Gateway(NamedTuple):
    """A process that serves loads by REST, and gets them by gRPC."""

    pid: int
    port: int


def _start_gateway(stack: ExitStack, address: str) -> Gateway:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = multiprocessing.get_context("spawn").Process(target=_serve_gateway, args=(address, port), daemon=True)
    process.start()
    stack.callback(process.join)
    stack.callback(process.terminate)
    assert process.pid
    return Gateway(process.pid, port)


def _serve_gateway(address: str, port: int) -> None:
    uvicorn.run(
        _Gateway(address),
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        log_level="error",
        access_log=False,
        lifespan="off",
    )


class _Gateway:
    """The least that a gateway does: the names of the path, the call, and the body of the answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stub: Any = None

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if self._stub is None:
            channel = grpc.aio.insecure_channel(self._address)
            self._stub = tables_pb2_grpc.TablesStub(channel)  # type: ignore[no-untyped-call] # Generated without types.
        _, _, catalog, _, namespace, _, table = scope["path"].split("/")
        name = table_name(table, catalog, (namespace,))
        loaded = await self._stub.Get(tables_pb2.GetTableRequest(table=name))
        location = json.dumps(loaded.metadata_location).encode()
        answer = b'{"metadata-location":' + location + b',"metadata":' + loaded.metadata + b',"config":{}}'
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def _wait_for(gateway: httpx.Client) -> None:
    until = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < until:
        try:
            gateway.get(TABLE).raise_for_status()
        except httpx.TransportError:
            asyncio.run(asyncio.sleep(0.1))
        else:
            return
    raise RuntimeError("the gateway did not start")


if __name__ == "__main__":
    main()
