"""Measure the server on a distant bucket, beside Iceberg's reference REST server on the same bucket, in one run.

Both reach a SeaweedFS through one proxy, which adds the latency of S3, Google Cloud Storage or Azure to every request;
a fourth run throttles one request in a hundred. The reference server keeps its catalog in SQLite on the local disk and
its metadata files in the bucket. Latencies are also given in rounds, where calls at once count as one round: the rounds
of the operation, times its latency, divided by the median of its calls alone. Beside them is the same in reads: divided
by the median of one small read through the proxy. The load generator, both servers, the proxy and the bucket share the
CPUs of this machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from bench.beside_reference import UNITY
from bench.delta import DeltaTable, commit_body, create
from bench.first_requests import append_updates
from bench.load.figures import Figure, Figures, figures_of, render_number
from bench.load.loader import Loader, is_go_here
from bench.load.plan import planned
from bench.load.run import Run
from bench.load.servers import REFERENCE, reference, running_sandur, s3_environment
from bench.load.target import Target
from bench.measurement import save, show
from bench.provenance import RESULTS
from bench.store_proxy import PROFILES, Latency, distant
from sandur.settings import Settings
from tests.operations.call_counts import count_operations
from tests.servers.seaweedfs import BUCKET, seaweedfs

SANDUR: Final = "sandur"
WORKERS: Final = 1
"""The default. Workers of one server take the swaps of a hot table from each other; loads gain by more of them."""

CONNECTIONS: Final = 32
MANY: Final = 256
"""So many that CPU time decides how many loads are answered, and not how long the bucket takes."""

TABLES: Final = 20
LISTED: Final = 200
CALLS: Final = 40
"""Of each operation whose latency is measured alone."""

PAIRS: Final = 4
DELTA_TABLES: Final = 4
"""A table takes few commits before its client publishes them."""

BUCKETS: Final[Mapping[str, Latency]] = {
    **PROFILES,
    "s3, throttled": Latency(PROFILES["s3"].p50_ms, PROFILES["s3"].p99_ms, throttled=0.01),
}
_SERVER_ERROR: Final = 500
_SLOW_DOWN: Final = 503


class Goal(msgspec.Struct, frozen=True):
    """A goal, and the value that was found; for rounds, also in small reads, and what the calls alone cost in reads."""

    name: str
    found: float
    goal: str
    is_met: bool
    reads: float | None = None
    expected_reads: float | None = None


class Calls(msgspec.Struct, frozen=True):
    """The rounds of an operation, and their median in small reads on a machine that costs nothing."""

    rounds: int
    reads: float


COUNTED: Final = {
    "load": "load",
    "commit": "commit, property",
    "append": "commit, append",
    "transaction": "transaction, two tables",
}
"""The operations with a goal in rounds, by their names in `bench calls`."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench buckets", description=__doc__)
    parser.add_argument(
        "--only", choices=list(BUCKETS), action="append", help="measure this one; the result file keeps the others"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each workload and server")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/buckets.json")
    options = parser.parse_args()
    if not is_go_here():
        print("bench buckets: skipped; the load generator needs go, which is not installed")
        return
    file = options.json or RESULTS / "buckets.json"
    results = json.loads(file.read_text(encoding="utf-8"))["buckets"] if options.only and file.exists() else {}
    settings = f"{WORKERS} workers of Sandur, one process of the reference server (JDBC on SQLite), one SeaweedFS"
    for name in options.only or BUCKETS:
        results[name] = _measured(BUCKETS[name], options.seconds)
        _show(name, results[name])
        save("buckets", {"settings": settings, "buckets": results}, file=options.json)


def _measured(latency: Latency, seconds: float) -> dict[str, Any]:
    """Both servers on one bucket behind one proxy."""
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder, contextlib.ExitStack() as running:
        near, settings = _bucket(Path(folder), latency, running)
        round_ms = asyncio.run(_round_ms(settings))
        targets = list(_servers(Path(folder), settings, running))
        for target in targets:
            target.connect(f"{int(time.time()) % 1_000_000:06d}")
        run = Run(targets, planned(quick=True, huge=False, rounds=1), Loader())
        _warm(run)
        _run_workloads(run, seconds)
        alone = asyncio.run(_alone(targets[0], near))
        round_ms = min(round_ms, asyncio.run(_round_ms(settings)))  # The one that other work disturbed less.
        counted = asyncio.run(count_operations(Path(folder) / "counted"))
    calls = {
        name: Calls(counted[long].rounds, latency.median_rounds(counted[long].widths)) for name, long in COUNTED.items()
    }
    figures = figures_of(run.rows)
    return {
        "latency": latency,
        "round_ms": round_ms,
        "figures": figures,
        "alone_ms": alone,
        "loads_per_second_max": {
            f"{width} call{'s' * (width > 1)} at once": latency.rate_max(CONNECTIONS, calls=width)
            for width in (1, *counted["load"].widths)
        },
        "load_average": round(os.getloadavg()[0], 1),
        "goals": list(_goals(figures, alone, round_ms, calls)),
    }


def _bucket(folder: Path, latency: Latency, running: contextlib.ExitStack) -> tuple[Settings, Settings]:
    """A bucket, reached directly and through the proxy."""
    for part in ("bucket", "proxy", SANDUR, REFERENCE):
        (folder / part).mkdir()
    near = running.enter_context(seaweedfs(folder / "bucket"))
    return near, running.enter_context(distant(near, latency, folder / "proxy"))


def _servers(folder: Path, settings: Settings, running: contextlib.ExitStack) -> Iterator[Target]:
    environment = s3_environment(settings)
    store = f"s3://{BUCKET}/bench"
    yield running.enter_context(running_sandur(SANDUR, folder / SANDUR, store, WORKERS, environment))
    yield running.enter_context(reference(folder / REFERENCE, settings, REFERENCE))


async def _round_ms(settings: Settings) -> float:
    """The median of one small request through the proxy, one after the other; one that is throttled is sent again."""
    async with httpx.AsyncClient(base_url=settings.s3.endpoint) as client:

        async def read(_call: int) -> httpx.Response:
            while (answer := await client.get("/status")).status_code == _SLOW_DOWN:
                pass
            return answer

        return await _median_ms(read)


def _warm(run: Run) -> None:
    for target in run.targets:
        for _ in range(2):
            run.loader.run(target, "properties", tables=2, workers=8, stem=f"w{run.turn}", seconds=2.0)
            run.turn += 1


def _run_workloads(run: Run, seconds: float) -> None:
    """Each workload on one server, then on the other."""
    loaded = {target.name: run.loader.run(target, "history", stem="loaded", snapshots=1) for target in run.targets}
    for workers, tables in ((1, 4), (CONNECTIONS, TABLES)):
        same: dict[str, object] = {"workers": workers, "seconds": seconds}
        for target in run.targets:
            run.job(_row("load", workers), target, "get", path=loaded[target.name].extra.path, **same)
        for target in run.targets:
            run.job(_row("commit", workers), target, "properties", tables=tables, stem=f"p{workers}", **same)
        for target in run.targets:
            run.job(_row("append", workers), target, "append", tables=tables, stem=f"a{workers}", **same)
        for target in run.targets:
            run.job(_row("create", workers), target, "tables", count=LISTED, stem=f"c{workers}", **same)
        for target in run.targets:
            run.job(_row("list", workers), target, "get", path=_list_path(target), **same)
        for target in run.targets:
            run.job(_row("list 100", workers), target, "get", path=_list_path(target) + "?pageSize=100", **same)
    for target in run.targets:
        path = loaded[target.name].extra.path
        run.job(_row("load", MANY), target, "get", path=path, workers=MANY, seconds=seconds)
    for target in run.targets:
        run.job("transactions of one pair, 1 connection", target, "pairs", workers=1, seconds=seconds, stem="t1")


def _list_path(target: Target) -> str:
    return f"/namespaces/{target.namespace}/tables"


def _row(operation: str, connections: int) -> str:
    return f"{operation}, {connections} connection{'s' * (connections > 1)}"


async def _alone(target: Target, near: Settings) -> dict[str, float]:
    """The median latency of transactions, Delta commits and plans, one after the other and on tables in turn."""
    address = f"http://{target.address}"
    async with httpx.AsyncClient(base_url=address + UNITY, timeout=60) as client:
        (await client.post("/schemas", json={"catalog_name": "main", "name": "s"})).raise_for_status()
        tables: list[DeltaTable] = []
        for _ in range(DELTA_TABLES):
            await create(client, tables)

        async def commit(call: int) -> httpx.Response:
            table, version = tables[call % DELTA_TABLES], call // DELTA_TABLES + 1
            return await client.post(table.path, json=commit_body(table, version, f"{version:020d}.a.json"))

        delta_ms = await _median_ms(commit)
    await asyncio.to_thread(_make_planned, address, target.namespace, near)
    path = f"{address}{target.root}/namespaces/{target.namespace}/tables/planned/plan"
    async with httpx.AsyncClient(timeout=60) as client:
        plan_ms = await _median_ms(lambda _: client.post(path, json={"case-sensitive": True}))
        transaction_ms = await _transaction_ms(client, target)
    return {"transaction": transaction_ms, "Delta commit": delta_ms, "plan": plan_ms}


async def _transaction_ms(client: httpx.AsyncClient, target: Target) -> float:
    """Appends to two tables at once; each pair rests while the others have their turn, as in a pipeline."""
    root = f"http://{target.address}{target.root}"
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    tables: list[dict[str, str]] = []
    for number in range(2 * PAIRS):
        body = {"name": f"pair{number}", "schema": {"type": "struct", "fields": fields}}
        made = await client.post(f"{root}/namespaces/{target.namespace}/tables", json=body)
        tables.append(made.raise_for_status().json()["metadata"])

    def change(number: int, call: int) -> dict[str, object]:
        appended = append_updates(tables[number]["location"], call // PAIRS + 1)
        return {
            "identifier": {"namespace": [target.namespace], "name": f"pair{number}"},
            "requirements": [{"type": "assert-table-uuid", "uuid": tables[number]["table-uuid"]}],
            "updates": appended,
        }

    async def commit(call: int) -> httpx.Response:
        first = 2 * (call % PAIRS)
        changes = [change(first, call), change(first + 1, call)]
        return await client.post(f"{root}/transactions/commit", json={"table-changes": changes})

    return await _median_ms(commit)


def _make_planned(address: str, namespace: str, near: Settings) -> None:
    """A table with a data file, written past the proxy."""
    keys = {"s3.access-key-id": near.s3.access_key_id, "s3.secret-access-key": near.s3.secret_access_key}
    catalog = load_catalog("bench", type="rest", uri=address, **keys, **{"s3.endpoint": near.s3.endpoint})
    rows = pa.table({"id": [1, 2]})
    catalog.create_table((namespace, "planned"), rows.schema).append(rows)


async def _median_ms(step: Callable[[int], Awaitable[httpx.Response]]) -> float:
    walls = []
    for call in range(CALLS):
        began = time.perf_counter()
        answer = await step(call)
        walls.append(time.perf_counter() - began)
        answer.raise_for_status()
    return round(statistics.median(walls[CALLS // 4 :]) * 1e3, 2)


def _goals(figures: Figures, alone: Mapping[str, float], round_ms: float, calls: Mapping[str, Calls]) -> Iterator[Goal]:
    """The goals relative to the reference server, and those in rounds."""
    for operation, times in (("load", 4.0), ("commit", 1.5), ("append", 1.5)):
        by_server = figures[_row(operation, CONNECTIONS)]
        mine, theirs = by_server[SANDUR].rate, by_server[REFERENCE].rate
        yield Goal(
            f"{operation}, rate of the reference's", _ratio(mine, theirs), f">= {times:g}", mine >= times * theirs
        )
    for operation, rounds in (("load", 1.15), ("commit", 2.3), ("append", 2.3), ("transaction", 3.5)):
        p50_ms = alone.get(operation) or figures[_row(operation, 1)][SANDUR].p50_ms
        reads, alone_reads = p50_ms / round_ms, calls[operation].reads
        found = round(calls[operation].rounds * reads / alone_reads, 2)
        yield Goal(f"{operation}, rounds", found, f"<= {rounds:g}", found <= rounds, round(reads, 2), alone_reads)
    failed = sum(_failures(figure.status) for by_server in figures.values() for figure in [by_server[SANDUR]])
    yield Goal("answers of 5xx", failed, "0", failed == 0)


def _ratio(mine: float, theirs: float) -> float:
    return round(mine / theirs, 2) if theirs else 0.0


def _failures(status: Mapping[str, int]) -> int:
    return sum(times for code, times in status.items() if int(code) >= _SERVER_ERROR)


def _show(name: str, result: Mapping[str, Any]) -> None:
    figures: Figures = result["figures"]
    rows = [
        (row, *(_cell(by_server.get(server)) for server in (SANDUR, REFERENCE))) for row, by_server in figures.items()
    ]
    rows += [(operation, f"{ms} ms", "") for operation, ms in result["alone_ms"].items()]
    show(f"{name}: a round is {result['round_ms']} ms", ("", SANDUR, REFERENCE), rows)
    goals = [
        (
            goal.name,
            goal.found,
            goal.goal,
            "met" if goal.is_met else "missed",
            goal.reads or "",
            goal.expected_reads or "",
        )
        for goal in result["goals"]
    ]
    show(f"{name}: no server is faster", ("loads per second", "most"), list(result["loads_per_second_max"].items()))
    show(f"{name}: goals", ("", "found", "goal", "", "in reads", "calls alone"), goals)


def _cell(figure: Figure | None) -> str:
    if figure is None or not figure.rate:
        return "fails: " + "; ".join(figure.errors)[:80] if figure and figure.errors else "-"
    failed = _failures(figure.status)
    text = f"{render_number(figure.rate)}/s, {render_number(figure.p50_ms)} ms"
    return f"{text}, {failed} x 5xx" if failed else text


if __name__ == "__main__":
    main()
