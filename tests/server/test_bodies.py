"""Bodies of answers: spliced bytes are equal to encoded JSON."""

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import BadRequest
from sandur.server.context import whole_number
from sandur.server.iceberg_rest.tables import committed_body, identifiers_body, loaded_body

TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.text('",\\{}[]:', max_size=6)


class Document(NamedTuple):
    metadata_location: str | None
    metadata: bytes


@given(TEXT, st.lists(TEXT, max_size=6), st.none() | TEXT)
def test_a_page_of_identifiers_equals_the_encoding_of_each(level: str, names: list[str], token: str | None) -> None:
    namespace = Namespace("main", (level, "x"))
    entries = [Identifier("main", (level, "x"), name) for name in names]

    assert json.loads(identifiers_body(namespace, entries, token)) == {
        "identifiers": [{"namespace": [level, "x"], "name": name} for name in names],
        "next-page-token": token,
    }


@given(TEXT)
def test_metadata_is_spliced_in_unchanged(location: str) -> None:
    metadata = b'{"odd"  :  1.0,"snapshot-id":9007199254740993}'

    body = loaded_body(Document(location, metadata), b'{"token":"\\""}')

    assert metadata in body
    assert json.loads(body) == {
        "metadata-location": location,
        "metadata": json.loads(metadata),
        "config": {"token": '"'},
    }


def test_a_staged_table_has_no_location() -> None:
    assert json.loads(loaded_body(Document(None, b"{}"))) == {"metadata": {}, "config": {}}


def test_a_commit_returns_only_metadata_and_location() -> None:
    assert json.loads(committed_body(Document("file:/x", b"{}"))) == {"metadata-location": "file:/x", "metadata": {}}


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "", " 1", "\u0661", "9999999999"])
def test_a_page_size_is_a_number_of_at_least_one(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid pageSize"):
        whole_number(text, "pageSize", at_least=1)
