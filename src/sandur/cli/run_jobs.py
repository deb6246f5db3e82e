"""`sandur run` and `sandur pipeline`: run jobs, show their progress and print their reports."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rich.console import Console, RenderableType
from rich.progress import Progress as Bars
from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from sandur.cli.catalog_server import open_catalog
from sandur.cli.output import escaped
from sandur.errors import BadRequest, Unfit
from sandur.setting_sources import load_settings
from sandur.settings import Settings, seconds_of
from sandur.storage.probe import check_store

if find_spec("pyspark") is None:
    raise Unfit("the pipeline needs PySpark: pip install 'sandur[spark]'")

from sandur.pipeline.blocking_lake import check_shared_store
from sandur.pipeline.job import JobReport, Limits, Progress, no_progress
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.maintenance.engine import engine_needs, session_options
from sandur.pipeline.runs import ALL, OnReport, OpenSession, Runs, open_session, select_jobs

_EVERY: Final = re.compile(r"([0-9]{1,6})([smhd])\Z")
_BAR_WIDTH: Final = 30
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class RunOptions(NamedTuple):
    """The flags of a run; `dry_run` None is the default of each job."""

    store: str | None = None
    config: Path | None = None
    master: str | None = None
    dry_run: bool | None = None
    objects_max: int | None = None
    arguments: Mapping[str, str] = {}
    as_json: bool = False


def run_jobs(name: str, options: RunOptions, *, opened: OpenSession = open_session) -> int:
    """Run a job, several of them separated by commas, or all; returns the exit code, 1 if a job failed.

    `opened` opens the session of `--master`.
    """
    settings = _settings(options)
    # Fail before Spark starts, which takes seconds.
    for one in name.split(","):
        select_jobs(one)
    check_store(settings, creates=False)
    with (
        _output(options) as (progress, print_report),
        opened(options.master, spark_options(name, settings, options)) as spark,
    ):
        runs = Runs(
            spark,
            settings,
            dry_run=options.dry_run,
            limits=Limits(objects_deleted_max=options.objects_max) if options.objects_max else Limits(),
            arguments=options.arguments,
            progress=progress,
            open_catalog=partial(open_catalog, settings),
        )
        codes = [0]

        def on_report(report: JobReport) -> None:
            print_report(report)
            codes.append(report.exit_code)

        done = [runs.run(one, on_report=on_report) for one in name.split(",")]
        return max(codes) if all(done) else 1


def spark_options(name: str, settings: Settings, options: RunOptions) -> Mapping[str, str]:
    """The options that the session needs from its start; only maintenance that changes tables needs packages.

    The pipeline does not load them for system tables alone: it must start where packages cannot be loaded.
    """
    names = name.split(",")
    if not {ALL, MAINTAIN.name}.intersection(names) or options.dry_run:
        return {}
    needs = engine_needs(settings)
    is_needed = needs.is_needed or (needs.has_own and ALL not in names)
    return session_options(settings, with_delta=needs.has_delta) if is_needed else {}


def run_pipeline(every: str, options: RunOptions) -> None:
    """Run all jobs at an interval until a signal ends the process."""
    seconds = interval_seconds(every)
    settings = _settings(options)
    check_store(settings, creates=False)
    with (
        _output(options) as (progress, print_report),
        open_session(options.master, spark_options(ALL, settings, options)) as spark,
    ):
        runs = Runs(
            spark,
            settings,
            dry_run=options.dry_run,
            progress=progress,
            open_catalog=partial(open_catalog, settings),
        )
        runs.run_every(seconds, on_report=print_report)


def interval_seconds(every: str) -> int:
    """The seconds of `15m`, `2h`, `30s`, `1d` or an ISO-8601 duration; raises BadRequest for other texts and for 0."""
    match = _EVERY.match(every)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else seconds_of(every)
    if not seconds:
        raise BadRequest(f"interval {every}: expected at least one second")
    return seconds


def _settings(options: RunOptions) -> Settings:
    settings = load_settings(file=options.config, environment=os.environ, flags={"store": options.store})
    check_shared_store(settings)
    return settings


class _PartsColumn(ProgressColumn):
    """A bar of the parts of a step that are done; nothing for a step without parts."""

    def render(self, task: Task) -> RenderableType:
        return "" if task.total == inf else ProgressBar(total=task.total, completed=task.completed, width=_BAR_WIDTH)


@contextmanager
def _output(options: RunOptions) -> Iterator[tuple[Progress, OnReport]]:
    """The receivers of progress and reports: a terminal, or with `--json` one line per report."""
    if options.as_json:
        yield no_progress, _print_json
        return
    columns = (SpinnerColumn(), _PartsColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # Progress goes to stderr: stdout has only the reports.
    console = Console(file=sys.stderr)
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("start Spark", total=inf)

        def progress(step: str, *, done: int = 0, total: int | None = None) -> None:
            bars.update(task, description=escaped(step), completed=done, total=total or inf)

        yield progress, _print_report


def _print_json(report: JobReport) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)  # noqa: T201 - output for machines


def _print_report(report: JobReport) -> None:
    console = Console()
    suffix = " (dry run: nothing changed)" if report.dry_run else ""
    table = Table(
        "result", "count", title=f"{report.job}{suffix}, {report.took_ms / 1_000:.1f} s", title_justify="left"
    )
    for name, times in report.counts.items():
        table.add_row(name.replace("_", " "), f"{times:,}")
    console.print(table if report.counts else f"[bold]{report.job}[/]{suffix}: nothing to do")
    for warning in report.warnings:
        console.print(f"[yellow]![/] {escaped(warning)}")
    if report.dry_run:
        console.print("Add [bold]--no-dry-run[/] to apply these changes.")
