"""What each page of the web UI costs: CPU time of a warm request in the server's process, and the size of the page.

The server runs in this process, without HTTP parsing, on a store in memory. CPU time is what counts: a page waits for
at most two storage rounds, which the tests count. The large namespace and the published datasets have as many tables as
`--tables` says; the small namespace has 100.
"""

import argparse
import asyncio
import datetime as dt
import statistics
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.measurement import save, show
from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import Entry, names_scope
from sandur.operations.index.rebuild import expected_of, read_manifest, write_index
from sandur.operations.lake import Lake
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.cell import Versioned
from sandur.storage.memory import MemoryStore
from tests.server.requests import add_snapshot, create_table
from tests.ui.published import Rows, publish

_SMALL: Final = 100
_SNAPSHOTS: Final = 200
_OPERATIONS: Final = 10_000
_OK: Final = 200
_DAY_MS: Final = 1_767_225_600_000


class _Answer(msgspec.Struct):
    status: int = 0
    body: bytes = b""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench ui", description=__doc__)
    parser.add_argument("--tables", type=int, default=100_000, help="tables of the large namespace")
    parser.add_argument("--requests", type=int, default=30, help="measured requests for each page")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/ui.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    pages = asyncio.run(_measure(options.tables, options.requests))
    rows = [(name, f"{cpu:.2f}", f"{size / 1_000:,.0f}") for name, (cpu, size) in pages.items()]
    show("pages of the UI", ("page", "CPU ms, median", "kB"), rows)
    result = {name: {"cpu_ms": round(cpu, 3), "bytes": size} for name, (cpu, size) in pages.items()}
    save(
        "ui", {"settings": {"tables": options.tables, "requests": options.requests}, "pages": result}, file=options.json
    )


async def _measure(tables: int, requests: int) -> dict[str, tuple[float, int]]:
    store = MemoryStore()
    app, catalog = build(Settings(store="memory:", janitors=False, log_level="error"), store=store)
    await catalog.start()
    await _populate(app, catalog.lakes.lake("default", "default"), tables)
    await _publish(store, tables)
    table = "/ui/data/main/small/tables/history"
    pages = {
        "home": "/ui/",
        "search a name": "/ui/search?q=t000017",
        "search a column": "/ui/search?q=amount_17",
        "search a tag": "/ui/search?q=domain_17",
        "activity": "/ui/activity",
        "maintenance": "/ui/maintenance",
        "jobs": "/ui/jobs",
        "catalog": "/ui/data/main",
        f"namespace of {_SMALL} tables": "/ui/data/main/small",
        f"namespace of {tables:,} tables": "/ui/data/main/large",
        "table": table,
        f"snapshots, {_SNAPSHOTS} of them": f"{table}/snapshots",
        "timeline, 50 versions": f"{table}/timeline",
        "one version": f"{table}/versions/150",
        "compare two versions": f"{table}/diff?from=120&to=200",
        "health": f"{table}/health",
        "lineage": f"{table}/lineage",
        "grants": f"{table}/grants",
        "server": "/ui/server",
    }
    found = {name: await _page(app, path, requests) for name, path in pages.items()}
    await catalog.close()
    return found


async def _page(app: App, path: str, requests: int) -> tuple[float, int]:
    """The median of the CPU time in milliseconds, and the size of the page."""
    answer = _Answer()
    for _ in range(3):
        answer = await send(app, "GET", path)
        if answer.status != _OK:
            raise SystemExit(f"bench: {path} answered {answer.status}")
    taken = []
    for _ in range(requests):
        began = time.process_time()
        answer = await send(app, "GET", path)
        taken.append((time.process_time() - began) * 1_000)
    return statistics.median(taken), len(answer.body)


async def _populate(app: App, lake: Lake, tables: int) -> None:
    """Two namespaces, a table with a history, and many names in the index alone."""
    for name in ("small", "large"):
        await send(app, "POST", "/v1/main/namespaces", {"namespace": [name]})
    properties = {"write.metadata.previous-versions-max": "1000"}
    body = create_table("history", properties=properties)
    made = msgspec.json.decode((await send(app, "POST", "/v1/main/namespaces/small/tables", body)).body)["metadata"]
    parent: int | None = None
    for number in range(1, _SNAPSHOTS + 1):
        commit = add_snapshot(made, snapshot_id=number, parent=parent, number=number)
        commit["updates"][0]["snapshot"]["summary"] |= {"total-records": str(number), "added-records": "1"}
        await send(app, "POST", "/v1/main/namespaces/small/tables/history", commit)
        parent = number
    await lake.background.drain()
    for name, count in (("small", _SMALL - 1), ("large", tables)):
        scope = names_scope(Namespace("main", (name,)))
        held = await read_manifest(lake, scope)
        known = held.value.entries if isinstance(held, Versioned) else ()
        entries = sorted((*known, *_entries(count)), key=lambda entry: entry.name)
        if not await write_index(lake, scope, tuple(entries), expected=expected_of(held)):
            raise SystemExit(f"bench: the index of {name} could not be written")


def _entries(count: int) -> Sequence[Entry]:
    info = msgspec.Raw(b'{"comment":"a table of the benchmark","owner":"etl","updated_at":1767225600000}')
    return [
        Entry(name=f"t{number:06}", kind="table", format="iceberg", uuid=_uuid(number), info=info)
        for number in range(count)
    ]


def _uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


async def _publish(store: MemoryStore, tables: int) -> None:
    named = [
        {"catalog": "main", "namespace": "large", "name": f"t{one:06}", "uuid": _uuid(one)} for one in range(tables)
    ]
    size = {"kind": "table", "format": "iceberg", "record_count": 10, "size_bytes": 1_000, "properties_json": "{}"}
    columns = [
        {**named[one % tables], "id": str(one), "path": f"amount_{one % 100}", "type": "decimal(10,2)"}
        for one in range(tables)
    ]
    commits = [
        {
            **named[one],
            "table_uuid": _uuid(one),
            "kind": "table",
            "format": "iceberg",
            "committed_at_ms": _DAY_MS + one,
            "operation": "append",
            "source": "rest",
        }
        for one in range(tables)
    ]
    began = dt.datetime.fromtimestamp(_DAY_MS / 1_000, tz=dt.UTC)
    datasets: dict[str, Rows] = {
        "tables": [
            {**one, **size, "tags_json": f'{{"tags":{{"domain":"domain_{number % 1_000}"}}}}'}
            for number, one in enumerate(named)
        ],
        "columns": columns,
        "commits": commits,
        "activity": [
            {"table_uuid": _uuid(one), "day": f"2026-01-{one % 28 + 1:02}", "commits": 3} for one in range(100)
        ],
        "timeline": [],
        "table_health": [
            {
                **one,
                "format": "iceberg",
                "needs_json": '[{"operation":"compaction","reason":"small files"}]' if number % 10 == 0 else "[]",
                "benefit": float(number),
                "policy_json": "[]",
                "last_commit_ms": _DAY_MS,
                "excess_files": 100,
                "small_files": 120,
                "small_bytes": 1_000_000,
            }
            for number, one in enumerate(named)
        ],
        "maintenance": [
            {
                **named[one % tables],
                "run": str(one // 100),
                "number": one % 100,
                "format": "iceberg",
                "operation": "compaction",
                "state": "done",
                "started_at": began + dt.timedelta(minutes=one),
                "ended_at": began + dt.timedelta(minutes=one + 1),
                "bytes_before": 2_000_000,
                "bytes_after": 1_000_000,
            }
            for one in range(_OPERATIONS)
        ],
        "lineage": [],
        "column_lineage": [],
    }
    await publish(store, datasets, published_ms=_DAY_MS)


async def send(app: App, method: str, path: str, body: object = None) -> _Answer:
    """One request as uvicorn passes it on."""
    answer, data = _Answer(), b"" if body is None else msgspec.json.encode(body)
    headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(data)), (b"content-type", b"application/json")]

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
        else:
            answer.body += message["body"]

    plain, _, query = path.partition("?")
    scope = {
        "method": method,
        "raw_path": plain.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return answer
