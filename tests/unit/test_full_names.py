"""Names as people type them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.identifiers import parse_path, path_text
from sandur.errors import BadRequest

PARTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=4)


@given(PARTS)
def test_a_name_is_read_as_it_is_written(parts: list[str]) -> None:
    assert parse_path(path_text(parts)) == tuple(parts)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b`", "`a`b", "``", "a.`"])
def test_a_malformed_name_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid name"):
        parse_path(text)
