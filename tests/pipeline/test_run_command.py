"""The output of `sandur run`: JSON lines for machines, a table and progress for people."""

import contextlib
import json

import pytest
from pyspark.sql import SparkSession

from sandur.cli.run_jobs import RunOptions, run_jobs
from tests.pipeline.maintained import EAGER, connected, make_small_files, set_policy
from tests.pipeline.world import World

JOB = "rebuild-index"


def _run(world: World, spark: SparkSession, *, dry_run: bool | None = None, as_json: bool = False) -> bool:
    options = RunOptions(store=world.settings.store, dry_run=dry_run, as_json=as_json)
    return run_jobs(JOB, options, opened=lambda _master, _options: contextlib.nullcontext(spark))


def test_json_output_is_one_line_per_report(
    world: World, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    world.make("orders")

    is_done = _run(world, spark, as_json=True)
    out, err = capsys.readouterr()

    (line,) = out.splitlines()
    report = json.loads(line)
    assert is_done
    assert (report["job"], report["dry_run"], report["warnings"]) == (JOB, False, [])
    assert report["counts"]["lists_right"] == report["counts"]["lists"] > 0
    assert (report["run_id"] != "", report["took_ms"] > 0) == (True, True)
    assert "rebuild indexes" not in err


def test_the_report_is_on_stdout_and_the_progress_on_stderr(
    world: World, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # As on a terminal.

    is_done = _run(world, spark, dry_run=True)
    out, err = capsys.readouterr()

    assert is_done
    assert f"{JOB} (dry run:" in out
    assert "lists right" in out
    assert "--no-dry-run" in out
    assert "rebuild indexes" in err
    assert "rebuild indexes" not in out


def test_maintain_measures_all_tables_and_changes_them_through_a_server_of_its_own(
    world: World, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(world) as catalog:
        make_small_files(catalog, "orders", 4)
    set_policy(world, EAGER)
    options = RunOptions(store=world.settings.store, as_json=True)

    is_done = run_jobs(
        "project,health,maintain", options, opened=lambda _master, _options: contextlib.nullcontext(spark)
    )

    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert is_done
    assert [one["job"] for one in reports] == ["project", "health", "maintain"]
    assert (reports[-1]["counts"]["operations_done"], reports[-1]["counts"]["files_saved"]) == (1, 3)
    with connected(world) as catalog:
        assert len(list(catalog.load_table("sales.orders").scan().plan_files())) == 1
