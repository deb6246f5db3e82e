"""Schemas over HTTP."""

import msgspec

from sandur.catalog.identifiers import checked_new_name, namespace_from_parts
from sandur.operations.unity import schemas as operations
from sandur.operations.unity.lists import ListRequest, list_schemas
from sandur.server.http import Answer
from sandur.server.unity_rest.call import DONE, Call, Comment, list_answer, shown
from sandur.server.unity_rest.catalogs import check_not_renamed


class CreateSchema(msgspec.Struct, frozen=True):
    name: str
    catalog_name: str
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    storage_root: str | None = None


class UpdateSchema(msgspec.Struct, frozen=True):
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    new_name: str | None = None


async def create(call: Call) -> Answer:
    body = call.body(CreateSchema, "create schema request")
    made = await operations.create_schema(
        call.lake,
        namespace_from_parts(body.catalog_name, checked_new_name("schema", body.name)),
        comment=body.comment,
        properties=body.properties or {},
        storage_root=body.storage_root or None,
        request=call.request(),
    )
    return shown(made)


async def list_all(call: Call) -> Answer:
    catalog = call.wanted("catalog_name")
    return list_answer(call, "schemas", await list_schemas(call.lake, catalog, ListRequest(*call.page)))


async def load(call: Call) -> Answer:
    return shown(await operations.load_schema(call.lake, call.schema("full_name")))


async def update(call: Call) -> Answer:
    namespace = call.schema("full_name")
    body = call.body(UpdateSchema, "update schema request")
    check_not_renamed("Schema", str(namespace), body.new_name)
    changed = await operations.update_schema(
        call.lake, namespace, comment=body.comment, properties=body.properties or None, request=call.request()
    )
    return shown(changed)


async def delete(call: Call) -> Answer:
    force = call.is_set("force")
    request = call.request(f"force={force}")
    await operations.drop_schema(call.lake, call.schema("full_name"), force=force, request=request)
    return DONE
