"""The record of what engines did: nothing bad is hidden, and nothing that was not run is lost."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.interop.matrix import (
    BEGIN,
    END,
    PAGE,
    Ended,
    Outcome,
    Recorder,
    Result,
    Results,
    append,
    markdown,
    parsed,
    read_results,
    rewritten,
    show,
    told,
)


def result(engine: str, name: str, outcome: Outcome, *, store: str = "folder", test: str = "t") -> Result:
    reason = "" if outcome == "passed" else f"why {outcome}"
    return Result(engine=engine, operation=name, store=store, test=test, outcome=outcome, reason=reason)


def results(*some: Result, **versions: str) -> Results:
    return Results(results=some, versions=versions)


@pytest.mark.parametrize("worse", ["failed", "skipped", "cannot"])
def test_the_worst_of_several_tests_is_told_with_its_reason(worse: Outcome) -> None:
    matrix = told(results(result("DuckDB", "read", "passed"), result("DuckDB", "read", worse, test="u")))

    assert matrix.cells["read", "DuckDB"] != "folder"
    assert matrix.reasons["DuckDB"] == (f"read, folder: why {worse}",)


def test_stores_are_told_apart() -> None:
    matrix = told(
        results(
            result("DuckDB", "read", "passed", store="S3"),
            result("DuckDB", "read", "passed"),
            result("DuckDB", "merge", "passed"),
            result("DuckDB", "merge", "failed", store="S3"),
        )
    )

    assert matrix.cells == {("read", "DuckDB"): "folder + S3", ("merge", "DuckDB"): "folder, ✗ S3"}


def test_what_is_written_is_read_again() -> None:
    matrix = told(
        results(
            result("Spark 3.5", "read", "passed"),
            result("Spark", "merge", "skipped"),
            result("Novel", "fly", "cannot"),
            Novel="2.1",
            Spark="4.1.4",
        )
    )

    assert parsed(markdown(matrix)) == matrix


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_is_shown_can_be_read_on_any_screen(width: int) -> None:
    engines = ("Spark", "PyIceberg", "iceberg-rust", "DuckDB", "Trino")
    seen = [result(engine, "read", "passed", store=store) for engine in engines for store in ("folder", "S3")]
    screen = io.StringIO()

    show(Console(file=screen, width=width), told(results(*seen, result("DuckDB", "merge", "failed"))))

    assert screen.getvalue().count("folder + S3") == len(engines)
    assert all(engine in screen.getvalue() for engine in engines)
    assert "DuckDB, merge, folder: why failed" in " ".join(screen.getvalue().split())


EMPTY = f"above\n{BEGIN}\n{END}\nbelow\n"


def test_what_was_not_run_stays() -> None:
    first = results(
        result("Spark", "read", "failed"),
        result("DuckDB", "read", "failed"),
        result("DuckDB", "merge", "passed"),
        result("DuckDB", "fly", "cannot"),
        DuckDB="1.5.5",
    )
    once = rewritten(EMPTY, told(first))

    twice = rewritten(once, told(results(result("DuckDB", "read", "passed"))))

    assert twice.startswith("above\n")
    assert twice.endswith("below\n")
    inside = parsed(twice)
    assert inside.cells == {
        ("read", "Spark"): "✗ folder",
        ("read", "DuckDB"): "folder",
        ("merge", "DuckDB"): "folder",
        ("fly", "DuckDB"): "–",
    }
    assert inside.headings["DuckDB"] == "DuckDB 1.5.5"
    assert inside.reasons == {"Spark": ("read, folder: why failed",), "DuckDB": ("fly, folder: why cannot",)}


def test_another_version_takes_the_place_of_the_one_before() -> None:
    once = rewritten(EMPTY, told(results(result("DuckDB", "read", "passed"), DuckDB="1.5.5 and more")))

    twice = rewritten(once, told(results(result("DuckDB", "read", "passed"), DuckDB="2.0")))

    assert parsed(twice).headings == {"DuckDB": "DuckDB 2.0"}


def test_a_whole_run_leaves_nothing_of_what_was_there() -> None:
    once = rewritten(EMPTY, told(results(result("Spark", "read", "passed"))))

    twice = rewritten(once, told(results(result("DuckDB", "read", "passed"))), is_whole=True)

    assert parsed(twice).cells == {("read", "DuckDB"): "folder"}


def test_a_page_without_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no"):
        rewritten("nothing here", told(results()))


def test_parts_of_a_run_add_up(tmp_path: Path) -> None:
    for engine in ("DuckDB", "Spark"):
        path = tmp_path / f"{engine}.jsonl"
        Recorder(path).version(engine, "1")
        append(path, result(engine, "read", "passed"))
    append(tmp_path / "Spark.jsonl", Ended(exit_code=0, seconds=1.5))

    found = read_results(tmp_path)

    assert {one.engine for one in found.results} == {"DuckDB", "Spark"}
    assert found.versions == {"DuckDB": "1", "Spark": "1"}
    assert found.ended == {"Spark": Ended(exit_code=0, seconds=1.5)}


def test_without_a_file_to_keep_it_in_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    Recorder(None).version("DuckDB", "1")

    assert list(tmp_path.iterdir()) == []


def test_the_page_has_a_place_for_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.count(BEGIN) == page.count(END) == 1
    matrix = parsed(page.partition(BEGIN)[2].partition(END)[0])
    assert parsed(markdown(matrix)) == matrix
