"""Check that every figure in a documented table of measurements is found in the result file that its section names."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parent.parent
_RESULT: Final = re.compile(r"bench/results/(\w+)\.json")
_NUMBER: Final = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w]*[A-Za-z]{3})")
_SCALES: Final = (1.0, 100.0, 1e-3, 1e3, 1e6)
"""A page may show seconds as milliseconds or microseconds and the reverse, and shares as percent."""


def missing_figures(page: Path, results: Path) -> Iterator[str]:
    """Figures in tables below a mention of a result file that the file does not contain."""
    for section in re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        names = sorted(set(_RESULT.findall(section)))
        if not names:
            continue
        known = [number for name in names for number in _numbers(json.loads((results / f"{name}.json").read_text()))]
        for line, figure in _table_figures(section):
            if not _is_known(figure, known):
                yield f"{page.name}: {figure} in {line!r} is not in {', '.join(names)}.json"


def _table_figures(section: str) -> Iterator[tuple[str, str]]:
    """The numbers of all table rows, without their first cell, which names the row."""
    rows = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|---")]
    headers = {rows[0]} if rows else set()
    headers |= {
        before
        for before, after in zip(section.splitlines(), section.splitlines()[1:], strict=False)
        if after.startswith("|---")
    }
    for row in rows:
        if row not in headers:
            for cell in row.strip("|").split("|")[1:]:
                yield from ((row, figure) for figure in _NUMBER.findall(cell))


def _is_known(figure: str, known: Sequence[float]) -> bool:
    value = float(figure.replace(",", ""))
    decimals = len(figure.partition(".")[2])
    return any(abs(number * scale - value) <= 10**-decimals for number in known for scale in _SCALES)


def _numbers(node: object) -> Iterator[float]:
    match node:
        case bool():
            return
        case int() | float():
            yield float(node)
        case dict():
            for value in node.values():
                yield from _numbers(value)
        case list():
            for value in node:
                yield from _numbers(value)


def main() -> int:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    found = [problem for page in pages for problem in missing_figures(page, REPOSITORY / "bench" / "results")]
    print("\n".join(found) if found else "Figures: all found in bench/results")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
