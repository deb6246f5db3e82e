"""The chains of securables: an object with the containers around it, on which decisions about it are made."""

from collections.abc import Mapping, Sequence
from typing import Final

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import BoundRecord, Catalog, NamespaceRecord, Pointer
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Chain, Link, SecurableType
from sandur.errors import NotFound
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.operations.tables.names import ResolvedName
from sandur.storage.cell import Versioned, gather_all

TYPES: Final[Mapping[str, SecurableType]] = {
    "table": "table",
    "view": "table",
    "volume": "volume",
    "function": "function",
    "model": "registered_model",
    "namespace": "schema",
    "catalog": "catalog",
}
"""The type under which Unity Catalog grants privileges on each kind of thing that a list contains."""


def catalog_chain(authority: Authority, catalog: Catalog) -> Chain:
    return (authority.metastore, Link(catalog.id, "catalog", catalog.name, catalog.owner_id))


def object_link(found: ResolvedName) -> Link:
    """The object under a name. Grants name the id that the server gave it (A3), never its name or the client's uuid."""
    record = found.pointer.value
    return Link(object_id_of(record), TYPES[found.name.value.kind], str(found.identifier), record.owner_id)


def object_id_of(record: BoundRecord) -> str:
    """A3 (minted): no client chose this id. Pointers of older releases have none, and use their uuid."""
    return record.object_id or record.uuid if isinstance(record, Pointer) else record.uuid


async def name_chain(lake: Lake, authority: Authority, found: ResolvedName, *, missing: NotFound) -> Chain:
    """The chain of the object under a name."""
    namespace_id = found.name.value.namespace_id
    chain = await namespace_chain(lake, authority, found.identifier.namespace, namespace_id, missing=missing)
    return (*chain, object_link(found))


async def record_chain(
    lake: Lake,
    authority: Authority,
    identifier: Identifier,
    record: Versioned[BoundRecord] | None,
    *,
    missing: NotFound,
) -> Chain:
    """The chain of a record that is no longer under the name `identifier`, for a replay (A9).

    A dropped record is judged where it was last; a renamed one where its old name says that it went. Otherwise only
    grants on the object itself count.
    """
    if record is None:
        raise missing
    name = await lake.name(identifier).read()
    place = record.value.dropped_as
    if name and name.value.state == "moved" and name.value.uuid == record.value.uuid:
        place = name.value.other
    link = Link(object_id_of(record.value), TYPES[record.value.kind], str(identifier), record.value.owner_id)
    above = (
        await namespace_chain(lake, authority, place.namespace, missing=missing) if place else (authority.metastore,)
    )
    return (*above, link)


def _chains(lake: Lake) -> LruCache[tuple[Namespace, str], tuple[str, Chain]]:
    """The chains of namespaces, with the version of the manifest: a new owner changes the manifest, too (A12)."""
    return LruCache(lake.settings.cache_records_max)


async def namespace_chain(
    lake: Lake, authority: Authority, namespace: Namespace, namespace_id: str = "", *, missing: NotFound
) -> Chain:
    """The chain of a namespace, from memory while no grant and no owner changed.

    `namespace_id` is the id that the caller found in a name; empty for the namespace as it is now. Raises `missing` if
    the namespace does not exist, or has been created again with another id.
    """
    cached = lake.named_feature(_chains).get((namespace, namespace_id)) if namespace_id else None
    if cached and cached[0] == authority.version:
        return cached[1]
    levels = [Namespace(namespace.catalog, namespace.levels[: depth + 1]) for depth in range(len(namespace.levels))]
    catalog, records = await gather_all(
        (lake.catalog(namespace.catalog).read(), gather_all([lake.namespace(level).read() for level in levels]))
    )
    chain = _linked(authority, catalog, levels, records)
    if chain is None or namespace_id not in {"", chain[-1].id}:
        raise missing
    lake.named_feature(_chains)[namespace, chain[-1].id] = (authority.version, chain)
    return chain


def _linked(
    authority: Authority,
    catalog: Versioned[Catalog] | None,
    levels: Sequence[Namespace],
    records: Sequence[Versioned[NamespaceRecord] | None],
) -> Chain | None:
    """The chain of these records; None if one of them does not exist."""
    if catalog is None or catalog.value.state == "dropped":
        return None
    chain = catalog_chain(authority, catalog.value)
    for level, record in zip(levels, records, strict=True):
        if record is None or record.value.state == "dropped":
            return None
        chain = (*chain, Link(record.value.id, "schema", str(level), record.value.owner_id))
    return chain
