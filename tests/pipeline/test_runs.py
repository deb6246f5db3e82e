"""Runs of jobs: one at a time on a lake, and a run that lost its lease stops."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from sandur.errors import BadRequest, Busy, Conflict, Unavailable
from sandur.operations.janitors.lease import LEASE_MS, Lease
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.runs import LEASE_KIND, PipelineLease, Runs
from tests.fakes.fixed_clock import FixedClock
from tests.pipeline.world import World


def _reporting(context: JobContext) -> JobReport:
    context.check_fence()
    return JobReport(job="works", run_id=context.run_id, dry_run=context.dry_run)


def _failing(context: JobContext) -> JobReport:
    raise Unavailable(f"run {context.run_id}: the store does not answer")


_SOME: Final = [Job("fails", "", _failing), Job("works", "", _reporting), Job("deletes", "", _reporting, deletes=True)]
JOBS: Final = {job.name: job for job in _SOME}
"""Small jobs instead of the real ones."""


def _failing_task(batches: Iterable[Any]) -> Iterator[Any]:
    for _ in batches:
        raise Unavailable("object t: the store\ndoes not answer")
    yield from ()


def _exiting_task(batches: Iterable[Any]) -> Iterator[Any]:
    for _ in batches:
        os._exit(3)
    yield from ()


def _job_with_task(name: str, work: Callable[[Iterable[Any]], Iterator[Any]]) -> Job:
    def run(context: JobContext) -> JobReport:
        context.spark.range(1).mapInArrow(work, "id long").collect()
        pytest.fail("no task failed")

    return Job(name, "", run)


def _take_lease(world: World, clock: FixedClock) -> None:
    """Another run takes the lease of one that seems dead."""
    ahead = FixedClock(clock.now_ms() + LEASE_MS + 1, seed=5)
    with PipelineLease(world.settings, clock=ahead):
        return


def test_a_second_concurrent_run_is_refused_with_the_reason(world: World) -> None:
    with PipelineLease(world.settings) as first:
        refused = r"^skipped: another run holds the lease \(expires in [0-9]+ s\)$"
        with pytest.raises(Busy, match=refused), PipelineLease(world.settings):
            pytest.fail("two leases at once")
        first.check()
        fence = first.fence

    with PipelineLease(world.settings) as second:
        assert second.fence == fence + 1


def test_a_run_that_lost_its_lease_stops_and_keeps_the_new_lease(world: World) -> None:
    clock = FixedClock()
    with PipelineLease(world.settings, clock=clock) as slow:
        fence = slow.fence
        _take_lease(world, clock)
        with pytest.raises(Conflict):
            slow.check()
        with pytest.raises(Conflict):
            slow.check()

    lease = Lease(world.lake, LEASE_KIND)
    assert world.wait(lease.take(if_due=False))
    assert lease.fence == fence + 2


def test_a_scheduled_run_waits_until_it_is_due_and_a_manual_one_does_not(world: World) -> None:
    clock = FixedClock()
    with PipelineLease(world.settings, clock=clock, pause_ms=60_000):
        clock.advance(1)

    not_due = "^skipped: the next run is due in 60 s$"
    with pytest.raises(Busy, match=not_due), PipelineLease(world.settings, clock=clock, if_due=True):
        pytest.fail("none is due")
    with PipelineLease(world.settings, clock=clock, pause_ms=60_000):
        clock.advance(59_999)
    with pytest.raises(Busy), PipelineLease(world.settings, clock=clock, if_due=True):
        pytest.fail("an interval has not passed since the last one began")
    clock.advance(1)
    with PipelineLease(world.settings, clock=clock, if_due=True) as due:
        assert due.fence == 3


def test_all_jobs_run_and_one_that_fails_does_not_stop_the_others(world: World, spark: SparkSession) -> None:
    reports: list[JobReport] = []

    is_done = Runs(spark, world.settings, jobs=JOBS).run("all", on_report=reports.append)

    assert not is_done
    assert [report.job for report in reports] == ["fails", "works", "works"]
    assert [report.dry_run for report in reports[1:]] == [False, True]
    assert "the store does not answer" in reports[0].warnings[0]
    assert reports[1].run_id != reports[2].run_id


def test_a_job_whose_tasks_fail_or_die_does_not_stop_the_others_either(world: World, spark: SparkSession) -> None:
    works = Job("works", "", _reporting)
    jobs = {
        job.name: job for job in (_job_with_task("fails", _failing_task), _job_with_task("dies", _exiting_task), works)
    }
    reports: list[JobReport] = []
    runs = Runs(spark, world.settings, jobs=jobs)

    is_done = runs.run("all", on_report=reports.append)

    assert not is_done
    assert [report.job for report in reports] == ["fails", "dies", "works"]
    assert reports[0].warnings == ("failed: job fails: Spark failed: sandur.errors.Unavailable: object t: the store",)
    assert "Python worker exited unexpectedly" in reports[1].warnings[0]
    with pytest.raises(Unavailable, match="the store"):
        runs.run("fails", on_report=reports.append)


def test_a_failed_job_reports_the_reason(world: World, spark: SparkSession) -> None:
    with pytest.raises(Unavailable):
        Runs(spark, world.settings, jobs=JOBS).run("fails", on_report=lambda _: None)
    with pytest.raises(BadRequest):
        Runs(spark, world.settings, jobs=JOBS).run("nothing", on_report=lambda _: None)


def test_a_scheduled_run_is_skipped_if_another_has_run_in_the_interval(world: World, spark: SparkSession) -> None:
    clock = FixedClock()
    reports: list[JobReport] = []
    runs = [Runs(spark, world.settings, clock=clock, dry_run=False, jobs=JOBS) for _ in range(2)]

    for one in runs:
        one.run_every(60, on_report=reports.append, runs_max=1)
    first = len(reports)
    clock.advance(60_000)
    runs[1].run_every(60, on_report=reports.append, runs_max=1)

    assert (first, len(reports)) == (3, 6)
    assert not any(report.dry_run for report in reports)


def test_a_job_that_lost_its_lease_ends_the_run(world: World, spark: SparkSession) -> None:
    clock = FixedClock()

    def slow(context: JobContext) -> JobReport:
        _take_lease(world, clock)
        context.check_fence()
        pytest.fail("it went on")

    jobs = {"slow": Job("slow", "", slow), "works": Job("works", "", _reporting)}
    reports: list[JobReport] = []

    with pytest.raises(Conflict):
        Runs(spark, world.settings, clock=clock, jobs=jobs).run("all", on_report=reports.append)
    assert reports == []


@pytest.mark.slow
def test_all_jobs_run_on_a_bucket_and_a_second_run_finds_nothing_new(bucket_world: World, spark: SparkSession) -> None:
    bucket_world.make("orders")
    bucket_world.commits("orders", 2)
    bucket_world.make("customers")
    reports: list[JobReport] = []

    is_done = [Runs(spark, bucket_world.settings).run("all", on_report=reports.append) for _ in range(3)]

    assert is_done == [True] * 3
    assert not any(report.warnings for report in reports)
    first, last = reports[:6], {report.job: report for report in reports[-6:]}
    counts = {report.job: report.counts for report in first}
    assert (counts["compact"]["commits"], counts["project"]["metadata_files_read"]) == (4, 2)
    assert counts["reconcile"]["receipts_present"] == 4
    assert (last["compact"].counts["commits"], last["project"].counts["metadata_files_read"]) == (0, 0)
    assert last["rebuild-index"].counts["lists_right"] == last["rebuild-index"].counts["lists"]
