"""Records as bytes: versions that this program can read, fields that it does not know, and the form that it writes."""

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.record_versions import FIRST, FIRST_FORMAT, MINORS, NEWEST, FormatVersion, Record, StoreFormat
from sandur.errors import Damaged, NewerRecord, Unfit
from sandur.splicing import NOT_JSON
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import STORE_FORMAT

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=Record)


def decode_record(key: str, data: bytes, kind: type[T]) -> T:
    """The content of an object. Raises Damaged if it is not of that kind, NewerRecord if its major is later (V1)."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        _check_major(key, data)
        raise Damaged(key, f"is not a {kind.__name__}: {error}") from error
    # Nearly every record is of a version that is known: nothing else costs time.
    if isinstance(value, Record) and value.m > MINORS.get(value.v, -1):
        if value.v > NEWEST.major:
            raise _newer(key, value)
        return _with_unknown_fields(value, data)
    return value


def encode_record(value: Record) -> bytes:
    """The bytes of a record, with the fields that a later minor added (V2)."""
    if value.unknown_fields is None:
        return msgspec.json.encode(value)
    known = msgspec.json.encode(replace(value, unknown_fields=None))
    return known[:-1] + b"," + msgspec.json.encode(value.unknown_fields)[1:]


def _check_major(key: str, data: bytes) -> None:
    """A record of a later major may have any form; only its version is certain."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except NOT_JSON:
        return
    if header.v > NEWEST.major:
        raise _newer(key, header)


class _Header(msgspec.Struct):
    """The fields that every version has."""

    v: int = FIRST.major
    m: int = FIRST.minor


def _newer(key: str, found: Record | _Header) -> NewerRecord:
    return NewerRecord(key, needed=f"{found.v}.{found.m}", known=str(NEWEST))


def _with_unknown_fields(value: R, data: bytes) -> R:
    """V2. Decoded again, which only records of a later minor cost."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    known = {field.encode_name for field in msgspec.structs.fields(value)}
    # A copy of each: they must not keep the whole body alive.
    unknown = {name: raw.copy() for name, raw in fields.items() if name not in known and name != _tag_field(value)}
    return replace(value, unknown_fields=unknown or None)


def _tag_field(value: Record) -> str | None:
    return value.__struct_config__.tag_field


class RecordForm:
    """The version in which one process writes the records of a store (V3).

    It is that of the store's format as this process read it last, or a later one that it found in a record: a record of
    that version proves that the format allows it. The format may be read late: a record that is written in the earlier
    form is brought to the later one by its next writer (V5).
    """

    def __init__(self, store: ObjectStore | None = None, major: int = NEWEST.major) -> None:
        self._store = store
        self.major = FIRST.major if store else major
        self.is_steady = store is None
        self.is_read = store is None

    @property
    def is_newest(self) -> bool:
        """Whether the store has the newest version that this program knows, and no upgrade is in progress."""
        return self.has_reached(NEWEST)

    def has_reached(self, version: FormatVersion) -> bool:
        """Whether every record of the store has that version or a later one."""
        return self.major > version.major or (self.major == version.major and self.is_steady)

    async def read(self) -> StoreFormat:
        """Read the format of the store. Raises Unfit if this program cannot write it."""
        found = await read_format(self._store) if self._store else replace(FIRST_FORMAT, major=self.major)
        if found.major > NEWEST.major:
            raise Unfit(
                f"the store has records of version {found.major}.{found.minor}, and this Sandur knows versions up to "
                f"{NEWEST}: upgrade it"
            )
        self.saw(found.major)
        self.is_steady = found.state == "steady"
        self.is_read = True
        return found

    def saw(self, major: int) -> None:
        """A record of this major exists."""
        self.major = max(self.major, major)

    def stamp(self, value: R, event_id: str) -> R:
        """The record as it is written: in the form of the store, or in its own if that is later."""
        if value.v == self.major == FIRST.major:
            return replace(value, event_id=event_id)
        return stamp(value, event_id, max(value.v, self.major))


def stamp(value: R, event_id: str, major: int) -> R:
    """The record with a fresh event id, in the form of a major."""
    if major == FIRST.major:
        return replace(value, event_id=event_id)
    minor = max(MINORS[major], value.m) if value.v == major else MINORS[major]
    return replace(value, v=major, m=minor, event_id=(event_id,))


async def read_format(store: ObjectStore) -> StoreFormat:
    """The format of a store; a store without one is of the first version."""
    found = await store.get(STORE_FORMAT)
    return decode_record(STORE_FORMAT, found.data, StoreFormat) if found else FIRST_FORMAT
