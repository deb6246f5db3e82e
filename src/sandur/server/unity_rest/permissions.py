"""Grants, and the metastore they begin at, over HTTP."""

import msgspec

from sandur.catalog.grants import SECURABLE_TYPES, PermissionsChange, SecurableType, permissions_list
from sandur.errors import BadRequest
from sandur.operations.unity import access as operations
from sandur.server.http import Answer
from sandur.server.unity_rest.call import Call, shown


class UpdatePermissions(msgspec.Struct, frozen=True):
    changes: tuple[PermissionsChange, ...]


class MetastoreSummary(msgspec.Struct, frozen=True):
    metastore_id: str


async def load(call: Call) -> Answer:
    found = await operations.load_grants(call.lake, _type(call), call.value("full_name"))
    return shown(permissions_list(found, call.query.get("principal")))


async def update(call: Call) -> Answer:
    body = call.body(UpdatePermissions, "update permissions request")
    changed = await operations.update_grants(
        call.lake, _type(call), call.value("full_name"), body.changes, call.request()
    )
    return shown(permissions_list(changed))


async def metastore(call: Call) -> Answer:
    return shown(MetastoreSummary(await operations.metastore_id(call.lake)))


def _type(call: Call) -> SecurableType:
    text = call.value("securable_type").lower()
    for known in SECURABLE_TYPES:
        if text == known:
            return known
    raise BadRequest(f"Invalid securable type {text[:40]!r}: expected one of {', '.join(SECURABLE_TYPES)}")
