"""Every table of the documentation is whole: each row is one line, with as many cells as the head."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, name_of, prose

_BAR: Final = re.compile(r"(?<!\\)\|")


def broken_rows(page: Path) -> list[str]:
    """The rows that are cut, or have another number of cells than the row above."""
    lines = [line.rstrip() for line in prose(page).splitlines()]
    rows = [line for line in lines if line.startswith("|")]
    cut = [line for line in rows if not line.endswith("|") or line == "|"]
    inside = [(above, line) for above, line in pairwise(lines) if above.startswith("|") and line.startswith("|")]
    uneven = [line for above, line in inside if len(_BAR.findall(above)) != len(_BAR.findall(line))]
    return list(dict.fromkeys([*cut, *uneven]))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_is_whole(page: Path) -> None:
    assert broken_rows(page) == []


def test_broken_rows_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| a | b |\n|---|---|\n| 1 | 2\n    more |\n| `x \\| y` | 3 |\n| 4 | 5 | 6 |\n", encoding="utf-8")

    assert broken_rows(page) == ["| 1 | 2", "| 4 | 5 | 6 |"]
