"""Reads Avro values of many records at a time, field by field.

Every function takes the positions at which a value begins in each of the records, and returns what stands there and the
positions behind it. Nothing is done record by record, which makes this many times as fast as reading records.

Positions only grow, and whoever reads looks in the end whether all records end where they should. So what lies behind
the end may be read on the way, as if nothing but zeros came there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

import numpy as np

from sandur.avro.container import Schema, varint
from sandur.iceberg.expressions.evaluation import Array, Mask
from sandur.iceberg.scan.array_layouts import (
    BITS,
    BYTES_TYPES,
    CONTINUES,
    NUMBER_BYTES_MAX,
    NUMBER_TYPES,
    Pattern,
    Row,
    alike,
    numbers_in,
    numbers_of,
    pattern_of,
    row_of,
    signed,
    widths_of,
)

_SMALL: Final = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(CONTINUES)], dtype=np.int8)
"""The numbers that take one byte."""

_ITEMS_MAX: Final = 10_000
_PLAIN: Final = (*NUMBER_TYPES, *BYTES_TYPES)
_PATTERNS_MAX: Final = 4
_ALIKE_MIN: Final = 16
_ALIKE_SHARE: Final = 4
"""A pattern that fewer than one in so many arrays have is not worth it."""

_VARYING_MAX: Final = 2_000
"""Beyond so many arrays, going through them number by number takes no longer."""

PADDING: Final = bytes(16)


class Numbers(NamedTuple):
    """One number per record; None for `valid` means that all of them are there.

    Of the keys of a map a single number, when it is that of all records.
    """

    values: Array
    valid: Mask | None = None


class Spans(NamedTuple):
    """One piece of the buffer per record."""

    starts: Array
    lengths: Array
    valid: Mask | None = None


class Items(NamedTuple):
    """The elements of an array per record: the first of all that have one, then the second, and so on.

    Each of `steps` has the records it is about and what stands in them. `valid` says which records have an array.
    """

    steps: "Steps | Later"
    records: int
    valid: Mask | None = None


class Fields(NamedTuple):
    """The fields of a record within each record."""

    fields: "dict[str, Read]"


class Missing(NamedTuple):
    """No record has it."""

    records: int


Read = Numbers | Spans | Items | Fields | Missing
Steps = list[tuple[Array, Read]]


class Later:
    """Elements that are read when they are gone through: numbers and bytes, of which it is known where they stand.

    `fields` are the types of what an element has, by name.
    """

    def __init__(self, parts: Sequence[Callable[[], Steps]], fields: Mapping[str, str]) -> None:
        self._parts = parts
        self.fields = fields

    def __iter__(self) -> Iterator[tuple[Array, Read]]:
        for part in self._parts:
            yield from part()


class Together(NamedTuple):
    """Which arrays are read at once, how many bytes they take, and what reads them, given their records and begins."""

    rows: Mask
    widths: Array | int
    read: Callable[[Array, Array], Steps]


class Unreadable(ValueError):
    """The bytes are not what the schema says, or the schema holds what is not read here."""


class Lanes:
    """The buffer that all records lie in."""

    def __init__(self, data: bytes) -> None:
        """`data` ends with padding, so that a number may be read at any position before."""
        self.buffer = np.frombuffer(data, dtype=np.uint8)
        self._data = data
        self._end = len(data) - len(PADDING)

    def read(self, schema: Schema, at: Array) -> tuple[Read, Array]:  # noqa: C901, PLR0911 - one line per type
        """The values of a schema that begin at these positions, and where they end."""
        if isinstance(schema, list):
            return self._union(schema, at)
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "int" | "long" | "enum":
                values, after = self.longs(at)
                return Numbers(values), after
            case "string" | "bytes":
                lengths, after = self.longs(at)
                self._check(lengths)
                return Spans(after, lengths), after + lengths
            case "boolean":
                return Numbers(self._bytes(at) != 0), at + 1
            case "float" | "double":
                return self._floats(at, 4 if kind == "float" else 8)
            case "fixed":
                lengths = np.full(len(at), schema["size"], dtype=np.int64)
                self._check(lengths)
                return Spans(at, lengths), at + lengths
            case "record":
                return self.record(schema["fields"], at)
            case "array":
                return self._array(schema["items"], at)
            case "null":
                return Numbers(np.zeros(len(at), dtype=np.int64), np.zeros(len(at), dtype=np.bool_)), at
            case _ if isinstance(kind, dict | list):
                return self.read(kind, at)
            case _:
                raise Unreadable(f"a type {kind!r}")

    def record(self, fields: list[Schema], at: Array) -> tuple[Fields, Array]:
        found: dict[str, Read] = {}
        for field in fields:
            found[field["name"]], at = self.read(field["type"], at)
        return Fields(found), at

    def longs(self, at: Array) -> tuple[Array, Array]:
        """Numbers of varying length; in bytes when all of them are that small, as most are."""
        first = self._bytes(at)
        after = at + 1
        if not len(first) or np.maximum.reduce(first) < CONTINUES:
            return _SMALL.take(first), after
        found = (first & BITS).astype(np.uint64)
        # Not only of those that go on: choosing them takes longer than reading all.
        goes_on = first >> 7
        for shift in range(7, 7 * NUMBER_BYTES_MAX, 7):
            following = self._bytes(after)
            found |= ((following & BITS) * goes_on).astype(np.uint64) << np.uint64(shift)
            after += goes_on
            goes_on &= following >> 7
            if not goes_on.any():
                return signed(found), after
        raise Unreadable("a number has too many bytes")

    def _bytes(self, at: Array) -> Array:
        return self.buffer.take(at, mode="clip")

    def _check(self, lengths: Array) -> None:
        if len(lengths) and (int(lengths.min()) < 0 or int(lengths.max()) > self._end):
            raise Unreadable("a text is cut off")

    def _floats(self, at: Array, width: int) -> tuple[Numbers, Array]:
        starts = np.minimum(at, self._end)
        gathered = np.ascontiguousarray(self.buffer[starts[:, None] + np.arange(width)])
        return Numbers(gathered.view(f"<f{width}")[:, 0].astype(np.float64)), at + width

    def _union(self, branches: list[Schema], at: Array) -> tuple[Read, Array]:
        """A union of null and one other type."""
        if len(branches) != 2 or (branches[0] == "null") == (branches[1] == "null"):  # noqa: PLR2004 - null and the other
            raise Unreadable("a union of something else than null and one type")
        other = 1 if branches[0] == "null" else 0
        chosen, at = self.longs(at)
        # The bits that any choice has: all of them are 0 or 1 when this is.
        bits = int(np.bitwise_or.reduce(chosen))
        if bits not in {0, 1}:
            raise Unreadable("a union has no such type")
        if bits == 0 or chosen.all():
            return self.read(branches[other], at) if bits == other else (Missing(len(at)), at)
        rows = np.flatnonzero(chosen == other)
        found, after = self.read(branches[other], at[rows])
        at = at.copy()
        at[rows] = after
        return _spread(found, rows, len(at)), at

    def _array(self, items: Schema, at: Array) -> tuple[Items, Array]:
        """Those that are laid out alike are read at once, so are those of as many numbers; others one by one."""
        parts: list[Callable[[], Steps]] = []
        rest = np.arange(len(at))
        after = at.copy()
        fields = _plain_fields(items)
        while fields and len(parts) < _PATTERNS_MAX and len(rest) >= _ALIKE_MIN:
            begins = at[rest]
            found = self._alike(items, fields, begins) or self._varying(items, fields, begins)
            if found is None:
                break
            rows = rest[found.rows]
            parts.append(partial(found.read, rows, at[rows]))
            after[rows] += found.widths
            rest = rest[~found.rows]
        if len(rest):
            walked, after[rest] = self._walked(items, at[rest])
            steps = [(rest[rows], read) for rows, read in walked]
            if not fields:
                return Items(steps, len(at)), after
            parts.append(lambda: steps)
        return Items(Later(parts, fields), len(at)), after

    def _alike(self, items: Schema, fields: dict[str, str], at: Array) -> Together | None:
        """The arrays that have the pattern of the first."""
        pattern = pattern_of(self._data, int(at[0]), fields)
        rows = None if pattern is None else alike(self.buffer, at, pattern)
        if pattern is None or rows is None or not _are_many(rows):
            return None
        return Together(rows, pattern.width, partial(self._read_alike, items, pattern))

    def _varying(self, items: Schema, fields: dict[str, str], at: Array) -> Together | None:
        """The arrays that have as many numbers as the first."""
        can_be = len(at) <= _VARYING_MAX and all(kind in NUMBER_TYPES for kind in fields.values())
        row = row_of(self._data, int(at[0]), len(fields)) if can_be else None
        found = None if row is None else widths_of(self.buffer, at, row)
        if row is None or found is None or not _are_many(found[0]):
            return None
        return Together(*found, partial(self._read_varying, items, list(fields), row))

    def _read_alike(self, items: Schema, pattern: Pattern, rows: Array, at: Array) -> Steps:
        """What stands in the arrays of these records, which all have the pattern."""
        numbers = numbers_in(self.buffer, at, pattern)
        steps: Steps = []
        for element in pattern.elements:
            read: dict[str, Read] = {}
            for name, place in element.items():
                if not place.is_number:
                    read[name] = Spans(at + place.start, _all_of(place.width, len(at)))
                elif place.start in numbers:
                    read[name] = Numbers(numbers[place.start])
                else:
                    read[name] = Numbers(_all_of(varint(self._data, int(at[0]) + place.start)[0], 1))
            steps.append((rows, Fields(read) if isinstance(items, dict) else read[""]))
        return steps

    def _read_varying(self, items: Schema, names: Sequence[str], row: Row, rows: Array, at: Array) -> Steps:
        """What stands in the arrays of these records, which all have as many numbers."""
        numbers = iter(numbers_of(self.buffer, at, row))
        steps: Steps = []
        for _ in range(row.numbers // len(names)):
            read: dict[str, Read] = {name: Numbers(next(numbers)) for name in names}
            steps.append((rows, Fields(read) if isinstance(items, dict) else read[""]))
        return steps

    def _walked(self, items: Schema, at: Array) -> tuple[Steps, Array]:
        """Arrays come in blocks, each with its count, and end with a block of none."""
        steps: Steps = []
        counts, at = self.longs(at)
        active = np.flatnonzero(counts)
        counts = counts[active]
        while len(active):
            sized = active[counts < 0]
            if len(sized):  # Blocks that also say how long they are.
                _, at[sized] = self.longs(at[sized])
                counts = np.abs(counts.astype(np.int64))
            longest, shortest = int(counts.max()), int(counts.min())
            if shortest < 0 or longest > _ITEMS_MAX - len(steps) or bool((at[active] + counts > self._end).any()):
                raise Unreadable("an array is too long")
            for place in range(longest):
                rows = active if place < shortest else active[counts > place]
                if len(rows) == len(at):
                    found, at = self.read(items, at)
                else:
                    found, at[rows] = self.read(items, at[rows])
                steps.append((rows, found))
            counts, at[active] = self.longs(at[active])
            active, counts = active[counts != 0], counts[counts != 0]
        return steps, at


def _are_many(rows: Mask) -> bool:
    return int(np.count_nonzero(rows)) * _ALIKE_SHARE >= len(rows)


@lru_cache(maxsize=32)
def _all_of(number: int, count: int) -> Array:
    """A number for all records; not to be changed."""
    found = np.full(count, number, dtype=np.int64)
    found.flags.writeable = False
    return found


def _plain_fields(items: Schema) -> dict[str, str]:
    """The fields of an array's elements when all are numbers and bytes; a field without a name when there is one."""
    match items:
        case "int" | "long":
            return {"": items}
        case {"type": "record", "fields": list(fields)}:
            found = {field["name"]: field["type"] for field in fields}
            return found if all(kind in _PLAIN for kind in found.values()) else {}
        case _:
            return {}


def _spread(found: Read, rows: Array, count: int) -> Read:
    """What was read in some of the records, for all of them."""
    valid = np.zeros(count, dtype=np.bool_)
    valid[rows] = True
    match found:
        case Numbers(values=values, valid=inner):
            spread = np.zeros(count, dtype=values.dtype)
            spread[rows] = values
            if inner is not None:
                valid[rows] = inner
            return Numbers(spread, valid)
        case Spans(starts=starts, lengths=lengths, valid=inner):
            at, sizes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            at[rows], sizes[rows] = starts, lengths
            if inner is not None:
                valid[rows] = inner
            return Spans(at, sizes, valid)
        case Items(steps=steps):
            return Items([(rows[places], step) for places, step in steps], count, valid)
        case Fields(fields=fields):
            return Fields({name: _spread(field, rows, count) for name, field in fields.items()})
        case Missing():
            return Missing(count)
