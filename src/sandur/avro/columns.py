"""The records of an Avro file as columns: `read_columns` is the one function that readers of Avro files call.

The begin of a record is known only after the record before it has been read. But every record has a text, the anchor,
such as a path, and the anchors of a file share a prefix. A search finds all anchors at once. From its anchor a record
can be read to its end, which has to be the begin of the next record. If everything fits, the positions are right. If
anything does not, Unreadable is raised, and the caller reads record by record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sandur.avro.arrow_columns import concat_columns, map_columns, numbers, to_column
from sandur.avro.batch_reader import PADDING, Array, BatchReader, Fields, Items, Mask, Numbers, Unreadable, windows
from sandur.avro.container import CONTINUES, Container, Schema, read_records, varint

RECORDS_MIN: Final = 64
"""With fewer records, reading record by record is as fast."""

PIECE_RECORDS: Final = 8_000
PIECE_BYTES: Final = 4 << 20
"""Large files are decoded in pieces of some blocks: decoding takes many times the memory of the piece."""

PIECE_BYTES_MAX: Final = 32 << 20
"""No writer makes larger blocks. Reading them record by record takes less memory."""

_NUMBER_TYPES: Final = ("int", "long")
_PREFIX_BYTES_MIN: Final = 4
_FOLDERS_UP_MAX: Final = 8
_SAMPLE_BYTES: Final = 4096
_TIMES_THE_DATA_MAX: Final = 8


class Layout(NamedTuple):
    """Which fields of a record become which columns.

    The last field of a record is a nested record, `inner`. Its fields and those of the outer record are both named
    without a path.
    """

    inner: str
    anchor: str
    """A text field of `inner` with a value in every record. Only numbers come before it."""

    fields: Mapping[str, pa.DataType]
    """The columns of fields. A field that the schema does not have is null, or its default."""

    defaults: Mapping[str, int]
    nested: Mapping[str, tuple[str, str, pa.DataType]]
    """Columns of fields of a record inside of `inner`: the name of the record, of its field, and the type."""

    maps: Mapping[str, pa.DataType]
    """Fields that hold a map as an array of pairs. They become one column `field.key` for every key."""

    skipped: tuple[str, int]
    """Records with this number in this field are left out."""


class _Piece(NamedTuple):
    """Some blocks in one buffer with padding, where each begins and ends, and the number of records."""

    data: bytes
    starts: Array
    stops: Array
    records: int


def decode_batches(container: Container, layout: Layout) -> dict[str, pa.Array]:
    """The columns of the records; Unreadable if they have to be read record by record."""
    if container.records < RECORDS_MIN:
        raise Unreadable("too few records")
    pieces = [_decode_piece(piece, container.schema["fields"], layout) for piece in _pieces(container)]
    return concat_columns(pieces, [len(piece[layout.anchor]) for piece in pieces])


def _decode_piece(piece: _Piece, fields: Sequence[Mapping[str, Any]], layout: Layout) -> dict[str, pa.Array]:
    until_anchor, behind_anchor = _split(fields, layout)
    reader = BatchReader(piece.data)
    anchors = _find_anchors(piece, until_anchor)
    lengths = _lengths_before(reader, anchors)
    after, ends = reader.record(behind_anchor, anchors + lengths)
    begins = _begins(ends, anchors, piece.starts, piece.stops)
    before, at = reader.record(until_anchor, begins)
    if not np.array_equal(at, anchors + lengths):
        raise Unreadable("a record does not lead to its anchor")
    return _columns(reader.buffer, Fields({**before.fields, **after.fields}), layout)


def _pieces(container: Container) -> Iterator[_Piece]:
    size = count = 0
    parts: list[bytes] = []
    for records, raw in container.inflated():
        parts.append(raw)
        size += len(raw)
        count += records
        if size > PIECE_BYTES_MAX:
            raise Unreadable("a block is too large")
        if count >= PIECE_RECORDS or size >= PIECE_BYTES:
            yield _piece(parts, count)
            size = count = 0
            parts = []
    if parts:
        yield _piece(parts, count)


def _piece(parts: Sequence[bytes], records: int) -> _Piece:
    stops = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return _Piece(b"".join((*parts, PADDING)), np.concatenate(([0], stops[:-1])), stops, records)


def _split(fields: Sequence[Mapping[str, Any]], layout: Layout) -> tuple[list[Any], list[Any]]:
    """The fields of a record up to its anchor, and those behind it."""
    *outer, last = fields
    inner = last["type"]["fields"] if isinstance(last["type"], dict) else []
    place = next((place for place, field in enumerate(inner) if field["name"] == layout.anchor), None)
    if last["name"] != layout.inner or place is None:
        raise Unreadable(f"the last field of a record is not {layout.inner} with a {layout.anchor}")
    if not all(_is_number(field["type"]) for field in (*outer, *inner[:place])):
        raise Unreadable(f"a record has more than numbers before its {layout.anchor}")
    return [*outer, *inner[: place + 1]], inner[place + 1 :]


def _is_number(kind: Schema) -> bool:
    return all(one in (*_NUMBER_TYPES, "null") for one in kind) if isinstance(kind, list) else kind in _NUMBER_TYPES


def _find_anchors(piece: _Piece, until_anchor: Sequence[Mapping[str, Any]]) -> Array:
    """Search for the prefix that the first anchors of all blocks share.

    Other anchors may have less in common, for example if the first ones lie in one partition. Then try a parent folder.
    """
    first = [_first_anchor(piece.data, int(start), until_anchor) for start in piece.starts]
    # Only the folder if there is one block: file names need not begin alike.
    common = _common_prefix(min(first), max(first)) if len(first) > 1 else first[0].rpartition(b"/")[0]
    for _ in range(_FOLDERS_UP_MAX):
        if len(common) < _PREFIX_BYTES_MIN:
            break
        places = _search(common, piece.data)
        if len(places) == piece.records:
            return places
        common = common.rpartition(b"/")[0]
    raise Unreadable("the prefix of the anchors does not occur once per record")


def _search(text: bytes, data: bytes) -> Array:
    """All positions of a text: find its rarest byte first, then compare the bytes around it."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    seen = np.bincount(buffer[:_SAMPLE_BYTES], minlength=256)
    rarest = min(range(len(text)), key=lambda place: int(seen[text[place]]))
    begins = np.flatnonzero(buffer == text[rarest]) - rarest
    begins = begins[(begins >= 0) & (begins <= len(data) - len(text))]
    if len(begins) * len(text) > _TIMES_THE_DATA_MAX * len(data):
        raise Unreadable("the byte that is rare in the first records is frequent in the others")
    is_text: Mask = windows(buffer, len(text))[begins] == np.frombuffer(text, dtype=f"V{len(text)}")
    return begins[is_text]


def _common_prefix(left: bytes, right: bytes) -> bytes:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return bytes(byte for byte, _ in same)


def _first_anchor(data: bytes, place: int, fields: Sequence[Mapping[str, Any]]) -> bytes:
    for field in fields[:-1]:
        kind = field["type"]
        if isinstance(kind, list):
            chosen, place = varint(data, place)
            kind = kind[chosen]
        if kind != "null":
            _, place = varint(data, place)
    size, place = varint(data, place)
    return data[place : place + size]


def _lengths_before(reader: BatchReader, anchors: Array) -> Array:
    """The length in front of each anchor. A number comes before the length too, so its first byte is certain."""
    at = anchors - 1
    for _ in range(4):
        continues = (at > 0) & (reader.buffer[np.maximum(at - 1, 0)] >= CONTINUES)
        if not continues.any():
            break
        at = np.where(continues, at - 1, at)
    lengths, after = reader.longs(at)
    if not np.array_equal(after, anchors) or int(lengths.min()) < 0:
        raise Unreadable("an anchor has no length")
    return lengths


def _begins(ends: Array, anchors: Array, starts: Array, stops: Array) -> Array:
    """The begin of each record: the start of its block, or the end of the record before."""
    blocks = np.searchsorted(starts, anchors, side="right") - 1
    is_first = np.concatenate(([True], blocks[1:] != blocks[:-1]))
    is_last = np.concatenate((blocks[1:] != blocks[:-1], [True]))
    if not np.array_equal(ends[is_last], stops[blocks[is_last]]) or int(is_first.sum()) != len(starts):
        raise Unreadable("a block does not end with a record")
    return np.where(is_first, starts[blocks], np.concatenate(([0], ends[:-1])))


def _columns(buffer: Array, record: Fields, layout: Layout) -> dict[str, pa.Array]:
    live, count = _live(record, layout)
    found: dict[str, pa.Array] = {}
    for name, kind in layout.fields.items():
        if name in record.fields:
            found[name] = to_column(buffer, record.fields[name], kind, live)
        else:
            default = layout.defaults.get(name)
            found[name] = pa.nulls(count, kind) if default is None else numbers(np.full(count, default), None, kind)
    for name, (outer, inner, kind) in layout.nested.items():
        read = record.fields[outer]
        if not isinstance(read, Fields) or inner not in read.fields:
            raise Unreadable(f"{outer} is not a record with a field {inner}")
        found[name] = to_column(buffer, read.fields[inner], kind, live)
    for name, kind in layout.maps.items():
        if isinstance(items := record.fields.get(name), Items):
            found |= map_columns(buffer, name, items, kind, live)
    return found


def _live(record: Fields, layout: Layout) -> tuple[Mask | None, int]:
    """The records to keep, or None for all; and their number."""
    field, number = layout.skipped
    read = record.fields[field]
    if not isinstance(read, Numbers):
        raise Unreadable(f"{field} is not a number")
    is_live: Mask = read.values != number
    return None if is_live.all() else is_live, int(is_live.sum())


RECORDS_AT_ONCE: Final = 1_000
"""Records take a hundred times the memory of their columns."""

Record = Mapping[str, Any]


def read_columns(container: Container, layout: Layout) -> dict[str, pa.Array]:
    """The columns that the layout asks for. Damaged data and a schema of another kind raise any exception."""
    try:
        return decode_batches(container, layout)
    except Unreadable:
        pass
    records = read_records(container)
    pieces = [columns_of(islice(records, RECORDS_AT_ONCE), layout)]
    while piece := list(islice(records, RECORDS_AT_ONCE)):
        pieces.append(columns_of(piece, layout))
    return concat_columns(pieces, [len(piece[layout.anchor]) for piece in pieces])


def columns_of(records: Iterable[Record], layout: Layout) -> dict[str, pa.Array]:
    """The columns of records that were read one by one."""
    field, number = layout.skipped
    rows: list[Record] = [{**record, **record[layout.inner]} for record in records if record[field] != number]
    columns: dict[str, pa.Array] = {}
    for name, kind in layout.fields.items():
        default = layout.defaults.get(name)
        columns[name] = pa.array([default if row.get(name) is None else row[name] for row in rows], type=kind)
    for name, (outer, inner, kind) in layout.nested.items():
        columns[name] = pa.array([(row[outer] or {}).get(inner) for row in rows], type=kind)
    for name, kind in layout.maps.items():
        columns |= _map_columns(name, rows, kind)
    return columns


def _map_columns(name: str, rows: Sequence[Record], kind: pa.DataType) -> dict[str, pa.Array]:
    """One column for every key that any of the records has."""
    found: dict[int, list[object]] = {}
    for place, row in enumerate(rows):
        for pair in row.get(name) or ():
            values = found.get(pair["key"])
            if values is None:
                values = found[pair["key"]] = [None] * len(rows)
            values[place] = pair["value"]
    if any(type(key) is not int for key in found):
        raise TypeError("a map with keys that are not numbers")
    return {f"{name}.{key}": pa.array(values, type=kind) for key, values in sorted(found.items())}
