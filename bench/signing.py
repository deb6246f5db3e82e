"""The cost of signed requests to S3: whole requests to a server with authentication, and their parts.

The server runs in this process, without HTTP parsing, with every request in the audit trail. Its catalog is in a folder
without fsync, whose addresses are those of a bucket; a catalog in a bucket adds the one round of reads of a load. The
parts are the judge, the signature, and botocore's signature of the same request.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec.structs import replace

from bench.audit import call
from bench.measurement import Step, Timing, save, show, timed_side_by_side
from sandur.catalog.credentials.profiles import Keys
from sandur.catalog.credentials.signed_requests import StorageRequest, home_of, judge
from sandur.catalog.identifiers import Identifier
from sandur.catalog.security.manifest import Caller
from sandur.clock import SystemClock
from sandur.operations.access import Security
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.tables.names import resolve_name
from sandur.server.app import App
from sandur.server.logs import configure_logging
from sandur.server.process import RunningCatalog
from sandur.server.serve import GARBAGE_THRESHOLDS, build
from sandur.settings import Settings
from sandur.storage.credentials import s3
from sandur.storage.credentials.signatures import signed_headers
from sandur.storage.locations import connect
from tests.server.requests import create_table
from tests.signatures.signing_server import REGION, S3, SIGNING

GOAL_PER_SECOND: Final = 3_000
TABLE: Final = "/v1/namespaces/ns/tables/t"
_HEADERS: Final = {
    "User-Agent": ["aws-sdk-java/2.42.33"],
    "amz-sdk-invocation-id": ["2d4ff5a2-7f0d-4c3e-8d3c-0f7f6a1f4c11"],
    "amz-sdk-request": ["attempt=1; max=6"],
    "Content-Type": ["application/octet-stream"],
    "Range": ["bytes=4-1000"],
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench signing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each measurement")
    parser.add_argument("--calls", type=int, default=500, help="calls per turn")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/signing.json")
    options = parser.parse_args()
    configure_logging("text", "error")
    asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sandur-bench-"))
        app, catalog, location = await _start(stack, folder)
        token = (b"authorization", f"Bearer {await admin_token(catalog)}".encode())
        steps = {**_requests(app, token, location), **_parts(location)}
        for step in steps.values():
            await step()
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)  # As in a server.
        timings = await timed_side_by_side(steps, rounds=options.rounds, batch=options.calls)
    rows = [(name, f"{one.cpu_us:.1f} µs", f"{_per_second(one):,.0f}") for name, one in timings.items()]
    show("CPU time per call, and calls per second of one worker", ("", "CPU", "per second"), rows)
    slowest = min(_per_second(timings[name]) for name in ("sign GET", "sign PUT"))
    is_met = slowest >= GOAL_PER_SECOND
    print(f"Goal of {GOAL_PER_SECOND:,} signatures per second and worker: {'met' if is_met else 'missed'}")
    results = {
        "settings": "folder, fsync never, authentication on, every request in the audit trail, without HTTP parsing",
        "cpu_us": {name: one.cpu_us for name, one in timings.items()},
        "signatures_per_second": round(slowest),
        "is_within_goal": is_met,
    }
    save("signing", results, file=options.json)


def _per_second(timing: Timing) -> float:
    return 1e6 / timing.cpu_us


async def _start(stack: AsyncExitStack, folder: str) -> tuple[App, RunningCatalog, str]:
    """A server with one table, and the location of the table."""
    clock = SystemClock()
    store = connect(Settings(store=folder, fsync="never"), clock)
    app, catalog = build(replace(SIGNING, janitors=False, audit="all"), store=store)
    await catalog.start()
    stack.push_async_callback(catalog.close)
    token = (b"authorization", f"Bearer {await admin_token(catalog)}".encode())
    await call(app, "POST", "/v1/namespaces", {"namespace": ["ns"]}, token)
    await call(app, "POST", "/v1/namespaces/ns/tables", create_table("t"), token)
    lake = catalog.lakes.lake("default", "default")
    found = await resolve_name(lake, Identifier("main", ("ns",), "t"))
    if found is None or found.iceberg_pointer is None or found.iceberg_pointer.value.head is None:
        raise RuntimeError("the table was not created")
    document = await load_document(lake, TABLES, found.iceberg_pointer.value.head.metadata_location)
    return app, catalog, document.metadata.location


async def admin_token(catalog: RunningCatalog) -> str:
    """A token of the administrator."""
    principal = (await catalog.lakes.lake("default", "default").feature(Security).read()).principal_named("admin")
    if principal is None:
        raise RuntimeError("the administrator does not exist")
    caller = Caller(principal.id, principal.name, token_epoch=principal.token_epoch)
    return catalog.authenticator.issue(caller, "default", "default").text


def _uri(location: str) -> str:
    return f"{S3.endpoint}/{location.removeprefix('s3://').replace('=', '%3D')}/data/day%3D1/00000-1.parquet"


def _requests(app: App, token: tuple[bytes, bytes], location: str) -> dict[str, Step]:
    body = {"region": REGION, "uri": _uri(location), "headers": _HEADERS, "provider": "s3"}
    return {
        "sign GET": lambda: call(app, "POST", f"{TABLE}/sign", {**body, "method": "GET"}, token),
        "sign PUT": lambda: call(app, "POST", f"{TABLE}/sign", {**body, "method": "PUT"}, token),
        "load, to compare": lambda: call(app, "GET", TABLE, None, token),
    }


def _parts(location: str) -> dict[str, Step]:
    profile = s3.own_profile(S3)
    keys = Keys(S3.access_key_id, S3.secret_access_key)
    homes = [home_of(profile, location)]
    request = StorageRequest("GET", _uri(location), REGION, _HEADERS)
    judged = judge(request, homes)
    now_ms = SystemClock().now_ms()
    signer = S3SigV4Auth(Credentials(*keys[:2]), "s3", REGION)

    def by_botocore() -> object:
        sent = AWSRequest(method="GET", url=request.uri, headers=dict(judged.headers))
        return signer.add_auth(sent)

    return {
        "judge": _step(lambda: judge(request, homes)),
        "signature": _step(lambda: signed_headers(judged, keys, now_ms)),
        "signature by botocore": _step(by_botocore),
    }


def _step(work: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def step() -> object:
        return work()

    return step
