"""How fast one worker takes lineage events, each acknowledged after it is stored.

The server runs in this process, without HTTP parsing, on a folder with fsync, as by default. Events are those of a
statement of Spark, compressed, one per request. Afterwards every acknowledged event is looked for in the store. CPU
time is that of this process, also of the part that plays the clients; on a busy machine it says more than the rate.
"""

import argparse
import asyncio
import gzip
import json
import tempfile
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

from bench.measurement import rate, save, show
from sandur.operations.lineage.ingest import decode_batch
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.serve import build
from sandur.settings import Settings
from tests.fakes.openlineage import dataset, input_field, run_event

_PATH: Final = b"/api/v1/lineage"
_HEADERS: Final = [(b"host", b"localhost"), (b"content-encoding", b"gzip"), (b"transfer-encoding", b"chunked")]
_PADDING: Final = {"properties": {f"spark.option.{number}": f"value {number}" * 4 for number in range(60)}}
_STORED: Final = 201


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench lineage", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=64, help="requests at the same time")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/lineage.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as made:
        per_second, cpu_seconds = asyncio.run(_measure(made, options))
        objects = [decode_batch(path.read_bytes()) for path in Path(made).rglob("lineage/*/*.json.gz")]
    stored = {record.id for records in objects for record in records}
    if len(stored) != options.events:
        raise SystemExit(f"bench: {options.events} events were acknowledged, {len(stored)} are stored")
    result = {
        "events_per_second": round(per_second),
        "events_per_cpu_second": round(options.events / cpu_seconds),
        "cpu_us_per_event": round(cpu_seconds / options.events * 1e6, 1),
        "stored": len(stored),
        "objects": len(objects),
        "event_bytes": len(_body(0)),
        "compressed_bytes": len(gzip.compress(_body(0), 1)),
    }
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in result.items()]
    show("lineage events on one worker", ("what", "found"), rows)
    settings = {"events": options.events, "at_once": options.at_once}
    save("lineage", {"settings": settings, **result}, file=options.json)


async def _measure(folder: str, options: argparse.Namespace) -> tuple[float, float]:
    """Events per second, and the CPU time of all of them."""
    app, catalog = build(Settings(store=folder, janitors=False, log_level="error"))
    await catalog.start()
    bodies = iter([gzip.compress(_body(number), 1) for number in range(options.events)])
    began = time.process_time()
    per_second = await rate(lambda: _send(app, next(bodies)), calls=options.events, at_once=options.at_once)
    used = time.process_time() - began
    await catalog.close()
    return per_second, used


async def _send(app: App, body: bytes) -> None:
    """One request as uvicorn passes it on."""
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"method": "POST", "raw_path": _PATH, "query_string": b"", "headers": _HEADERS, "client": ("127.0.0.1", 1)}
    await app(scope, receive, send)
    if statuses != [_STORED]:
        raise SystemExit(f"bench: expected {_STORED}, found {statuses}")


def _body(number: int) -> bytes:
    raw = dataset("sales.raw", server="http://127.0.0.1:8181/iceberg", location="s3://lake/raw", version=1)
    columns = {f"c{column}": {"inputFields": [input_field(raw, f"c{column}")]} for column in range(10)}
    daily = dataset("sales.daily", server="http://127.0.0.1:8181/iceberg", location="s3://lake/daily", columns=columns)
    event = run_event(number, "COMPLETE", 1, inputs=[raw], outputs=[daily], spark_properties=_PADDING)
    return json.dumps(event).encode()
