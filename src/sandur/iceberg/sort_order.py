"""Sort orders: binding to a schema, and equality."""

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.partitioning import check_transformable, parse_transform
from sandur.iceberg.schema import Schema
from sandur.splicing import Int32, shorten

UNSORTED_ID = 0
SORTED_ID_START = 1

_DIRECTIONS = ("asc", "desc")
_NULL_ORDERS = ("nulls-first", "nulls-last")


class SortField(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A sort field. `source_ids` replaces `source_id` for transforms of several columns."""

    transform: str
    source_id: Int32 | None = None
    source_ids: tuple[Int32, ...] | None = None
    direction: str
    null_order: str

    @property
    def sources(self) -> tuple[int, ...]:
        if self.source_ids:
            return self.source_ids
        if self.source_id is None:
            raise Invalid("Cannot parse sort field: missing source-id")
        return (self.source_id,)


class SortOrder(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A sort order; `order_id` is absent until one is assigned. No fields means unsorted, which has id 0."""

    order_id: Int32 | None = None
    fields: tuple[SortField, ...]


UNSORTED = SortOrder(fields=(), order_id=UNSORTED_ID)


def same_order(left: SortOrder, right: SortOrder) -> bool:
    """Whether two orders are equal apart from their ids."""
    # Sources first: nearly all orders differ there, and the comparison is cheap.
    sourced_alike = [field.sources for field in left.fields] == [field.sources for field in right.fields]
    return sourced_alike and list(map(_comparable, left.fields)) == list(map(_comparable, right.fields))


def _comparable(field: SortField) -> tuple[str, tuple[int, ...], str, str]:
    return parse_transform(field.transform).text, field.sources, field.direction.lower(), field.null_order.lower()


def bind_order(order: SortOrder, schema: Schema) -> SortOrder:
    """The order in canonical form; raises `Invalid` if its id or its fields break a rule."""
    if not order.fields and order.order_id not in {None, UNSORTED_ID}:
        raise Invalid("Unsorted order ID must be 0")
    if order.fields and order.order_id == UNSORTED_ID:
        raise Invalid("Sort order ID 0 is reserved for unsorted order")
    bound = SortOrder(fields=tuple(map(_canonical, order.fields)), order_id=order.order_id)
    check_order_fits(bound, schema)
    return bound


def _canonical(field: SortField) -> SortField:
    sources = field.sources
    single = len(sources) == 1
    return SortField(
        transform=parse_transform(field.transform).text,
        direction=_one_of(field.direction, _DIRECTIONS, "Invalid sort direction"),
        null_order=_one_of(field.null_order, _NULL_ORDERS, "Unexpected null order"),
        source_id=sources[0] if single else None,
        source_ids=None if single else sources,
    )


def _one_of(text: str, words: tuple[str, ...], fault: str) -> str:
    lowered = text.lower()
    if lowered not in words:
        raise Invalid(f"{fault}: {shorten(text)}")
    return lowered


def check_order_fits(order: SortOrder, schema: Schema) -> None:
    """Raise `Invalid` for an order whose sources are missing in the schema or cannot be transformed."""
    for field in order.fields:
        for source_id in field.sources:
            column = schema.columns.get(source_id)
            if column is None:
                raise Invalid(f"Cannot find source column for sort field: {order_field_text(field)}")
            check_transformable(column, parse_transform(field.transform), verb="sort")


def order_field_text(field: SortField) -> str:
    sources = ", ".join(map(str, field.sources))
    order = f"{field.direction} {field.null_order}".upper().replace("-", " ")
    return f"{shorten(field.transform)}({sources}) {shorten(order)}"
