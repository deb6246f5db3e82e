"""`sandur_names` and `sandur_pointers`: what has a name, and what names stand for, as every reader sees it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable, Head, NameRecord, Pointer
from sandur.errors import SandurError
from sandur.events.receipts import commit_key_of
from sandur.operations import transactions_met
from sandur.operations.lake import Lake
from sandur.operations.names import Found, look
from sandur.pipeline.receipt_rows import delta_file
from sandur.pipeline.sources.ranges import KeyRange, folder_ranges, hashed_ranges
from sandur.pipeline.sources.reading import RangeReader, Row, ShapedSource
from sandur.pipeline.tables import NAMES, POINTERS
from sandur.pipeline.waiting import OpenStore
from sandur.storage.contract import Listed

S = TypeVar("S")
T = TypeVar("T")

LOOKS_AT_ONCE: Final = 64


class SandurNames(ShapedSource):
    """One row for every name, dropped and free ones included; `is_shown` says whether a reader finds something there.

    Names that are being made, moved or committed by a transaction are looked up as a load does. An object that cannot
    be read has a `problem`.
    """

    shape = NAMES

    @classmethod
    def name(cls) -> str:
        return "sandur_names"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        return NamesReader(self.options)


class NamesReader(RangeReader):
    shape = NAMES

    async def ranges(self, open_store: OpenStore) -> Sequence[KeyRange]:
        return await folder_ranges(open_store.store, open_store.layout.all_names_folder())

    async def rows(self, open_store: OpenStore, listed: Sequence[Listed]) -> Sequence[Row]:
        return [row for row in await at_once(listed, lambda one: name_row(open_store.lake, one.key)) if row]


class SandurPointers(ShapedSource):
    """One row for every pointer, with the head that counts: that of a committed transaction, where there is one."""

    shape = POINTERS

    @classmethod
    def name(cls) -> str:
        return "sandur_pointers"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return PointersReader(self.options)


class PointersReader(RangeReader):
    shape = POINTERS

    async def ranges(self, open_store: OpenStore) -> Sequence[KeyRange]:
        return await hashed_ranges(open_store.store, open_store.layout.pointers_folder())

    async def rows(self, open_store: OpenStore, listed: Sequence[Listed]) -> Sequence[Row]:
        return [row for row in await at_once(listed, lambda one: _pointer_row(open_store.lake, one.key)) if row]


async def at_once(things: Sequence[S], look_at: Callable[[S], Awaitable[T]]) -> Sequence[T]:
    places = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def one(thing: S) -> T:
        async with places:
            return await look_at(thing)

    return await asyncio.gather(*(one(thing) for thing in things))


async def name_row(lake: Lake, key: str) -> Row | None:
    """None when the name is gone by now."""
    identifier = lake.layout.parse_name(key)
    spelled = _spelled(identifier)
    try:
        if found := await look(lake, identifier):
            return await shown_row(lake, found)
        record = await lake.name(identifier).read()
    except SandurError as error:
        return {**spelled, **await _known(lake, identifier), "is_shown": False, "problem": str(error)}
    return {**spelled, **_of_record(record.value), "is_shown": False} if record else None


async def shown_row(lake: Lake, found: Found) -> Row:
    """The row of a name under which a reader finds something."""
    told = {**_spelled(found.identifier), **_of_record(found.name.value), "is_shown": True}
    return {**told, **await _of_found(lake, found)}


async def _known(lake: Lake, identifier: Identifier) -> Row:
    """What the record of a name says whose table cannot be read; nothing when it is the record that cannot be."""
    try:
        record = await lake.name(identifier).read()
    except SandurError:
        record = None
    return _of_record(record.value) if record else {"kind": "", "format": "", "uuid": "", "state": ""}


def _of_record(record: NameRecord) -> Row:
    return {"kind": record.kind, "format": record.format, "uuid": record.uuid, "state": record.state}


async def _of_found(lake: Lake, found: Found) -> Row:
    if isinstance(found.pointer.value, DeltaTable):
        return _delta(found.pointer.value)
    pointer = (await transactions_met.effective(lake, found.pointer)).value
    return {"table_uuid": pointer.table_uuid, **(_head(pointer.head) if pointer.head else {})}


def _delta(table: DeltaTable) -> Row:
    """What is current of a Delta table: the newest version of its log."""
    is_delta = table.data_source_format == "DELTA"
    return {
        "table_uuid": table.table_uuid,
        "metadata_location": delta_file(table.location, table.last_version) if is_delta else None,
        "committed_at": table.last_commit_ms or table.created_ms,
        "metadata_version": table.last_version,
        "etag": table.etag or None,
    }


async def _pointer_row(lake: Lake, key: str) -> Row | None:
    uuid = lake.layout.parse_pointer(key)
    try:
        held = await lake.pointer(uuid).read()
        if held is None:
            return None
        pointer = (await transactions_met.effective(lake, held)).value
    except SandurError as error:
        return {"uuid": uuid, "version": "", "problem": str(error)}
    return {**_of_pointer(pointer), "version": held.version}


def _of_pointer(pointer: Pointer) -> Row:
    called = pointer.dropped_as or pointer.made_for
    return {
        "uuid": pointer.uuid,
        "table_uuid": pointer.table_uuid,
        "kind": pointer.kind,
        "format": pointer.format,
        "state": pointer.state,
        "is_pending": pointer.pending is not None,
        "updated_at": pointer.updated_ms,
        **(_spelled(called) if called else {}),
        **(_head(pointer.head) if pointer.head else {}),
    }


def _head(head: Head) -> Row:
    return {
        "metadata_location": head.metadata_location,
        "previous_metadata_location": head.previous_metadata_location,
        "commit_key": commit_key_of(head),
        "previous_commit_key": head.previous_commit_key,
        "snapshot_id": head.snapshot_id,
        "committed_at": head.last_updated_ms,
        "metadata_version": head.metadata_version,
    }


def _spelled(identifier: Identifier) -> Row:
    return {"catalog": identifier.catalog, "namespace": str(identifier.namespace), "name": identifier.name}
