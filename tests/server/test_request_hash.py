"""Request hashes: equal requests have equal hashes, different ones do not."""

import json
from random import Random  # noqa: TID251 - made by Hypothesis, hence seeded

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from sandur.errors import BadRequest
from sandur.server.context import Json, parse_json, request_hash, validate_key

SAFE = st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | SAFE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def canonical(text: str) -> bytes:
    return parse_json(text.encode(), depth_max=50).canonical()


def hash_of(body: bytes, operation: str = "updateTable", *names: str) -> str:
    return request_hash(operation, names, parse_json(body, depth_max=50).canonical() if body else b"")


@given(VALUES)
def test_the_canonical_form_follows_rfc_8785_within_its_range(value: Json) -> None:
    expected = rfc8785.dumps(value)

    assert canonical(json.dumps(value, ensure_ascii=True)) == expected
    assert canonical(json.dumps(value, ensure_ascii=False)) == expected


@given(st.dictionaries(TEXT, st.integers(), min_size=2), st.randoms(use_true_random=False))
def test_key_order_and_whitespace_do_not_matter(value: dict[str, int], chance: Random) -> None:
    items = list(value.items())
    chance.shuffle(items)

    assert canonical(json.dumps(value)) == canonical(json.dumps(dict(items), indent=3))


@pytest.mark.parametrize("extra", ["", ', "b": 1.5'])
def test_neighbouring_snapshot_ids_beyond_two_to_the_53_differ(extra: str) -> None:
    bodies = [f'{{"snapshot-id": {2**62 + step}{extra}}}'.encode() for step in range(3)]

    assert len({hash_of(body) for body in bodies}) == 3


def test_a_number_and_its_text_have_different_hashes() -> None:
    assert hash_of(b'{"a": 9007199254740993}') != hash_of(b'{"a": "9007199254740993"}')


def test_notations_of_one_number_have_the_same_hash() -> None:
    assert hash_of(b"[1000, 1.5]") == hash_of(b"[1e3, 1.50]")


def test_the_order_of_an_array_matters() -> None:
    assert hash_of(b"[1, 2]") != hash_of(b"[2, 1]")


def test_operation_and_names_are_part_of_the_hash() -> None:
    hashes = {
        hash_of(b""),
        hash_of(b"", "dropTable"),
        hash_of(b"", "dropTable", "main", "a", "b"),
        hash_of(b"", "dropTable", "main", "a\x1fb"),
        hash_of(b"", "dropTable", "main", "a", "b", "purge=True"),
    }

    assert len(hashes) == 5


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"[NaN]",
        b"[1e400]",
        b'"\\ud800"',
        b'"\xff"',
        b"[" * 51 + b"]" * 51,
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_invalid_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_json(body, depth_max=50).canonical()


def test_depth_counts_nesting_not_brackets() -> None:
    wide = b"[" + b",".join([b'{"a":[]}'] * 500) + b"]"
    in_text = b'"' + b"[" * 500 + b'"'

    assert parse_json(wide, depth_max=3).canonical() == wide
    assert parse_json(in_text, depth_max=1).canonical() == in_text
    with pytest.raises(BadRequest, match="more than 2 levels"):
        parse_json(wide, depth_max=2)


def test_a_key_in_upper_case_is_the_same_key() -> None:
    assert validate_key("017F22E2-79B0-7CC3-98C4-DC0C0C07398F") == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",  # version 4
        "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",  # another variant
        "017f22e279b07cc398c4dc0c0c07398f",
        "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n1",
    ],
)
def test_a_key_that_is_not_a_uuid_v7_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Idempotency-Key"):
        validate_key(text)
