"""Measure cold servers: time and CPU time from the start of the process to ready, and of its first requests.

A start is measured from outside, by `/readyz`. The first requests of each kind go to a new server with one worker, in
parts of a hundred. Then come a part with everything warm, commits that stand alone, with all that follows their answer,
a part on a busy machine, and commits with and without fsync. `--against TREE` runs the same with another checkout, in
turns, and adds the ratios.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx
import msgspec

from bench.load.loader import Loader, is_go_here
from bench.load.servers import SOURCE, running_sandur, sandur_on_folder
from bench.load.target import Target
from bench.measurement import save, show
from bench.meters import cpu_seconds

NOW: Final = "now"
BEFORE: Final = "before"
WORKERS: Final = (1, 2)
PART: Final = 100
"""Requests per part: five of them are the first 500 requests of a kind."""
PARTS: Final = 5
COMMITS: Final = frozenset({"append", "properties"})
_ALONE: Final = 12
_ALONE_SECONDS: Final = 0.3
_NAMESPACE: Final = "cold"
_SECONDS: Final = 60.0


class Start(msgspec.Struct, frozen=True):
    """One start: seconds until ready, and CPU seconds of all processes until then."""

    seconds: float
    cpu_seconds: float


class Plan(msgspec.Struct, frozen=True):
    starts: int
    servers: int
    warm: int


FULL: Final = Plan(starts=6, servers=2, warm=500)
QUICK: Final = Plan(starts=2, servers=1, warm=200)


def main() -> None:
    options = _options()
    if not is_go_here():
        print("bench cold: skipped; the load generator needs go, which is not installed")
        return
    plan, loader = QUICK if options.quick else FULL, Loader()
    trees = {NOW: SOURCE, **({BEFORE: options.against / "src"} if options.against else {})}
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        starts = _measure_starts(Path(folder), plan, trees)
        requests = _measure_requests(Path(folder), plan, trees, loader)
        syncs = _measure_syncs(Path(folder), plan, loader)
    _show(starts, requests, syncs)
    result = {
        "settings": "folder, fsync always (the default); the requests by one connection, with one worker",
        "plan": plan,
        "load_average": round(os.getloadavg()[0], 2),
        "start": starts,
        "CPU ms per request": requests,
        "commits by fsync": syncs,
    }
    save("cold", result, file=options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench cold", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer starts and servers")
    parser.add_argument("--against", type=Path, help="another checkout, measured in the same run")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/cold.json")
    return parser.parse_args()


@contextlib.contextmanager
def _server(parent: Path, source: Path, workers: int) -> Iterator[Target]:
    folder = Path(tempfile.mkdtemp(dir=parent))
    with running_sandur("cold", folder, f"{folder}/data", workers, {"PYTHONPATH": str(source)}) as target:
        yield target


def _measure_starts(parent: Path, plan: Plan, trees: Mapping[str, Path]) -> Mapping[str, object]:
    """The medians over starts, the trees in turns; of each pair of neighbours also the ratio."""
    found: dict[int, dict[str, list[Start]]] = {workers: {name: [] for name in trees} for workers in WORKERS}
    for number in range(plan.starts + 1):
        for workers in WORKERS:
            for name, source in sorted(trees.items(), reverse=number % 2 == 0):
                began = time.perf_counter()
                with _server(parent, source, workers) as target:
                    one = Start(time.perf_counter() - began, cpu_seconds(target.pids))
                if number:  # The first one may compile the modules.
                    found[workers][name].append(one)
    return {f"{workers} workers": _compared(by_tree) for workers, by_tree in found.items()}


def _compared(by_tree: Mapping[str, Sequence[Start]]) -> Mapping[str, object]:
    shown: dict[str, object] = {
        name: {
            "seconds": round(statistics.median(one.seconds for one in starts), 2),
            "cpu_seconds": round(statistics.median(one.cpu_seconds for one in starts), 2),
        }
        for name, starts in by_tree.items()
    }
    if BEFORE in by_tree:
        pairs = list(zip(by_tree[NOW], by_tree[BEFORE], strict=True))
        shown["of before"] = {
            "seconds": round(statistics.median(now.seconds / before.seconds for now, before in pairs), 3),
            "cpu_seconds": round(statistics.median(now.cpu_seconds / before.cpu_seconds for now, before in pairs), 3),
        }
    return shown


def _measure_requests(
    parent: Path, plan: Plan, trees: Mapping[str, Path], loader: Loader
) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """The CPU time per request by kind and part, the medians over new servers."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for _ in range(plan.servers):
        for kind in ("load", "append", "properties", "create"):
            with contextlib.ExitStack() as running:
                # Every part of one server is followed by the same part of the other.
                targets = [running.enter_context(_server(parent, source, workers=1)) for source in trees.values()]
                for parts in zip(*(_costs(loader, target, kind, plan.warm) for target in targets), strict=True):
                    for name, (part, cost_ms) in zip(trees, parts, strict=True):
                        found.setdefault(name, {}).setdefault(kind, {}).setdefault(part, []).append(cost_ms)
    return {
        name: {
            kind: {part: round(statistics.median(costs), 3) for part, costs in parts.items()}
            for kind, parts in by_kind.items()
        }
        for name, by_kind in found.items()
    }


def _costs(loader: Loader, target: Target, kind: str, warm: int) -> Iterator[tuple[str, float]]:
    target.connect(_NAMESPACE)
    target.namespace = _NAMESPACE
    target.make_namespace(_NAMESPACE)
    path = ""
    if kind == "load":
        path = loader.run(target, "history", stem="loaded", snapshots=1).extra.path
    for number in range(PARTS):
        part = f"{number * PART + 1}–{(number + 1) * PART}"
        yield part, _run(loader, target, kind, path, f"p{number}", PART)
    _run(loader, target, kind, path, "more", warm)
    yield "warm", _run(loader, target, kind, path, "warm", 2 * PART)
    if kind in COMMITS:
        yield "alone", _alone(target, kind)
        with _busy_machine():
            cost_ms = _run(loader, target, kind, path, "busy", 2 * PART)
        yield "busy machine", cost_ms


def _run(loader: Loader, target: Target, kind: str, path: str, stem: str, count: int) -> float:
    cpu = cpu_seconds(target.pids)
    same: dict[str, object] = {"workers": 1, "count": count, "seconds": _SECONDS, "stem": stem}
    match kind:
        case "load":
            result = loader.run(target, "get", path=path, **same)
        case "create":
            result = loader.run(target, "tables", **same)
        case _:
            result = loader.run(target, kind, tables=8, **same)
    if not result.is_good or result.failed or result.ok != count:
        raise RuntimeError(f"{kind}: {result.ok} of {count}: {result.error or result.example}")
    # The generator counts in hundredths of a second, and does not count the tables that it creates for commits.
    return result.server_cpu_ms if kind in COMMITS else (cpu_seconds(target.pids) - cpu) / count * 1e3


def _alone(target: Target, kind: str) -> float:
    """The CPU time of a commit with a pause after it, with everything that follows its answer."""
    pid, path = target.pids[0], f"http://{target.address}{target.root}/namespaces/{_NAMESPACE}/tables"
    with httpx.Client(timeout=_SECONDS) as client:
        columns = {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}],
        }
        made = client.post(path, json={"name": "alone", "schema": columns}).raise_for_status()
        location = made.json()["metadata"]["location"]
        time.sleep(2)
        idle = _idle_share(pid)
        began, cpu = time.perf_counter(), cpu_seconds([pid])
        for number in range(1, _ALONE + 1):
            client.post(f"{path}/alone", json=_change(kind, location, number)).raise_for_status()
            time.sleep(_ALONE_SECONDS)
        time.sleep(2)  # The index is updated within a second.
        spent = cpu_seconds([pid]) - cpu - idle * (time.perf_counter() - began)
    return spent / _ALONE * 1e3


@contextlib.contextmanager
def _busy_machine() -> Iterator[None]:
    """Two processes per CPU that copy memory, as other programs on the same machine do."""
    copy = "data = bytearray(1 << 24)\nwhile True: data = bytearray(data)"
    others = [subprocess.Popen([sys.executable, "-c", copy]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _measure_syncs(parent: Path, plan: Plan, loader: Loader) -> Mapping[str, Mapping[str, float]]:
    """Commits with and without fsync, in turns: their CPU time, and how often a thread of the server waits for each."""
    found: dict[str, dict[str, list[float]]] = {fsync: {"cpu_ms": [], "waits": []} for fsync in ("always", "never")}
    with contextlib.ExitStack() as running:
        targets: dict[str, Target] = {}
        for fsync in found:
            folder = Path(tempfile.mkdtemp(dir=parent))
            targets[fsync] = running.enter_context(sandur_on_folder(fsync, folder, fsync=fsync, workers=1))
            targets[fsync].connect(_NAMESPACE)
        for number in range(plan.starts):
            for fsync, target in targets.items():
                waits = _waits(target.pids[0])
                found[fsync]["cpu_ms"].append(_run(loader, target, "properties", "", f"p{number}", PART))
                found[fsync]["waits"].append((_waits(target.pids[0]) - waits) / PART)
    return {
        fsync: {what: round(statistics.median(values), 2) for what, values in by.items()} for fsync, by in found.items()
    }


def _waits(pid: int) -> int:
    """How often the threads of a process have waited: their voluntary context switches."""
    texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("voluntary"))


def _idle_share(pid: int) -> float:
    """The CPU time that the server uses per second without a request."""
    began, cpu = time.perf_counter(), cpu_seconds([pid])
    time.sleep(2)
    return (cpu_seconds([pid]) - cpu) / (time.perf_counter() - began)


def _change(kind: str, location: str, number: int) -> Mapping[str, object]:
    if kind == "properties":
        return {"requirements": [], "updates": [{"action": "set-properties", "updates": {"number": str(number)}}]}
    return {"requirements": [], "updates": append_updates(location, number)}


def append_updates(location: str, number: int) -> Sequence[Mapping[str, object]]:
    """The updates of an append that makes the snapshot of that number, from 1 on."""
    snapshot = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": int(time.time() * 1_000),
        "manifest-list": f"{location}/metadata/{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    if number > 1:
        snapshot["parent-snapshot-id"] = number - 1
    head = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
    return [{"action": "add-snapshot", "snapshot": snapshot}, head]


def _show(
    starts: Mapping[str, object],
    requests: Mapping[str, Mapping[str, Mapping[str, float]]],
    syncs: Mapping[str, Mapping[str, float]],
) -> None:
    show("Start", ("workers", "figures"), list(starts.items()))
    for name, by_kind in requests.items():
        parts = sorted({part for costs in by_kind.values() for part in costs}, key=list(by_kind["append"]).index)
        rows = [(kind, *(costs.get(part, "") for part in parts)) for kind, costs in by_kind.items()]
        show(f"CPU ms per request, {name}", ("request", *parts), rows)
    rows_by_fsync = [(fsync, by["cpu_ms"], by["waits"]) for fsync, by in syncs.items()]
    show("Commits by fsync", ("fsync", "CPU ms", "waits of threads"), rows_by_fsync)


if __name__ == "__main__":
    main()
