"""Measure cold servers: time and CPU time from the start of the process to ready, and of its first requests.

`sandur --help` and starts are measured from outside; a start ends with `/readyz`. The first requests of each kind go
to a new server with one worker, in parts of a hundred. Then come a part with everything warm, commits that stand
alone, with all that follows their answer, a part on a busy machine, and commits with and without fsync. `--against
TREE` runs the same with another checkout, in turns, and adds the ratios.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.first_requests import KINDS, PART, FirstRequests
from bench.load.loader import Loader, is_go_here
from bench.load.servers import SOURCE, running_sandur, sandur_on_folder
from bench.load.target import Target
from bench.measurement import save, show
from bench.meters import cpu_seconds

NOW: Final = "now"
BEFORE: Final = "before"
WORKERS: Final = (1, 2)


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
        helps = _measure_help(plan, trees)
        starts = _measure_starts(Path(folder), plan, trees)
        requests = _measure_requests(Path(folder), plan, trees, loader)
        syncs = _measure_syncs(Path(folder), plan, loader)
    _show(helps, starts, requests, syncs)
    result = {
        "settings": "folder, fsync always (the default); the requests by one connection, with one worker",
        "plan": plan,
        "load_average": round(os.getloadavg()[0], 2),
        "--help": helps,
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


def _measure_help(plan: Plan, trees: Mapping[str, Path]) -> Mapping[str, object]:
    """The medians of `sandur --help`, from the start of its process to its end."""
    found: dict[str, list[Start]] = {name: [] for name in trees}
    for number in range(2 * plan.starts + 1):
        for name, source in sorted(trees.items(), reverse=number % 2 == 0):
            cpu, began = _cpu_of_children(), time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", "from sandur.cli.main import run; run()", "--help"],
                env={**os.environ, "PYTHONPATH": str(source)},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            one = Start(time.perf_counter() - began, _cpu_of_children() - cpu)
            if number:  # The first one may compile the modules.
                found[name].append(one)
    return _compared(found)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
        for kind in KINDS:
            with contextlib.ExitStack() as running:
                # Every part of one server is followed by the same part of the other.
                targets = [running.enter_context(_server(parent, source, workers=1)) for source in trees.values()]
                requests = [FirstRequests(kind, target, loader) for target in targets]
                for parts in zip(*(one.costs(plan.warm) for one in requests), strict=True):
                    for name, (part, cost_ms) in zip(trees, parts, strict=True):
                        found.setdefault(name, {}).setdefault(kind, {}).setdefault(part, []).append(cost_ms)
    return {
        name: {
            kind: {part: round(statistics.median(costs), 3) for part, costs in parts.items()}
            for kind, parts in by_kind.items()
        }
        for name, by_kind in found.items()
    }


def _measure_syncs(parent: Path, plan: Plan, loader: Loader) -> Mapping[str, Mapping[str, float]]:
    """Commits with and without fsync, in turns: their CPU time, and how often a thread of the server waits for each."""
    found: dict[str, dict[str, list[float]]] = {fsync: {"cpu_ms": [], "waits": []} for fsync in ("always", "never")}
    with contextlib.ExitStack() as running:
        requests: dict[str, FirstRequests] = {}
        for fsync in found:
            folder = Path(tempfile.mkdtemp(dir=parent))
            target = running.enter_context(sandur_on_folder(fsync, folder, fsync=fsync, workers=1))
            requests[fsync] = FirstRequests("properties", target, loader)
        for number in range(plan.starts):
            for fsync, one in requests.items():
                waits = _waits(one.pid)
                found[fsync]["cpu_ms"].append(one.part(f"p{number}", PART))
                found[fsync]["waits"].append((_waits(one.pid) - waits) / PART)
    return {
        fsync: {what: round(statistics.median(values), 2) for what, values in by.items()} for fsync, by in found.items()
    }


def _waits(pid: int) -> int:
    """How often the threads of a process have waited: their voluntary context switches."""
    texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("voluntary"))


def _show(
    helps: Mapping[str, object],
    starts: Mapping[str, object],
    requests: Mapping[str, Mapping[str, Mapping[str, float]]],
    syncs: Mapping[str, Mapping[str, float]],
) -> None:
    show("sandur --help", ("tree", "figures"), list(helps.items()))
    show("Start", ("workers", "figures"), list(starts.items()))
    for name, by_kind in requests.items():
        parts = sorted({part for costs in by_kind.values() for part in costs}, key=list(by_kind["append"]).index)
        rows = [(kind, *(costs.get(part, "") for part in parts)) for kind, costs in by_kind.items()]
        show(f"CPU ms per request, {name}", ("request", *parts), rows)
    rows_by_fsync = [(fsync, by["cpu_ms"], by["waits"]) for fsync, by in syncs.items()]
    show("Commits by fsync", ("fsync", "CPU ms", "waits of threads"), rows_by_fsync)


if __name__ == "__main__":
    main()
