"""Run jobs: one, all, or all at an interval; a lease keeps two runs from working on one lake at the same time."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest, Busy, Conflict, SandurError, Unavailable
from sandur.operations.janitors.lease import LEASE_MS, Lease
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import Job, JobContext, JobReport, Limits, Progress, job_context, no_progress
from sandur.pipeline.jobs import JOBS
from sandur.settings import Settings
from sandur.storage.layout import Layout

_OPTIONS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "sandur.pipeline.workers",
}


def create_session(
    master: str = "local[*]", *, name: str = "sandur", options: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for jobs, or the running one; no packages are needed, as objects are read through Sandur's own stores.

    Executors run the Python that runs this, unless the environment says otherwise.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_OPTIONS, **(options or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


LEASE_KIND: Final = "pipeline"
RENEWALS_PER_LEASE: Final = 5


class PipelineLease:
    """A turn, held for as long as the `with` lasts, and kept up beside the work that is done in it.

    Only the publishing swaps decide what counts; the turn keeps two runs from doing the same work twice, and makes one
    that was taken for dead stop before it publishes or deletes anything more. Busy when it is somebody else's turn, or
    when none is due and `if_due` asks for that: the next one is due `pause_ms` after this one began.
    """

    def __init__(
        self, settings: Settings, layout: Layout, *, if_due: bool = False, pause_ms: int = 0, clock: Clock | None = None
    ) -> None:
        self._open_store = BlockingLake(settings, layout, clock=clock)
        self._lease = Lease(self._open_store.lake, LEASE_KIND)
        self._if_due = if_due
        self._pause_ms = pause_ms
        self._began_ms = 0
        self._is_lost = False
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._keep_up, name="turn", daemon=True)

    @property
    def fence(self) -> int:
        return self._lease.fence

    def __enter__(self) -> Self:
        try:
            is_ours = self._open_store.wait(self._lease.take(if_due=self._if_due))
        except BaseException:
            self._open_store.close()
            raise
        if not is_ours:
            self._open_store.close()
            raise Busy("the pipeline: another run is at it, or none is due yet")
        self._began_ms = self._open_store.clock.now_ms()
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._keeper.join()
        try:
            if not self._is_lost:
                self._open_store.wait(self._lease.release({}, due_ms=self._began_ms + self._pause_ms))
        finally:
            self._open_store.close()

    def check(self) -> None:
        """Conflict when the turn was given to another: then whoever asks stops."""
        if not self._kept():
            raise Conflict("the pipeline: another run took over; this one stops")

    def _kept(self) -> bool:
        with self._lock:
            if not self._is_lost:
                self._is_lost = not self._open_store.wait(self._lease.keep({}))
            return not self._is_lost

    def _keep_up(self) -> None:
        while not self._is_over.wait(LEASE_MS / RENEWALS_PER_LEASE / 1_000):
            try:
                if not self._kept():
                    return
            except SandurError:
                continue  # The store does not answer; whoever checks before publishing finds out whether that matters.


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


def select_jobs(name: str, jobs: Mapping[str, Job] = JOBS) -> Sequence[Job]:
    """The job of that name, or all jobs in their order; BadRequest for a name that nobody knows."""
    if name == ALL:
        return [job for job in jobs.values() if job.name not in NOT_IN_ALL]
    if name not in jobs:
        raise BadRequest(f"job {name}: no such job; there are {', '.join((*jobs, ALL))}")
    return [jobs[name]]


@contextmanager
def open_session(master: str | None, options: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on a cluster or on this machine, stopped at the end; a remote one (`sc://…`) is only left."""
    if master and master.startswith("sc://"):
        spark = SparkSession.builder.remote(master).getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")  # As every session of ours.
    else:
        named = master or "local[*]"
        spark = create_session(
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
        jobs = select_jobs(name, self._jobs)
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
                    self._run(select_jobs(ALL, self._jobs), turn, on_report, is_alone=False)
            except SandurError as error:
                self._progress(f"waiting: {error}")
            # Not the same for all: those that were started together do not meet every time.
            pause_seconds = seconds / CHECKS_PER_INTERVAL * (0.5 + self._clock.chance())
            if turns != turns_max and self._is_over.wait(pause_seconds):
                return

    def stop(self) -> None:
        """Let `run_every` end instead of waiting for its next turn."""
        self._is_over.set()

    def _run(self, jobs: Sequence[Job], turn: PipelineLease, on_report: OnReport, *, is_alone: bool) -> bool:
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

    def _report(self, job: Job, turn: PipelineLease) -> JobReport:
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

    def _turn(self, *, if_due: bool = False, pause_ms: int = 0) -> PipelineLease:
        return PipelineLease(self._settings, self._layout, if_due=if_due, pause_ms=pause_ms, clock=self._clock)


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
