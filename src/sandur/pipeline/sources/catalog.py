"""`sandur_catalogs`, `sandur_namespaces`, `sandur_names` and `sandur_pointers`: the catalog's records as rows."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable, Head, NameRecord, Pointer, head_of
from sandur.errors import SandurError
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake
from sandur.operations.receipts import commit_key_of
from sandur.operations.tables.names import ResolvedName, catalog_exists, resolve_name, resolve_namespace
from sandur.operations.transactions import resolution
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.sources.range_reader import KeyRange, RangeReader, Row, ShapedSource, folder_ranges, hashed_ranges
from sandur.pipeline.sources.receipt_rows import delta_file
from sandur.pipeline.tables import CATALOGS, NAMES, NAMESPACES, POINTERS, with_problem
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

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        return await folder_ranges(open_store.store, open_store.layout.all_names_folder())

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        return [row for row in await gather_bounded(listed, lambda one: name_row(open_store.lake, one.key)) if row]


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

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        return await hashed_ranges(open_store.store, open_store.layout.pointers_folder())

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        return [row for row in await gather_bounded(listed, lambda one: _pointer_row(open_store.lake, one.key)) if row]


async def gather_bounded(things: Sequence[S], look_at: Callable[[S], Awaitable[T]]) -> Sequence[T]:
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
        if found := await resolve_name(lake, identifier):
            return await visible_row(lake, found)
        record = await lake.name(identifier).read()
    except SandurError as error:
        return {**spelled, **await _known(lake, identifier), "is_shown": False, "problem": str(error)}
    return {**spelled, **_of_record(record.value), "is_shown": False} if record else None


async def visible_row(lake: Lake, found: ResolvedName) -> Row:
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


async def _of_found(lake: Lake, found: ResolvedName) -> Row:
    if isinstance(found.pointer.value, DeltaTable):
        return _delta(found.pointer.value)
    record = (await resolution.effective_record(lake, found.pointer)).value
    head = head_of(record)
    return {"table_uuid": record.table_uuid, **(_head(head) if head else {})}


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
        pointer = (await resolution.effective_pointer(lake, held)).value
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


_CATALOGS: Final = with_problem(CATALOGS)
_NAMESPACES: Final = with_problem(NAMESPACES)


class SandurCatalogs(ShapedSource):
    """One row for every catalog that exists. One that cannot be read has its name and a `problem`."""

    shape = _CATALOGS

    @classmethod
    def name(cls) -> str:
        return "sandur_catalogs"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        return CatalogsReader(self.options)


class CatalogsReader(RangeReader):
    """Catalogs are few: one task reads them."""

    shape = _CATALOGS

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        return [KeyRange(open_store.layout.catalogs_folder())]

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        rows = await gather_all(_catalog_row(open_store.lake, one.key) for one in listed)
        return [row for row in rows if row]


class SandurNamespaces(ShapedSource):
    """One row for every namespace that exists. One that cannot be read has its name and a `problem`."""

    shape = _NAMESPACES

    @classmethod
    def name(cls) -> str:
        return "sandur_namespaces"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return NamespacesReader(self.options)


class NamespacesReader(RangeReader):
    """A task for each catalog."""

    shape = _NAMESPACES

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        return await folder_ranges(open_store.store, open_store.layout.all_namespaces_folder())

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        rows = await gather_all(_namespace_row(open_store.lake, one.key) for one in listed)
        return [row for row in rows if row]


async def _catalog_row(lake: Lake, key: str) -> Row | None:
    name = lake.layout.parse_catalog(key)
    try:
        found = await lake.catalog(name).read()
    except SandurError as error:
        return {"name": name, "problem": str(error)}
    if found is None or not catalog_exists(found.value):
        return None
    catalog = found.value
    return {
        "name": catalog.name,
        "id": catalog.id,
        "root": catalog.root,
        "comment": catalog.comment,
        "owner": catalog.owner,
        "properties_json": _json(catalog.properties),
        "created_at": catalog.created_ms,
        "updated_at": catalog.updated_ms,
        "created_by": catalog.created_by or None,
        "updated_by": catalog.updated_by or None,
    }


async def _namespace_row(lake: Lake, key: str) -> Row | None:
    namespace = lake.layout.parse_namespace(key)
    spelled = {"catalog": namespace.catalog, "namespace": str(namespace)}
    try:
        found = await resolve_namespace(lake, namespace)
    except SandurError as error:
        return {**spelled, "problem": str(error)}
    if found is None:
        return None
    record = found.value
    return {
        **spelled,
        "id": record.id,
        "depth": len(namespace.levels),
        "comment": record.comment,
        "owner": record.owner,
        "properties_json": _json(record.properties),
        "created_at": record.created_ms,
        "updated_at": record.updated_ms,
        "created_by": record.created_by or None,
        "updated_by": record.updated_by or None,
    }


def _json(properties: dict[str, str]) -> str:
    return msgspec.json.encode(properties, order="sorted").decode()
