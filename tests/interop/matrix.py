"""What each engine was seen to do, on which store: recorded by the tests, told as a table.

A test says what it shows with the mark `operation`. In a run of `make interop` its outcome is kept at once, in a file
of `build/interop` for each part of the run. `python -m tests.interop.matrix` prints the table and writes it into
`docs/engine-matrix.md`, where what was not run stays as it is.
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
# Names the file that a run writes what it sees to; without it nothing is kept.
KEPT_IN: Final = "INTEROP_RESULTS"
PAGE: Final = ROOT / "docs" / "engine-matrix.md"
BEGIN: Final = "<!-- matrix: begin -->"
END: Final = "<!-- matrix: end -->"

# Engines and operations in the order in which they are told; others follow in the order of the alphabet.
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
)

READS_OF: Final = "read what "

# The worst of several tests of one thing is what is told.
_WORST_FIRST: Final[tuple[Outcome, ...]] = ("failed", "skipped", "cannot", "passed")
_SIGNS: Final[dict[Outcome, str]] = {"failed": "✗ ", "skipped": "? ", "cannot": "– ", "passed": ""}
_SIGN_OF_FAILURE: Final = "✗"

# Of the table that is printed, in characters.
_OPERATION_WIDTH: Final = 34
_ENGINE_WIDTH: Final = 16
_BORDER_WIDTH: Final = 3


class Result(msgspec.Struct, frozen=True, tag="result"):
    """What one test showed of one engine, operation and store."""

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
    """What a run saw, which version of each engine it was, and how those of its parts ended that came to their end."""

    results: tuple[Result, ...] = ()
    versions: dict[str, str] = {}
    ended: dict[str, Ended] = {}


def operation(engine: str, name: str, *, store: str | None = None, cannot: str = "") -> pytest.MarkDecorator:
    """The mark of a test that shows an engine doing something; a test may carry several.

    Without `store` it is the one that the test's fixture `served` stands for, or the folder. With `cannot` a pass means
    that the engine refuses, as expected, and that this is the reason to tell.
    """
    return pytest.mark.operation(engine, name, store=store, cannot=cannot)


class Recorder:
    """Writes what the tests of a run show to a file as they show it: a run that breaks off has lost nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def version(self, engine: str, version: str) -> None:
        """Which version of the engine runs."""
        self._keep(Version(engine=engine, version=version))

    def note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Take down one phase of a test; setting up counts only when it fails or skips, taking down when it fails."""
        if report.when != "call" and not report.failed and not report.skipped:
            return
        for mark in item.iter_markers("operation"):
            self._keep(_result(item, report, mark))

    def _keep(self, line: Line) -> None:
        if self._path is not None:
            append(self._path, line)


def append(path: Path, line: Line) -> None:
    """Add a line to what a part of a run has left so far."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


RECORDER: Final = Recorder(Path(os.environ[KEPT_IN]) if KEPT_IN in os.environ else None)


def read_results(folder: Path = RESULTS) -> Results:
    """What all parts left in the folder."""
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
    """The store that the fixture `served` stands for in this test."""
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


# How it is told.


class Told(msgspec.Struct, frozen=True):
    """The table as it is told: a text for each operation and engine, and the reasons for what is not plain."""

    headings: dict[str, str]
    cells: dict[tuple[str, str], str]
    reasons: dict[str, tuple[str, ...]]

    def beside(self, older: "Told") -> "Told":
        """These cells and their reasons in the place of the older ones, beside all that were not asked about now."""
        # Some part of an engine's tests may not know its version.
        known = {engine: text for engine, text in self.headings.items() if text != engine}
        headings = self.headings | older.headings | known
        reasons = {engine: self._reasons_beside(older, engine) for engine in headings}
        return Told(
            headings=headings,
            cells=older.cells | self.cells,
            reasons={engine: lines for engine, lines in reasons.items() if lines},
        )

    def _reasons_beside(self, older: "Told", engine: str) -> tuple[str, ...]:
        asked = {name for name, asked_of in self.cells if asked_of == engine}
        kept = [line for line in older.reasons.get(engine, ()) if line.partition(", ")[0] not in asked]
        return (*kept, *self.reasons.get(engine, ()))


def told(results: Results) -> Told:
    """A result per engine, operation and store, the worst where there are several."""
    worst: dict[tuple[str, str, str], Result] = {}
    for one in results.results:
        key = (one.engine, one.operation, one.store)
        worst[key] = _worse(worst.get(key), one)
    engines = {engine for engine, _, _ in worst}
    cells = {
        (name, engine): _cell({store: worst[engine, name, store].outcome for store in _stores(worst, engine, name)})
        for engine, name, _ in worst
    }
    reasons = {engine: _explained(one for one in worst.values() if one.engine == engine) for engine in engines}
    headings = {engine: f"{engine} {results.versions.get(engine, '')}".strip() for engine in engines}
    return Told(headings=headings, cells=cells, reasons={engine: lines for engine, lines in reasons.items() if lines})


def _stores(worst: Mapping[tuple[str, str, str], Result], engine: str, name: str) -> list[str]:
    return sorted((store for e, n, store in worst if (e, n) == (engine, name)), key=_place(STORES))


def _cell(outcomes: Mapping[str, Outcome]) -> str:
    by_outcome: dict[Outcome, list[str]] = {}
    for store, outcome in outcomes.items():
        by_outcome.setdefault(outcome, []).append(store)
    if set(by_outcome) == {"cannot"}:
        return _SIGNS["cannot"].strip()
    return ", ".join(f"{_SIGNS[outcome]}{' + '.join(stores)}" for outcome, stores in by_outcome.items())


def _explained(results: Iterable[Result]) -> tuple[str, ...]:
    """A line for each operation and reason, with the stores for which it holds."""
    stores: dict[tuple[str, str], list[str]] = {}
    for one in results:
        if one.reason:
            stores.setdefault((one.operation, " ".join(one.reason.split()).replace("|", "/")), []).append(one.store)
    in_order = sorted(stores, key=lambda key: _place(OPERATIONS)(key[0]))
    return tuple(
        f"{name}, {' + '.join(sorted(stores[name, reason], key=_place(STORES)))}: {reason}" for name, reason in in_order
    )


def _place(order: tuple[str, ...]) -> Callable[[str], tuple[int, str]]:
    """Sorts by a list first, and by the alphabet what is not on it."""
    return lambda name: (order.index(name) if name in order else len(order), name)


def _sorted_engines(matrix: Told) -> list[str]:
    return sorted(matrix.headings, key=_place(ENGINES))


def _sorted_operations(matrix: Told) -> list[str]:
    """Who reads whose tables comes last: it is a table of its own."""
    place = _place(OPERATIONS)
    return sorted({name for name, _ in matrix.cells}, key=lambda name: (name.startswith(READS_OF), *place(name)))


def markdown(matrix: Told) -> str:
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


def parsed(text: str) -> Told:
    """What `markdown` wrote."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    if not rows:
        return Told(headings={}, cells={}, reasons={})
    headings = {_engine_in(heading): heading for heading in rows[0][1:]}
    cells = {(row[0], engine): cell for row in rows[2:] for engine, cell in zip(headings, row[1:], strict=True) if cell}
    reasons: dict[str, tuple[str, ...]] = {}
    engine = ""
    for line in text.splitlines():
        if line.endswith(":") and line[:1] not in {"|", "-"}:
            engine = line[:-1]
        elif line.startswith("- "):
            reasons[engine] = (*reasons.get(engine, ()), line[2:])
    return Told(headings=headings, cells=cells, reasons=reasons)


def _engine_in(heading: str) -> str:
    """The engine without its version; the longest known name wins, as one has a number in its name."""
    known = [engine for engine in ENGINES if heading == engine or heading.startswith(f"{engine} ")]
    return max(known, key=len) if known else re.sub(r" v?\d\S*$", "", heading)


def rewritten(page: str, newer: Told, *, is_whole: bool = False) -> str:
    """The page with what was found in its place; what was not asked about now stays, unless this is the whole."""
    before, _, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    matrix = newer if is_whole else newer.beside(parsed(inside))
    return f"{before}{BEGIN}\n{markdown(matrix)}\n{END}{after}"


def show(console: Console, matrix: Told) -> None:
    """Some engines at a time, as many as are wide enough to be read."""
    engines = _sorted_engines(matrix)
    per_table = max((console.width - _OPERATION_WIDTH) // _ENGINE_WIDTH, 1)
    for first in range(0, len(engines), per_table):
        console.print(_table(matrix, engines[first : first + per_table]))
    for engine in engines:
        for reason in matrix.reasons.get(engine, ()):
            console.print(f"{engine}, {reason}", markup=False)


def _table(matrix: Told, engines: list[str]) -> Table:
    table = Table("operation", title="What each engine was seen to do")
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
    """Tell the table and write it; a run that was whole takes the place of all that was there.

    A failure is exit code 1.
    """
    results = read_results()
    matrix = told(results)
    show(Console(highlight=False), matrix)
    if matrix.headings:
        page = rewritten(PAGE.read_text(encoding="utf-8"), matrix, is_whole=is_whole)
        PAGE.write_text(page, encoding="utf-8")
    return int(any(one.outcome == "failed" for one in results.results))


if __name__ == "__main__":
    sys.exit(main())
