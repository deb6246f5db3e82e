"""The arguments of `sandur run` and `sandur pipeline`."""

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
def test_an_interval_has_either_format(every: str, seconds: int) -> None:
    assert interval_seconds(every) == seconds


@pytest.mark.parametrize("every", ["", "15", "m", "1.5h", "-1m", "0s", "PT0S", "15 m", "1w"])
def test_an_invalid_interval_is_refused(every: str) -> None:
    with pytest.raises(BadRequest):
        interval_seconds(every)


def test_every_job_can_be_selected_by_name() -> None:
    assert [select_jobs(name) for name in JOBS] == [[job] for job in JOBS.values()]


def test_all_selects_the_jobs_without_arguments() -> None:
    assert "import" not in [job.name for job in select_jobs("all")]


def test_jobs_that_delete_do_a_dry_run_by_default() -> None:
    assert [job.name for job in JOBS.values() if job.deletes] == ["collect-garbage"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "tidy", "--store", "/tmp"], "does not exist; choose one of reconcile, compact"),  # noqa: S108 - never opened
        (["run", "compact", "--store", "memory:"], "needs a folder or a bucket"),
        (["pipeline", "--every", "soon", "--store", "/tmp"], "duration 'soon'"),  # noqa: S108 - never opened
    ],
)
def test_an_invalid_request_fails_before_spark_starts(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)

    assert isinstance(result.exception, BadRequest)
    assert message in str(result.exception)
