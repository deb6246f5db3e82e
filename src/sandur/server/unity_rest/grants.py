"""Handlers for grants and the metastore."""

import msgspec

from sandur.catalog.security.grants import PermissionsChange, permissions_list
from sandur.catalog.security.privileges import parse_securable_type
from sandur.operations import security
from sandur.operations.access import authorize_caller
from sandur.operations.unity import grants as operations
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.unity_rest.bodies import answer_with


class UpdatePermissions(msgspec.Struct, frozen=True):
    changes: tuple[PermissionsChange, ...]


async def load_permissions(call: Call) -> Answer:
    found = await operations.load_grants(
        call.lake, parse_securable_type(call.value("securable_type")), call.value("full_name")
    )
    return answer_with(permissions_list(found, call.query.get("principal")))


async def update_permissions(call: Call) -> Answer:
    body = call.body(UpdatePermissions, "update permissions request")
    changed = await operations.update_grants(
        call.lake,
        parse_securable_type(call.value("securable_type")),
        call.value("full_name"),
        body.changes,
        call.request(),
    )
    return answer_with(permissions_list(changed))


async def load_metastore(call: Call) -> Answer:
    await authorize_caller(call.lake)
    return answer_with({"metastore_id": await security.metastore_id(call.lake)})
