"""Schemas: Unity Catalog's name for namespaces."""

from collections.abc import Mapping
from functools import partial

from sandur.catalog.identifiers import Namespace, checked_new_name
from sandur.catalog.infos import SchemaInfo, schema_info, update_schema_record
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import Request
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.drop import drop_namespace, drop_namespace_cascade
from sandur.operations.containers.namespaces import NamespaceCreation, load_record, namespace_change
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_namespace
from sandur.storage.cell import gather_all


async def create_schema(
    lake: Lake,
    namespace: Namespace,
    *,
    comment: str | None,
    properties: Mapping[str, str],
    storage_root: str | None,
    request: Request,
) -> SchemaInfo:
    """Create a schema; AlreadyExists if the name is taken, NotFound if the catalog does not exist."""
    for level in namespace.levels:
        checked_new_name("schema", level)
    check_new_keys(properties)
    located = {**properties, **({"location": storage_root} if storage_root else {})}
    creation = NamespaceCreation(lake, namespace, located, request, comment=comment)
    await creation.run()
    return schema_info(namespace, creation.made)


async def load_schema(lake: Lake, namespace: Namespace) -> SchemaInfo:
    _, found = await gather_all((load_catalog(lake, namespace.catalog), load_record(lake, namespace)))
    return schema_info(namespace, found)


async def update_schema(
    lake: Lake,
    namespace: Namespace,
    *,
    comment: str | None,
    properties: Mapping[str, str] | None,
    request: Request,
) -> SchemaInfo:
    """Replace the comment and all properties; None keeps the current ones."""
    check_new_keys(properties or {})
    await load_catalog(lake, namespace.catalog)

    update = partial(update_schema_record, comment=comment, properties=properties)
    read = partial(resolve_namespace, lake, namespace)
    change = namespace_change(lake, namespace, "update-schema", update, request, read=read)
    return schema_info(namespace, await change.run())


async def drop_schema(lake: Lake, namespace: Namespace, *, force: bool, request: Request) -> None:
    """Drop a schema, with `force` also everything in it; NotFound, or NotEmpty if it has children without `force`."""
    await load_catalog(lake, namespace.catalog)
    if force:
        await drop_namespace_cascade(lake, namespace, request)
    else:
        await drop_namespace(lake, namespace, request)
