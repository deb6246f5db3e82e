"""The entries that an index should have, read from catalogs, namespaces and names."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Literal, assert_never

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Entry, Scope
from sandur.catalog.infos import catalog_info, schema_info
from sandur.catalog.records import BoundRecord, Catalog, NameRecord, NamespaceRecord, Pointer
from sandur.operations.lake import Lake
from sandur.operations.tables.names import catalog_exists, resolve_name, resolve_namespace
from sandur.operations.transactions.resolution import effective_record
from sandur.operations.unity.infos import info_of
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import list_pages

LOOKS_AT_ONCE: Final = 64


async def read_entries(lake: Lake, scope: Scope, names: Iterable[str]) -> dict[str, Entry | None]:
    """The current entry of each name; None if the name does not exist."""
    wanted = sorted(set(names))
    entries = await gather_in_batches(wanted, lambda name: _entry(lake, scope, name), at_once=LOOKS_AT_ONCE)
    return dict(zip(wanted, entries, strict=True))


async def _entry(lake: Lake, scope: Scope, name: str) -> Entry | None:
    match scope.collection:
        case "catalogs":
            catalog = await lake.catalog(name).read()
            if catalog is None or not catalog_exists(catalog.value):
                return None
            return _container_entry(name, "catalog", catalog.value, catalog_info(catalog.value))
        case "schemas":
            namespace = Namespace(scope.catalog, (*scope.levels, name))
            found = await resolve_namespace(lake, namespace)
            return (
                _container_entry(name, "namespace", found.value, schema_info(namespace, found.value)) if found else None
            )
        case "tables":
            identifier = Identifier(scope.catalog, scope.levels, name)
            resolved = await resolve_name(lake, identifier)
            if resolved is None:
                return None
            pointer = await effective_record(lake, resolved.pointer)
            return await index_entry(lake, identifier, resolved.name.value, pointer.value)
        case _:
            assert_never(scope.collection)


def _container_entry(
    name: str, kind: Literal["catalog", "namespace"], record: Catalog | NamespaceRecord, info: msgspec.Struct
) -> Entry:
    return Entry(
        name=name,
        kind=kind,
        uuid=record.id,
        owner_id=record.owner_id,
        created_ms=record.created_ms,
        updated_ms=record.updated_ms,
        info=msgspec.Raw(msgspec.json.encode(info)),
    )


async def index_entry(lake: Lake, identifier: Identifier, name: NameRecord, record: BoundRecord) -> Entry:
    """The entry of a name that exists and of the record that it leads to."""
    return Entry(
        name=identifier.name,
        kind=name.kind,
        format=name.format,
        uuid=name.uuid,
        object_id=record.object_id if isinstance(record, Pointer) else "",
        owner_id=record.owner_id,
        created_ms=name.updated_ms,
        updated_ms=max(name.updated_ms, record.updated_ms),
        info=msgspec.Raw(msgspec.json.encode(await info_of(lake, identifier, name, record))),
    )


async def list_written_names(lake: Lake, scope: Scope) -> Sequence[str]:
    """Every name that was written in the scope and not swept since, sorted; it may not exist any more.

    This lists objects: use it only for repairs, and for lists without an index.
    """
    layout = lake.layout
    match scope.collection:
        case "catalogs":
            keys = list_keys(lake, layout.catalogs_folder())
            return sorted([layout.parse_catalog(key) async for key in keys])
        case "schemas":
            children = list_child_namespaces(lake, scope.catalog, scope.namespace if scope.levels else None)
            return sorted([child.levels[-1] async for child in children])
        case "tables":
            keys = list_keys(lake, layout.names_folder(scope.namespace))
            return sorted([layout.parse_name(key).name async for key in keys])
        case _:
            assert_never(scope.collection)


async def list_child_namespaces(lake: Lake, catalog: str, parent: Namespace | None) -> AsyncIterator[Namespace]:
    """Every child that was written below a namespace, or on the first level; it may not exist any more."""
    layout = lake.layout
    depth = len(parent.levels) + 1 if parent else 1
    beginning = layout.namespaces_below(parent) if parent else ""
    async for key in list_keys(lake, layout.namespaces_folder(catalog), beginning=beginning):
        namespace = layout.parse_namespace(key)
        if len(namespace.levels) == depth:
            yield namespace


async def list_keys(lake: Lake, folder: str, *, beginning: str = "") -> AsyncIterator[str]:
    """The keys in a folder, in order, page by page; with `beginning`, only keys with that prefix."""
    async for page in list_pages(lake.store, folder, after=beginning.rstrip("/") or None):
        for listed in page:
            if not listed.key.startswith(beginning):
                return
            yield listed.key
