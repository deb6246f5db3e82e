"""Avro's container: a header that says how to read the rest, and blocks of records."""

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from sandur.iceberg.scan.codecs import inflated
from sandur.iceberg.scan.schemas import plain_schema

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
            raw = inflated(self.codec, self.data[block.start : block.stop], left)
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


def opened(data: bytes) -> Container:
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
