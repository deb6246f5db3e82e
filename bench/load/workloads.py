"""The workloads; each runs on every server in turns."""

from collections.abc import Callable, Mapping
from typing import Final

from rich.console import Console

from bench.load.growth import grow
from bench.load.loader import Result
from bench.load.plan import GROUPS
from bench.load.run import Run
from bench.load.target import Target, Unusable


def run_workloads(run: Run, names: set[str]) -> None:
    """Run the named workloads in the order and with the time shares of `GROUPS`."""
    console = Console(stderr=True, highlight=False)
    _warm(run)
    budget, total, share = run.plan.server_s * len(run.targets), sum(GROUPS[name] for name in names), 0.0
    for name in GROUPS:
        if name in names:
            share += GROUPS[name] / total
            run.deadline = budget * share
            console.print(f"  {run.spent():5.0f} s  {name}")
            _WORKLOADS[name](run)


def _warm(run: Run) -> None:
    """Let servers fill their caches and compile their code; nothing is recorded."""
    for target in run.targets:
        made = run.loader.run(target, "history", stem="warm", snapshots=1)
        if made.error:
            raise Unusable(f"{target.name}: {made.error}")
        run.loader.run(target, "get", path=made.extra.path, workers=8, seconds=3 * run.plan.read_s)
        run.loader.run(target, "properties", tables=4, workers=4, stem="warmp", seconds=2 * run.plan.read_s)


def _load(run: Run) -> None:
    made = {(target.name, count): _history(run, target, count) for target in run.targets for count in (1, 500)}
    kinds = (("", "plain"), ("", "not modified"), ("?snapshots=refs", "refs only"))
    for _, target in run.in_turns():
        for count in (1, 500):
            table = made[target.name, count]
            if table.error:
                continue
            for query, kind in kinds:
                _load_one(run, target, table, f"loadTable {count} snap, {kind}", query)


def _history(run: Run, target: Target, count: int) -> Result:
    """Create a table with `count` snapshots."""
    made = run.loader.run(target, "history", stem=f"history_{count}", snapshots=count)
    if made.error:
        run.notes[target.name].append(f"table with {count} snapshots: {made.error}")
    elif count > 1:
        size = f"{made.bytes_per_answer / 1000:.0f} kB"
        run.notes[target.name].append(f"{count} snapshots: {made.ok} in the answer, body {size}")
    elif not made.extra.etag:
        run.notes[target.name].append("loadTable has no ETag")
    return made


def _load_one(run: Run, target: Target, table: Result, row: str, query: str) -> None:
    match = table.extra.etag if "not modified" in row else ""
    if "not modified" in row and not match:
        return
    for connections in run.plan.connections:
        got = run.job(
            f"{row}, {connections} conn",
            target,
            "get",
            path=table.extra.path + query,
            match=match,
            workers=connections,
            seconds=run.plan.read_s,
        )
        if match and got.status.get("304", 0) < got.ok:
            got.broken.append("If-None-Match with the current ETag answered 200")


def _commit(run: Run) -> None:
    plan = run.plan
    for number, target in run.in_turns():
        for kind, label in (("properties", "set-properties"), ("append", "add-snapshot")):
            for writers in plan.writers:
                run.job(
                    f"commit {label}, 20 tables, {writers} writers",
                    target,
                    kind,
                    tables=20,
                    workers=writers,
                    count=plan.commits,
                    seconds=plan.commit_s,
                    stem=f"c{kind[0]}{writers}_{number}",
                )


def _hot(run: Run) -> None:
    plan = run.plan
    for number, target in run.in_turns():
        same: Mapping[str, object] = {"workers": 8, "count": plan.commits // 2, "seconds": plan.commit_s}
        run.job("hot table, uuid only, 8 writers", target, "properties", tables=1, stem=f"hp_{number}", **same)
        run.job("hot table, append with client retry, 8 writers", target, "engines", stem=f"he_{number}", **same)


def _pairs(run: Run) -> None:
    plan = run.plan
    for number, target in run.in_turns():
        run.job(
            "two-table transaction, one pair, 4 writers",
            target,
            "pairs",
            workers=4,
            count=plan.commits // 3,
            seconds=plan.commit_s,
            stem=f"tx_{number}",
        )


def _storm(run: Run) -> None:
    plan = run.plan
    for number, target in run.in_turns():
        run.job(
            "retry storm, every 5th answer dropped, 4 writers",
            target,
            "storm",
            workers=4,
            count=plan.commits // 2,
            seconds=plan.commit_s,
            stem=f"st_{number}",
        )


def _namespaces(run: Run) -> None:
    plan = run.plan
    for number, target in run.in_turns():
        run.job(
            "create namespace, 8 conn",
            target,
            "namespaces",
            workers=8,
            count=plan.commits // 4,
            seconds=plan.commit_s,
            stem=f"{target.namespace}_{number}",
        )
    for _, target in run.in_turns():
        run.job("list namespaces, all", target, "walk", path="/namespaces", seconds=plan.read_s)


_WORKLOADS: Final[Mapping[str, Callable[[Run], None]]] = {
    "load": _load,
    "commit": _commit,
    "hot": _hot,
    "pairs": _pairs,
    "storm": _storm,
    "namespaces": _namespaces,
    "grow": grow,
}
