"""Random rows and filters, and an independent evaluation of a filter for one row."""

import math
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from sandur.iceberg.expressions.binding import result_type
from sandur.iceberg.expressions.transform_functions import apply_transform
from sandur.iceberg.expressions.values import parse_literal, value_to_json
from sandur.iceberg.partitioning import parse_transform
from sandur.iceberg.types import Primitive, primitive
from tests.planning.tables import COLUMNS, Row, Spec, is_nan

_LETTERS: Final = "abc\u00e9\uffee\U0001f600\x00"
_DAY: Final = 86_400_000_000

VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "id": st.integers(-4, 4) | st.sampled_from([-(2**63), 2**63 - 1]),
    "name": st.text("ab\x00", max_size=3) | st.text(_LETTERS, max_size=9),
    "ts": st.integers(-2, 2).map(lambda days: days * _DAY) | st.integers(-800 * _DAY, 800 * _DAY),
    "day": st.integers(-2, 2) | st.sampled_from([-366, -365, 364, 365]),
    "x": st.sampled_from([float("nan"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("-inf")]),
    "flag": st.booleans(),
    "amount": st.integers(-3, 3) | st.sampled_from([-50, 49, 50, 100]),
    "f": st.floats(width=32) | st.sampled_from([float("nan"), -1.0, 0.0, 1.0]),
    "bin": st.lists(st.sampled_from([0, 1, 255]), max_size=2).map(bytes),
    "i": st.integers(-4, 4),
    "s.inner": st.integers(-5, 5),
}

SPECS: Final = (
    Spec(0),
    Spec(1, (("name", "identity", 1000),)),
    Spec(2, (("id", "bucket[4]", 1001), ("ts", "day", 1002))),
    Spec(3, (("name", "truncate[2]", 1003), ("i", "truncate[3]", 1004))),
    Spec(4, (("ts", "month", 1005), ("flag", "identity", 1006))),
    Spec(5, (("amount", "identity", 1007), ("x", "identity", 1008))),
    Spec(6, (("day", "year", 1009), ("ts", "hour", 1010))),
    Spec(7, (("name", "bucket[3]", 1011), ("amount", "bucket[5]", 1012), ("day", "void", 1013))),
    Spec(8, (("amount", "truncate[50]", 1014), ("bin", "truncate[2]", 1015), ("s.inner", "identity", 1016))),
    Spec(9, (("name", "void", 1011),)),
    Spec(10, (("bin", "identity", 1017), ("f", "identity", 1018))),
    Spec(11, (("id", "truncate[3]", 1019),)),
)

TRANSFORMS: Final = {
    "id": ("bucket[4]", "truncate[3]"),
    "name": ("bucket[3]", "truncate[2]"),
    "ts": ("year", "month", "day", "hour", "bucket[4]"),
    "day": ("year", "month", "day", "bucket[4]"),
    "amount": ("bucket[5]", "truncate[50]"),
    "bin": ("bucket[3]", "truncate[2]"),
    "i": ("bucket[4]", "truncate[3]"),
    "s.inner": ("truncate[2]",),
}


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {name: values if COLUMNS[name][2] else st.none() | values for name, values in VALUES.items()}
    )
    # Few rows, too: only then can all rows of a file be null, be NaN, or have the same value.
    return st.lists(row, min_size=1, max_size=2) | st.lists(row, min_size=1, max_size=12)


def filters() -> st.SearchStrategy[Any]:
    return st.recursive(_tests(), _joined, max_leaves=6)


def _joined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda kind, left, right: {"type": kind, "left": left, "right": right}, _AND_OR, inner, inner
    ) | inner.map(lambda child: {"type": "not", "child": child})


_AND_OR = st.sampled_from(["and", "or"])


@st.composite
def _tests(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(list(COLUMNS)))
    term = draw(st.just(name) | st.sampled_from((*TRANSFORMS.get(name, ()), "void")).map(lambda text: of(text, name)))
    kind = kind_of(term)
    operators = ["is-null", "not-null", "lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "in", "not-in"]
    operators += ["starts-with", "not-starts-with"] if kind.name == "string" else []
    operators += ["is-nan", "not-nan"] if kind.name in {"double", "float"} else []
    operator = draw(st.sampled_from(operators))
    if operator in {"is-null", "not-null", "is-nan", "not-nan"}:
        return {"type": operator, "term": term}
    # JSON has no infinity and no NaN.
    plain = VALUES[name].filter(lambda value: not isinstance(value, float) or math.isfinite(value))
    values = plain.map(lambda value: value_to_json(kind, made(term, value)))
    if operator in {"in", "not-in"}:
        return {"type": operator, "term": term, "values": draw(st.lists(values, min_size=1, max_size=4))}
    return {"type": operator, "term": term, "value": draw(values)}


def of(text: str, name: str) -> dict[str, Any]:
    """A term: a transform of a column."""
    return {"type": "transform", "transform": text, "term": name}


def column_of(term: Any) -> str:
    return str(term if isinstance(term, str) else term["term"])


def kind_of(term: Any) -> Primitive:
    """The type of the compared values."""
    source = primitive(COLUMNS[column_of(term)][1])
    return source if isinstance(term, str) else result_type(parse_transform(term["transform"]), source)


def made(term: Any, value: Any) -> Any:
    """The value of a term. A void term has only literals, which match nothing."""
    if isinstance(term, str) or term["transform"] == "void":
        return value
    return apply_transform(parse_transform(term["transform"]), primitive(COLUMNS[column_of(term)][1]), value)


def holds(test: Any, row: Row) -> bool:  # noqa: PLR0911 - one line per operator
    """Whether a row matches. A null equals nothing, and is neither smaller nor greater than anything."""
    if isinstance(test, bool):
        return test
    match test["type"]:
        case "and":
            return holds(test["left"], row) and holds(test["right"], row)
        case "or":
            return holds(test["left"], row) or holds(test["right"], row)
        case "not":
            return not_holds(test["child"], row)
        case "is-null":
            return _value(test, row) is None
        case "not-null":
            return _value(test, row) is not None
        case "is-nan":
            return is_nan(_value(test, row))
        case "not-nan":
            return not is_nan(_value(test, row))
        case "not-eq" | "not-in" | "not-starts-with":
            positive = {**test, "type": test["type"].removeprefix("not-")}
            return _value(test, row) is None or not holds(positive, row)
        case operator:
            return (value := _value(test, row)) is not None and _compares(operator, test, value)


_OPPOSITES: Final = {
    "is-null": "not-null",
    "is-nan": "not-nan",
    "lt": "gt-eq",
    "lt-eq": "gt",
    "eq": "not-eq",
    "in": "not-in",
    "starts-with": "not-starts-with",
    "and": "or",
}
NEGATED: Final = _OPPOSITES | {right: left for left, right in _OPPOSITES.items()}


def not_holds(test: Any, row: Row) -> bool:
    """A `not` inverts the operator: for a null, neither `<` nor `not <` is true."""
    if isinstance(test, bool):
        return not test
    match test["type"]:
        case "not":
            return holds(test["child"], row)
        case "and":
            return not_holds(test["left"], row) or not_holds(test["right"], row)
        case "or":
            return not_holds(test["left"], row) and not_holds(test["right"], row)
        case operator:
            return holds({**test, "type": NEGATED[operator]}, row)


def _value(test: Any, row: Row) -> Any:
    term = test["term"]
    value = row.get(column_of(term))
    if value is None or (not isinstance(term, str) and term["transform"] == "void"):
        return None
    return made(term, value)


def _compares(operator: str, test: Any, value: Any) -> bool:
    kind = kind_of(test["term"])
    return compares(
        operator, value, [parse_literal(kind, one).value for one in test.get("values", [test.get("value")])]
    )


def compares(operator: str, value: Any, literals: Sequence[Any]) -> bool:
    """Compare a value that is not null with literals of its type."""
    first = literals[0]
    match operator:
        case "lt":
            return bool(value < first)
        case "lt-eq":
            return bool(value <= first)
        case "gt":
            return bool(value > first)
        case "gt-eq":
            return bool(value >= first)
        case "starts-with":
            return bool(value.startswith(first))
        case _:
            return value in literals
