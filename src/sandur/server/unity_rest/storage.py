"""Handlers for storage credentials, external locations and temporary credentials."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.credentials.properties import unity_fields
from sandur.catalog.credentials.registry import (
    AwsIamRole,
    CredentialUpdate,
    LocationUpdate,
    credential_info,
    location_info,
)
from sandur.catalog.credentials.storage_access import StorageRequest
from sandur.catalog.identifiers import identifier_from_parts
from sandur.catalog.infos import Comment
from sandur.errors import BadRequest
from sandur.operations.unity import registry as operations
from sandur.operations.unity.credentials import credential_for, path_location, table_locations, volume_location
from sandur.operations.unity.model_versions import load_version
from sandur.operations.unity.owners import change_owner
from sandur.server.context import Call
from sandur.server.http import NO_STORE, Answer, json_answer
from sandur.server.unity_rest.bodies import DONE, answer_with, list_body, list_request


class CreateCredential(msgspec.Struct, frozen=True):
    name: str
    comment: Comment | None = None
    aws_iam_role: AwsIamRole | None = None
    purpose: Literal["STORAGE"] | None = None
    storage: StorageRequest | None = None


class CreateLocation(msgspec.Struct, frozen=True):
    name: str
    url: str
    credential_name: str
    comment: Comment | None = None


async def create_credential(call: Call) -> Answer:
    body = call.body(CreateCredential, "create credential request")
    created = await operations.create_credential(
        call.lake,
        body.name,
        role=body.aws_iam_role,
        comment=body.comment,
        storage=body.storage,
        request=call.request(),
    )
    return answer_with(credential_info(created))


async def list_credentials(call: Call) -> Answer:
    page, token = await operations.list_credentials(call.lake, list_request(call))
    return json_answer(list_body("credentials", [msgspec.json.encode(credential_info(one)) for one in page], token))


async def load_credential(call: Call) -> Answer:
    return answer_with(credential_info(await operations.load_credential(call.lake, call.value("name"))))


async def update_credential(call: Call) -> Answer:
    body = call.body(CredentialUpdate, "update credential request")
    changed = await operations.update_credential(call.lake, call.value("name"), body, call.request())
    if body.owner:
        await change_owner(call.lake, "credential", changed.name, body.owner, call.request())
        changed = msgspec.structs.replace(changed, owner=body.owner)
    return answer_with(credential_info(changed))


async def delete_credential(call: Call) -> Answer:
    force = call.is_set("force")
    request = call.request(f"force={force}")
    await operations.drop_credential(call.lake, call.value("name"), force=force, request=request)
    return DONE


async def create_location(call: Call) -> Answer:
    body = call.body(CreateLocation, "create external location request")
    created = await operations.create_location(
        call.lake,
        body.name,
        url=body.url,
        credential_name=body.credential_name,
        comment=body.comment,
        request=call.request(),
    )
    return answer_with(location_info(*created))


async def list_locations(call: Call) -> Answer:
    registry, page, token = await operations.list_locations(call.lake, list_request(call))
    infos = [msgspec.json.encode(location_info(registry, location)) for location in page]
    return json_answer(list_body("external_locations", infos, token))


async def load_location(call: Call) -> Answer:
    return answer_with(location_info(*await operations.load_location(call.lake, call.value("name"))))


async def update_location(call: Call) -> Answer:
    body = call.body(LocationUpdate, "update external location request")
    registry, changed = await operations.update_location(call.lake, call.value("name"), body, call.request())
    if body.owner:
        await change_owner(call.lake, "external_location", changed.name, body.owner, call.request())
        changed = msgspec.structs.replace(changed, owner=body.owner)
    return answer_with(location_info(registry, changed))


async def delete_location(call: Call) -> Answer:
    force = call.is_set("force")
    request = call.request(f"force={force}")
    await operations.drop_location(call.lake, call.value("name"), force=force, request=request)
    return DONE


_LIFETIME_MS: Final = 3_600_000


class ForTable(msgspec.Struct, frozen=True):
    table_id: str
    operation: Literal["READ", "READ_WRITE"]


class ForVolume(msgspec.Struct, frozen=True):
    volume_id: str
    operation: Literal["READ_VOLUME", "WRITE_VOLUME"]


class ForModelVersion(msgspec.Struct, frozen=True):
    catalog_name: str
    schema_name: str
    model_name: str
    version: int
    operation: Literal["READ_MODEL_VERSION", "READ_WRITE_MODEL_VERSION"]


class ForPath(msgspec.Struct, frozen=True):
    url: str
    operation: Literal["PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"]


_SITUATIONS: Final = {"PATH_READ": "", "PATH_READ_WRITE": "write", "PATH_CREATE_TABLE": "create"}


async def credentials_for_table(call: Call) -> Answer:
    body = call.body(ForTable, "temporary table credentials request")
    writes = body.operation == "READ_WRITE"
    locations = await table_locations(call.lake, body.table_id, call.request().source, writes=writes)
    return await _answer_credentials(call, locations, writes=writes)


async def credentials_for_volume(call: Call) -> Answer:
    body = call.body(ForVolume, "temporary volume credentials request")
    writes = body.operation == "WRITE_VOLUME"
    location = await volume_location(call.lake, body.volume_id, writes=writes)
    return await _answer_credentials(call, (location,), writes=writes)


async def credentials_for_model_version(call: Call) -> Answer:
    body = call.body(ForModelVersion, "temporary model version credentials request")
    if body.version < 0:
        raise BadRequest(f"Invalid version: {body.version}")
    model = identifier_from_parts(body.catalog_name, body.schema_name, body.model_name)
    writes = body.operation == "READ_WRITE_MODEL_VERSION"
    version = await load_version(call.lake, model, body.version, situation="write" if writes else "")
    return await _answer_credentials(call, (version.location,), writes=writes)


async def credentials_for_path(call: Call) -> Answer:
    body = call.body(ForPath, "temporary path credentials request")
    location = await path_location(call.lake, body.url, situation=_SITUATIONS[body.operation])
    return await _answer_credentials(call, (location,), writes=body.operation != "PATH_READ")


async def _answer_credentials(call: Call, locations: Sequence[str], *, writes: bool) -> Answer:
    """The credential for all locations of an object; its own location comes first."""
    credential = await credential_for(call.lake, locations, writes=writes)
    expires_ms = (credential.expires_ms if credential else 0) or call.lake.clock.now_ms() + _LIFETIME_MS
    fields = unity_fields(credential) if credential else {}
    body = {**fields, "expiration_time": expires_ms, "url": locations[0]}
    return json_answer(msgspec.json.encode(body), NO_STORE)
