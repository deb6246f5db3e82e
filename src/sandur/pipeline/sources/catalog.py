"""`sandur_catalogs`, `sandur_namespaces`, `sandur_names` and `sandur_pointers`: the catalog's records as rows."""

from collections.abc import Sequence

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import BoundRecord, Catalog, DeltaTable, Head, NameRecord, NamespaceRecord, head_of
from sandur.errors import SandurError
from sandur.operations.lake import Lake
from sandur.operations.receipts import commit_key_of
from sandur.operations.tables.names import ResolvedName, catalog_exists, resolve_name, resolve_namespace
from sandur.operations.transactions import resolution
from sandur.pipeline.sources.range_reader import KeyRange, RangeSource, Row, folder_ranges, hashed_ranges
from sandur.pipeline.sources.receipt_rows import delta_file
from sandur.pipeline.tables import CATALOGS, NAMES, NAMESPACES, POINTERS, with_problem


class SandurCatalogs(RangeSource):
    """One row per existing catalog; one that cannot be read has its name and a `problem`."""

    source_name = "sandur_catalogs"
    shape = with_problem(CATALOGS)

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return [KeyRange(lake.layout.catalogs_folder())]  # Catalogs are few: one task reads them.

    async def row(self, lake: Lake, key: str) -> Row | None:
        name = lake.layout.parse_catalog(key)
        try:
            found = await lake.catalog(name).read()
        except SandurError as error:
            return {"name": name, "problem": str(error)}
        if found is None or not catalog_exists(found.value):
            return None
        return {"name": found.value.name, "root": found.value.root, **_container_columns(found.value)}


class SandurNamespaces(RangeSource):
    """One row per existing namespace; one that cannot be read has its name and a `problem`."""

    source_name = "sandur_namespaces"
    shape = with_problem(NAMESPACES)

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return await folder_ranges(lake.store, lake.layout.all_namespaces_folder())

    async def row(self, lake: Lake, key: str) -> Row | None:
        namespace = lake.layout.parse_namespace(key)
        named = {"catalog": namespace.catalog, "namespace": str(namespace)}
        try:
            found = await resolve_namespace(lake, namespace)
        except SandurError as error:
            return {**named, "problem": str(error)}
        return {**named, "depth": len(namespace.levels), **_container_columns(found.value)} if found else None


class SandurNames(RangeSource):
    """One row per name, dropped and free ones included; `is_shown` is true if a reader finds something there.

    Pending creates, renames and transactions are resolved as a load resolves them. A record that cannot be read has a
    `problem`.
    """

    source_name = "sandur_names"
    shape = NAMES

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return await folder_ranges(lake.store, lake.layout.all_names_folder())

    async def row(self, lake: Lake, key: str) -> Row | None:
        return await name_row(lake, key)


class SandurPointers(RangeSource):
    """One row per pointer with its effective head, which may be that of a committed transaction."""

    source_name = "sandur_pointers"
    shape = POINTERS

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return await hashed_ranges(lake.store, lake.layout.pointers_folder())

    async def row(self, lake: Lake, key: str) -> Row | None:
        uuid = lake.layout.parse_pointer(key)
        try:
            held = await lake.pointer(uuid).read()
            if held is None:
                return None
            pointer = (await resolution.effective_pointer(lake, held)).value
        except SandurError as error:
            return {"uuid": uuid, "version": "", "problem": str(error)}
        name = pointer.dropped_as or pointer.made_for
        return {
            "uuid": pointer.uuid,
            "table_uuid": pointer.table_uuid,
            "kind": pointer.kind,
            "format": pointer.format,
            "state": pointer.state,
            "is_pending": pointer.pending is not None,
            "updated_at": pointer.updated_ms,
            "version": held.version,
            **(_name_columns(name) if name else {}),
            **(_head_columns(pointer.head) if pointer.head else {}),
        }


async def name_row(lake: Lake, key: str) -> Row | None:
    """The row of a name; None if the name no longer exists."""
    identifier = lake.layout.parse_name(key)
    named = _name_columns(identifier)
    try:
        if found := await resolve_name(lake, identifier):
            return await visible_row(lake, found)
        record = await lake.name(identifier).read()
    except SandurError as error:
        return {**named, **await _known_columns(lake, identifier), "is_shown": False, "problem": str(error)}
    return {**named, **_record_columns(record.value), "is_shown": False} if record else None


async def visible_row(lake: Lake, found: ResolvedName) -> Row:
    """The row of a name that a reader can resolve."""
    named = {**_name_columns(found.identifier), **_record_columns(found.name.value), "is_shown": True}
    named["tags_json"] = _tags_json(found.pointer.value)
    if isinstance(found.pointer.value, DeltaTable):
        return {**named, **_delta_columns(found.pointer.value)}
    record = (await resolution.effective_record(lake, found.pointer)).value
    head = head_of(record)
    return {**named, "table_uuid": record.table_uuid, **(_head_columns(head) if head else {})}


async def _known_columns(lake: Lake, identifier: Identifier) -> Row:
    """The columns of the name's record if only its table is unreadable; empty ones if the record is."""
    try:
        record = await lake.name(identifier).read()
    except SandurError:
        record = None
    return _record_columns(record.value) if record else {"kind": "", "format": "", "uuid": "", "state": ""}


def _tags_json(record: BoundRecord) -> str | None:
    """The tags of an object and, by the id or name of the column, those of its columns."""
    found = {"tags": record.tags, "columns": record.column_tags}
    kept = {name: tags for name, tags in found.items() if tags}
    return msgspec.json.encode(kept, order="deterministic").decode() if kept else None


def _record_columns(record: NameRecord) -> Row:
    return {"kind": record.kind, "format": record.format, "uuid": record.uuid, "state": record.state}


def _delta_columns(table: DeltaTable) -> Row:
    """The current state of a Delta table: the newest version of its log."""
    is_delta = table.data_source_format == "DELTA"
    return {
        "table_uuid": table.table_uuid,
        "metadata_location": delta_file(table.location, table.last_version) if is_delta else None,
        "committed_at": table.last_commit_ms or table.created_ms,
        "metadata_version": table.last_version,
        "etag": table.etag or None,
    }


def _head_columns(head: Head) -> Row:
    return {**msgspec.structs.asdict(head), "commit_key": commit_key_of(head), "committed_at": head.last_updated_ms}


def _name_columns(identifier: Identifier) -> Row:
    return {"catalog": identifier.catalog, "namespace": str(identifier.namespace), "name": identifier.name}


def _container_columns(record: Catalog | NamespaceRecord) -> Row:
    return {
        "id": record.id,
        "comment": record.comment,
        "owner": record.owner,
        "properties_json": msgspec.json.encode(record.properties, order="sorted").decode(),
        "created_at": record.created_ms,
        "updated_at": record.updated_ms,
        "created_by": record.created_by or None,
        "updated_by": record.updated_by or None,
    }
