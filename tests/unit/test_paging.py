"""Page tokens."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.paging import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    checked_page_size,
    decode_page_token,
    encode_page_token,
)
from sandur.errors import BadRequest

TEXTS = st.lists(st.text(max_size=5), max_size=4)


@given(what=TEXTS, last=st.text(max_size=300))
def test_a_token_contains_the_end_of_its_page(what: list[str], last: str) -> None:
    token = encode_page_token(what, last)

    assert decode_page_token(token, what) == last
    assert token.isascii()
    assert token.replace("-", "").replace("_", "").isalnum()


@given(what=TEXTS, other=TEXTS)
def test_a_token_is_valid_for_one_list(what: list[str], other: list[str]) -> None:
    token = encode_page_token(what, "x")

    if what != other:
        with pytest.raises(BadRequest, match="does not belong to this list"):
            decode_page_token(token, other)


@given(token=st.text(min_size=1))
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(BadRequest, match="Invalid page token"):
        decode_page_token(token, ["a"])


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"[1]", b'{"a": 1}', b'[1,"x","y","z"]', b'[2,"x","y"]', b'["1","x","y"]', b"\xff\xfe"]
)
def test_an_encoded_value_that_is_not_a_token_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="Invalid page token"):
        decode_page_token(base64.urlsafe_b64encode(body).decode().rstrip("=") or "=", ["a"])


@pytest.mark.parametrize("size", [0, -1, -(10**9)])
def test_a_page_has_at_least_one_entry(size: int) -> None:
    with pytest.raises(BadRequest, match="Invalid page size"):
        checked_page_size(size)


def test_a_page_is_bounded() -> None:
    assert checked_page_size(None) == PAGE_SIZE_DEFAULT
    assert checked_page_size(1) == 1
    assert checked_page_size(10**9) == PAGE_SIZE_MAX
