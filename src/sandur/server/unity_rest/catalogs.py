"""Handlers for catalogs and schemas."""

from functools import partial

import msgspec

from sandur.catalog.identifiers import (
    Namespace,
    checked_new_name,
    full_name_of,
    namespace_from_parts,
    parse_schema_name,
)
from sandur.catalog.infos import Comment, catalog_info
from sandur.operations.containers import catalogs, drop, rename
from sandur.operations.unity import lists, schemas
from sandur.operations.unity.owners import change_owner
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.unity_rest.bodies import DONE, answer_list, answer_with, list_request


class CreateCatalog(msgspec.Struct, frozen=True):
    name: str
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    storage_root: str | None = None


class CreateSchema(CreateCatalog, frozen=True, kw_only=True):
    catalog_name: str


class UpdateContainer(msgspec.Struct, frozen=True):
    """A change of a catalog or schema. An empty map of properties changes nothing: some clients always send one."""

    comment: Comment | None = None
    properties: dict[str, str] | None = None
    new_name: str | None = None
    owner: str | None = None


async def create_catalog(call: Call) -> Answer:
    body = call.body(CreateCatalog, "create catalog request")
    catalog = await catalogs.create_catalog(
        call.lake,
        checked_new_name("catalog", body.name),
        root=body.storage_root or None,
        properties=body.properties or {},
        comment=body.comment,
        request=call.request(),
    )
    return answer_with(catalog_info(catalog))


async def list_catalogs(call: Call) -> Answer:
    return answer_list(call, "catalogs", await lists.list_catalogs(call.lake, list_request(call)))


async def load_catalog(call: Call) -> Answer:
    return answer_with(catalog_info(await catalogs.load_allowed_catalog(call.lake, call.value("name"))))


async def update_catalog(call: Call) -> Answer:
    name, body = call.value("name"), call.body(UpdateContainer, "update catalog request")
    if body.new_name in {None, "", name}:
        return await _update_catalog(name, call)
    new_name = checked_new_name("catalog", body.new_name or "")
    await rename.rename_catalog(call.lake, name, new_name, call.request())
    return await call.with_current_names(partial(_update_catalog, new_name))


async def _update_catalog(name: str, call: Call) -> Answer:
    body = call.body(UpdateContainer, "update catalog request")
    catalog = await catalogs.update_catalog(
        call.lake, name, comment=body.comment, properties=body.properties or None, request=call.request()
    )
    if body.owner:
        await change_owner(call.lake, "catalog", name, body.owner, call.request())
        catalog = msgspec.structs.replace(catalog, owner=body.owner)
    return answer_with(catalog_info(catalog))


async def delete_catalog(call: Call) -> Answer:
    force = call.is_set("force")
    await drop.drop_catalog(call.lake, call.value("name"), force=force, request=call.request(f"force={force}"))
    return DONE


async def create_schema(call: Call) -> Answer:
    body = call.body(CreateSchema, "create schema request")
    schema = await schemas.create_schema(
        call.lake,
        namespace_from_parts(body.catalog_name, checked_new_name("schema", body.name)),
        comment=body.comment,
        properties=body.properties or {},
        storage_root=body.storage_root or None,
        request=call.request(),
    )
    return answer_with(schema)


async def list_schemas(call: Call) -> Answer:
    catalog = call.required("catalog_name")
    return answer_list(call, "schemas", await lists.list_schemas(call.lake, catalog, list_request(call)))


async def load_schema(call: Call) -> Answer:
    return answer_with(await schemas.load_schema(call.lake, parse_schema_name(call.value("full_name"))))


async def update_schema(call: Call) -> Answer:
    namespace = parse_schema_name(call.value("full_name"))
    body = call.body(UpdateContainer, "update schema request")
    if body.new_name in {None, "", namespace.levels[-1]}:
        return await _update_schema(namespace, call)
    new_name = checked_new_name("schema", body.new_name or "")
    await rename.rename_namespace(call.lake, namespace, new_name, call.request())
    renamed = Namespace(namespace.catalog, (*namespace.levels[:-1], new_name))
    return await call.with_current_names(partial(_update_schema, renamed))


async def _update_schema(namespace: Namespace, call: Call) -> Answer:
    body = call.body(UpdateContainer, "update schema request")
    schema = await schemas.update_schema(
        call.lake, namespace, comment=body.comment, properties=body.properties or None, request=call.request()
    )
    if body.owner:
        await change_owner(call.lake, "schema", full_name_of(namespace), body.owner, call.request())
        schema = msgspec.structs.replace(schema, owner=body.owner)
    return answer_with(schema)


async def delete_schema(call: Call) -> Answer:
    force = call.is_set("force")
    namespace = parse_schema_name(call.value("full_name"))
    await schemas.drop_schema(call.lake, namespace, force=force, request=call.request(f"force={force}"))
    return DONE
