"""Full names of Unity Catalog."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.identifiers import (
    Identifier,
    Namespace,
    checked_new_name,
    full_name_of,
    has_full_name,
    identifier_from_parts,
    parse_full_name,
    parse_schema_name,
)
from sandur.errors import BadRequest

PARTS = st.text(min_size=1, max_size=5).filter(has_full_name)


@given(catalog=PARTS, levels=st.lists(PARTS, min_size=1, max_size=3).map(tuple), name=PARTS)
def test_a_full_name_is_parsed_into_its_parts(catalog: str, levels: tuple[str, ...], name: str) -> None:
    identifier = Identifier(catalog, levels, name)

    assert parse_full_name(full_name_of(identifier)) == identifier
    assert parse_schema_name(full_name_of(identifier.namespace)) == identifier.namespace
    assert identifier_from_parts(catalog, ".".join(levels), name) == identifier


@pytest.mark.parametrize("text", ["", "a", "a.b", "a..b", ".a.b", "a.b."])
def test_an_invalid_full_name_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_full_name(text)


def test_the_full_name_of_a_schema_has_a_catalog() -> None:
    assert parse_schema_name("main.a.b") == Namespace("main", ("a", "b"))
    with pytest.raises(BadRequest):
        parse_schema_name("main")


@pytest.mark.parametrize("text", ["", "a.b", "a b", "a/b", "ä", "x" * 256, "a\n"])
def test_invalid_names_of_new_objects_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        checked_new_name("table", text)
    assert checked_new_name("table", "Az_09-@") == "Az_09-@"
