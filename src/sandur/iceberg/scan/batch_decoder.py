"""Decodes all records of a manifest at once into columns.

Where a record begins is known only when the one before has been read. But every entry has a path, all paths of a table
begin alike, and a search finds those at once; from its path an entry can be read to its end, and that has to be where
the next one begins. When everything meets, the records are where they were thought to be; when anything does not, the
caller is told, and reads record by record.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sandur.avro.container import Container, Schema, varint
from sandur.iceberg.expressions.evaluation import Array, Mask
from sandur.iceberg.scan.array_layouts import CONTINUES, NUMBER_TYPES, windows
from sandur.iceberg.scan.arrow_arrays import numbers
from sandur.iceberg.scan.arrow_columns import check_map, column, columns_by_key, together
from sandur.iceberg.scan.batch_reader import PADDING, Fields, Items, Lanes, Later, Numbers, Unreadable
from sandur.iceberg.scan.columns import BOUNDS, COUNTS, DELETED, PLAIN, LaterColumns

Partition = Sequence[tuple[int, str, pa.DataType]]
"""The id, the name in the file and the kept type of every partition field."""

RECORDS_MIN: Final = 64
"""Below this, reading record by record is as fast."""

PIECE_RECORDS: Final = 8_000
PIECE_BYTES: Final = 4 << 20
"""Large manifests are decoded piece by piece, each of some blocks: all of it at once would take many times its room."""

PIECE_BYTES_MAX: Final = 32 << 20
"""A block that is larger is no writer's, and takes less room record by record."""

_PREFIX_CHARS_MIN: Final = 4
_FOLDERS_UP_MAX: Final = 8
_SAMPLE_BYTES: Final = 4096
_TIMES_THE_DATA_MAX: Final = 8


class Piece(NamedTuple):
    """Some blocks one after the other, where each begins and ends, and how many records there are.

    `data` has padding behind the last block.
    """

    data: bytes
    starts: Array
    stops: Array
    records: int


def decoded_columns(container: Container, partition: Partition) -> Mapping[str, pa.Array]:
    """The live entries as columns; Unreadable when they have to be read in another way."""
    if container.records < RECORDS_MIN:
        raise Unreadable("too few records to be worth it")
    pieces = [_piece_columns(piece, container.schema["fields"], partition) for piece in _pieces(container)]
    return together(pieces, [len(piece["file_path"]) for piece in pieces])


def _piece_columns(piece: Piece, fields: Sequence[Mapping[str, Any]], partition: Partition) -> Mapping[str, pa.Array]:
    entry, file, path = _split(fields)
    lanes = Lanes(piece.data)
    paths = _path_places(piece, [*entry, *path])
    lengths = _lengths_before(lanes, paths)
    after, ends = lanes.record(file, paths + lengths)
    begins = _begins(ends, paths, piece.starts, piece.stops)
    before, at = lanes.record([*entry, *path], begins)
    if not np.array_equal(at, paths + lengths):
        raise Unreadable("an entry does not lead to its path")
    return _columns(lanes, Fields({**before.fields, **after.fields}), partition)


def _pieces(container: Container) -> Iterator[Piece]:
    size = count = 0
    parts: list[bytes] = []
    for records, raw in container.inflated():
        parts.append(raw)
        size += len(raw)
        count += records
        if size > PIECE_BYTES_MAX:
            raise Unreadable("a block is too large to be worth it")
        if count >= PIECE_RECORDS or size >= PIECE_BYTES:
            yield _piece(parts, count)
            size = count = 0
            parts = []
    if parts:
        yield _piece(parts, count)


def _piece(parts: Sequence[bytes], records: int) -> Piece:
    stops = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return Piece(b"".join((*parts, PADDING)), np.concatenate(([0], stops[:-1])), stops, records)


def _split(fields: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any], list[Any]]:
    """The fields of an entry before its file, those of the file behind the path, and those up to the path."""
    *entry, last = fields
    inner = last["type"]["fields"] if isinstance(last["type"], dict) else []
    place = next((place for place, field in enumerate(inner) if field["name"] == "file_path"), None)
    if last["name"] != "data_file" or place is None:
        raise Unreadable("an entry does not end with its file")
    if not all(_is_number(field["type"]) for field in (*entry, *inner[:place])):
        raise Unreadable("an entry has more than numbers before its path")
    return entry, inner[place + 1 :], inner[: place + 1]


def _is_number(kind: Schema) -> bool:
    """Whether values of a type are numbers, any of which may be null."""
    return all(one in (*NUMBER_TYPES, "null") for one in kind) if isinstance(kind, list) else kind in NUMBER_TYPES


def _path_places(piece: Piece, fields: Sequence[Mapping[str, Any]]) -> Array:
    """Where the path of every entry begins: what the first paths of all blocks have in common, searched for.

    Others may have less in common with them, such as when these lie in one partition: then a folder further up is.
    """
    first = [_first_path(piece.data, int(start), fields) for start in piece.starts]
    # The folder alone when there is only one: names in it need not begin alike.
    common = _common(first) if len(first) > 1 else first[0].rpartition(b"/")[0]
    for _ in range(_FOLDERS_UP_MAX):
        if len(common) < _PREFIX_CHARS_MIN:
            break
        places = _places_of(common, piece.data)
        if len(places) == piece.records:
            return places
        common = common.rpartition(b"/")[0]
    raise Unreadable("there are not as many paths as entries")


def _places_of(text: bytes, data: bytes) -> Array:
    """Where a text begins: its byte that is rarest is looked for, and all the others around it."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    seen = np.bincount(buffer[:_SAMPLE_BYTES], minlength=256)
    rarest = min(range(len(text)), key=lambda place: int(seen[text[place]]))
    begins = np.flatnonzero(buffer == text[rarest]) - rarest
    begins = begins[(begins >= 0) & (begins <= len(data) - len(text))]
    if len(begins) * len(text) > _TIMES_THE_DATA_MAX * len(data):
        raise Unreadable("what is rare in the first entries is not in the others")
    is_text: Mask = windows(buffer, len(text))[begins] == np.frombuffer(text, dtype=f"V{len(text)}")
    return begins[is_text]


def _common(texts: Sequence[bytes]) -> bytes:
    """What all texts begin with."""
    lowest, highest = min(texts), max(texts)
    same = next(
        (place for place, byte in enumerate(lowest) if highest[place : place + 1] != bytes([byte])), len(lowest)
    )
    return lowest[:same]


def _first_path(data: bytes, place: int, fields: Sequence[Mapping[str, Any]]) -> bytes:
    for field in fields[:-1]:
        chosen = 1
        if isinstance(field["type"], list):
            chosen, place = varint(data, place)
        if not isinstance(field["type"], list) or field["type"][chosen] != "null":
            _, place = varint(data, place)
    size, place = varint(data, place)
    return data[place : place + size]


def _lengths_before(lanes: Lanes, paths: Array) -> Array:
    """The number right before each place: what comes before it is a number as well, so that its begin is certain."""
    at = paths - 1
    for _ in range(4):
        continues = (at > 0) & (lanes.buffer[np.maximum(at - 1, 0)] >= CONTINUES)
        if not continues.any():
            break
        at = np.where(continues, at - 1, at)
    lengths, after = lanes.longs(at)
    if not np.array_equal(after, paths) or int(lengths.min()) < 0:
        raise Unreadable("a path has no length")
    return lengths


def _begins(ends: Array, paths: Array, starts: Array, stops: Array) -> Array:
    """Where each entry begins: at the begin of its block, or at the end of the one before."""
    blocks = np.searchsorted(starts, paths, side="right") - 1
    is_first = np.concatenate(([True], blocks[1:] != blocks[:-1]))
    is_last = np.concatenate((blocks[1:] != blocks[:-1], [True]))
    if not np.array_equal(ends[is_last], stops[blocks[is_last]]) or int(is_first.sum()) != len(starts):
        raise Unreadable("a block does not end with an entry")
    return np.where(is_first, starts[blocks], np.concatenate(([0], ends[:-1])))


def _columns(lanes: Lanes, entry: Fields, partition: Partition) -> Mapping[str, pa.Array]:
    status = entry.fields["status"]
    if not isinstance(status, Numbers):
        raise Unreadable("a status is no number")
    is_live = status.values != DELETED
    live = None if is_live.all() else is_live
    count = int(is_live.sum())
    buffer = lanes.buffer
    found: dict[str, pa.Array] = {}
    for name, kind in PLAIN.items():
        read = entry.fields.get(name)
        if read is not None:
            found[name] = column(buffer, read, kind, live)
        else:
            found[name] = pa.nulls(count, kind) if name != "content" else numbers(np.zeros(count), None, kind)
    places = entry.fields["partition"]
    for field_id, name, kind in partition:
        inner = places.fields.get(name) if isinstance(places, Fields) else None
        if inner is None:
            raise Unreadable("a partition is no record")
        found[f"partition.{field_id}"] = column(buffer, inner, kind, live)
    later: dict[str, Callable[[], Mapping[str, Callable[[], pa.Array]]]] = {}
    for which in (*COUNTS, *BOUNDS):
        read = entry.fields.get(which)
        if isinstance(read, Items) and isinstance(read.steps, Later):
            check_map(which, read.steps)
            later[which] = partial(columns_by_key, buffer, which, read, live)
        elif isinstance(read, Items):
            found |= {name: make() for name, make in columns_by_key(buffer, which, read, live).items()}
    # What statistics are made of is kept, and may become twice as much again.
    size_bytes = 3 * len(buffer) + sum(column.nbytes for column in found.values())
    return LaterColumns(found, later, size_bytes) if later else found
