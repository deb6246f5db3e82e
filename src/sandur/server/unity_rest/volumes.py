"""Volumes over HTTP."""

import msgspec

from sandur.catalog.identifiers import checked_new_name, identifier_from_parts, namespace_from_parts
from sandur.catalog.securables import VolumeType, securable_info
from sandur.operations.unity import securables as operations
from sandur.operations.unity.lists import ListAsked, list_in_schema
from sandur.server.messages import Answer
from sandur.server.unity_rest.bodies import DONE, list_answer, shown
from sandur.server.unity_rest.call import Call, Comment


class CreateVolume(msgspec.Struct, frozen=True):
    catalog_name: str
    schema_name: str
    name: str
    volume_type: VolumeType
    comment: Comment | None = None
    storage_location: str | None = None


class UpdateVolume(msgspec.Struct, frozen=True):
    comment: Comment | None = None
    new_name: str | None = None


async def create(call: Call) -> Answer:
    body = call.body(CreateVolume, "create volume request")
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("volume", body.name))
    made = await operations.create_volume(
        call.lake,
        identifier,
        volume_type=body.volume_type,
        location=body.storage_location or None,
        comment=body.comment or None,
        request=call.request(),
    )
    return shown(securable_info(identifier, made))


async def list_all(call: Call) -> Answer:
    namespace = namespace_from_parts(call.wanted("catalog_name"), call.wanted("schema_name"))
    listed = await list_in_schema(call.lake, namespace, ("volume",), "volumes", ListAsked(*call.page))
    return list_answer(call, "volumes", listed)


async def load(call: Call) -> Answer:
    identifier = call.identifier("name")
    return shown(securable_info(identifier, await operations.load_securable(call.lake, identifier, "volume")))


async def update(call: Call) -> Answer:
    body = call.body(UpdateVolume, "update volume request")
    changed = await operations.update_securable(
        call.lake,
        call.identifier("name"),
        "volume",
        comment=body.comment or None,
        new_name=checked_new_name("volume", body.new_name) if body.new_name else None,
        request=call.request(),
    )
    return shown(securable_info(*changed))


async def delete(call: Call) -> Answer:
    await operations.drop_securable(call.lake, call.identifier("name"), "volume", call.request())
    return DONE
