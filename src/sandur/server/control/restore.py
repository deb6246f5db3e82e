"""Handlers that give a Delta table the state of an earlier version again. Iceberg tables move their branch `main`."""

from typing import Annotated

import msgspec

from sandur.errors import BadRequest
from sandur.operations.delta import restore as operations
from sandur.server.context import Call, whole_number
from sandur.server.control.browse import identifier_of
from sandur.server.control.principals import answer_with
from sandur.server.http import Answer

Version = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`expected_version` is the version that the table must still have: the one that the preview showed."""

    version: Version
    expected_version: Version


async def preview_restore(call: Call) -> Answer:
    text = call.query.get("version")
    if not text:
        raise BadRequest("The parameter version is required: a version of the table")
    version = whole_number(text, "version", at_least=0)
    return answer_with(await operations.preview_restore(call.lake, identifier_of(call), version))


async def restore_table(call: Call) -> Answer:
    body = call.body(RestoreRequest, "restore request")
    restored = await operations.restore_table(
        call.lake, identifier_of(call), body.version, expected=body.expected_version, request=call.request()
    )
    return answer_with(restored)
