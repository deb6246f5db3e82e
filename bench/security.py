"""Measure what authentication, grants and the audit trail cost: the same server with them off and on, in turns.

On a folder, on S3, and on S3 at the latency of a real bucket, in one run and in short alternating rounds; each ratio is
the median over pairs of neighbouring rounds. The server with them on has 1,000 principals, 10,000 grants and nested
groups and roles, and records every request. Storage rounds, tokens and decisions are measured in this process.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

import httpx
import msgspec

from bench.load.loader import Loader, Result, is_go_here
from bench.load.servers import SOURCE, running_sandur, s3_environment
from bench.load.target import Target
from bench.measurement import save, show
from bench.meters import Cost, Meter
from bench.population import CALLER, STRANGER, counted, populate
from bench.provenance import RESULTS
from bench.security_checks import measure_checks
from bench.store_proxy import PROFILES, distant
from sandur.catalog.identifiers import Namespace
from sandur.clock import SystemClock
from sandur.operations.access import Security
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lakes
from sandur.server.logs import configure_logging
from sandur.settings import Settings
from sandur.storage.locations import connect
from tests.servers.seaweedfs import BUCKET, seaweedfs

FOLDER: Final = "default"
S3: Final = "s3"
DISTANT: Final = "s3-distant"
"""The same S3, behind a proxy that adds the latency of a bucket in the same region."""
OFF: Final = "off"
ON: Final = "on"
WORKERS: Final = 2
CONNECTIONS: Final = 8
DISTANT_CONNECTIONS: Final = 32
SLOWER_MAX: Final = 0.10
"""The issue's limit: with everything on, a warm load or commit costs at most this much more."""

LISTED: Final = 10_000
VISIBLE: Final = 100
STORES: Final = (FOLDER, S3, DISTANT)
_LATENCY: Final = PROFILES["s3"]
_SECRET: Final = "the secret of the administrator"  # noqa: S105 - of a server that lives as long as this run
_NAMESPACE: Final = "bench"
_SECONDS_MAX: Final = 120
_LIST_ROUNDS: Final = 3
_LIST_SETTINGS: Final = "folder, fsync never, 1 worker"


class Plan(msgspec.Struct, frozen=True):
    """Rounds per workload, seconds per round, and the tables of the list."""

    rounds: int
    seconds: float
    listed: int
    list_calls: int
    checks: int


FULL: Final = Plan(rounds=10, seconds=0.8, listed=LISTED, list_calls=40, checks=2_000)
QUICK: Final = Plan(rounds=6, seconds=0.6, listed=1_000, list_calls=10, checks=200)


class Ratio(msgspec.Struct, frozen=True):
    """On compared with off: rates, medians of the latency, CPU time per operation, and the medians of their ratios."""

    workload: str
    store: str
    rate_off: float
    rate_on: float
    p50_off_ms: float
    p50_on_ms: float
    cpu_off_ms: float
    cpu_on_ms: float
    rate: float
    p50: float
    cpu: float

    @property
    def is_within_goal(self) -> bool:
        """By CPU time, or at the latency of a real bucket, where requests wait, by the time that one takes.

        Rates vary more than the limit when the machine is busy.
        """
        return (self.p50 if self.store == DISTANT else self.cpu) <= 1 + SLOWER_MAX


class Server:
    """A server of this run; with authentication, the caller's token is in the headers of its target."""

    def __init__(self, target: Target, settings: Settings, *, is_distant: bool = False) -> None:
        self.target = target
        self.is_distant = is_distant
        self.settings = settings
        self.url = f"http://{target.address}"

    def connect(self) -> None:
        if self.settings.authentication == ON:
            self.target.headers = self.bearer("admin", _SECRET)
        self.target.connect(_NAMESPACE)
        self.target.namespace = _NAMESPACE
        self.target.make_namespace(_NAMESPACE)

    def log_in(self, name: str) -> dict[str, str]:
        """The headers of requests by a principal of the population, which gets a secret."""
        admin = self.bearer("admin", _SECRET)
        answer = httpx.post(f"{self.url}/api/sandur/v1/principals/{name}/secrets", headers=admin, timeout=_SECONDS_MAX)
        return self.bearer(name, answer.raise_for_status().json()["client_secret"])

    def bearer(self, name: str, secret: str) -> dict[str, str]:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = httpx.post(f"{self.url}/v1/oauth/tokens", data=form, timeout=_SECONDS_MAX)
        return {"Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"}

    def populate(self, *, seen_tables: int = 0) -> Mapping[str, int]:
        """Add the population to the store, beside the running server; STRANGER may read `seen_tables` tables."""

        async def run() -> Mapping[str, int]:
            clock = SystemClock()
            lakes = Lakes(self.settings, clock, connect(self.settings, clock))
            lake = await lakes.start()
            try:
                kept = await list_names(
                    lake, Namespace("main", (_NAMESPACE,)), kind="table", page_token=None, page_size=None
                )
                every = max(1, len(kept.entries) // max(1, seen_tables))
                seen = [entry.object_id or entry.uuid for entry in kept.entries[::every]][:seen_tables]
                await populate(lake, _NAMESPACE, seen_tables=seen)
                return counted((await lake.feature(Security).read()).manifest)
            finally:
                await lakes.close()

        return asyncio.run(run())


def main() -> None:
    options = _options()
    if not is_go_here():
        print("bench security: skipped; the load generator needs go, which is not installed")
        return
    configure_logging("text", "error")  # Of the servers in this process.
    plan = QUICK if options.quick else FULL
    loader = Loader()
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        ratios, population = _compare(Path(folder), plan, loader, options.stores)
        lists = _measure_lists(Path(folder), plan, loader) if options.lists else _earlier_lists()
        checks = asyncio.run(measure_checks(plan.checks))
    _show(ratios, lists, checks)
    result = {
        "settings": {
            FOLDER: f"folder, fsync always (the default), {WORKERS} workers",
            S3: f"one bucket of a SeaweedFS on the same machine, {WORKERS} workers",
            DISTANT: f"the same, {_LATENCY.p50_ms:g} ms per request (p99 {_LATENCY.p99_ms:g} ms), {WORKERS} workers, "
            f"{DISTANT_CONNECTIONS} connections instead of {CONNECTIONS}",
            "list": _LIST_SETTINGS,
            "on": "authentication on, every request in the audit trail",
        },
        "population": population,
        "plan": plan,
        "load_average": round(os.getloadavg()[0], 2),
        "ratios": [{**msgspec.to_builtins(one), "is_within_goal": one.is_within_goal} for one in ratios],
        "lists": lists,
        "checks": checks,
    }
    save("security", result, file=options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench security", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, shorter lists")
    parser.add_argument(
        "--no-lists", dest="lists", action="store_false", help="keep the lists of the last run, which take minutes"
    )
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/security.json")
    return parser.parse_args()


def _compare(
    parent: Path, plan: Plan, loader: Loader, stores: Sequence[str]
) -> tuple[Sequence[Ratio], Mapping[str, int]]:
    """All workloads on all stores, off and on in turns."""
    rows: dict[tuple[str, str], dict[str, list[Result]]] = {}
    population: Mapping[str, int] = {}
    with contextlib.ExitStack() as running:
        servers = {
            (store, state): server for store in stores for state, server in _start(store, parent, running).items()
        }
        for (_, state), server in servers.items():
            server.connect()
            if state == ON:
                population = server.populate()
                server.target.headers = server.log_in(CALLER)
        paths = {key: _table(loader, server) for key, server in servers.items()}
        for number in range(plan.rounds + 1):
            for store in stores:
                for state in (OFF, ON) if number % 2 else (ON, OFF):
                    for workload, result in _measure(loader, servers[store, state], paths[store, state], plan, number):
                        if number:  # The first round warms up.
                            rows.setdefault((workload, store), {}).setdefault(state, []).append(result)
    return [_ratio(*key, by_state) for key, by_state in rows.items()], population


def _start(store: str, parent: Path, running: contextlib.ExitStack) -> Mapping[str, Server]:
    """The server with everything off and that with everything on, on the same disk or the same object store."""
    settings = Settings()
    if store != FOLDER:
        (parent / f"bucket-{store}").mkdir()
        settings = running.enter_context(seaweedfs(parent / f"bucket-{store}"))
    if store == DISTANT:
        (parent / "proxy").mkdir()
        settings = running.enter_context(distant(settings, _LATENCY, parent / "proxy"))
    started = {}
    for state in (OFF, ON):
        folder = parent / f"{store}-{state}"
        folder.mkdir()
        url = f"{folder}/data" if store == FOLDER else f"s3://{BUCKET}/{state}"
        environment = {**_environment(state), **({} if store == FOLDER else s3_environment(settings))}
        target = running.enter_context(running_sandur(folder.name, folder, url, WORKERS, environment))
        authentication: Literal["on", "off"] = "on" if state == ON else "off"
        reached = msgspec.structs.replace(settings, store=url, authentication=authentication)
        started[state] = Server(target, reached, is_distant=store == DISTANT)
    return started


def _environment(state: str) -> dict[str, str]:
    secret = {"SANDUR_ADMIN_SECRET": _SECRET} if state == ON else {}
    return {"PYTHONPATH": str(SOURCE), "SANDUR_AUTHENTICATION": state, **secret}


def _table(loader: Loader, server: Server) -> str:
    """The path of a table with one snapshot."""
    made = loader.run(server.target, "history", stem="loaded", snapshots=1)
    if made.error:
        raise RuntimeError(f"{server.target.name}: {made.error}")
    return made.extra.path


def _measure(loader: Loader, server: Server, path: str, plan: Plan, number: int) -> Iterator[tuple[str, Result]]:
    """One round of every workload."""
    # Requests to a distant bucket wait most of the time, so that more of them keep the server busy.
    connections = DISTANT_CONNECTIONS if server.is_distant else CONNECTIONS
    same: Mapping[str, object] = {"seconds": plan.seconds, "workers": connections}
    yield "load", loader.run(server.target, "get", path=path, **same)
    commits = loader.run(server.target, "properties", tables=connections, stem=f"c{number}", **same)
    yield "commit", commits


def _ratio(workload: str, store: str, rounds: Mapping[str, Sequence[Result]]) -> Ratio:
    pairs = [(off, on) for off, on in zip(rounds[OFF], rounds[ON], strict=True) if off.is_good and on.is_good]
    failed = [one.error or one.example for by in rounds.values() for one in by if not one.is_good or one.failed]
    if failed:
        raise RuntimeError(f"{workload} on {store}: {failed[0]}")

    def median(values: Iterable[float], digits: int = 3) -> float:
        return round(statistics.median(values), digits)

    return Ratio(
        workload=workload,
        store=store,
        rate_off=median((off.rate for off, _ in pairs), 1),
        rate_on=median((on.rate for _, on in pairs), 1),
        p50_off_ms=median(off.p50_ms for off, _ in pairs),
        p50_on_ms=median(on.p50_ms for _, on in pairs),
        cpu_off_ms=median(off.server_cpu_ms for off, _ in pairs),
        cpu_on_ms=median(on.server_cpu_ms for _, on in pairs),
        rate=median(on.rate / off.rate for off, on in pairs),
        p50=median(on.p50_ms / off.p50_ms for off, on in pairs),
        cpu=median(on.server_cpu_ms / off.server_cpu_ms for off, on in pairs),
    )


def _earlier_lists() -> Mapping[str, object]:
    """The lists of the last run that measured them, with its date."""
    last = json.loads((RESULTS / "security.json").read_text(encoding="utf-8"))
    return {"date": last["date"], **last["lists"]}


def _measure_lists(parent: Path, plan: Plan, loader: Loader) -> Mapping[str, object]:
    """The list of a large namespace, for a caller that sees everything and for one that sees a hundredth."""
    folder = parent / "lists"
    folder.mkdir()
    environment = {**_environment(ON), "SANDUR_FSYNC": "never"}
    seen = plan.listed * VISIBLE // LISTED
    with running_sandur("lists", folder, f"{folder}/data", 1, environment) as target:
        server = Server(target, Settings(store=f"{folder}/data", authentication="on"))
        server.connect()
        made = loader.run(target, "tables", workers=8, count=plan.listed, seconds=600.0, stem="t")
        if made.error or made.ok != plan.listed:
            raise RuntimeError(f"lists: {made.ok} tables were created: {made.error or made.example}")
        server.populate(seen_tables=seen)
        callers = {"all": (plan.listed, server.log_in(CALLER)), "few": (seen, server.log_in(STRANGER))}
        return {"tables": plan.listed, **asyncio.run(_list_costs(server, callers, plan.list_calls))}


async def _list_costs(
    server: Server, callers: Mapping[str, tuple[int, Mapping[str, str]]], calls: int
) -> Mapping[str, object]:
    """The cost of the whole list and of a page of 100, by caller, in turns."""
    found: dict[str, dict[str, list[Cost]]] = {}
    url = f"{server.url}/v1/main/namespaces/{_NAMESPACE}/tables"
    for _ in range(_LIST_ROUNDS):
        for name, (visible, headers) in callers.items():
            async with httpx.AsyncClient(headers=dict(headers), timeout=_SECONDS_MAX) as client:
                for kind, query in {"whole list": "", "page of 100": "?pageSize=100&pageToken="}.items():
                    listed = (await client.get(url + query)).raise_for_status().json()["identifiers"]
                    if len(listed) != (visible if not query else min(100, visible)):
                        raise RuntimeError(f"{kind} for {name}: {len(listed)} tables, expected {visible}")
                    meter = Meter(server.target.pids, calls)
                    get = partial(_get, client, url + query)
                    for call in range(calls):
                        await meter.time(get, call)
                    found.setdefault(kind, {}).setdefault(name, []).append(meter.cost())
    return {
        kind: {name: {"visible": callers[name][0], **_best(costs)} for name, costs in by.items()}
        for kind, by in found.items()
    }


async def _get(client: httpx.AsyncClient, address: str, _call: int) -> httpx.Response:
    return await client.get(address)


def _best(costs: Sequence[Cost]) -> Mapping[str, float]:
    return {
        "median_ms": statistics.median(cost.median_ms for cost in costs),
        "cpu_ms": statistics.median(cost.cpu_ms for cost in costs),
    }


def _show(ratios: Sequence[Ratio], lists: Mapping[str, object], checks: Mapping[str, object]) -> None:
    rows = [
        (
            one.workload,
            one.store,
            f"{one.rate_off:,.0f} → {one.rate_on:,.0f}",
            f"{one.cpu_off_ms:.3f} → {one.cpu_on_ms:.3f}",
            f"{one.rate:.2f}×",
            f"{one.p50:.2f}×",
            f"{one.cpu:.2f}×",
            "yes" if one.is_within_goal else "no",
        )
        for one in ratios
    ]
    columns = ("workload", "store", "per second", "CPU ms", "rate", "p50", "CPU", "within 10 %")
    show("Authentication, grants and audit: off → on", columns, rows)
    for title, found in (("Lists", lists), ("Checks", checks)):
        show(title, ("", "found"), [(name, value) for name, value in found.items()])


if __name__ == "__main__":
    main()
