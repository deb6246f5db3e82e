"""Names in paths and queries: split while encoded, decoded level by level."""

from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandur.errors import BadRequest
from sandur.server.http import decode_levels, decode_query, decode_segment
from sandur.server.iceberg_rest.namespaces import parent_levels

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x1f\x00"), min_size=1, max_size=10)
LEVELS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)


@given(LEVELS)
def test_levels_are_decoded_from_both_encodings(levels: tuple[str, ...]) -> None:
    like_java = "%1F".join(quote_plus(level) for level in levels)
    like_python = quote("\x1f".join(levels), safe="")

    assert decode_levels(like_java.encode()) == levels
    assert decode_levels(like_python.encode()) == levels


@pytest.mark.parametrize(
    ("raw", "levels"),
    [
        (b"a%1fb", ("a", "b")),
        (b"a%1Fb", ("a", "b")),
        (b"a.b", ("a.b",)),
        (b"a%2Fb", ("a/b",)),
        (b"a+b%2Bc", ("a b+c",)),
        (b"a%251Fb", ("a%1Fb",)),
        ("é".encode(), ("é",)),
        (b"%E2%9D%84%1F%F0%9F%A7%8A", ("❄", "🧊")),
    ],
)
def test_a_namespace_is_split_before_it_is_decoded(raw: bytes, levels: tuple[str, ...]) -> None:
    assert decode_levels(raw) == levels


@pytest.mark.parametrize("raw", [b"%", b"a%2", b"a%zz", b"%ff", b"%C3", b"\xff", b"%ED%A0%80"])
def test_a_broken_escape_is_a_bad_request(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="Invalid path"):
        decode_segment(raw)


@given(LEVELS)
@example(("plain", "levels"))
def test_a_parent_is_understood_from_java_and_from_pyiceberg(levels: tuple[str, ...]) -> None:
    from_java = "\x1f".join(levels)
    from_pyiceberg = "\x1f".join(quote(level, safe="") for level in levels)
    from_older_ones = "%1F".join(quote(level, safe="") for level in levels)

    assert parent_levels(from_pyiceberg, is_encoded_twice=True) == levels
    assert parent_levels(from_older_ones, is_encoded_twice=True) == levels
    if len(levels) > 1:
        assert parent_levels(from_java, is_encoded_twice=False) == levels


def test_a_query_keeps_blank_values_and_the_first_of_repeated_keys() -> None:
    assert decode_query(b"pageToken=&pageSize=5&pageSize=6&parent=a%1Fb+c") == {
        "pageToken": "",
        "pageSize": "5",
        "parent": "a\x1fb c",
    }


@pytest.mark.parametrize("raw", [b"a=%ff", b"a=\xff", b"&".join(b"a%d=1" % place for place in range(200))])
def test_a_broken_query_is_a_bad_request(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="Invalid query"):
        decode_query(raw)
