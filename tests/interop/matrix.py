"""The engine matrix: which engine can do what, on which store, as the tests recorded it.

A test names its engine and operation with the mark `operation`. `make interop` records each outcome at once, in one
file of `build/interop` per part of the run. `python -m tests.interop.matrix` prints the matrix and writes it into
`docs/engine-matrix.md`. Cells of engines that did not run stay unchanged.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

Outcome = Literal["passed", "failed", "skipped", "cannot"]

FOLDER: Final = "folder"
S3: Final = "S3"
STORES: Final = (FOLDER, S3)

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "build" / "interop"
# The environment variable with the file for the results; without it nothing is recorded.
KEPT_IN: Final = "INTEROP_RESULTS"
PAGE: Final = ROOT / "docs" / "engine-matrix.md"
BEGIN: Final = "<!-- matrix: begin -->"
END: Final = "<!-- matrix: end -->"

# The order of engines and operations in the matrix; others follow in alphabetical order.
ENGINES: Final = (
    "Spark",
    "Spark 3.5",
    "PyIceberg",
    "DuckDB",
    "Polars",
    "Trino",
    "Flink",
    "chDB",
    "Daft",
    "DataFusion",
    "Sail",
    "Ibis",
    "dbt-duckdb",
    "dlt",
    "iceberg-js",
    "iceberg-go",
    "iceberg-rust",
)
OPERATIONS: Final = (
    "namespaces",
    "create table",
    "create table transaction",
    "create table as select",
    "replace table",
    "read",
    "insert",
    "overwrite",
    "update",
    "delete",
    "merge",
    "upsert",
    "evolve schema",
    "format version 3",
    "evolve partitioning",
    "sort order",
    "properties",
    "rename",
    "drop",
    "register",
    "views",
    "time travel",
    "rollback",
    "branches and tags",
    "transaction over one table",
    "transaction over two tables",
    "concurrent writers",
    "add files",
    "expire snapshots",
    "no keys",
    "no keys: neighbour refused",
    "no keys: reader reads",
    "no keys: reader refused",
    "no keys: credential renewed in a job",
)

READS_OF: Final = "read what "

# Of several tests of one cell, the worst outcome counts.
_WORST_FIRST: Final[tuple[Outcome, ...]] = ("failed", "skipped", "cannot", "passed")
_SIGNS: Final[dict[Outcome, str]] = {"failed": "✗ ", "skipped": "? ", "cannot": "– ", "passed": ""}
_SIGN_OF_FAILURE: Final = "✗"

# Column widths of the printed table, in characters.
_OPERATION_WIDTH: Final = 34
_ENGINE_WIDTH: Final = 16
_BORDER_WIDTH: Final = 3


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The outcome of one test for one engine, operation and store."""

    engine: str
    operation: str
    store: str
    test: str
    outcome: Outcome
    reason: str = ""


class Version(msgspec.Struct, frozen=True, tag="version"):
    """Which version of an engine runs."""

    engine: str
    version: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """How a part of a run ended: the exit code of its tests, and how long they took."""

    exit_code: int
    seconds: float


Line = Result | Version | Ended


class Results(msgspec.Struct, frozen=True):
    """The outcomes of a run, the version of each engine, and how each finished part ended."""

    results: tuple[Result, ...] = ()
    versions: dict[str, str] = {}
    ended: dict[str, Ended] = {}


def operation(engine: str, name: str, *, store: str | None = None, cannot: str = "") -> pytest.MarkDecorator:
    """The mark of a test that covers an operation of an engine; a test may carry several.

    Without `store`, the fixture `served` of the test decides, and the folder is the default. With `cannot`, a pass
    means that the engine refuses as expected, and `cannot` is the reason.
    """
    return pytest.mark.operation(engine, name, store=store, cannot=cannot)


class Recorder:
    """Appends each outcome to a file at once, so that an interrupted run loses nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def version(self, engine: str, version: str) -> None:
        """Which version of the engine runs."""
        self._keep(Version(engine=engine, version=version))

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Record one phase of a test; set-up counts only if it fails or skips, tear-down only if it fails."""
        if report.when != "call" and not report.failed and not report.skipped:
            return
        for mark in item.iter_markers("operation"):
            self._keep(_result(item, report, mark))

    def _keep(self, line: Line) -> None:
        if self._path is not None:
            append(self._path, line)


def append(path: Path, line: Line) -> None:
    """Append a line to the file of a part."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


RECORDER: Final = Recorder(Path(os.environ[KEPT_IN]) if KEPT_IN in os.environ else None)


def read_results(folder: Path = RESULTS) -> Results:
    """The recorded results of all parts in the folder."""
    parts = {path.stem: _lines(path) for path in sorted(folder.glob("*.jsonl"))}
    every = [line for lines in parts.values() for line in lines]
    return Results(
        results=tuple(line for line in every if isinstance(line, Result)),
        versions={line.engine: line.version for line in every if isinstance(line, Version)},
        ended={part: line for part, lines in parts.items() for line in lines if isinstance(line, Ended)},
    )


def _lines(path: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]


def _result(item: pytest.Item, report: pytest.TestReport, mark: pytest.Mark) -> Result:
    engine, name = mark.args
    outcome: Outcome = report.outcome
    reason = _reason(report)
    if outcome == "passed" and mark.kwargs.get("cannot"):
        outcome, reason = "cannot", mark.kwargs["cannot"]
    store = mark.kwargs.get("store") or _served_by(item)
    return Result(engine=engine, operation=name, store=store, test=item.nodeid, outcome=outcome, reason=reason)


def _served_by(item: pytest.Item) -> str:
    """The store of the fixture `served` in this test."""
    call = getattr(item, "callspec", None)
    return str(call.params.get("served", FOLDER)) if call else FOLDER


def _reason(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # A skip: file, line and reason.
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    lines = [line.removeprefix("E ").strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return (lines or ["failed"])[0][:200]


def _worse(one: Result | None, other: Result) -> Result:
    return other if one is None else min((one, other), key=lambda result: _WORST_FIRST.index(result.outcome))


class Matrix(msgspec.Struct, frozen=True):
    """The matrix: a text for each operation and engine, and the reasons for everything that did not pass."""

    headings: dict[str, str]
    cells: dict[tuple[str, str], str]
    reasons: dict[str, tuple[str, ...]]

    def merged_into(self, older: "Matrix") -> "Matrix":
        """The older matrix with these cells and reasons in place of its own."""
        # Some part of an engine's tests may not know its version.
        known = {engine: text for engine, text in self.headings.items() if text != engine}
        headings = self.headings | older.headings | known
        reasons = {engine: self._merged_reasons(older, engine) for engine in headings}
        return Matrix(
            headings=headings,
            cells=older.cells | self.cells,
            reasons={engine: lines for engine, lines in reasons.items() if lines},
        )

    def _merged_reasons(self, older: "Matrix", engine: str) -> tuple[str, ...]:
        covered = {name for name, covered_engine in self.cells if covered_engine == engine}
        kept = [line for line in older.reasons.get(engine, ()) if line.partition(", ")[0] not in covered]
        return (*kept, *self.reasons.get(engine, ()))


def matrix_of(results: Results) -> Matrix:
    """The matrix of the results; of several results for one cell, the worst counts."""
    worst: dict[tuple[str, str, str], Result] = {}
    for one in results.results:
        key = (one.engine, one.operation, one.store)
        worst[key] = _worse(worst.get(key), one)
    engines = {engine for engine, _, _ in worst}
    cells = {
        (name, engine): _cell({store: worst[engine, name, store].outcome for store in _stores(worst, engine, name)})
        for engine, name, _ in worst
    }
    reasons = {engine: _reason_lines(one for one in worst.values() if one.engine == engine) for engine in engines}
    headings = {engine: f"{engine} {results.versions.get(engine, '')}".strip() for engine in engines}
    return Matrix(headings=headings, cells=cells, reasons={engine: lines for engine, lines in reasons.items() if lines})


def _stores(worst: Mapping[tuple[str, str, str], Result], engine: str, name: str) -> list[str]:
    return sorted((store for e, n, store in worst if (e, n) == (engine, name)), key=_sort_key(STORES))


def _cell(outcomes: Mapping[str, Outcome]) -> str:
    by_outcome: dict[Outcome, list[str]] = {}
    for store, outcome in outcomes.items():
        by_outcome.setdefault(outcome, []).append(store)
    if set(by_outcome) == {"cannot"}:
        return _SIGNS["cannot"].strip()
    return ", ".join(f"{_SIGNS[outcome]}{' + '.join(stores)}" for outcome, stores in by_outcome.items())


def _reason_lines(results: Iterable[Result]) -> tuple[str, ...]:
    """One line per operation and reason, with its stores."""
    stores: dict[tuple[str, str], list[str]] = {}
    for one in results:
        if one.reason:
            stores.setdefault((one.operation, " ".join(one.reason.split()).replace("|", "/")), []).append(one.store)
    in_order = sorted(stores, key=lambda key: _sort_key(OPERATIONS)(key[0]))
    return tuple(
        f"{name}, {' + '.join(sorted(stores[name, reason], key=_sort_key(STORES)))}: {reason}"
        for name, reason in in_order
    )


def _sort_key(order: tuple[str, ...]) -> Callable[[str], tuple[int, str]]:
    """A sort key: first the order of the list, then the alphabet."""
    return lambda name: (order.index(name) if name in order else len(order), name)


def _sorted_engines(matrix: Matrix) -> list[str]:
    return sorted(matrix.headings, key=_sort_key(ENGINES))


def _sorted_operations(matrix: Matrix) -> list[str]:
    """The operations in order; reading tables of other engines comes last."""
    place = _sort_key(OPERATIONS)
    return sorted({name for name, _ in matrix.cells}, key=lambda name: (name.startswith(READS_OF), *place(name)))


def render_markdown(matrix: Matrix) -> str:
    engines = _sorted_engines(matrix)
    lines = [_line(["", *(matrix.headings[engine] for engine in engines)]), "|" + "---|" * (len(engines) + 1)]
    lines += [
        _line([name, *(matrix.cells.get((name, engine), "") for engine in engines)])
        for name in _sorted_operations(matrix)
    ]
    for engine in engines:
        if reasons := matrix.reasons.get(engine):
            lines += ["", f"{engine}:", "", *(f"- {reason}" for reason in reasons)]
    return "\n".join(lines)


def _line(texts: Iterable[str]) -> str:
    return "|" + "|".join(f" {text} " if text else " " for text in texts) + "|"


def parse_markdown(text: str) -> Matrix:
    """The matrix that `render_markdown` wrote."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    if not rows:
        return Matrix(headings={}, cells={}, reasons={})
    headings = {_engine_in(heading): heading for heading in rows[0][1:]}
    cells = {(row[0], engine): cell for row in rows[2:] for engine, cell in zip(headings, row[1:], strict=True) if cell}
    reasons: dict[str, tuple[str, ...]] = {}
    engine = ""
    for line in text.splitlines():
        if line.endswith(":") and line[:1] not in {"|", "-"}:
            engine = line[:-1]
        elif line.startswith("- "):
            reasons[engine] = (*reasons.get(engine, ()), line[2:])
    return Matrix(headings=headings, cells=cells, reasons=reasons)


def _engine_in(heading: str) -> str:
    """The engine without its version; the longest known name wins, because `Spark 3.5` is a name."""
    known = [engine for engine in ENGINES if heading == engine or heading.startswith(f"{engine} ")]
    return max(known, key=len) if known else re.sub(r" v?\d\S*$", "", heading)


def update_page(page: str, newer: Matrix, *, is_whole: bool = False) -> str:
    """The page with the new cells; other cells stay unless the run was complete. ValueError without markers."""
    before, _, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    matrix = newer if is_whole else newer.merged_into(parse_markdown(inside))
    return f"{before}{BEGIN}\n{render_markdown(matrix)}\n{END}{after}"


def print_matrix(console: Console, matrix: Matrix) -> None:
    """Print the matrix in tables of as many engines as fit the width."""
    engines = _sorted_engines(matrix)
    per_table = max((console.width - _OPERATION_WIDTH) // _ENGINE_WIDTH, 1)
    for first in range(0, len(engines), per_table):
        console.print(_table(matrix, engines[first : first + per_table]))
    for engine in engines:
        for reason in matrix.reasons.get(engine, ()):
            console.print(f"{engine}, {reason}", markup=False)


def _table(matrix: Matrix, engines: list[str]) -> Table:
    table = Table("operation", title="Engine matrix")
    for engine in engines:
        table.add_column(matrix.headings[engine], max_width=_ENGINE_WIDTH - _BORDER_WIDTH)
    for name in _sorted_operations(matrix):
        cells = [matrix.cells.get((name, engine), "") for engine in engines]
        if any(cells):
            table.add_row(name, *(_colored(cell) for cell in cells))
    return table


def _colored(cell: str) -> str:
    if _SIGN_OF_FAILURE in cell:
        return f"[red]{cell}[/]"
    return f"[yellow]{cell}[/]" if cell[:1] in {"?", "–"} else f"[green]{cell}[/]"


def main(*, is_whole: bool = False) -> int:
    """Print the matrix and write it into the page; a complete run replaces every cell. Exit code 1 on a failure."""
    results = read_results()
    matrix = matrix_of(results)
    print_matrix(Console(highlight=False), matrix)
    if matrix.headings:
        page = update_page(PAGE.read_text(encoding="utf-8"), matrix, is_whole=is_whole)
        PAGE.write_text(page, encoding="utf-8")
    return int(any(one.outcome == "failed" for one in results.results))


if __name__ == "__main__":
    sys.exit(main())
