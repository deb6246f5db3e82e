"""`sandur run` and `sandur pipeline`: the jobs of the pipeline, with their progress and what they did."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sandur.errors import BadRequest, Unfit
from sandur.settings import Settings, load_settings, seconds_of

if find_spec("pyspark") is None:
    raise Unfit("the pipeline needs PySpark: pip install 'sandur[spark]'")

from sandur.pipeline.job import JobReport, Limits, Progress
from sandur.pipeline.runs import OnReport, OpenSession, Runs, open_session, select_jobs

_EVERY: Final = re.compile(r"([0-9]{1,6})([smhd])\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class RunOptions(NamedTuple):
    """What the command line asks for; `dry_run` None means: as each job does by itself."""

    store: str | None = None
    config: Path | None = None
    master: str | None = None
    dry_run: bool | None = None
    objects_max: int | None = None
    arguments: Mapping[str, str] = {}
    as_json: bool = False


def run_jobs(name: str, asked: RunOptions, *, opened: OpenSession = open_session) -> bool:
    """Run a job, or all; whether every one came to its end. `opened` gives the session for what `--master` says."""
    settings = _settings(asked)
    select_jobs(name)  # Before Spark starts, which takes a while.
    with _telling(asked) as (progress, tell), opened(asked.master) as spark:
        runs = Runs(
            spark,
            settings,
            dry_run=asked.dry_run,
            limits=Limits(objects_deleted_max=asked.objects_max) if asked.objects_max else None,
            arguments=asked.arguments,
            progress=progress,
        )
        return runs.run(name, on_report=tell)


def run_pipeline(every: str, asked: RunOptions) -> None:
    """Run all jobs again and again, until somebody ends it."""
    seconds = interval_seconds(every)
    settings = _settings(asked)
    with _telling(asked) as (progress, tell), open_session(asked.master) as spark:
        Runs(spark, settings, dry_run=asked.dry_run, progress=progress).run_every(seconds, on_report=tell)


def interval_seconds(every: str) -> int:
    """How long `15m`, `2h`, `30s`, `1d` or an ISO-8601 duration is; BadRequest for anything else, and for nothing."""
    match = _EVERY.match(every)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else seconds_of(every)
    if not seconds:
        raise BadRequest(f"interval {every}: at least a second is expected")
    return seconds


def _settings(asked: RunOptions) -> Settings:
    settings = load_settings(file=asked.config, environment=os.environ, flags={"store": asked.store})
    if settings.store == "memory:":
        raise BadRequest("store memory:: the pipeline works in several processes and needs a folder or a bucket")
    return settings


@contextmanager
def _telling(asked: RunOptions) -> Iterator[tuple[Progress, OnReport]]:
    """Who hears of progress and of reports: people on the terminal, or a machine, a line of JSON for each report."""
    if asked.as_json:
        yield _nothing, _print_json
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # Progress goes to the side: what a job did is what the command prints.
    with Bars(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task("start Spark", total=None)

        def progress(step: str, done: int = 0, total: int | None = None) -> None:
            bars.update(task, description=escape(step), completed=done, total=total)

        yield progress, _print_report


def _nothing(step: str, done: int = 0, total: int | None = None) -> None:
    """A machine waits for the report."""


def _print_json(report: JobReport) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)  # noqa: T201 - output for machines


def _print_report(report: JobReport) -> None:
    console = Console()
    said = " (dry run: nothing was changed)" if report.dry_run else ""
    table = Table("what", "how many", title=f"{report.job}{said}, {report.took_ms / 1_000:.1f} s", title_justify="left")
    for name, times in report.counts.items():
        table.add_row(name.replace("_", " "), f"{times:,}")
    console.print(table if report.counts else f"[bold]{report.job}[/]{said}: nothing to do")
    for warning in report.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    if report.dry_run:
        console.print("Run it with [bold]--no-dry-run[/] to do it.")
