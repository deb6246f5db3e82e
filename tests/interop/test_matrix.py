"""The engine matrix hides no failure, and keeps the cells of engines that did not run."""

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
    matrix_of,
    parse_markdown,
    print_matrix,
    read_results,
    render_markdown,
    update_page,
)


def result(engine: str, name: str, outcome: Outcome, *, store: str = "folder", test: str = "t") -> Result:
    reason = "" if outcome == "passed" else f"why {outcome}"
    return Result(engine=engine, operation=name, store=store, test=test, outcome=outcome, reason=reason)


def results(*some: Result, **versions: str) -> Results:
    return Results(results=some, versions=versions)


@pytest.mark.parametrize("worse", ["failed", "skipped", "cannot"])
def test_the_worst_of_several_outcomes_counts_and_has_its_reason(worse: Outcome) -> None:
    matrix = matrix_of(results(result("DuckDB", "read", "passed"), result("DuckDB", "read", worse, test="u")))

    assert matrix.cells["read", "DuckDB"] != "folder"
    assert matrix.reasons["DuckDB"] == (f"read, folder: why {worse}",)


def test_each_store_has_its_own_outcome() -> None:
    matrix = matrix_of(
        results(
            result("DuckDB", "read", "passed", store="S3"),
            result("DuckDB", "read", "passed"),
            result("DuckDB", "merge", "passed"),
            result("DuckDB", "merge", "failed", store="S3"),
        )
    )

    assert matrix.cells == {("read", "DuckDB"): "folder + S3", ("merge", "DuckDB"): "folder, ✗ S3"}


def test_a_written_matrix_is_read_again() -> None:
    matrix = matrix_of(
        results(
            result("Spark 3.5", "read", "passed"),
            result("Spark", "merge", "skipped"),
            result("Novel", "fly", "cannot"),
            Novel="2.1",
            Spark="4.1.4",
        )
    )

    assert parse_markdown(render_markdown(matrix)) == matrix


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_printed_matrix_fits_any_width(width: int) -> None:
    engines = ("Spark", "PyIceberg", "iceberg-rust", "DuckDB", "Trino")
    seen = [result(engine, "read", "passed", store=store) for engine in engines for store in ("folder", "S3")]
    screen = io.StringIO()

    print_matrix(Console(file=screen, width=width), matrix_of(results(*seen, result("DuckDB", "merge", "failed"))))

    assert screen.getvalue().count("folder + S3") == len(engines)
    assert all(engine in screen.getvalue() for engine in engines)
    assert "DuckDB, merge, folder: why failed" in " ".join(screen.getvalue().split())


EMPTY = f"above\n{BEGIN}\n{END}\nbelow\n"


def test_cells_that_were_not_run_stay() -> None:
    first = results(
        result("Spark", "read", "failed"),
        result("DuckDB", "read", "failed"),
        result("DuckDB", "merge", "passed"),
        result("DuckDB", "fly", "cannot"),
        DuckDB="1.5.5",
    )
    once = update_page(EMPTY, matrix_of(first))

    twice = update_page(once, matrix_of(results(result("DuckDB", "read", "passed"))))

    assert twice.startswith("above\n")
    assert twice.endswith("below\n")
    inside = parse_markdown(twice)
    assert inside.cells == {
        ("read", "Spark"): "✗ folder",
        ("read", "DuckDB"): "folder",
        ("merge", "DuckDB"): "folder",
        ("fly", "DuckDB"): "–",
    }
    assert inside.headings["DuckDB"] == "DuckDB 1.5.5"
    assert inside.reasons == {"Spark": ("read, folder: why failed",), "DuckDB": ("fly, folder: why cannot",)}


def test_a_new_version_replaces_the_old_one() -> None:
    once = update_page(EMPTY, matrix_of(results(result("DuckDB", "read", "passed"), DuckDB="1.5.5 and more")))

    twice = update_page(once, matrix_of(results(result("DuckDB", "read", "passed"), DuckDB="2.0")))

    assert parse_markdown(twice).headings == {"DuckDB": "DuckDB 2.0"}


def test_a_complete_run_replaces_every_cell() -> None:
    once = update_page(EMPTY, matrix_of(results(result("Spark", "read", "passed"))))

    twice = update_page(once, matrix_of(results(result("DuckDB", "read", "passed"))), is_whole=True)

    assert parse_markdown(twice).cells == {("read", "DuckDB"): "folder"}


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no"):
        update_page("nothing here", matrix_of(results()))


def test_results_of_all_parts_are_combined(tmp_path: Path) -> None:
    for engine in ("DuckDB", "Spark"):
        path = tmp_path / f"{engine}.jsonl"
        Recorder(path).version(engine, "1")
        append(path, result(engine, "read", "passed"))
    append(tmp_path / "Spark.jsonl", Ended(exit_code=0, seconds=1.5))

    found = read_results(tmp_path)

    assert {one.engine for one in found.results} == {"DuckDB", "Spark"}
    assert found.versions == {"DuckDB": "1", "Spark": "1"}
    assert found.ended == {"Spark": Ended(exit_code=0, seconds=1.5)}


def test_without_a_results_file_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    Recorder(None).version("DuckDB", "1")

    assert list(tmp_path.iterdir()) == []


def test_the_page_has_one_pair_of_markers() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.count(BEGIN) == page.count(END) == 1
    matrix = parse_markdown(page.partition(BEGIN)[2].partition(END)[0])
    assert parse_markdown(render_markdown(matrix)) == matrix
