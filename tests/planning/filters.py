"""Random rows and random filters, and what a filter says of a row, worked out on its own."""

from typing import Any, Final

from hypothesis import strategies as st

from sandur.iceberg.expressions.transforming import transformed
from sandur.iceberg.expressions.values import literal, spelled
from sandur.iceberg.transforms import transform
from sandur.iceberg.types import primitive
from tests.planning.tables import COLUMNS, Row, Spec, is_nan

_LETTERS: Final = "abc\u00e9\U0001f600"
_DAY: Final = 86_400_000_000

VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "id": st.integers(-4, 4) | st.sampled_from([-(2**63), 2**63 - 1]),
    "name": st.text("ab", max_size=3) | st.text(_LETTERS, max_size=9),
    "ts": st.integers(-2, 2).map(lambda days: days * _DAY) | st.integers(-800 * _DAY, 800 * _DAY),
    "day": st.integers(-2, 2) | st.sampled_from([-366, -365, 364, 365]),
    "x": st.integers(-2, 2).map(float) | st.just(float("nan")),
    "flag": st.booleans(),
    "amount": st.integers(-3, 3) | st.sampled_from([-50, 49, 50, 100]),
    "f": st.floats(width=32, allow_infinity=False) | st.integers(-1, 1).map(float),
    "bin": st.binary(max_size=3),
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
)


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {name: values if COLUMNS[name][2] else st.none() | values for name, values in VALUES.items()}
    )
    return st.lists(row, min_size=1, max_size=12)


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
    kind = COLUMNS[name][1]
    operators = ["is-null", "not-null", "lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "in", "not-in"]
    operators += ["starts-with", "not-starts-with"] if kind == "string" else []
    operators += ["is-nan", "not-nan"] if kind in {"double", "float"} else []
    operator = draw(st.sampled_from(operators))
    if operator in {"is-null", "not-null", "is-nan", "not-nan"}:
        return {"type": operator, "term": name}
    values = VALUES[name].filter(lambda value: not is_nan(value)).map(lambda value: spelled(primitive(kind), value))
    if operator in {"in", "not-in"}:
        return {"type": operator, "term": name, "values": draw(st.lists(values, min_size=1, max_size=4))}
    return {"type": operator, "term": name, "value": draw(values)}


def holds(test: Any, row: Row) -> bool:  # noqa: PLR0911 - one line per operator
    """What the filter says of a row. A null is not equal to anything, and neither smaller nor greater."""
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
_NEGATED: Final = _OPPOSITES | {right: left for left, right in _OPPOSITES.items()}


def not_holds(test: Any, row: Row) -> bool:
    """A `not` in front of a test turns the test around: of a null, neither `<` nor `not <` holds."""
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
            return holds({**test, "type": _NEGATED[operator]}, row)


def _value(test: Any, row: Row) -> Any:
    term = test["term"]
    name = term if isinstance(term, str) else term["term"]
    value = row.get(name)
    if isinstance(term, str) or value is None:
        return value
    return transformed(transform(term["transform"]), primitive(COLUMNS[name][1]), value)


def _compares(operator: str, test: Any, value: Any) -> bool:
    kind = primitive(COLUMNS[test["term"]][1])
    given = [literal(kind, one).value for one in test.get("values", [test.get("value")])]
    first: Any = given[0]
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
            return value in given
