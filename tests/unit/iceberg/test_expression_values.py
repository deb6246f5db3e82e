"""Literals of filters, in the forms in which clients send them."""

import json
import sys

import msgspec
import pytest

from sandur.errors import BadRequest
from sandur.iceberg.expressions.values import ColumnLiteral, parse_literal, value_to_json
from sandur.iceberg.types import Primitive


@pytest.mark.parametrize("name", ["float", "double"])
@pytest.mark.parametrize(("text", "number"), [("2.0", 2.0), ("-17", -17.0), ("1.5E+2", 150.0), ("+0.25", 0.25)])
def test_a_number_as_text_is_accepted_for_a_numeric_column(name: str, text: str, number: float) -> None:
    assert parse_literal(Primitive(name, name, name), text) == ColumnLiteral(number)


def test_a_text_beyond_the_highest_number_is_between_it_and_infinity() -> None:
    assert parse_literal(Primitive("double", "double", "double"), "1e999") == ColumnLiteral(sys.float_info.max, 1)
    assert parse_literal(Primitive("float", "float", "float"), "-1e99") == ColumnLiteral(-3.4028234663852886e38, -1)


@pytest.mark.parametrize("name", ["float", "double"])
@pytest.mark.parametrize(("text", "written"), [("Infinity", b"1e999"), ("-Infinity", b"-1e999")])
def test_infinity_is_read_from_java_and_written_for_all_clients(name: str, text: str, written: bytes) -> None:
    column = Primitive(name, name, name)
    found = parse_literal(column, text)

    assert found == ColumnLiteral(float(text))
    assert msgspec.json.encode(value_to_json(column, found.value)) == written
    assert json.loads(written) == found.value


@pytest.mark.parametrize("text", ["", "two", "nan", "NaN", "inf", "1_000", "0x10", "1.", ".5", "2.0 ", "\uff11", "2\n"])
@pytest.mark.parametrize("name", ["float", "double"])
def test_a_text_that_is_not_a_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid value for conversion"):
        parse_literal(Primitive(name, name, name), text)


@pytest.mark.parametrize("name", ["int", "long", "date", "boolean"])
def test_a_fraction_as_text_is_refused_for_other_columns(name: str) -> None:
    with pytest.raises(BadRequest, match="Invalid value for conversion"):
        parse_literal(Primitive(name, name, name), "2.5")
