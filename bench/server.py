"""The server under load beside SeaweedFS's own Iceberg REST server: folder, synced folder and S3, in one run."""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.load.figures import Figure, Figures, cell, cpu_ratio, figures_of, findings, rate_ratio
from bench.load.goals import Goal, goals_of
from bench.load.loader import Loader, is_go_here
from bench.load.plan import GROUPS, Plan, planned
from bench.load.run import Run
from bench.load.starting import PEER, peer, sandur_on_folder, sandur_on_s3
from bench.load.target import Target
from bench.load.workloads import run_workloads
from bench.measuring import save, show

STARTS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Target]]]] = {
    "folder-1": lambda folder: sandur_on_folder("folder-1", folder, fsync="never", workers=1),
    "folder-2": lambda folder: sandur_on_folder("folder-2", folder, fsync="never", workers=2),
    "synced-2": lambda folder: sandur_on_folder("synced-2", folder, fsync="always", workers=2),
    "s3-2": lambda folder: sandur_on_s3("s3-2", folder, workers=2),
    PEER: peer,
}
"""The servers by name; the number is that of the workers."""

UNSYNCED: Final = ("folder-1", "folder-2")
"""Whose goals are looked at: the peer does not sync either."""


def main() -> None:
    asked = _arguments()
    if not is_go_here():
        print("bench server: skipped, for the load generator is compiled with go, which is not installed")
        return
    plan = planned(quick=asked.quick, huge=asked.huge, rounds=asked.rounds)
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder, contextlib.ExitStack() as running:
        targets = [_started(name, Path(folder), running) for name in STARTS if name in asked.servers]
        run_id = f"{int(time.time()) % 1_000_000:06d}"
        for target in targets:
            target.connect(run_id)
        run = Run(targets, plan, Loader(asked.threads))
        run_workloads(run, asked.only)
    figures = figures_of(run.rows)
    goals = [goal for name in UNSYNCED if name in asked.servers for goal in goals_of(figures, plan, name, PEER)]
    said = [*_notes(run, figures), *findings(figures)]
    _show(run, figures, goals, said)
    _save(asked.json, plan, run, figures, goals, said)
    if any(figure.broken for name, figure in _each(figures) if name != PEER):
        raise SystemExit(1)


def _arguments() -> argparse.Namespace:
    ask = argparse.ArgumentParser(prog="python -m bench server", description=__doc__)
    ask.add_argument("--quick", action="store_true", help="everything, but short")
    ask.add_argument("--huge", action="store_true", help="also with 100,000 tables, which takes half an hour more")
    ask.add_argument("--only", type=_chosen_from(GROUPS), default=set(GROUPS), help=f"some of {','.join(GROUPS)}")
    ask.add_argument("--servers", type=_chosen_from(STARTS), default=set(STARTS), help=f"some of {','.join(STARTS)}")
    ask.add_argument("--rounds", type=int, help="how often each figure is taken")
    ask.add_argument("--threads", type=int, default=1, help="CPU threads of the load generator")
    ask.add_argument("--json", type=Path, help="where the figures go; bench/results/server.json unless said")
    return ask.parse_args()


def _chosen_from(known: Iterable[str]) -> Callable[[str], set[str]]:
    """Parses names separated by commas, each of which must be known."""
    names = tuple(known)

    def chosen(text: str) -> set[str]:
        asked = {name.strip() for name in text.split(",")}
        if unknown := asked - set(names):
            raise argparse.ArgumentTypeError(f"no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        return asked

    return chosen


def _started(name: str, parent: Path, running: contextlib.ExitStack) -> Target:
    """A fresh server, until the stack is closed."""
    folder = parent / name
    folder.mkdir()
    return running.enter_context(STARTS[name](folder))


def _show(run: Run, figures: Figures, goals: Sequence[Goal], said: Sequence[str]) -> None:
    names = [target.name for target in run.targets]
    rows = [
        [row, *(cell(by_server.get(name), None if name == PEER else by_server.get(PEER)) for name in names)]
        for row, by_server in figures.items()
    ]
    show("Operations per second and server CPU per operation, × the peer's", ["workload", *names], rows)
    if goals:
        marks = {True: "met", False: "missed", None: "not looked at"}
        shown_goals = [(goal.name, goal.server, goal.found, goal.asked, marks[goal.is_met]) for goal in goals]
        show("Goals", ("", "server", "found", "asked", ""), shown_goals)
    console = Console(width=120, highlight=False)
    for line in said:
        console.print(f"- {line}", markup=False)


def _notes(run: Run, figures: Figures) -> list[str]:
    said = [f"{name}: {note}" for name, notes in run.notes.items() for note in notes]
    said += [f"left out for time: {what}" for what in run.skipped]
    most, row = max(
        ((figure.client_cpu, row) for row, by in figures.items() for figure in by.values()), default=(0, "")
    )
    machine = f"{run.spent():.0f} s on {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}"
    others = f"others used {_others_share(run):.0%} of the machine while everything under test rested"
    return [*said, machine, others, f"the load generator used at most {most:.0%} of one CPU ({row})"]


def _others_share(run: Run) -> float:
    return statistics.median(run.busy) if run.busy else 0.0


def _save(
    file: Path | None, plan: Plan, run: Run, figures: Figures, goals: Sequence[Goal], said: Sequence[str]
) -> None:
    result = {
        "cpus": os.cpu_count(),
        "seconds": round(run.spent()),
        "busy_with_others": round(_others_share(run), 2),
        "plan": plan,
        "figures": figures,
        "ratios": _ratios(figures),
        "goals": [goal._asdict() for goal in goals],
        "notes": said,
    }
    save("server", result, file=file)


def _ratios(figures: Figures) -> dict[str, dict[str, dict[str, float]]]:
    """How many times as fast as the peer, and how many times as cheap in CPU time, by workload and server."""
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for row, by_server in figures.items():
        other = by_server.get(PEER)
        for name, figure in by_server.items():
            found = {"rate": rate_ratio(figure, other), "cpu": cpu_ratio(figure, other)}
            known = {kind: round(ratio, 2) for kind, ratio in found.items() if ratio is not None}
            if name != PEER and known:
                ratios.setdefault(row, {})[name] = known
    return ratios


def _each(figures: Figures) -> Iterator[tuple[str, Figure]]:
    for by_server in figures.values():
        yield from by_server.items()


if __name__ == "__main__":
    main()
