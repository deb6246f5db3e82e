"""The output of `sandur run`: JSON lines for machines, a table and progress for people."""

import contextlib
import json

import pytest
from pyspark.sql import SparkSession

from sandur.cli.run_jobs import RunOptions, run_jobs
from tests.pipeline.maintained import EAGER, connected, make_small_files, set_policy
from tests.pipeline.world import World

JOB = "rebuild-index"


def _run(
    world: World, spark: SparkSession, job: str = JOB, *, dry_run: bool | None = None, as_json: bool = False
) -> int:
    options = RunOptions(store=world.settings.store, dry_run=dry_run, as_json=as_json)
    return run_jobs(job, options, opened=lambda _master, _options: contextlib.nullcontext(spark))


def test_json_output_is_one_line_per_report(
    world: World, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    world.make("orders")

    code = _run(world, spark, as_json=True)
    out, err = capsys.readouterr()

    (line,) = out.splitlines()
    report = json.loads(line)
    assert code == 0
    assert (report["job"], report["dry_run"], report["warnings"]) == (JOB, False, [])
    assert report["counts"]["lists_right"] == report["counts"]["lists"] > 0
    assert (report["run_id"] != "", report["took_ms"] > 0) == (True, True)
    assert "rebuild indexes" not in err


def test_the_report_is_on_stdout_and_the_progress_on_stderr(
    world: World, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # As on a terminal.

    code = _run(world, spark, dry_run=True)
    out, err = capsys.readouterr()

    assert code == 0
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

    code = run_jobs("project,health,maintain", options, opened=lambda _master, _options: contextlib.nullcontext(spark))

    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert [one["job"] for one in reports] == ["project", "health", "maintain"]
    assert (reports[-1]["counts"]["operations_done"], reports[-1]["counts"]["files_saved"]) == (1, 3)
    with connected(world) as catalog:
        assert len(list(catalog.load_table("sales.orders").scan().plan_files())) == 1


def test_verify_exits_as_sandur_verify_does(
    world: World, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    world.make("orders")
    sound = _run(world, spark, "verify", as_json=True)
    (index,) = [one.key for one in world.listed(world.layout.root) if "index/tables/" in one.key]

    world.damage(index)
    repairable = _run(world, spark, "verify", as_json=True)
    (name,) = [one.key for one in world.listed(world.layout.all_names_folder()) if one.key.endswith("orders.json")]
    world.remove(name)
    damaged = _run(world, spark, "verify", as_json=True)

    assert (sound, repairable, damaged) == (0, 8, 1)
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["exit_code"] for one in reports] == [0, 8, 1]
