"""Measure the server under load: default (folder with fsync), S3 and unsynced folder, beside SeaweedFS's own server.

All servers run at the same time on this machine and take turns, so that a disturbance affects all alike.
`--against TREE` adds the servers of another checkout to the same run and compares before with after. The result file
holds everything; `python -m bench.report` renders README's table from it.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from bench.load.figures import Figure, Figures, cell, cpu_ratio, figures_of, findings, rate_ratio, render_number
from bench.load.goals import Goal, goals_of
from bench.load.loader import Loader, is_go_here
from bench.load.plan import GROUPS, Plan, planned
from bench.load.run import Run
from bench.load.servers import PEER, peer, sandur_on_folder, sandur_on_s3
from bench.load.target import Target
from bench.load.workloads import run_workloads
from bench.measurement import save, show
from bench.provenance import REPOSITORY

DEFAULT: Final = "default"
S3: Final = "s3"
UNSYNCED: Final = "unsynced"
SANDUR: Final = (DEFAULT, S3, UNSYNCED)
BEFORE: Final = " before"
"""Ends the name of a server of the other checkout."""

WORKERS: Final = 2
SETTINGS: Final[Mapping[str, str]] = {
    DEFAULT: f"folder, fsync always (the default), {WORKERS} workers",
    S3: f"bucket of a SeaweedFS on the same machine, {WORKERS} workers",
    UNSYNCED: f"folder, fsync never, {WORKERS} workers",
    PEER: "SeaweedFS's own Iceberg REST server, in Go; does not sync",
}
SLOWER_MAX: Final = 0.05
"""The issue's limit: a refactored server is at most this much slower than before."""


class Comparison(NamedTuple):
    """One workload of one server, after compared with before: the ratios of the rate and of the CPU time."""

    workload: str
    server: str
    rate: float
    cpu: float

    @property
    def is_slower(self) -> bool:
        return self.rate < 1 - SLOWER_MAX and self.cpu > 1 + SLOWER_MAX


def main() -> None:
    options = _options()
    if not is_go_here():
        print("bench server: skipped; the load generator needs go, which is not installed")
        return
    plan = planned(quick=options.quick, huge=options.huge, rounds=options.rounds)
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder, contextlib.ExitStack() as running:
        targets = list(_start(options, Path(folder), running))
        run_id = f"{int(time.time()) % 1_000_000:06d}"
        for target in targets:
            target.connect(run_id)
        run = Run(targets, plan, Loader(options.threads))
        run_workloads(run, options.only)
    figures = figures_of(run.rows)
    goals = goals_of(figures, plan, UNSYNCED, PEER) if UNSYNCED in options.servers else []
    compared = list(_compare(figures))
    notes = [*_notes(run, figures), *findings(figures)]
    _show(run, figures, goals, compared, notes)
    _save(options, plan, run, figures, goals, compared, notes)
    if any(figure.broken for by_server in figures.values() for name, figure in by_server.items() if name != PEER):
        raise SystemExit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same workloads, shorter: about four minutes")
    parser.add_argument("--huge", action="store_true", help="also 100,000 tables, which takes half an hour more")
    parser.add_argument("--only", type=_names(GROUPS), default=set(GROUPS), help=f"some of {','.join(GROUPS)}")
    parser.add_argument("--servers", type=_names(SETTINGS), default=set(SETTINGS), help=f"some of {','.join(SETTINGS)}")
    parser.add_argument("--against", type=Path, help="another checkout, whose servers run in turns with these")
    parser.add_argument("--rounds", type=int, help="how often each figure is measured")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the load generator")
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/server.json")
    return parser.parse_args()


def _names(known: Iterable[str]) -> Callable[[str], set[str]]:
    """A parser of names separated by commas, all of which must be known."""
    choices = tuple(known)

    def parse(text: str) -> set[str]:
        names = {name.strip() for name in text.split(",")}
        if unknown := names - set(choices):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(choices)}")
        return names

    return parse


def _start(options: argparse.Namespace, parent: Path, running: contextlib.ExitStack) -> Iterator[Target]:
    """Start every server in a folder of its own; they run until the stack is closed."""
    trees = {"": REPOSITORY, **({BEFORE: options.against} if options.against else {})}
    for kind in (name for name in SANDUR if name in options.servers):
        for suffix, tree in trees.items():
            name = f"{kind}{suffix}"
            folder = parent / name.replace(" ", "-")
            folder.mkdir()
            source = (tree / "src" if (tree / "src").is_dir() else tree).resolve()
            if kind == S3:
                starting = sandur_on_s3(name, folder, workers=WORKERS, source=source)
            else:
                fsync = "always" if kind == DEFAULT else "never"
                starting = sandur_on_folder(name, folder, fsync=fsync, workers=WORKERS, source=source)
            yield running.enter_context(starting)
    if PEER in options.servers:
        folder = parent / PEER
        folder.mkdir()
        yield running.enter_context(peer(folder))


def _compare(figures: Figures) -> Iterator[Comparison]:
    for workload, by_server in figures.items():
        for name in SANDUR:
            after, before = by_server.get(name), by_server.get(name + BEFORE)
            rate, cpu = rate_ratio(after, before), cpu_ratio(before, after)
            if rate is not None and cpu is not None:
                yield Comparison(workload, name, round(rate, 3), round(cpu, 3))


def _show(
    run: Run, figures: Figures, goals: Sequence[Goal], compared: Sequence[Comparison], notes: Sequence[str]
) -> None:
    names = [target.name for target in run.targets]
    rows = [
        [row, *(cell(by_server.get(name), None if name == PEER else by_server.get(PEER)) for name in names)]
        for row, by_server in figures.items()
    ]
    show("Operations per second and server CPU per operation, × the peer's", ["workload", *names], rows)
    if compared:
        marks = [
            (*one[:2], f"{one.rate:.2f}×", f"{one.cpu:.2f}×", "slower" if one.is_slower else "") for one in compared
        ]
        show("After, of before", ("workload", "server", "rate", "CPU time", ""), marks)
        for name, rate, cpu in _medians(compared):
            print(
                f"{name}: median of all workloads: {render_number(rate)}× the rate, {render_number(cpu)}× the CPU time"
            )
    if goals:
        results = {True: "met", False: "missed", None: "not measured"}
        lines = [(goal.name, goal.server, goal.found, goal.goal, results[goal.is_met]) for goal in goals]
        show("Goals", ("", "server", "found", "goal", ""), lines)
    console = Console(width=120, highlight=False)
    for line in notes:
        console.print(f"- {line}", markup=False)


def _medians(compared: Sequence[Comparison]) -> Iterator[tuple[str, float, float]]:
    for name in SANDUR:
        mine = [one for one in compared if one.server == name]
        if mine:
            rate, cpu = statistics.median(one.rate for one in mine), statistics.median(one.cpu for one in mine)
            yield name, round(rate, 3), round(cpu, 3)


def _notes(run: Run, figures: Figures) -> list[str]:
    notes = [f"{name}: {note}" for name, found in run.notes.items() for note in found]
    notes += [f"left out for lack of time: {what}" for what in run.skipped]
    most, row = max(
        ((figure.client_cpu, row) for row, by in figures.items() for figure in by.values()), default=(0, "")
    )
    machine = f"{run.spent():.0f} s on {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}"
    others = f"other processes used {_others_share(run):.0%} of the machine while the servers were idle"
    return [*notes, machine, others, f"the load generator used at most {most:.0%} of one CPU ({row})"]


def _others_share(run: Run) -> float:
    return statistics.median(run.busy) if run.busy else 0.0


def _save(
    options: argparse.Namespace,
    plan: Plan,
    run: Run,
    figures: Figures,
    goals: Sequence[Goal],
    compared: Sequence[Comparison],
    notes: Sequence[str],
) -> None:
    medians = {name: {"rate": rate, "cpu": cpu} for name, rate, cpu in _medians(compared)}
    result = {
        "settings": {name: text for name, text in SETTINGS.items() if name in options.servers},
        "plan": plan,
        "seconds": round(run.spent()),
        "busy_with_others": round(_others_share(run), 2),
        "figures": figures,
        "ratios": _ratios(figures),
        "goals": [goal._asdict() for goal in goals],
        "after_of_before": {"medians": medians, "workloads": [one._asdict() for one in compared]} if compared else None,
        "notes": notes,
    }
    save("server", {key: value for key, value in result.items() if value is not None}, file=options.json)


def _ratios(figures: Figures) -> dict[str, dict[str, dict[str, float]]]:
    """By workload and server: the ratio to the peer's rate, and the factor of saved CPU time."""
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for row, by_server in figures.items():
        for name in SANDUR:
            mine: Figure | None = by_server.get(name)
            found = {"rate": rate_ratio(mine, by_server.get(PEER)), "cpu": cpu_ratio(mine, by_server.get(PEER))}
            known = {kind: round(ratio, 2) for kind, ratio in found.items() if ratio is not None}
            if known:
                ratios.setdefault(row, {})[name] = known
    return ratios


if __name__ == "__main__":
    main()
