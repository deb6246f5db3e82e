"""The pages of the documentation, without their code blocks."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "proof" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)

_CODE_BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE_SPAN: Final = re.compile(r"`[^`\n]+`")


def prose(page: Path) -> str:
    """The page without code blocks; code spans stay."""
    return _CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


def words(page: Path) -> str:
    """The page without any code."""
    return _CODE_SPAN.sub("", prose(page))


def code_spans(page: Path) -> list[str]:
    return [span.strip("`") for span in _CODE_SPAN.findall(prose(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
