"""What `sandur run` and `sandur pipeline` are told, before anything runs."""

import pytest
from typer.testing import CliRunner

from sandur.cli.main import app
from sandur.cli.run_jobs import interval_seconds
from sandur.errors import BadRequest
from sandur.pipeline.jobs import JOBS
from sandur.pipeline.runs import select_jobs


@pytest.mark.parametrize(
    ("every", "seconds"), [("30s", 30), ("15m", 900), ("2h", 7_200), ("1d", 86_400), ("PT15M", 900), ("P1D", 86_400)]
)
def test_an_interval_is_read_in_either_spelling(every: str, seconds: int) -> None:
    assert interval_seconds(every) == seconds


@pytest.mark.parametrize("every", ["", "15", "m", "1.5h", "-1m", "0s", "PT0S", "15 m", "1w"])
def test_what_is_no_interval_is_refused(every: str) -> None:
    with pytest.raises(BadRequest):
        interval_seconds(every)


def test_every_job_can_be_asked_for_by_name() -> None:
    assert [select_jobs(name) for name in JOBS] == [[job] for job in JOBS.values()]


def test_all_jobs_are_those_that_need_no_telling() -> None:
    assert "import" not in [job.name for job in select_jobs("all")]


def test_jobs_that_delete_are_dry_by_themselves() -> None:
    assert [job.name for job in JOBS.values() if job.deletes] == ["collect-garbage"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "tidy", "--store", "/tmp"], "does not exist; choose one of reconcile, compact"),  # noqa: S108 - never opened
        (["run", "compact", "--store", "memory:"], "needs a folder or a bucket"),
        (["pipeline", "--every", "soon", "--store", "/tmp"], "duration 'soon'"),  # noqa: S108 - never opened
    ],
)
def test_a_wrong_request_is_told_before_spark_starts(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments)

    assert isinstance(result.exception, BadRequest)
    assert said in str(result.exception)
