"""The cost of access delegation: a load with a credential from the cache beside a load without, in one run.

The server runs in this process, without HTTP parsing, with authentication and every request in the audit trail. Once
its catalog is in a bucket of SeaweedFS, whose STS issues the credential; once in a folder without fsync, whose
addresses are those of a bucket. There a load is cheap, so the ratio is the worst possible; a real folder needs no
credentials. The goal is for the bucket.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench.audit import call
from bench.measurement import Step, Timing, save, show, timed_side_by_side
from bench.signing import admin_token
from sandur.catalog.identifiers import Identifier
from sandur.clock import SystemClock
from sandur.operations.counters import CREDENTIALS, Counters
from sandur.operations.tables.documents import current_document
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.process import RunningCatalog
from sandur.server.serve import GARBAGE_THRESHOLDS, build
from sandur.settings import S3Settings, Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.fakes.sts import fake_sts
from tests.server.requests import add_snapshot, create_table
from tests.servers.seaweedfs import seaweedfs, with_vending

GOAL_RATIO: Final = 1.15
IN_BUCKET: Final = "S3"
IN_FOLDER: Final = "folder"
TABLE: Final = "/v1/namespaces/ns/tables/t"
SNAPSHOTS: Final = 20
VENDED: Final = (b"x-iceberg-access-delegation", b"vended-credentials")
PLAIN: Final = "load"
DELEGATED: Final = "load with a credential"

Header = tuple[bytes, bytes]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench credentials", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each measurement")
    parser.add_argument("--calls", type=int, default=300, help="calls per turn")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/credentials.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> None:
    found = {}
    temporary = tempfile.TemporaryDirectory(prefix="sandur-bench-")
    with temporary as bucket, tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        async with _in_bucket(Path(bucket)) as (settings, store):
            found[IN_BUCKET] = await _timings(settings, store, options.rounds, max(1, options.calls // 4))
        async with _in_folder(Path(folder)) as (settings, store):
            found[IN_FOLDER] = await _timings(settings, store, options.rounds, options.calls)
    ratios = {name: round(one[DELEGATED].cpu_us / one[PLAIN].cpu_us, 3) for name, one in found.items()}
    rows = [
        (name, f"{one[PLAIN].cpu_us:.1f} µs", f"{one[DELEGATED].cpu_us:.1f} µs", f"{ratios[name]:.3f}")
        for name, one in found.items()
    ]
    show("CPU time of one load", ("catalog in", "without", "with a credential", "ratio"), rows)
    is_met = ratios[IN_BUCKET] <= GOAL_RATIO
    print(f"Goal on S3 of at most {GOAL_RATIO} times a load without: {'met' if is_met else 'missed'}")
    results = {
        "settings": "authentication on, every request in the audit trail, without HTTP parsing",
        "cpu_us": {name: {step: timing.cpu_us for step, timing in one.items()} for name, one in found.items()},
        "ratio": ratios,
        "is_within_goal": is_met,
    }
    save("credentials", results, file=options.json)


@contextlib.asynccontextmanager
async def _in_bucket(folder: Path) -> AsyncIterator[tuple[Settings, ObjectStore]]:
    with seaweedfs(folder) as served:
        settings = replace(with_vending(served), store="s3://sandur/bench")
        yield settings, connect(settings, SystemClock())


@contextlib.asynccontextmanager
async def _in_folder(folder: Path) -> AsyncIterator[tuple[Settings, ObjectStore]]:
    clock = SystemClock()
    async with fake_sts(clock) as sts:
        s3 = S3Settings(
            endpoint=sts.url,
            region="us-east-1",
            access="vend",
            role_arn="arn:aws:iam::role/Tables",
            access_key_id="own",
            secret_access_key="own-secret",  # noqa: S106 - of the double
        )
        settings = Settings(store="s3://sandur/bench", s3=s3)
        yield settings, connect(Settings(store=str(folder), fsync="never"), clock)


async def _timings(settings: Settings, store: ObjectStore, rounds: int, calls: int) -> Mapping[str, Timing]:
    async with AsyncExitStack() as stack:
        app, catalog = build(replace(settings, janitors=False, authentication="on", audit="all"), store=store)
        await catalog.start()
        stack.push_async_callback(catalog.close)
        token = (b"authorization", f"Bearer {await admin_token(catalog)}".encode())
        await _fill(app, catalog, token)
        steps: dict[str, Step] = {
            PLAIN: lambda: call(app, "GET", TABLE, None, token),
            DELEGATED: lambda: call(app, "GET", TABLE, None, token, VENDED),
        }
        for step in steps.values():
            await step()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)  # As in a server.
        timings = await timed_side_by_side(steps, rounds=rounds, batch=calls)
        counters = catalog.lakes.lake("default", "default").feature(Counters)
        if counters.times(CREDENTIALS, "s3 cached") < rounds * calls:
            raise RuntimeError("the credential did not come from the cache")
    return timings


async def _fill(app: App, catalog: RunningCatalog, token: Header) -> None:
    """A table with some snapshots, as one in use."""
    await call(app, "POST", "/v1/namespaces", {"namespace": ["ns"]}, token)
    await call(app, "POST", "/v1/namespaces/ns/tables", create_table("t"), token)
    document = await current_document(catalog.lakes.lake("default", "default"), Identifier("main", ("ns",), "t"))
    metadata, parent = json.loads(document.body), None
    for number in range(1, SNAPSHOTS + 1):
        await call(app, "POST", TABLE, add_snapshot(metadata, snapshot_id=number, parent=parent, number=number), token)
        parent = number
