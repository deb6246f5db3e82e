"""Figures in README and docs come from bench/results, and results say whether their sources have changed since."""

import json
from pathlib import Path

import pytest

from bench.provenance import MEASURED, REPOSITORY, RESULTS, stale_results
from bench.report import README, render_table, update
from checks.figures import missing_figures

PAGES = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_documented_figure_is_in_a_result_file(page: Path) -> None:
    assert list(missing_figures(page, RESULTS)) == []


def test_the_table_in_readme_is_rendered_from_the_result() -> None:
    figures = json.loads((RESULTS / "server.json").read_text(encoding="utf-8"))["figures"]
    page = README.read_text(encoding="utf-8")

    assert update(page, render_table(figures)) == page, "run: python -m bench.report"


def test_every_result_file_has_its_provenance() -> None:
    for name in MEASURED:
        result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        assert {"date", "machine", "settings"} <= result.keys(), name
    assert {file.stem for file in RESULTS.glob("*.json")} == set(MEASURED)


def test_results_older_than_their_sources_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """An old result is not an error: measuring needs a quiet machine."""
    stale = list(stale_results())

    with capsys.disabled():
        for line in stale:
            print(f"\nold result: {line}", end="")  # noqa: T201 - the purpose of the test


@pytest.mark.parametrize(
    ("shown", "is_known"),
    [("1,235/s", True), ("1,236/s", True), ("1,250/s", False), ("0.5 ms", True), ("12 %", True), ("13.5 %", False)],
)
def test_a_figure_is_known_if_a_result_rounds_to_it(tmp_path: Path, shown: str, is_known: bool) -> None:  # noqa: FBT001 - a parameter of the test
    (tmp_path / "x.json").write_text(json.dumps({"rate": 1235.4, "seconds": 0.0005, "share": 0.12}))
    page = tmp_path / "page.md"
    page.write_text(f"## Cost\n\nSee `bench/results/x.json`.\n\n| | a |\n|---|---|\n| load | {shown} |\n")

    assert (not list(missing_figures(page, tmp_path))) == is_known
