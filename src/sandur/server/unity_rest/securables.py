"""Handlers for volumes, functions, registered models and model versions."""

from typing import Final

import msgspec

from sandur.catalog.functions import FunctionDefinition
from sandur.catalog.identifiers import (
    Identifier,
    Kind,
    checked_new_name,
    full_name_of,
    identifier_from_parts,
    namespace_from_parts,
    parse_full_name,
)
from sandur.catalog.infos import Comment, securable_info, version_info
from sandur.catalog.records import VolumeType
from sandur.errors import BadRequest, Incomplete
from sandur.operations.securable_chains import TYPES
from sandur.operations.unity import model_versions as versions
from sandur.operations.unity import securables as operations
from sandur.operations.unity.lists import list_everywhere, list_in_schema
from sandur.operations.unity.owners import change_owner
from sandur.server.app import Handler
from sandur.server.context import Call
from sandur.server.http import Answer, json_answer
from sandur.server.unity_rest.bodies import DONE, answer_list, answer_with, list_body, list_request


class CreateVolume(msgspec.Struct, frozen=True):
    catalog_name: str
    schema_name: str
    name: str
    volume_type: VolumeType
    comment: Comment | None = None
    storage_location: str | None = None


class UpdateSecurable(msgspec.Struct, frozen=True):
    comment: Comment | None = None
    new_name: str | None = None
    owner: str | None = None


def load_handler(kind: Kind, parameter: str = "name") -> Handler:
    """The handler that loads a volume, function or model."""

    async def load(call: Call) -> Answer:
        identifier = parse_full_name(call.value(parameter))
        return answer_with(securable_info(identifier, await operations.load_securable(call.lake, identifier, kind)))

    return load


def list_handler(kind: Kind, key: str) -> Handler:
    """The handler that lists the volumes or functions of a schema, or its models."""

    async def list_(call: Call) -> Answer:
        namespace = namespace_from_parts(call.required("catalog_name"), call.required("schema_name"))
        return answer_list(call, key, await list_in_schema(call.lake, namespace, (kind,), key, list_request(call)))

    return list_


def update_handler(kind: Kind, parameter: str = "name") -> Handler:
    """The handler that changes the comment or the name of a volume or model. No client can empty a volume's comment."""

    async def update(call: Call) -> Answer:
        body = call.body(UpdateSecurable, f"update {kind} request")
        if kind == "model" and body.comment is None and body.new_name is None and not body.owner:
            raise Incomplete("update model request: neither comment nor new_name is given")
        identifier, changed = await operations.update_securable(
            call.lake,
            parse_full_name(call.value(parameter)),
            kind,
            comment=body.comment or (None if kind == "volume" else body.comment),
            new_name=checked_new_name(kind, body.new_name) if body.new_name else None,
            request=call.request(),
        )
        if body.owner:
            await change_owner(call.lake, TYPES[kind], full_name_of(identifier), body.owner, call.request())
            changed = msgspec.structs.replace(changed, owner=body.owner)
        return answer_with(securable_info(identifier, changed))

    return update


def delete_handler(kind: Kind) -> Handler:
    """The handler that drops a volume or function."""

    async def delete(call: Call) -> Answer:
        await operations.drop_securable(call.lake, parse_full_name(call.value("name")), kind, call.request())
        return DONE

    return delete


async def create_volume(call: Call) -> Answer:
    body = call.body(CreateVolume, "create volume request")
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("volume", body.name))
    created = await operations.create_volume(
        call.lake,
        identifier,
        volume_type=body.volume_type,
        location=body.storage_location or None,
        comment=body.comment or None,
        request=call.request(),
    )
    return answer_with(securable_info(identifier, created))


class CreateFunction(FunctionDefinition, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    comment: Comment | None = None


class CreateFunctionRequest(msgspec.Struct, frozen=True):
    function_info: CreateFunction


async def create_function(call: Call) -> Answer:
    body = call.body(CreateFunctionRequest, "create function request").function_info
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("function", body.name))
    definition = msgspec.convert(body, FunctionDefinition, from_attributes=True)
    created = await operations.create_function(
        call.lake, identifier, definition, comment=body.comment, request=call.request()
    )
    return answer_with(securable_info(identifier, created))


_KEY: Final = "registered_models"
_list_in_schema: Final = list_handler("model", _KEY)
_VERSION_MAX: Final = 2**63 - 1


class CreateModel(msgspec.Struct, frozen=True):
    name: str
    catalog_name: str
    schema_name: str
    comment: Comment | None = None


class CreateVersion(msgspec.Struct, frozen=True):
    model_name: str
    catalog_name: str
    schema_name: str
    source: str
    run_id: str | None = None
    comment: Comment | None = None


class UpdateVersion(msgspec.Struct, frozen=True):
    comment: Comment | None = None


class FinalizeVersion(msgspec.Struct, frozen=True):
    full_name: str
    version: int


async def create_model(call: Call) -> Answer:
    body = call.body(CreateModel, "create model request")
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("model", body.name))
    created = await operations.create_model(call.lake, identifier, comment=body.comment, request=call.request())
    return answer_with(securable_info(identifier, created))


async def list_models(call: Call) -> Answer:
    """The models of a schema, of a catalog, or of all catalogs."""
    catalog, schema = call.query.get("catalog_name") or None, call.query.get("schema_name") or None
    if catalog and schema:
        return await _list_in_schema(call)
    if schema:
        raise BadRequest("Missing query parameter: catalog_name; schema_name needs it")
    return answer_list(call, _KEY, await list_everywhere(call.lake, catalog, "model", _KEY, list_request(call)))


async def delete_model(call: Call) -> Answer:
    force = call.is_set("force")
    request = call.request(f"force={force}")
    await versions.drop_model(call.lake, parse_full_name(call.value("full_name")), force=force, request=request)
    return DONE


async def create_version(call: Call) -> Answer:
    body = call.body(CreateVersion, "create model version request")
    model = identifier_from_parts(body.catalog_name, body.schema_name, body.model_name)
    wanted = versions.NewVersion(body.source, body.run_id, body.comment)
    return answer_with(version_info(model, await versions.create_version(call.lake, model, wanted, call.request())))


async def list_versions(call: Call) -> Answer:
    model = parse_full_name(call.value("full_name"))
    found = await versions.list_versions(call.lake, model, list_request(call))
    infos = [msgspec.json.encode(version_info(model, version)) for version in found.versions]
    return json_answer(list_body("model_versions", infos, found.next_token))


async def load_version(call: Call) -> Answer:
    model, number = _version(call)
    return answer_with(version_info(model, await versions.load_version(call.lake, model, number)))


async def update_version(call: Call) -> Answer:
    model, number = _version(call)
    body = call.body(UpdateVersion, "update model version request")
    if body.comment is None:
        raise Incomplete("update model version request: comment is not given")
    changed = await versions.update_version(call.lake, model, number, comment=body.comment, request=call.request())
    return answer_with(version_info(model, changed))


async def delete_version(call: Call) -> Answer:
    model, number = _version(call)
    await versions.drop_version(call.lake, model, number, call.request())
    return DONE


async def finalize_version(call: Call) -> Answer:
    """The body repeats the name and version of the path."""
    model, number = _version(call)
    body = call.body(FinalizeVersion, "finalize model version request")
    if (parse_full_name(body.full_name), body.version) != (model, number):
        raise BadRequest(
            f"The body names version {body.version} of {body.full_name}, which is not the version in the path"
        )
    return answer_with(version_info(model, await versions.finalize_version(call.lake, model, number, call.request())))


def _version(call: Call) -> tuple[Identifier, int]:
    text = call.value("version")
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > _VERSION_MAX:
        raise BadRequest(f"Invalid version: expected a whole number, found {text[:40]!r}")
    return parse_full_name(call.value("full_name")), int(text)
