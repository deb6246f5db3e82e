"""Access to the files of Delta tables, as the Delta API gives it out."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.locations import normalize_location
from sandur.errors import BadRequest, Unsupported
from sandur.operations.delta import tables as operations
from sandur.operations.delta.tables import check_owner, load_stage
from sandur.server.messages import Answer, json_answer
from sandur.server.unity_rest.call import Call
from sandur.server.unity_rest.delta_v1.bodies import NEVER_MS, CredentialsBody, StorageCredential
from sandur.server.unity_rest.delta_v1.names import named_table

Operation = Literal["READ", "READ_WRITE"]
_OPERATIONS: Final[dict[str, Operation]] = {"READ": "READ", "READ_WRITE": "READ_WRITE"}
_PATH_OPERATIONS: Final[dict[str, Operation]] = {
    **_OPERATIONS,
    "PATH_READ": "READ",
    "PATH_READ_WRITE": "READ_WRITE",
    "PATH_CREATE_TABLE": "READ_WRITE",
}


async def of_table(call: Call) -> Answer:
    operation = _asked(call, _OPERATIONS)
    table = await operations.load_delta_table(call.lake, named_table(call))
    return _answer(table.location, operation)


async def of_stage(call: Call) -> Answer:
    stage = await load_stage(call.lake, call.value("table_id"))
    check_owner(stage, call.identity.principal)
    return _answer(stage.location, "READ_WRITE")


async def of_path(call: Call) -> Answer:
    operation = _asked(call, _PATH_OPERATIONS)
    return _answer(normalize_location(call.wanted("location")), operation)


def credentials_for(location: str, operation: Operation, *, is_offered: bool = False) -> Sequence[StorageCredential]:
    """Access to a location. A folder needs none, which an empty configuration says.

    Unsupported for a bucket, unless the credentials are only offered beside something else: clients then use their own.
    """
    if location.startswith(("file:", "memory:")):
        return (StorageCredential(location, operation, {}, NEVER_MS),)
    if is_offered:
        return ()
    raise Unsupported(f"no credentials are given out for {location}: clients need their own")


def _asked(call: Call, known: dict[str, Operation]) -> Operation:
    text = call.wanted("operation")
    if text not in known:
        raise BadRequest(f"Invalid operation: expected one of {', '.join(known)}, found {text[:40]!r}")
    return known[text]


def _answer(location: str, operation: Operation) -> Answer:
    return json_answer(msgspec.json.encode(CredentialsBody(credentials_for(location, operation))))
