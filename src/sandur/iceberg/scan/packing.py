"""A manifest's columns packed: compressed in groups, of which a scan unpacks those that it asks about.

What every plan needs is one group, and the statistics of each column are one: a filter over one column of a hundred
unpacks two of a hundred and one.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from sandur.iceberg.scan.columns import ManifestColumns, field_id_of

FORM: Final = 2
"""Changes with what is packed and how; what was packed in another form is not read."""

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
# Columns are too small to be worth handing to other threads.
_READ_OPTIONS: Final = pa.ipc.IpcReadOptions(use_threads=False)
_NAME_BYTES: Final = 100


class Group(msgspec.Struct, frozen=True, array_like=True):
    """Some columns, as an Arrow stream."""

    names: tuple[str, ...]
    data: bytes


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """The live entries of one manifest."""

    header: dict[str, str]
    count: int
    groups: tuple[Group, ...]

    @property
    def size_bytes(self) -> int:
        return sum(len(group.data) + len(group.names) * _NAME_BYTES for group in self.groups)


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """What is stored: where the manifest lies, so that none is taken for another, and a sum that shows damage."""

    form: int
    event_id: str
    location: bytes
    checksum: int
    packed: msgspec.Raw


def packed(found: ManifestColumns) -> Packed:
    by_group: dict[int | None, list[str]] = {}
    for name in found.columns:
        by_group.setdefault(field_id_of(name), []).append(name)
    groups = tuple(
        Group(tuple(names), _encoded({name: found.column(name) for name in names})) for names in by_group.values()
    )
    return Packed(dict(found.header), found.count, groups)


def unpacked(found: Packed) -> ManifestColumns:
    return ManifestColumns(_Unpacked(found), found.header, found.count)


class _Unpacked(Mapping[str, pa.Array]):
    """Columns by name, unpacked when they are first asked for."""

    def __init__(self, found: Packed) -> None:
        self._groups = {name: group for group in found.groups for name in group.names}
        self._columns: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._columns:
            group = self._groups[name]
            with pa.ipc.open_stream(group.data, options=_READ_OPTIONS) as reader:
                batch = reader.read_next_batch()
            self._columns |= dict(zip(group.names, batch.columns, strict=True))
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


def _encoded(columns: Mapping[str, pa.Array]) -> bytes:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def stored(found: Packed, *, location: str, event_id: str) -> bytes:
    """What is packed as it is kept in a store; the id makes every write of it another one."""
    data = msgspec.msgpack.encode(found)
    written = _Stored(FORM, event_id, _bytes(location), zlib.crc32(data), msgspec.Raw(data))
    return msgspec.msgpack.encode(written)


def read_back(data: bytes, *, location: str) -> Packed | None:
    """What `stored` wrote for this manifest; None for another's, for one of another time, and for what is damaged."""
    try:
        written = msgspec.msgpack.decode(data, type=_Stored)
        is_it = written.form == FORM and written.location == _bytes(location)
        if not is_it or zlib.crc32(written.packed) != written.checksum:
            return None
        return msgspec.msgpack.decode(written.packed, type=Packed)
    except msgspec.MsgspecError:
        return None


def _bytes(location: str) -> bytes:
    return location.encode("utf-8", "surrogatepass")
