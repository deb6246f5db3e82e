"""Handlers of the Delta REST API: tables, staging tables and credentials."""

from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier, checked_new_name, checked_uuid, identifier_from_parts
from sandur.catalog.property_keys import check_new_keys
from sandur.delta.requests import CreateTable, RenameTable, ReportMetrics, StageTable, UpdateTable, parse_change
from sandur.errors import BadRequest, Invalid
from sandur.operations.delta import load as loads
from sandur.operations.delta import tables as operations
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import create_table
from sandur.operations.delta.tables import load_stage, stage_table
from sandur.operations.tables.reports import DELTA_COMMIT_REPORT, keep_report
from sandur.operations.unity.credentials import path_location
from sandur.server.context import Call
from sandur.server.delta_bodies import FileOperation, loaded_body, stage_body, storage_credentials
from sandur.server.http import NO_CONTENT, NO_STORE, Answer, json_answer


def table_of(call: Call) -> Identifier:
    return identifier_from_parts(call.value("catalog"), call.value("schema"), call.value("table"))


def new_table_of(call: Call, name: str) -> Identifier:
    """A new table in the schema of the path; Invalid when the name is not allowed."""
    return identifier_from_parts(call.value("catalog"), call.value("schema"), checked_new_name("table", name))


_OPERATIONS: Final[dict[str, FileOperation]] = {"READ": "READ", "READ_WRITE": "READ_WRITE"}
_PATH_OPERATIONS: Final[dict[str, FileOperation]] = {
    **_OPERATIONS,
    "PATH_READ": "READ",
    "PATH_READ_WRITE": "READ_WRITE",
    "PATH_CREATE_TABLE": "READ_WRITE",
}


_SITUATIONS: Final = {"READ": "", "PATH_READ": "", "PATH_CREATE_TABLE": "create"}


async def credentials_for_table(call: Call) -> Answer:
    operation = _requested_operation(call, _OPERATIONS)
    situation = "write" if operation == "READ_WRITE" else ""
    table = await operations.load_delta_table(call.lake, table_of(call), situation=situation)
    return await _answer_credentials(call, table.location, operation)


async def credentials_for_stage(call: Call) -> Answer:
    stage = await load_stage(call.lake, checked_uuid("table_id", call.value("table_id")), call.request().source)
    return await _answer_credentials(call, stage.location, "READ_WRITE")


async def credentials_for_path(call: Call) -> Answer:
    operation = _requested_operation(call, _PATH_OPERATIONS)
    location = call.required("location")
    situation = _SITUATIONS.get(call.required("operation"), "write")
    return await _answer_credentials(call, await path_location(call.lake, location, situation=situation), operation)


def _requested_operation(call: Call, known: dict[str, FileOperation]) -> FileOperation:
    text = call.required("operation")
    if text not in known:
        raise BadRequest(f"Invalid operation: expected one of {', '.join(known)}, found {text[:40]!r}")
    return known[text]


async def _answer_credentials(call: Call, location: str, operation: FileOperation) -> Answer:
    credentials = await storage_credentials(call.lake, location, operation)
    return json_answer(msgspec.json.encode({"storage-credentials": credentials}), NO_STORE)


async def stage(call: Call) -> Answer:
    body = call.body(StageTable, "staging table request")
    staged = await stage_table(call.lake, new_table_of(call, body.name), request=call.request())
    return json_answer(await stage_body(call.lake, staged), NO_STORE)


async def create(call: Call) -> Answer:
    body = call.body(CreateTable, "create table request")
    check_new_keys(body.properties)
    table = await create_table(call.lake, new_table_of(call, body.name), body, request=call.request())
    return json_answer(loaded_body(loads.render_table(call.lake, table)))


async def load(call: Call) -> Answer:
    return json_answer(loaded_body(await loads.load_table(call.lake, table_of(call))))


async def exists(call: Call) -> Answer:
    await loads.check_table_exists(call.lake, table_of(call))
    return NO_CONTENT


async def update(call: Call) -> Answer:
    change = parse_change(call.body(UpdateTable, "update table request"))
    checked_uuid("assert-table-uuid", change.asserted_uuid)
    if change.set_properties:
        check_new_keys(change.set_properties)
    table = await update_table(call.lake, table_of(call), change, call.request())
    return json_answer(loaded_body(loads.render_table(call.lake, table)))


async def drop(call: Call) -> Answer:
    await operations.drop_table(call.lake, table_of(call), request=call.request())
    return NO_CONTENT


async def rename(call: Call) -> Answer:
    body = call.body(RenameTable, "rename table request")
    new_name = checked_new_name("table", body.new_name)
    await operations.rename_table(call.lake, table_of(call), new_name, request=call.request())
    return NO_CONTENT


async def report(call: Call) -> Answer:
    """Store the metrics of a commit, as those of Iceberg tables."""
    body = call.body(ReportMetrics, "metrics report")
    identifier = table_of(call)
    table = await operations.load_delta_table(call.lake, identifier)
    if body.table_id.lower() != table.uuid:
        raise Invalid(f"table-id {body.table_id} does not match the id of the table, {table.uuid}")
    if body.report is not None:
        await keep_report(call.lake, identifier, table.uuid, DELTA_COMMIT_REPORT, call.http.body, call.request())
    return NO_CONTENT
