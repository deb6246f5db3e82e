"""Avro container files: the header, the schema without logical types, and the decompressed blocks.

A record that holds itself may be as deep as its file has bytes, and an array of what takes no bytes as long as it says.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import cramjam
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_RAW_DEFLATE: Final = -15
_CHECKSUM_BYTES: Final = 4


def decompress(codec: str, data: bytes, bytes_max: int) -> bytes:
    """The block's bytes; ValueError for those of another codec, for damaged ones, and when there are more of them."""
    if codec not in _CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(_CODECS)}")
    try:
        found = _CODECS[codec](data, bytes_max + 1)
    except _DAMAGED as error:
        raise ValueError(f"a block is damaged: {error}") from error
    if len(found) > bytes_max:
        raise ValueError("it holds too many bytes")
    return found


_DAMAGED: Final[tuple[type[Exception], ...]] = (
    isal_zlib.error,  # type: ignore[assignment]  # Its stub takes it for an instance.
    cramjam.DecompressionError,
    zstd.ZstdError,
    EOFError,
)


def _deflate(data: bytes, bytes_max: int) -> bytes:
    return isal_zlib.decompressobj(_RAW_DEFLATE).decompress(data, bytes_max)


def _zstandard(data: bytes, bytes_max: int) -> bytes:
    return zstd.ZstdDecompressor().decompress(data, bytes_max)


def _snappy(data: bytes, bytes_max: int) -> bytes:
    """Avro puts a checksum behind what is compressed."""
    raw = data[:-_CHECKSUM_BYTES]
    if cramjam.snappy.decompress_raw_len(raw) >= bytes_max:
        raise ValueError("it holds too many bytes")
    return bytes(cramjam.snappy.decompress_raw(raw))


_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": lambda data, _: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
}
"""Those that Iceberg's writers know."""


_DROPPED: Final = frozenset({"logicalType", "__fastavro_parsed", "__named_schemas"})
"""What would be read differently: dates and decimals as such, and names that were not seen here."""

Schema = Any
"""A schema as Avro writes it: JSON of any form."""


def plain_schema(written: bytes) -> dict[str, Any]:
    """The schema without logical types; ValueError, LookupError or TypeError when it is none that is read."""
    found = _Types().plain(json.loads(written))
    if not isinstance(found, dict):
        raise TypeError("the schema is no record")
    return found


class _Types:
    """The named types that were come across, by the last part of their name."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._empty: set[str] = set()

    def plain(self, schema: Schema) -> Schema:
        """A type; ValueError for one that holds itself, and for arrays of what takes no bytes."""
        if isinstance(schema, list):
            return [self.plain(one) for one in schema]
        if not isinstance(schema, dict):
            return self._name(schema)
        kept = {name: value for name, value in schema.items() if name not in _DROPPED}
        match kept["type"]:
            case "record":
                return self._record(kept)
            case "array":
                kept["items"] = self.plain(kept["items"])
                if self._takes_no_bytes(kept["items"]):
                    raise ValueError("an array of nothing")
            case "map":
                kept["values"] = self.plain(kept["values"])
            case "fixed":
                self._note(kept)
            case kind:
                kept["type"] = self.plain(kind)
        return kept

    def _name(self, name: Schema) -> Schema:
        if not isinstance(name, str) or name in {"error", "error_union", "request"}:
            raise TypeError(f"no type of records in files: {str(name)[:100]}")
        if _last(name) in self._open:
            raise ValueError("a type that holds itself")
        return name

    def _record(self, kept: dict[str, Schema]) -> dict[str, Schema]:
        self._open.append(_last(kept["name"]))
        fields = []
        for field in kept["fields"]:
            plain = {name: value for name, value in field.items() if name not in _DROPPED}
            fields.append({**plain, "type": self.plain(field["type"])})
        self._open.pop()
        found = {**kept, "fields": fields}
        self._note(found)
        return found

    def _note(self, named: dict[str, Schema]) -> None:
        if self._takes_no_bytes(named):
            self._empty.add(_last(named["name"]))

    def _takes_no_bytes(self, schema: Schema) -> bool:
        match schema:
            case str():
                return schema == "null" or _last(schema) in self._empty
            case {"type": "fixed", "size": size}:
                return bool(size == 0)
            case {"type": "record", "fields": fields}:
                return all(self._takes_no_bytes(field["type"]) for field in fields)
            case {"type": kind}:
                return self._takes_no_bytes(kind)
            case _:
                return False


def _last(name: str) -> str:
    """A name without its namespace, which may be said elsewhere."""
    return name.rpartition(".")[2]


INFLATED_MAX: Final = 1 << 30

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_ENTRIES_MAX: Final = 1_000
_VARINT_BYTES_MAX: Final = 10
REMEMBERED_MAX: Final = 64
REMEMBERED_BYTES_MAX: Final = 64 << 10


class Block(NamedTuple):
    """Where the records of one block lie, still compressed, and how many there are."""

    records: int
    start: int
    stop: int


class Container:
    """A file of records; `metadata` is its header, `schema` the record's, without what Avro adds to plain types."""

    def __init__(self, data: bytes, metadata: Mapping[str, bytes], body_start: int) -> None:
        self.data = data
        self.metadata = metadata
        self._body_start = body_start

    @property
    def codec(self) -> str:
        return self.metadata.get("avro.codec", b"null").decode()

    @property
    def schema(self) -> dict[str, Any]:
        """Not to be changed: other files may have the same."""
        written = self.metadata["avro.schema"]
        return _remembered_schema(written) if len(written) <= REMEMBERED_BYTES_MAX else plain_schema(written)

    def inflated(self) -> Iterator[tuple[int, bytes]]:
        """Every block without compression, and how many records it holds; ValueError when they are too large."""
        left = INFLATED_MAX
        for block in self.blocks:
            raw = decompress(self.codec, self.data[block.start : block.stop], left)
            if block.records > len(raw):
                raise ValueError("a block has more records than bytes")
            left -= len(raw)
            yield block.records, raw

    @property
    def records(self) -> int:
        """How many records it says that it holds."""
        return sum(block.records for block in self.blocks)

    @cached_property
    def blocks(self) -> list[Block]:
        """Every block in order; ValueError when the file does not end with one."""
        found: list[Block] = []
        sync = self.data[self._body_start - _SYNC_BYTES : self._body_start]
        place = self._body_start
        while place < len(self.data):
            count, place = varint(self.data, place)
            size, place = varint(self.data, place)
            stop = place + size
            if count < 0 or size < 0 or self.data[stop : stop + _SYNC_BYTES] != sync:
                raise ValueError("a block does not end where it should")
            found.append(Block(count, place, stop))
            place = stop + _SYNC_BYTES
        return found


def open_container(data: bytes) -> Container:
    """The container in these bytes; ValueError when there is none."""
    if not data.startswith(_MAGIC):
        raise ValueError("not an Avro file")
    metadata: dict[str, bytes] = {}
    place = len(_MAGIC)
    while True:
        count, place = varint(data, place)
        if count == 0:
            break
        if count < 0:
            _, place = varint(data, place)
        if abs(count) + len(metadata) > _ENTRIES_MAX:
            raise ValueError("the header has too many entries")
        for _ in range(abs(count)):
            name, place = _bytes(data, place)
            value, place = _bytes(data, place)
            metadata[name.decode()] = value
    if place + _SYNC_BYTES > len(data):
        raise ValueError("the header is cut off")
    return Container(data, metadata, place + _SYNC_BYTES)


# Nearly all manifests of a table have the same one, and reading it takes as long as reading a few hundred entries.
_remembered_schema: Final = lru_cache(maxsize=REMEMBERED_MAX)(plain_schema)


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number, and where the next one begins."""
    if (byte := data[place]) < 0x80:  # noqa: PLR2004 - the bit that says that more follows
        return (byte >> 1) ^ -(byte & 1), place + 1
    found = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return (found >> 1) ^ -(found & 1), place
        shift += 7
    raise ValueError("a number has too many bytes")


def encoded_varint(number: int) -> bytes:
    """The number as Avro writes it; not negative."""
    rest = number << 1
    found = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - what fits into seven bits
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, place = varint(data, place)
    if size < 0 or place + size > len(data):
        raise ValueError("a text is cut off")
    return data[place : place + size], place + size
