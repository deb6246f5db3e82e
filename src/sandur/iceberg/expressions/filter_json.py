"""Filters as JSON: parsed in both generations of the format, written in the one that released clients read."""

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from sandur.errors import BadRequest
from sandur.iceberg.expressions.predicates import (
    COMPARISONS,
    NEGATED,
    OPERATORS,
    SETS,
    UNARY,
    Both,
    Column,
    Either,
    Filter,
    Operator,
    Predicate,
)
from sandur.iceberg.expressions.values import Json, spelled
from sandur.iceberg.partitioning import Transform, parse_transform
from sandur.splicing import encode, shorten

DEPTH_MAX: Final = 200
_FLIPPED: Final[dict[str, Operator]] = {
    "lt": "gt",
    "lt-eq": "gt-eq",
    "gt": "lt",
    "gt-eq": "lt-eq",
    "eq": "eq",
    "not-eq": "not-eq",
}
_WITH_WIDTH: Final = frozenset({"bucket", "truncate"})


class Term(msgspec.Struct, frozen=True):
    """What a predicate names: a column by name or by id, and perhaps a transform of it."""

    name: str | None = None
    id: int | None = None
    transform: Transform | None = None


class Literal(msgspec.Struct, frozen=True):
    """A value as it was sent, with its type if that was said."""

    value: Json
    data_type: str | None = None


class Test(msgspec.Struct, frozen=True):
    """A predicate that knows no schema yet."""

    operator: Operator
    term: Term
    literals: tuple[Literal, ...] = ()


class And(msgspec.Struct, frozen=True):
    left: "Unbound"
    right: "Unbound"


class Or(msgspec.Struct, frozen=True):
    left: "Unbound"
    right: "Unbound"


Unbound = bool | Test | And | Or


def parsed_filter(given: Json, *, depth: int = 0, is_negated: bool = False) -> Unbound:
    """The filter, with every `not` pushed into the leaves; BadRequest for anything that is none."""
    if depth > DEPTH_MAX:
        raise BadRequest(f"Invalid filter: nested more than {DEPTH_MAX} levels deep")
    if isinstance(given, bool):
        return given is not is_negated
    if not isinstance(given, dict):
        raise _refused("expected an object or a boolean", given)
    kind = given.get("type")
    match kind.lower() if isinstance(kind, str) else kind:
        case "true" | "false" as word:
            return (word == "true") is not is_negated
        case "literal" if isinstance(given.get("value"), bool):
            return bool(given["value"]) is not is_negated
        case "not":
            return parsed_filter(_child(given, "child"), depth=depth + 1, is_negated=not is_negated)
        case "and" | "or" as word:
            left = parsed_filter(_child(given, "left"), depth=depth + 1, is_negated=is_negated)
            right = parsed_filter(_child(given, "right"), depth=depth + 1, is_negated=is_negated)
            return And(left, right) if (word == "and") is not is_negated else Or(left, right)
        case str() as word if word.replace("_", "-") in OPERATORS:
            test = _test(cast("Operator", word.replace("_", "-")), given)  # One of them, as the guard says.
            return Test(NEGATED[test.operator], test.term, test.literals) if is_negated else test
        case _:
            raise _refused("no such operator", given)


def _test(operator: Operator, given: Mapping[str, Json]) -> Test:
    if operator in UNARY:
        return Test(operator, _term(_either(given, "child", "term")))
    if operator in SETS:
        term = _term(_either(given, "child", "term"))
        return Test(operator, term, _literals(_child(given, "values")))
    if operator not in COMPARISONS:
        raise _refused("no such operator", dict(given))
    if "term" in given:
        return Test(operator, _term(given["term"]), (_literal(_child(given, "value")),))
    left, right = _child(given, "left"), _child(given, "right")
    if _is_term(left) and not _is_term(right):
        return Test(operator, _term(left), (_literal(right),))
    if _is_term(right) and not _is_term(left) and operator in _FLIPPED:
        return Test(_FLIPPED[operator], _term(right), (_literal(left),))
    raise _refused("expected a column and a literal", dict(given))


def _is_term(given: Json) -> bool:
    # Not a set: what was sent as the type need not be hashable.
    return isinstance(given, dict) and given.get("type") in ("reference", "apply", "transform")


def _term(given: Json) -> Term:
    if isinstance(given, str):
        return Term(name=given)
    if isinstance(given, dict):
        match given.get("type"):
            case "reference":
                return _reference(given)
            case "transform":
                return _transformed(given.get("transform"), [_child(given, "term")])
            case "apply":
                return _transformed(given.get("function"), given.get("arguments"))
            case _:
                pass
    raise _refused("expected a column or a transform of one", given)


def _reference(given: Mapping[str, Json]) -> Term:
    name, field_id = given.get("name", given.get("term")), given.get("id")
    if isinstance(name, str):
        return Term(name=name)
    if isinstance(field_id, int) and not isinstance(field_id, bool):
        return Term(id=field_id)
    raise _refused("a reference has a name or an id", dict(given))


def _transformed(function: Json, arguments: Json) -> Term:
    if not isinstance(function, str) or not isinstance(arguments, list):
        raise _refused("expected a function and its arguments", {"function": function, "arguments": arguments})
    terms = [argument for argument in arguments if isinstance(argument, str) or _is_term(argument)]
    widths = [_literal(argument).value for argument in arguments if argument not in terms]
    text = function
    if widths and function.lower() in _WITH_WIDTH:
        text = f"{function}[{widths[0]}]"
        widths = widths[1:]
    found = parse_transform(text)
    if len(terms) != 1 or widths or not found.name:
        raise _refused("no such function", {"function": function, "arguments": arguments})
    term = _term(terms[0])
    if term.transform is not None:
        raise _refused("a transform of a transform", {"function": function, "arguments": arguments})
    return Term(name=term.name, id=term.id, transform=found)


def _literal(given: Json) -> Literal:
    if isinstance(given, dict):
        if given.get("type") != "literal" or "value" not in given:
            raise _refused("expected a literal", given)
        data_type = given.get("data-type")
        return Literal(given["value"], data_type if isinstance(data_type, str) else None)
    if given is None or isinstance(given, list):
        raise _refused("expected a literal", given)
    return Literal(given)


def _literals(given: Json) -> tuple[Literal, ...]:
    data_type: Json = None
    if isinstance(given, dict) and given.get("type") == "literals":
        data_type = given.get("data-type")
        given = given.get("values")
    if not isinstance(given, list):
        raise _refused("expected an array of literals", given)
    found = tuple(_literal(value) for value in given)
    return tuple(Literal(one.value, data_type) for one in found) if isinstance(data_type, str) else found


def _child(given: Mapping[str, Json], name: str) -> Json:
    if name not in given:
        raise _refused(f"{name} is missing", dict(given))
    return given[name]


def _either(given: Mapping[str, Json], preferred: str, deprecated: str) -> Json:
    return given[preferred] if preferred in given else _child(given, deprecated)


def _refused(reason: str, given: Json) -> BadRequest:
    return BadRequest(f"Invalid filter: {reason}: {shorten(encode(given).decode())}")


def spelled_filter(found: Filter) -> Json:
    """The filter as clients read it; true and false as bare booleans."""
    match found:
        case bool():
            return found
        case Both(left=left, right=right):
            return {"type": "and", "left": spelled_filter(left), "right": spelled_filter(right)}
        case Either(left=left, right=right):
            return {"type": "or", "left": spelled_filter(left), "right": spelled_filter(right)}
        case Predicate():
            return _spelled_predicate(found)


def _spelled_predicate(found: Predicate) -> Json:
    test: dict[str, Json] = {"type": found.operator, "term": _term_json(found.column)}
    if found.operator in UNARY:
        return test
    values: list[Json] = [spelled(found.column.type, value) for value in found.values]
    return {**test, "values": values} if found.operator in SETS else {**test, "value": values[0]}


def _term_json(column: Column) -> Json:
    if column.transform is None:
        return column.path
    return {"type": "transform", "transform": column.transform.text, "term": column.path}
