"""Running jobs: one, all of them, or all of them every now and then; never two at a time on one workspace."""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest, Conflict, SandurError, Unavailable
from sandur.pipeline.job import Job, JobContext, JobReport, Limits, Progress, job_context, no_progress
from sandur.pipeline.jobs import JOBS
from sandur.pipeline.session import pipeline_session
from sandur.pipeline.turns import Turn
from sandur.settings import Settings
from sandur.storage.layout import Layout

ALL: Final = "all"
NOT_IN_ALL: Final = ("import",)
"""Jobs that somebody has to tell what to do."""

CHECKS_PER_INTERVAL: Final = 12
PARTS_PER_CORE: Final = 2
REASON_CHARACTERS_MAX: Final = 500
_ERROR_LINE: Final = re.compile(r"^(?:: )?([\w.]+: .+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"

OnReport = Callable[[JobReport], None]
OpenSession = Callable[[str | None], AbstractContextManager[SparkSession]]
"""A session of Spark at a master, and its end."""


def jobs_named(name: str, jobs: Mapping[str, Job] = JOBS) -> Sequence[Job]:
    """The job of that name, or all jobs in their order; BadRequest for a name that nobody knows."""
    if name == ALL:
        return [job for job in jobs.values() if job.name not in NOT_IN_ALL]
    if name not in jobs:
        raise BadRequest(f"job {name}: no such job; there are {', '.join((*jobs, ALL))}")
    return [jobs[name]]


@contextmanager
def session(master: str | None, options: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on a cluster or on this machine, stopped at the end; a remote one (`sc://…`) is only left."""
    if master and master.startswith("sc://"):
        spark = SparkSession.builder.remote(master).getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")  # As every session of ours.
    else:
        named = master or "local[*]"
        spark = pipeline_session(
            named, options={**(_local_options() if named.startswith("local") else {}), **(options or {})}
        )
    try:
        yield spark
    finally:
        spark.stop()


def _local_options() -> Mapping[str, str]:
    """On one machine: no more parts than its cores can use, and nobody else is listened to."""
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    return {**loopback, "spark.sql.shuffle.partitions": str(PARTS_PER_CORE * (os.cpu_count() or 1))}


class Runs:
    """Runs of jobs in one session on one workspace.

    `dry_run` None lets every job that deletes only say what it would do, and every other one do its work.
    """

    def __init__(  # noqa: PLR0913 - one parameter per thing a run is told
        self,
        spark: SparkSession,
        settings: Settings,
        *,
        dry_run: bool | None = None,
        limits: Limits | None = None,
        arguments: Mapping[str, str] | None = None,
        progress: Progress = no_progress,
        clock: Clock | None = None,
        jobs: Mapping[str, Job] = JOBS,
    ) -> None:
        self._spark = spark
        self._jobs = jobs
        self._settings = settings
        self._dry_run = dry_run
        self._limits = limits or Limits()
        self._arguments = arguments
        self._progress = progress
        self._clock = clock or SystemClock()
        self._is_over = threading.Event()
        self._layout = Layout(settings.tenant or "default", settings.workspace or "default")

    def run(self, name: str, *, on_report: OnReport) -> bool:
        """One turn: the job, or all jobs one after the other. Whether all of them came to their end.

        Of all jobs, one that fails does not keep the others from running; Conflict ends the turn, for it is another's.
        """
        jobs = jobs_named(name, self._jobs)
        with self._turn() as turn:
            return self._run(jobs, turn, on_report, is_alone=name != ALL)

    def run_every(self, seconds: int, *, on_report: OnReport, turns_max: int | None = None) -> None:
        """All jobs every so many seconds, whoever of those that run on this store takes the turn.

        A turn begins as long after the one before began, or at most an eighth of that later; or right after its end.
        """
        turns = 0
        while turns_max is None or turns < turns_max:
            turns += 1
            try:
                with self._turn(if_due=True, pause_ms=seconds * 1_000) as turn:
                    self._run(jobs_named(ALL, self._jobs), turn, on_report, is_alone=False)
            except SandurError as error:
                self._progress(f"waiting: {error}")
            # Not the same for all: those that were started together do not meet every time.
            pause_seconds = seconds / CHECKS_PER_INTERVAL * (0.5 + self._clock.chance())
            if turns != turns_max and self._is_over.wait(pause_seconds):
                return

    def stop(self) -> None:
        """Let `run_every` end instead of waiting for its next turn."""
        self._is_over.set()

    def _run(self, jobs: Sequence[Job], turn: Turn, on_report: OnReport, *, is_alone: bool) -> bool:
        is_done = True
        for job in jobs:
            try:
                on_report(self._report(job, turn))
            except Conflict:
                raise
            except SandurError as error:
                if is_alone:
                    raise
                is_done = False
                on_report(JobReport(job=job.name, run_id="", warnings=(f"failed: {error}",)))
        return is_done

    def _report(self, job: Job, turn: Turn) -> JobReport:
        turn.check()
        began_ms = self._clock.now_ms()
        dry_run = job.deletes if self._dry_run is None else self._dry_run
        with job_context(
            self._spark,
            self._settings,
            run_id=f"{turn.fence:08d}-{self._clock.new_id()}",
            clock=self._clock,
            progress=self._progress,
            dry_run=dry_run,
            limits=self._limits,
            check_fence=turn.check,
            arguments=self._arguments,
        ) as context:
            report = _run_with_spark(job, context)
        return replace(report, took_ms=self._clock.now_ms() - began_ms)

    def _turn(self, *, if_due: bool = False, pause_ms: int = 0) -> Turn:
        return Turn(self._settings, self._layout, if_due=if_due, pause_ms=pause_ms, clock=self._clock)


def _run_with_spark(job: Job, context: JobContext) -> JobReport:
    """Run it. Unavailable when Spark failed: what a task raises reaches the driver only as an error of Spark's.

    What ends the session itself is not caught: without it no other job runs either.
    """
    try:
        return job.run(context)
    except (PySparkException, Py4JJavaError) as error:
        raise Unavailable(f"job {job.name}: Spark failed: {_reason(str(error))}") from error


def _reason(told: str) -> str:
    """The line that names the error: the last one of a traceback of Python, or the first one that Java tells."""
    lines: Sequence[str] = _ERROR_LINE.findall(told) or told.strip().splitlines() or ["it does not say why"]
    return lines[-1 if _TRACEBACK in told else 0][:REASON_CHARACTERS_MAX]
