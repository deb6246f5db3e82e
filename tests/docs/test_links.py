"""Every relative link and every source path in the documentation exists."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, ROOT, code_spans, name_of, prose

_LINK: Final = re.compile(r"\]\((?!https?:)(?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING: Final = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
_SOURCE: Final = re.compile(r"(?:[\w.-]+/)+(?:[\w-]+\.(?:py|md|json|toml))?")
_CODE_BLOCK: Final = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DRAWN: Final = re.compile(r"(?<![\w/.])(?:[a-z_]+/)+[a-z_]+\.py\b")
# Where a path may begin. A path below another root, such as a key of the store, is not a source path.
_ROOTS: Final = (ROOT, ROOT / "src", ROOT / "src" / "sandur")


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as GitHub derives them from its headings."""
    headings = (match["text"].lower() for match in _HEADING.finditer(prose(page)))
    return {re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in _LINK.finditer(prose(page)):
        target = (page.parent / link["target"]).resolve() if link["target"] else page
        if not target.exists() or (link["anchor"] and link["anchor"] not in anchors(target)):
            broken.append(link[0])
    return broken


def missing_paths(page: Path) -> list[str]:
    """Source paths in code spans and drawings that do not exist: `storage/cell.py`, `tests/crash/`."""
    drawn = _DRAWN.findall("\n".join(_CODE_BLOCK.findall(page.read_text(encoding="utf-8"))))
    found = [*(span for span in code_spans(page) if _SOURCE.fullmatch(span) and _is_ours(span, page)), *drawn]
    return [path for path in found if not any((root / path).exists() for root in (*_ROOTS, page.parent))]


def _is_ours(path: str, page: Path) -> bool:
    first = path.split("/", maxsplit=1)[0]
    return path.endswith(".py") or any((root / first).is_dir() for root in (*_ROOTS, page.parent))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_has_a_target(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_source_path_exists(page: Path) -> None:
    assert missing_paths(page) == []


def test_broken_links_and_missing_paths_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n[a](#a-title) [b](#nothing) [c](page.md) [d](gone.md) [e](https://example.org)\n"
        "`storage/cell.py` `storage/gone.py` `_delta_log/1.json` `operations/gone/`\n"
        "```\nstorage/cell.py → storage/drawn.py\n```\n",
        encoding="utf-8",
    )

    assert broken_links(page) == ["](#nothing)", "](gone.md)"]
    assert missing_paths(page) == ["storage/gone.py", "operations/gone/", "storage/drawn.py"]
