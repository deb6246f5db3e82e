"""Avro container files: the header, the schema, the blocks without compression, and the records one by one."""

import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import cramjam
import fastavro

from sandur.decompression import UNCOMPRESSED_BYTES_MAX, uncompressed_bytes_max

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Schema = Any
"""An Avro schema: any JSON."""

INFLATED_MAX: Final = UNCOMPRESSED_BYTES_MAX
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_HEADER_ENTRIES_MAX: Final = 1_000
VARINT_BYTES_MAX: Final = 10
CONTINUES: Final = 0x80  # The bit of a byte that says that the number continues.
_SCHEMAS_CACHED: Final = 64
_CACHED_SCHEMA_BYTES_MAX: Final = 64 << 10
_RAW_DEFLATE: Final = -15
_SNAPPY_CHECKSUM_BYTES: Final = 4


class Block(NamedTuple):
    """The position of one compressed block in the file, and the number of its records."""

    records: int
    start: int
    stop: int


class Container:
    """A container file with a parsed header. The blocks are read on demand."""

    def __init__(self, data: bytes, metadata: Mapping[str, bytes], body_start: int) -> None:
        self.data = data
        self.metadata = metadata
        self._body_start = body_start

    @property
    def codec(self) -> str:
        return self.metadata.get("avro.codec", b"null").decode()

    @property
    def schema(self) -> dict[str, Any]:
        """The checked schema. Other files share this object: do not change it."""
        written = self.metadata["avro.schema"]
        return _cached_schema(written) if len(written) <= _CACHED_SCHEMA_BYTES_MAX else plain_schema(written)

    def inflated(self) -> Iterator[tuple[int, bytes]]:
        """The number of records and the decompressed bytes of every block; ValueError if there are too many bytes."""
        left = min(INFLATED_MAX, uncompressed_bytes_max(len(self.data)))
        for block in self.blocks:
            raw = decompress(self.codec, self.data[block.start : block.stop], left)
            if block.records > len(raw):
                raise ValueError("a block has more records than bytes")
            left -= len(raw)
            yield block.records, raw

    @property
    def inflated_bytes_max(self) -> int:
        """The most bytes that the blocks can become, by their codec; they are not decompressed for this."""
        bound = min(INFLATED_MAX, uncompressed_bytes_max(len(self.data)))
        ratio = _RATIOS_MAX.get(self.codec)
        return bound if ratio is None else min(bound, ratio * len(self.data))

    @property
    def records(self) -> int:
        """The number of records that the block headers declare."""
        return sum(block.records for block in self.blocks)

    @cached_property
    def blocks(self) -> list[Block]:
        """Every block in order; ValueError if the file does not end with a complete block."""
        found: list[Block] = []
        sync = self.data[self._body_start - _SYNC_BYTES : self._body_start]
        place = self._body_start
        while place < len(self.data):
            count, place = varint(self.data, place)
            size, place = varint(self.data, place)
            stop = place + size
            if count < 0 or size < 0 or self.data[stop : stop + _SYNC_BYTES] != sync:
                raise ValueError("a block does not end with the sync marker")
            found.append(Block(count, place, stop))
            place = stop + _SYNC_BYTES
        return found


def open_container(data: bytes) -> Container:
    """Parse the header; ValueError or IndexError if the data is not an Avro container file."""
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
        if abs(count) + len(metadata) > _HEADER_ENTRIES_MAX:
            raise ValueError("the header has too many entries")
        for _ in range(abs(count)):
            name, place = _bytes(data, place)
            value, place = _bytes(data, place)
            metadata[name.decode()] = value
    if place + _SYNC_BYTES > len(data):
        raise ValueError("the header is truncated")
    return Container(data, metadata, place + _SYNC_BYTES)


def read_records(container: Container) -> Iterator[dict[str, Any]]:
    """Every record in order. Dates and decimals stay the numbers and bytes that store them.

    Damaged data can raise any exception, but the iteration always ends.
    """
    written = container.metadata["avro.schema"]
    schema = _cached_fastavro_schema(written) if len(written) <= _CACHED_SCHEMA_BYTES_MAX else _fastavro_schema(written)
    for count, raw in container.inflated():
        block = io.BytesIO(raw)
        for _ in range(count):
            record = fastavro.schemaless_reader(block, schema)
            if not isinstance(record, dict):
                raise TypeError("a value is not a record")
            yield record


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Decode one number; return it and the position behind it."""
    if (byte := data[place]) < CONTINUES:
        return (byte >> 1) ^ -(byte & 1), place + 1
    found = shift = 0
    for _ in range(VARINT_BYTES_MAX):
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < CONTINUES:
            return (found >> 1) ^ -(found & 1), place
        shift += 7
    raise ValueError("a number has too many bytes")


def _bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, place = varint(data, place)
    if size < 0 or place + size > len(data):
        raise ValueError("a text is truncated")
    return data[place : place + size], place + size


def decompress(codec: str, data: bytes, bytes_max: int) -> bytes:
    """Decompress one block; ValueError for an unknown codec, damaged data, or more than `bytes_max` bytes."""
    if codec not in _CODECS:
        raise ValueError(f"codec {codec!r} is not one of {', '.join(_CODECS)}")
    try:
        found = _CODECS[codec](data, bytes_max + 1)
    except (zlib.error, cramjam.DecompressionError, zstd.ZstdError, EOFError) as error:
        raise ValueError(f"a block is damaged: {error}") from error
    if len(found) > bytes_max:
        raise ValueError("the file holds too many bytes")
    return found


def _snappy(data: bytes, bytes_max: int) -> bytes:
    """Avro appends a checksum to the compressed bytes."""
    raw = data[:-_SNAPPY_CHECKSUM_BYTES]
    if cramjam.snappy.decompress_raw_len(raw) >= bytes_max:
        raise ValueError("the file holds too many bytes")
    return bytes(cramjam.snappy.decompress_raw(raw))


# How much a format can shrink its input at most. Zstandard has no such limit.
_RATIOS_MAX: Final[Mapping[str, int]] = {"null": 1, "deflate": 1_032, "snappy": 22}

# The codecs that Iceberg's writers use.
_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": lambda data, _: data,
    "deflate": lambda data, bytes_max: zlib.decompressobj(_RAW_DEFLATE).decompress(data, bytes_max),
    "snappy": _snappy,
    "zstandard": lambda data, bytes_max: zstd.ZstdDecompressor().decompress(data, bytes_max),
}

# With a logical type, fastavro would return dates and decimals. With the others it would trust unparsed names.
_DROPPED: Final = frozenset({"logicalType", "__fastavro_parsed", "__named_schemas"})


def plain_schema(written: bytes) -> dict[str, Any]:
    """The schema without logical types; ValueError, LookupError or TypeError if it is not a schema of finite records.

    A record that contains itself can be as deep as the file has bytes. An array of values without bytes can have any
    length. Both are refused.
    """
    found = _SchemaChecker().plain(json.loads(written))
    if not isinstance(found, dict):
        raise TypeError("the schema is not a record")
    return found


class _SchemaChecker:
    """Remembers the named types of one schema, by the last part of their names."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._empty: set[str] = set()

    def plain(self, schema: Schema) -> Schema:
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
                    raise ValueError("an array of values without bytes")
            case "map":
                kept["values"] = self.plain(kept["values"])
            case "fixed":
                self._note(kept)
            case kind:
                kept["type"] = self.plain(kind)
        return kept

    def _name(self, name: Schema) -> Schema:
        if not isinstance(name, str) or name in {"error", "error_union", "request"}:
            raise TypeError(f"not a type of data: {str(name)[:100]}")
        if _last_part(name) in self._open:
            raise ValueError("a type that contains itself")
        return name

    def _record(self, kept: dict[str, Schema]) -> dict[str, Schema]:
        self._open.append(_last_part(kept["name"]))
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
            self._empty.add(_last_part(named["name"]))

    def _takes_no_bytes(self, schema: Schema) -> bool:
        match schema:
            case str():
                return schema == "null" or _last_part(schema) in self._empty
            case {"type": "fixed", "size": size}:
                return bool(size == 0)
            case {"type": "record", "fields": fields}:
                return all(self._takes_no_bytes(field["type"]) for field in fields)
            case {"type": kind}:
                return self._takes_no_bytes(kind)
            case _:
                return False


def _last_part(name: str) -> str:
    """The name without its namespace, which an enclosing type can set."""
    return name.rpartition(".")[2]


def _fastavro_schema(written: bytes) -> Schema:
    return fastavro.parse_schema(plain_schema(written))


# Nearly all manifests of a table share one schema. Parsing it takes as long as reading a few hundred entries.
_cached_schema: Final = lru_cache(maxsize=_SCHEMAS_CACHED)(plain_schema)
_cached_fastavro_schema: Final = lru_cache(maxsize=_SCHEMAS_CACHED)(_fastavro_schema)
