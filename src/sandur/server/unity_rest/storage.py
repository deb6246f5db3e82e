"""Storage credentials and external locations over HTTP."""

from typing import Literal

import msgspec

from sandur.catalog.storage_registry import (
    AwsIamRole,
    credential_info,
    credential_named,
    location_info,
    location_named,
)
from sandur.operations.unity import registry as operations
from sandur.operations.unity.lists import ListAsked
from sandur.server.messages import Answer, json_answer
from sandur.server.unity_rest.bodies import DONE, list_body, shown
from sandur.server.unity_rest.call import Call, Comment


class CreateCredential(msgspec.Struct, frozen=True):
    name: str
    comment: Comment | None = None
    aws_iam_role: AwsIamRole | None = None
    purpose: Literal["STORAGE"] | None = None


class UpdateCredential(msgspec.Struct, frozen=True):
    comment: Comment | None = None
    owner: str | None = None
    aws_iam_role: AwsIamRole | None = None
    new_name: str | None = None


class CreateLocation(msgspec.Struct, frozen=True):
    name: str
    url: str
    credential_name: str
    comment: Comment | None = None


class UpdateLocation(msgspec.Struct, frozen=True):
    url: str | None = None
    credential_name: str | None = None
    comment: Comment | None = None
    owner: str | None = None
    new_name: str | None = None


async def create_credential(call: Call) -> Answer:
    body = call.body(CreateCredential, "create credential request")
    made = await operations.create_credential(
        call.lake, body.name, role=body.aws_iam_role, comment=body.comment, request=call.request()
    )
    return shown(credential_info(made))


async def list_credentials(call: Call) -> Answer:
    asked = ListAsked(*call.page)
    registry = await operations.load_registry(call.lake)
    page, token = operations.page_of(call.lake, "credentials", registry.credentials, asked)
    return json_answer(list_body("credentials", [msgspec.json.encode(credential_info(one)) for one in page], token))


async def load_credential(call: Call) -> Answer:
    registry = await operations.load_registry(call.lake)
    return shown(credential_info(credential_named(registry, call.value("name"))))


async def update_credential(call: Call) -> Answer:
    body = call.body(UpdateCredential, "update credential request")
    change = operations.CredentialChange(body.comment, body.owner, body.aws_iam_role, body.new_name or None)
    changed = await operations.update_credential(call.lake, call.value("name"), change, call.request())
    return shown(credential_info(changed))


async def delete_credential(call: Call) -> Answer:
    force = call.is_set("force")
    request = call.request(f"force={force}")
    await operations.drop_credential(call.lake, call.value("name"), force=force, request=request)
    return DONE


async def create_location(call: Call) -> Answer:
    body = call.body(CreateLocation, "create external location request")
    made = await operations.create_location(
        call.lake,
        body.name,
        url=body.url,
        credential_name=body.credential_name,
        comment=body.comment,
        request=call.request(),
    )
    return shown(location_info(*made))


async def list_locations(call: Call) -> Answer:
    asked = ListAsked(*call.page)
    registry = await operations.load_registry(call.lake)
    page, token = operations.page_of(call.lake, "external_locations", registry.locations, asked)
    infos = [msgspec.json.encode(location_info(registry, location)) for location in page]
    return json_answer(list_body("external_locations", infos, token))


async def load_location(call: Call) -> Answer:
    registry = await operations.load_registry(call.lake)
    return shown(location_info(registry, location_named(registry, call.value("name"))))


async def update_location(call: Call) -> Answer:
    body = call.body(UpdateLocation, "update external location request")
    change = operations.LocationChange(
        body.url or None, body.credential_name or None, body.comment, body.owner, body.new_name or None
    )
    changed = await operations.update_location(call.lake, call.value("name"), change, call.request())
    return shown(location_info(*changed))


async def delete_location(call: Call) -> Answer:
    """Nothing that a location holds is kept in it, so that there is nothing that `force` would take along."""
    call.is_set("force")
    await operations.drop_location(call.lake, call.value("name"), call.request())
    return DONE
