"""Bound filters as JSON, in the older generation of names: no released client reads the newer one."""

from sandur.iceberg.expressions.predicates import SETS, UNARY, Both, Column, Either, Filter, Predicate
from sandur.iceberg.expressions.values import Json, spelled


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
    test: dict[str, Json] = {"type": found.operator, "term": _term(found.column)}
    if found.operator in UNARY:
        return test
    values: list[Json] = [spelled(found.column.type, value) for value in found.values]
    return {**test, "values": values} if found.operator in SETS else {**test, "value": values[0]}


def _term(column: Column) -> Json:
    if column.transform is None:
        return column.path
    return {"type": "transform", "transform": column.transform.text, "term": column.path}
