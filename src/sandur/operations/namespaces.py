"""Namespaces: create, load, list, change, drop."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sandur.catalog.identifiers import Namespace, checked_namespace
from sandur.catalog.index import namespaces_scope
from sandur.catalog.locations import check_property_keys, folder_name
from sandur.catalog.records import Catalog
from sandur.catalog.sources import Request
from sandur.errors import Unprocessable
from sandur.operations.catalogs import load_catalog
from sandur.operations.create_namespace import NamespaceCreation
from sandur.operations.drop_namespace import drop_namespace
from sandur.operations.lake import Lake
from sandur.operations.listing import Listing, PageRequest, must_exist
from sandur.operations.namespace_changes import missing, shown_properties
from sandur.operations.tables.load import Page
from sandur.operations.tables.names import resolve_namespace
from sandur.operations.update_namespace import NamespaceUpdate, PropertiesUpdate

__all__ = [
    "NamespaceView",
    "PropertiesUpdate",
    "create_namespace",
    "drop_namespace",
    "list_namespaces",
    "load_namespace",
    "namespace_exists",
    "update_namespace_properties",
]


class NamespaceView(NamedTuple):
    """A namespace as a client gets it; `location` is always among the properties, for some engines ask for it."""

    namespace: Namespace
    properties: Mapping[str, str]


async def create_namespace(
    lake: Lake, namespace: Namespace, properties: Mapping[str, str], request: Request
) -> NamespaceView:
    """A new namespace; AlreadyExists when there is one of that name, NotFound when its parent does not exist."""
    checked_namespace(namespace)
    check_property_keys(properties)
    catalog = await NamespaceCreation(lake, namespace, properties, request).run()
    return _view(catalog, namespace, properties)


async def load_namespace(lake: Lake, namespace: Namespace) -> NamespaceView:
    catalog, found = await asyncio.gather(load_catalog(lake, namespace.catalog), resolve_namespace(lake, namespace))
    if found is None:
        raise missing(namespace)
    return _view(catalog, namespace, shown_properties(found.value))


async def namespace_exists(lake: Lake, namespace: Namespace) -> bool:
    return await resolve_namespace(lake, namespace) is not None


async def list_namespaces(
    lake: Lake,
    catalog: str,
    *,
    parent: Namespace | None,
    page_token: str | None,
    page_size: int | None,
) -> Page[Namespace]:
    """The namespaces right below a parent, or those of the first level; NotFound when the parent does not exist."""
    listing = Listing(lake, namespaces_scope(catalog, parent), "namespace", PageRequest(page_token, page_size))
    exists = must_exist(lake, parent) if parent else load_catalog(lake, catalog)
    page = await listing.read(beside=exists)
    levels = parent.levels if parent else ()
    return Page([Namespace(catalog, (*levels, entry.name)) for entry in page.entries], listing.next_token(page))


async def update_namespace_properties(
    lake: Lake,
    namespace: Namespace,
    *,
    removals: Sequence[str],
    updates: Mapping[str, str],
    request: Request,
) -> PropertiesUpdate:
    """Set some properties and take others away; a key to be both set and taken away is Unprocessable."""
    if both := sorted(set(removals) & set(updates)):
        raise Unprocessable(f"Cannot set and remove properties at the same time: {', '.join(both)}")
    check_property_keys([*removals, *updates])
    update = NamespaceUpdate(lake, namespace, removals=removals, updates=updates, request=request)
    return await update.run()


def _view(catalog: Catalog, namespace: Namespace, properties: Mapping[str, str]) -> NamespaceView:
    folders = "/".join(folder_name(level) for level in namespace.levels)
    location = f"{catalog.root.rstrip('/')}/{folders}"
    return NamespaceView(namespace, {**properties, "location": properties.get("location") or location})
