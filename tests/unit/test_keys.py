"""Which strings are valid keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.errors import BadRequest
from sandur.storage.keys import _PLAIN_KEY, KEY_BYTES_MAX, _key_problem, validate_key

PIECES = ["a", "Z", "0", ".", "..", "/", "//", "%", "=", "~", "-", "_", "é", " ", "\\", "\n", "x" * 250, "y" * 256]


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_the_fast_check_accepts_only_valid_keys(text: str) -> None:
    if _PLAIN_KEY.match(text) and len(text) <= KEY_BYTES_MAX:
        assert _key_problem(text) is None


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", ".", "a/../b", "a\nb", "a\n", "a\\b", "x" * 256, "a/" * 450 + "a"]
)
def test_an_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(BadRequest):
        validate_key(key)


@pytest.mark.parametrize("key", ["a", "tenant=t/_catalog/a%20b~/c.json", ".empty/x", "é", "a b", "x" * 255])
def test_a_valid_key_is_returned(key: str) -> None:
    assert validate_key(key) == key
