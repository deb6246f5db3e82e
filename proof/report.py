"""Run cases with progress on the terminal, and report the outcomes as a table or as JSON."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from proof.cases.case import Case


@dataclass(frozen=True)
class Outcome:
    """`expected` and `violation` are None if the properties hold."""

    title: str
    expected: str | None
    violation: str | None
    is_expected: bool
    is_complete: bool
    states: int
    cpu_seconds: float
    trace: tuple[str, ...]


def check(cases: Sequence[Case], console: Console) -> list[Outcome]:
    """Run the cases one after the other. The console shows a bar, or without a terminal a line per case."""
    return check_with_bar(cases, console) if console.is_interactive else check_with_lines(cases, console)


def check_with_bar(cases: Sequence[Case], console: Console) -> list[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(cases))

        def show_states(title: str, states: int) -> None:
            progress.update(task, description=f"{escape(title)}: {states:,} states")

        outcomes = []
        for case in cases:
            outcomes.append(check_one(case, partial(show_states, case.title)))
            progress.advance(task)
    return outcomes


def check_with_lines(cases: Sequence[Case], console: Console) -> list[Outcome]:
    outcomes = []
    for number, case in enumerate(cases, start=1):
        outcome = check_one(case, lambda _states: None)
        console.out(f"{number}/{len(cases)} {line_of(outcome)}", highlight=False)
        outcomes.append(outcome)
    return outcomes


def line_of(outcome: Outcome) -> str:
    wrong = "" if outcome.is_expected else ", not as expected"
    return f"{outcome.title}: {counted_states(outcome)} states, {outcome.cpu_seconds:.1f} s{wrong}"


def counted_states(outcome: Outcome) -> str:
    """A "+" after the number means that the limit was reached."""
    return f"{outcome.states:,}{'' if outcome.is_complete else '+'}"


def check_one(case: Case, show_progress: Callable[[int], None]) -> Outcome:
    show_progress(0)
    began = time.process_time()
    verdict = case.build().check(case.limit_states, show_progress)
    return Outcome(
        title=case.title,
        expected=case.breaks,
        violation=verdict.violation,
        is_expected=case.is_as_expected(verdict),
        is_complete=verdict.is_complete,
        states=verdict.states,
        cpu_seconds=round(time.process_time() - began, 2),
        trace=verdict.trace,
    )


def print_json(outcomes: Sequence[Outcome]) -> None:
    Console(soft_wrap=True).print_json(json.dumps([asdict(outcome) for outcome in outcomes]))


def print_table(outcomes: Sequence[Outcome], *, has_traces: bool) -> None:
    """One line per case, then the traces."""
    console = Console()
    table = Table("", "case", "outcome", "states", "CPU s", box=None, pad_edge=False)
    table.columns[3].justify = table.columns[4].justify = "right"
    for outcome in outcomes:
        mark = "[green]ok[/]" if outcome.is_expected else "[bold red]wrong[/]"
        result = f"breaks: {outcome.violation}" if outcome.violation else "holds"
        seconds = f"{outcome.cpu_seconds:.1f}"
        table.add_row(mark, escape(outcome.title), escape(result), counted_states(outcome), seconds)
    console.print(table)
    for outcome in outcomes:
        if outcome.trace and (has_traces or not outcome.is_expected):
            console.print(f"\n[bold]{escape(outcome.title)}[/]")
            for line in outcome.trace:
                console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    console.print(summary(outcomes))


def summary(outcomes: Sequence[Outcome]) -> str:
    wrong = sum(not outcome.is_expected for outcome in outcomes)
    holding = sum(outcome.violation is None for outcome in outcomes)
    states = sum(outcome.states for outcome in outcomes)
    cpu_seconds = sum(outcome.cpu_seconds for outcome in outcomes)
    verdict = f"[bold red]{wrong} not as expected[/]" if wrong else "[green]all as expected[/]"
    return (
        f"\n{len(outcomes)} cases, {holding} hold, {len(outcomes) - holding} break, "
        f"{states:,} states, {cpu_seconds:.0f} s: {verdict}"
    )
