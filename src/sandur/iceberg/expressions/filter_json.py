"""Filters as JSON: parsed predicate by predicate, and written from bound filters.

Two generations of the format are parsed: the one that clients send, and the one that the specification prefers. Only
the older one is written, because no released client reads the newer one.
"""

from collections.abc import Callable, Mapping
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from sandur.errors import BadRequest
from sandur.iceberg.expressions.predicates import NEGATED, SETS, UNARY, And, Filter, Operator, Or, Predicate, join
from sandur.iceberg.expressions.values import Json, value_to_json
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


class UnboundTerm(msgspec.Struct, frozen=True):
    """A column by name or by id, with an optional transform."""

    name: str | None = None
    id: int | None = None
    transform: Transform | None = None


class UnboundLiteral(msgspec.Struct, frozen=True):
    """A value of the request, with its type if the request names one."""

    value: Json
    data_type: str | None = None


class UnboundPredicate(msgspec.Struct, frozen=True):
    """A predicate that is not bound to a schema."""

    operator: Operator
    term: UnboundTerm
    literals: tuple[UnboundLiteral, ...] = ()


def parse_filter(
    given: Json, bind: Callable[[UnboundPredicate], Filter], *, depth: int = 0, is_negated: bool = False
) -> Filter:
    """Parse a filter, move every `not` into the predicates and bind them; BadRequest if it is not a filter."""
    if depth > DEPTH_MAX:
        raise BadRequest(f"Invalid filter: nested more than {DEPTH_MAX} levels deep")
    if isinstance(given, bool):
        return given is not is_negated
    if not isinstance(given, dict):
        raise _invalid("expected an object or a boolean", given)
    kind = given.get("type")
    match kind.lower() if isinstance(kind, str) else kind:
        case "true" | "false" as word:
            return (word == "true") is not is_negated
        case "literal" if isinstance(given.get("value"), bool):
            return bool(given["value"]) is not is_negated
        case "not":
            return parse_filter(_child(given, "child"), bind, depth=depth + 1, is_negated=not is_negated)
        case "and" | "or" as word:
            # Both sides are always bound: a bad column is an error anywhere.
            left = parse_filter(_child(given, "left"), bind, depth=depth + 1, is_negated=is_negated)
            right = parse_filter(_child(given, "right"), bind, depth=depth + 1, is_negated=is_negated)
            return join(And if (word == "and") is not is_negated else Or, left, right)
        case str() as word if word.replace("_", "-") in NEGATED:
            predicate = _parse_predicate(cast("Operator", word.replace("_", "-")), given)  # The guard has checked it.
            return bind(replace(predicate, operator=NEGATED[predicate.operator]) if is_negated else predicate)
        case _:
            raise _invalid("no such operator", given)


def _parse_predicate(operator: Operator, given: Mapping[str, Json]) -> UnboundPredicate:
    if operator in UNARY or operator in SETS:
        term = _parse_term(_child(given, "child" if "child" in given else "term"))
        return UnboundPredicate(operator, term, _parse_literals(_child(given, "values")) if operator in SETS else ())
    if "term" in given:
        return UnboundPredicate(operator, _parse_term(given["term"]), (_parse_literal(_child(given, "value")),))
    left, right = _child(given, "left"), _child(given, "right")
    if _is_term(left) and not _is_term(right):
        return UnboundPredicate(operator, _parse_term(left), (_parse_literal(right),))
    if _is_term(right) and not _is_term(left) and operator in _FLIPPED:
        return UnboundPredicate(_FLIPPED[operator], _parse_term(right), (_parse_literal(left),))
    raise _invalid("expected a column and a literal", dict(given))


def _is_term(given: Json) -> bool:
    # Not a set, because the type in a request may not be hashable.
    return isinstance(given, dict) and given.get("type") in ("reference", "apply", "transform")


def _parse_term(given: Json) -> UnboundTerm:
    if isinstance(given, str):
        return UnboundTerm(name=given)
    if isinstance(given, dict):
        match given.get("type"):
            case "reference":
                name, field_id = given.get("name", given.get("term")), given.get("id")
                if isinstance(name, str):
                    return UnboundTerm(name=name)
                if isinstance(field_id, int) and not isinstance(field_id, bool):
                    return UnboundTerm(id=field_id)
                raise _invalid("a reference has a name or an id", given)
            case "transform":
                return _parse_transform(given.get("transform"), [_child(given, "term")])
            case "apply":
                return _parse_transform(given.get("function"), given.get("arguments"))
            case _:
                pass
    raise _invalid("expected a column or a transform of one", given)


def _parse_transform(function: Json, arguments: Json) -> UnboundTerm:
    if not isinstance(function, str) or not isinstance(arguments, list):
        raise _invalid("expected a function and its arguments", {"function": function, "arguments": arguments})
    terms = [argument for argument in arguments if isinstance(argument, str) or _is_term(argument)]
    widths = [_parse_literal(argument).value for argument in arguments if argument not in terms]
    text = function
    if widths and function.lower() in _WITH_WIDTH:
        text = f"{function}[{widths[0]}]"
        widths = widths[1:]
    found = parse_transform(text)
    if len(terms) != 1 or widths or not found.name:
        raise _invalid("no such function", {"function": function, "arguments": arguments})
    term = _parse_term(terms[0])
    if term.transform is not None:
        raise _invalid("a transform of a transform", {"function": function, "arguments": arguments})
    return UnboundTerm(name=term.name, id=term.id, transform=found)


def _parse_literal(given: Json) -> UnboundLiteral:
    if isinstance(given, dict):
        if given.get("type") != "literal" or "value" not in given:
            raise _invalid("expected a literal", given)
        data_type = given.get("data-type")
        return UnboundLiteral(given["value"], data_type if isinstance(data_type, str) else None)
    if given is None or isinstance(given, list):
        raise _invalid("expected a literal", given)
    return UnboundLiteral(given)


def _parse_literals(given: Json) -> tuple[UnboundLiteral, ...]:
    data_type: Json = None
    if isinstance(given, dict) and given.get("type") == "literals":
        data_type = given.get("data-type")
        given = given.get("values")
    if not isinstance(given, list):
        raise _invalid("expected an array of literals", given)
    found = tuple(_parse_literal(value) for value in given)
    return tuple(UnboundLiteral(one.value, data_type) for one in found) if isinstance(data_type, str) else found


def _child(given: Mapping[str, Json], name: str) -> Json:
    if name not in given:
        raise _invalid(f"{name} is missing", dict(given))
    return given[name]


def _invalid(reason: str, given: Json) -> BadRequest:
    return BadRequest(f"Invalid filter: {reason}: {shorten(encode(given).decode())}")


def filter_to_json(found: Filter) -> Json:
    """The filter as released clients read it. True and false are bare booleans."""
    match found:
        case bool():
            return found
        case And(left=left, right=right) | Or(left=left, right=right):
            kind = "and" if isinstance(found, And) else "or"
            return {"type": kind, "left": filter_to_json(left), "right": filter_to_json(right)}
        case Predicate():
            return _predicate_to_json(found)


def _predicate_to_json(found: Predicate) -> Json:
    path, transform = found.column.path, found.column.transform
    term: Json = {"type": "transform", "transform": transform.text, "term": path} if transform else path
    written: dict[str, Json] = {"type": found.operator, "term": term}
    if found.operator in UNARY:
        return written
    values: list[Json] = [value_to_json(found.column.type, value) for value in found.values]
    return {**written, "values": values} if found.operator in SETS else {**written, "value": values[0]}
