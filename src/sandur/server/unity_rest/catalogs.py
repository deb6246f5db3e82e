"""Handlers for catalogs and schemas."""

import msgspec

from sandur.catalog.identifiers import checked_new_name, namespace_from_parts, parse_schema_name
from sandur.catalog.infos import Comment, catalog_info
from sandur.errors import Unsupported
from sandur.operations.containers import catalogs, drop
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
    name = call.value("name")
    body = call.body(UpdateContainer, "update catalog request")
    _check_not_renamed("Catalog", name, body.new_name)
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
    _check_not_renamed("Schema", str(namespace), body.new_name)
    schema = await schemas.update_schema(
        call.lake, namespace, comment=body.comment, properties=body.properties or None, request=call.request()
    )
    if body.owner:
        await change_owner(call.lake, "schema", call.value("full_name"), body.owner, call.request())
        schema = msgspec.structs.replace(schema, owner=body.owner)
    return answer_with(schema)


async def delete_schema(call: Call) -> Answer:
    force = call.is_set("force")
    namespace = parse_schema_name(call.value("full_name"))
    await schemas.drop_schema(call.lake, namespace, force=force, request=call.request(f"force={force}"))
    return DONE


def _check_not_renamed(what: str, name: str, new_name: str | None) -> None:
    """Unsupported for a new name: the keys of all that a catalog or schema contains include its name."""
    if new_name not in {None, "", name}:
        raise Unsupported(f"{what} {name} cannot be renamed to {new_name}: its contents are stored under its name")
