"""The documentation uses plain words."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, name_of, words

_BANNED: Final = re.compile(
    r"\b(told|spelled|anew|whoever|nobody|by lot|so many|what for|is none|is no more|comes to be)\b", re.IGNORECASE
)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_uses_a_banned_word(page: Path) -> None:
    assert _BANNED.findall(words(page)) == []


def test_a_banned_word_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It is told anew. `told`\n```\nnobody\n```\n", encoding="utf-8")

    assert _BANNED.findall(words(page)) == ["told", "anew"]
