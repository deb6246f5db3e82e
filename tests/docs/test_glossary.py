"""docs/glossary.md has at most thirty words, and the names it gives exist in the code."""

import importlib
import re
from typing import Final

import pytest

from sandur.catalog import records
from tests.docs.pages import ROOT

WORDS_MAX: Final = 30
_ROW: Final = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \| .+ \| (?P<names>.+) \|$", re.MULTILINE)
_NAME: Final = re.compile(r"`([a-z_]+(?:\.\w+)+|[A-Z]\w+(?:\.\w+)?)(?:\(.*?\))?`")


def rows() -> list[tuple[str, list[str]]]:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [(row["word"], _NAME.findall(row["names"])) for row in _ROW.finditer(page)]


def exists(name: str) -> bool:
    """Whether a name exists: a module below `sandur`, an attribute of one, or a record of the catalog."""
    parts = name.split(".")
    if parts[0][0].isupper():
        return _has(records, parts)
    for cut in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(["sandur", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        return _has(module, parts[cut:])
    return False


def _has(owner: object, names: list[str]) -> bool:
    for name in names:
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def test_there_are_at_most_thirty_distinct_words() -> None:
    words = [word for word, _ in rows()]

    assert 20 <= len(words) <= WORDS_MAX
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("name", [name for _, names in rows() for name in names])
def test_every_name_exists(name: str) -> None:
    assert exists(name)


def test_a_name_that_does_not_exist_is_found() -> None:
    assert not exists("storage.cell.Nothing")
    assert not exists("storage.nothing")
    assert not exists("Nothing")
