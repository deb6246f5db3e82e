"""Handlers of the Delta REST API: tables, staging tables and credentials."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.identifiers import Identifier, checked_new_name, identifier_from_parts
from sandur.catalog.locations import check_property_keys, normalize_location
from sandur.delta.requests import (
    CreateTable,
    RenameTable,
    ReportMetrics,
    StageTable,
    UpdateTable,
    parse_change,
)
from sandur.errors import BadRequest, Invalid, Unsupported
from sandur.operations.delta import load as loading
from sandur.operations.delta import tables as operations
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import create_table
from sandur.operations.delta.tables import check_owner, load_stage, stage_table
from sandur.server.context import Call
from sandur.server.delta_rest.bodies import NEVER_MS, CredentialsBody, StorageCredential, loaded_body, stage_body
from sandur.server.http import NO_CONTENT, Answer, json_answer


def named_table(call: Call) -> Identifier:
    return identifier_from_parts(call.value("catalog"), call.value("schema"), call.value("table"))


def new_table(call: Call, name: str) -> Identifier:
    """A table that is to be made in the schema of the path; Invalid when nothing new may be called so."""
    return identifier_from_parts(call.value("catalog"), call.value("schema"), checked_new_name("table", name))


Operation = Literal["READ", "READ_WRITE"]
_OPERATIONS: Final[dict[str, Operation]] = {"READ": "READ", "READ_WRITE": "READ_WRITE"}
_PATH_OPERATIONS: Final[dict[str, Operation]] = {
    **_OPERATIONS,
    "PATH_READ": "READ",
    "PATH_READ_WRITE": "READ_WRITE",
    "PATH_CREATE_TABLE": "READ_WRITE",
}


async def credentials_for_table(call: Call) -> Answer:
    operation = _requested_operation(call, _OPERATIONS)
    table = await operations.load_delta_table(call.lake, named_table(call))
    return _answer_credentials(table.location, operation)


async def credentials_for_stage(call: Call) -> Answer:
    stage = await load_stage(call.lake, call.value("table_id"))
    check_owner(stage, call.identity.principal)
    return _answer_credentials(stage.location, "READ_WRITE")


async def credentials_for_path(call: Call) -> Answer:
    operation = _requested_operation(call, _PATH_OPERATIONS)
    return _answer_credentials(normalize_location(call.required("location")), operation)


def credentials_for(location: str, operation: Operation, *, is_offered: bool = False) -> Sequence[StorageCredential]:
    """Access to a location. A folder needs none, which an empty configuration says.

    Unsupported for a bucket, unless the credentials are only offered beside something else: clients then use their own.
    """
    if location.startswith(("file:", "memory:")):
        return (StorageCredential(location, operation, {}, NEVER_MS),)
    if is_offered:
        return ()
    raise Unsupported(f"no credentials are given out for {location}: clients need their own")


def _requested_operation(call: Call, known: dict[str, Operation]) -> Operation:
    text = call.required("operation")
    if text not in known:
        raise BadRequest(f"Invalid operation: expected one of {', '.join(known)}, found {text[:40]!r}")
    return known[text]


def _answer_credentials(location: str, operation: Operation) -> Answer:
    return json_answer(msgspec.json.encode(CredentialsBody(credentials_for(location, operation))))


async def stage(call: Call) -> Answer:
    body = call.body(StageTable, "staging table request")
    staged = await stage_table(call.lake, new_table(call, body.name), principal=call.identity.principal)
    return json_answer(stage_body(staged, credentials_for(staged.location, "READ_WRITE", is_offered=True)))


async def create(call: Call) -> Answer:
    body = call.body(CreateTable, "create table request")
    check_property_keys(body.properties)
    table = await create_table(call.lake, new_table(call, body.name), body, request=call.request())
    return json_answer(loaded_body(loading.render_table(call.lake, table)))


async def load(call: Call) -> Answer:
    return json_answer(loaded_body(await loading.load_table(call.lake, named_table(call))))


async def exists(call: Call) -> Answer:
    await loading.check_table_exists(call.lake, named_table(call))
    return NO_CONTENT


async def update(call: Call) -> Answer:
    change = parse_change(call.body(UpdateTable, "update table request"))
    if change.set_properties:
        check_property_keys(change.set_properties)
    table = await update_table(call.lake, named_table(call), change, call.request())
    return json_answer(loaded_body(loading.render_table(call.lake, table)))


async def drop(call: Call) -> Answer:
    await operations.drop_table(call.lake, named_table(call), request=call.request())
    return NO_CONTENT


async def rename(call: Call) -> Answer:
    body = call.body(RenameTable, "rename table request")
    new_name = checked_new_name("table", body.new_name)
    await operations.rename_table(call.lake, named_table(call), new_name, request=call.request())
    return NO_CONTENT


async def report(call: Call) -> Answer:
    """What a commit cost. It is checked and let go: the log of the table says as much."""
    body = call.body(ReportMetrics, "metrics report")
    table = await operations.load_delta_table(call.lake, named_table(call))
    if body.table_id.lower() != table.uuid:
        raise Invalid(f"table-id {body.table_id} is not that of the table, which is {table.uuid}")
    return NO_CONTENT
