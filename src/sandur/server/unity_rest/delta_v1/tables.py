"""Delta tables over HTTP, by the Delta API."""

from sandur.catalog.identifiers import checked_new_name
from sandur.catalog.locations import check_property_keys
from sandur.delta.requests import (
    CreateTable,
    RenameTable,
    ReportMetrics,
    StageTable,
    UpdateTable,
    parse_change,
)
from sandur.errors import Invalid
from sandur.operations.delta import load as loading
from sandur.operations.delta import tables as operations
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import create_table
from sandur.operations.delta.tables import stage_table
from sandur.server.messages import NO_CONTENT, Answer, json_answer
from sandur.server.unity_rest.call import Call
from sandur.server.unity_rest.delta_v1.bodies import loaded_body, stage_body
from sandur.server.unity_rest.delta_v1.credentials import credentials_for
from sandur.server.unity_rest.delta_v1.names import named_table, new_table


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
