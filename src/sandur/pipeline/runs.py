"""Run jobs: one, all, or all at an interval; a lease keeps two runs from working on one lake at the same time."""

import datetime as dt
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Self

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sandur.catalog.lineage.events import LineageRecord, record_id
from sandur.catalog.lineage.runs import OWN_NAMESPACE
from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest, Busy, Conflict, SandurError, Unavailable
from sandur.operations.backlog import note_success
from sandur.operations.janitors.lease import LEASE_MS, Lease
from sandur.operations.lineage.ingest import write_batch
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import Job, JobContext, JobReport, Limits, Progress, no_progress
from sandur.pipeline.jobs import JOBS
from sandur.pipeline.system_tables import NAMESPACE
from sandur.pipeline.tables import WITHOUT_TABLE
from sandur.settings import Settings
from sandur.spark.sessions import Connection

ALL: Final = "all"
NOT_IN_ALL: Final = ("import", "verify")
"""Jobs that need arguments, or that read every object."""

LEASE_KIND: Final = "pipeline"
RENEWALS_PER_LEASE: Final = 5
CHECKS_PER_INTERVAL: Final = 12
PARTITIONS_PER_CORE: Final = 2
REASON_CHARACTERS_MAX: Final = 500
_ERROR_LINE: Final = re.compile(r"^(?:: )?([\w.]+: .+)$", re.MULTILINE)
_UUID_CHARS: Final = 36
_OWN: Final = "own"
"""Stands for the principal in the ids of the pipeline's own events; no principal has such an id."""
_TRACEBACK: Final = "Traceback (most recent call last)"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_OPTIONS: Final = {
    _TIME_ZONE: "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",  # Maintenance works on many tables at once, each in a pool of its own.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "sandur.pipeline.workers",
}
# One machine: few partitions, and no port that other machines can reach.
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (os.cpu_count() or 1)),
}

OnReport = Callable[[JobReport], None]
OpenSession = Callable[[str | None, Mapping[str, str]], AbstractContextManager[SparkSession]]
"""Opens a Spark session at a master with further options, and stops it at the end."""


def create_session(
    master: str | None = "local[*]", *, name: str = "sandur", options: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for jobs, or the running one. It needs no packages: Sandur's own stores read and write objects.

    `master` None is the master of `spark-submit`, which started this process. Executors run the same Python as this
    process unless PYSPARK_PYTHON names another.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    given = {"spark.master": master} if master else {}
    for key, value in {**given, **_OPTIONS, **(options or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def open_session(master: str | None, options: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on this machine or on a cluster, stopped at the end; `sc://…` is a Spark Connect server.

    Without a master, `spark-submit` decides if it started this process, such as for a Spark operator.
    """
    if master and master.startswith("sc://"):
        spark = SparkSession.builder.remote(master).getOrCreate()
        spark.conf.set(_TIME_ZONE, "UTC")
    else:
        chosen = master or (None if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")
        local = _LOCAL if chosen and chosen.startswith("local") else {}
        spark = create_session(chosen, options={**local, **(options or {})})
    try:
        yield spark
    finally:
        spark.stop()


class PipelineLease:
    """The lease of a run, held and renewed in a thread until the `with` block ends.

    Only the publishing swaps decide what counts. The lease keeps two runs from doing the same work, and stops a run
    that stalled before it publishes or deletes more. Raises Busy if another run holds it, or if `if_due` is set and
    the next run is not due yet. The next run is due `pause_ms` after this one began.
    """

    def __init__(
        self, settings: Settings, *, if_due: bool = False, pause_ms: int = 0, clock: Clock | None = None
    ) -> None:
        self._blocking = BlockingLake(settings, clock=clock)
        self._clock = self._blocking.lake.clock
        self._lease = Lease(self._blocking.lake, LEASE_KIND)
        self._if_due = if_due
        self._pause_ms = pause_ms
        self._began_ms = 0
        self._is_lost = False
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._renewal = threading.Thread(target=self._renew_until_over, name="pipeline-lease", daemon=True)

    @property
    def fence(self) -> int:
        return self._lease.fence

    def __enter__(self) -> Self:
        try:
            self._blocking.wait(self._take())
        except BaseException:
            self._blocking.close()
            raise
        self._began_ms = self._clock.now_ms()
        self._renewal.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._renewal.join()
        try:
            if not self._is_lost:
                self._blocking.wait(self._lease.release({}, due_ms=self._began_ms + self._pause_ms))
        finally:
            self._blocking.close()

    def check(self) -> None:
        """Raise Conflict if another run took over the lease; the caller must stop then."""
        if not self._renew():
            raise Conflict("pipeline: another run took over the lease; this run stops")

    async def _take(self) -> None:
        """Take the lease; raises Busy with the reason if it is not ours to take."""
        if await self._lease.take(if_due=self._if_due):
            return
        held = await self._lease.current()
        now_ms = self._clock.now_ms()
        if held and held.expires_ms > now_ms:
            raise Busy(f"skipped: another run holds the lease (expires in {_seconds(held.expires_ms - now_ms)} s)")
        if held and held.due_ms > now_ms:
            raise Busy(f"skipped: the next run is due in {_seconds(held.due_ms - now_ms)} s")
        raise Busy("skipped: another run took the lease")

    def _renew(self) -> bool:
        with self._lock:
            if not self._is_lost:
                self._is_lost = not self._blocking.wait(self._lease.keep({}))
            return not self._is_lost

    def _renew_until_over(self) -> None:
        while not self._is_over.wait(LEASE_MS / RENEWALS_PER_LEASE / 1_000):
            try:
                if not self._renew():
                    return
            except SandurError:
                continue  # The store does not answer; `check` finds out before the run publishes.


def _seconds(duration_ms: int) -> int:
    return -(-duration_ms // 1_000)


def select_jobs(name: str, jobs: Mapping[str, Job] = JOBS) -> Sequence[Job]:
    """The job of that name, or for `all` every job that needs no arguments; raises BadRequest for an unknown name."""
    if name == ALL:
        return [job for job in jobs.values() if job.name not in NOT_IN_ALL]
    if name not in jobs:
        raise BadRequest(f"job {name} does not exist; choose one of {', '.join((*jobs, ALL))}")
    return [jobs[name]]


@dataclass(frozen=True)
class Runs:
    """Runs of jobs in one Spark session on one lake.

    With `dry_run` None, jobs that delete objects do a dry run, and all others do their work.
    """

    spark: SparkSession
    settings: Settings
    _: KW_ONLY
    dry_run: bool | None = None
    limits: Limits = field(default_factory=Limits)
    arguments: Mapping[str, str] = field(default_factory=dict)
    progress: Progress = no_progress
    clock: Clock = field(default_factory=SystemClock)
    jobs: Mapping[str, Job] = field(default_factory=lambda: JOBS)
    open_catalog: Callable[[str], AbstractContextManager[Connection]] | None = None
    _is_over: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self, name: str, *, on_report: OnReport) -> bool:
        """Run a job, or all of them in order, under one lease. Returns whether every job succeeded.

        With `all`, a job that fails does not stop the others. Conflict does: another run has the lease.
        """
        jobs = select_jobs(name, self.jobs)
        with PipelineLease(self.settings, clock=self.clock) as lease:
            return self._run(jobs, lease, on_report, is_alone=name != ALL)

    def run_every(self, seconds: int, *, on_report: OnReport, runs_max: int | None = None) -> None:
        """Run all jobs at an interval; of all processes on this store, one at a time works.

        A run begins one interval after the previous one began, or up to an eighth later, or right after its end.
        """
        runs = 0
        while runs_max is None or runs < runs_max:
            runs += 1
            try:
                with PipelineLease(self.settings, if_due=True, pause_ms=seconds * 1_000, clock=self.clock) as lease:
                    self._run(select_jobs(ALL, self.jobs), lease, on_report, is_alone=False)
            except SandurError as error:
                self.progress(f"waiting: {error}")
            # Jitter: processes that were started together must not always check at the same moment.
            pause_seconds = seconds / CHECKS_PER_INTERVAL * (0.5 + self.clock.chance())
            if runs != runs_max and self._is_over.wait(pause_seconds):
                return

    def stop(self) -> None:
        """Make `run_every` return instead of waiting for its next run."""
        self._is_over.set()

    def _run(self, jobs: Sequence[Job], lease: PipelineLease, on_report: OnReport, *, is_alone: bool) -> bool:
        is_done = True
        for job in jobs:
            try:
                on_report(self._run_job(job, lease))
            except Conflict:
                raise
            except SandurError as error:
                if is_alone:
                    raise
                is_done = False
                on_report(JobReport(job=job.name, run_id="", warnings=(f"failed: {error}",)))
        return is_done

    def _run_job(self, job: Job, lease: PipelineLease) -> JobReport:
        """Raises Unavailable if Spark failed; an error that ends the session is not caught: no other job can run."""
        lease.check()
        began_ms = self.clock.now_ms()
        with JobContext(
            spark=self.spark,
            blocking=BlockingLake(self.settings, clock=self.clock),
            run_id=f"{lease.fence:08d}-{self.clock.new_id()}",
            progress=self.progress,
            dry_run=job.deletes if self.dry_run is None else self.dry_run,
            limits=self.limits,
            check_fence=lease.check,
            arguments=self.arguments,
            open_catalog=self.open_catalog,
        ) as context:
            try:
                report = job.run(context)
            except (PySparkException, Py4JJavaError) as error:  # A task's error reaches the driver only through Spark.
                raise Unavailable(f"job {job.name}: Spark failed: {_reason(str(error))}") from error
            warnings = record_own_run(context, job, began_ms)
            if not context.dry_run:
                context.wait(note_success(context.lake, job.name))
        return replace(report, took_ms=self.clock.now_ms() - began_ms, warnings=(*report.warnings, *warnings))


def record_own_run(context: JobContext, job: Job, began_ms: int) -> Sequence[str]:
    """Store the lineage of a run that committed to system tables; returns a warning if that failed.

    It is verified: the run itself says what it read and which commits it made.
    """
    if not context.written:
        return ()
    lake, folder = context.lake, f"{context.settings.default_catalog}.{NAMESPACE}"
    read = [*job.reads, *(f"{folder}.{name}" for name in sorted(context.read_datasets - WITHOUT_TABLE))]
    outputs = [
        {
            "namespace": OWN_NAMESPACE,
            "name": f"{folder}.{one.dataset}",
            "facets": {
                "version": {"datasetVersion": str(one.snapshot_id)},
                "sandur_commit": {"tableUuid": one.table_uuid, "commitKey": one.commit_key},
            },
            "outputFacets": {"outputStatistics": {"rowCount": one.rows}},
        }
        for one in context.written
    ]
    common = {
        "producer": "sandur",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": context.run_id[-_UUID_CHARS:]},
        "job": {"namespace": OWN_NAMESPACE, "name": f"pipeline.{job.name}"},
    }
    ended_ms = max(context.clock.now_ms(), began_ms)
    started = {**common, "eventType": "START", "eventTime": _iso(began_ms)}
    inputs = [{"namespace": OWN_NAMESPACE, "name": name} for name in read]
    ended = {**common, "eventType": "COMPLETE", "eventTime": _iso(ended_ms), "inputs": inputs, "outputs": outputs}
    events = [msgspec.json.encode(event) for event in (started, ended)]
    records = [
        LineageRecord(id=record_id(_OWN, event), received_ms=ended_ms, is_own=True, event=msgspec.Raw(event))
        for event in events
    ]
    try:
        context.wait(write_batch(lake, records))
    except SandurError as error:
        return [f"the lineage of this run was not stored: {error}"]
    return ()


def _iso(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC).isoformat(timespec="milliseconds")


def _reason(text: str) -> str:
    """The line with the error: the last one of a Python traceback, or the first one from Java."""
    lines: Sequence[str] = _ERROR_LINE.findall(text) or text.strip().splitlines() or ["no reason given"]
    return lines[-1 if _TRACEBACK in text else 0][:REASON_CHARACTERS_MAX]
