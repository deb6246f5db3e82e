"""Handlers of the service DeltaTables."""

from sandur.catalog.identifiers import Identifier, checked_new_name, checked_uuid
from sandur.catalog.property_keys import check_new_keys
from sandur.delta.requests import CreateTable, UpdateTable, parse_change
from sandur.operations.delta import load as loads
from sandur.operations.delta import tables as operations
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import create_table
from sandur.server.context import Call
from sandur.server.delta_bodies import loaded_body, stage_body
from sandur.server.grpc.messages import Form, Names, form_of, identifier_of, name_message, namespace_of
from sandur.v1 import delta_pb2 as v1
from sandur.v1.common_pb2 import Name


def _path_of(name: Name, default_catalog: str) -> Names:
    """The parameters of the Delta REST API: a schema is a namespace, its levels joined by dots."""
    schema = ".".join(name.namespace)
    return (("catalog", name.catalog or default_catalog), ("schema", schema), ("table", name.name))


def by_table(
    sent: v1.GetDeltaTableRequest | v1.CommitDeltaTableRequest | v1.DropDeltaTableRequest, default_catalog: str
) -> Form:
    body = sent.body if isinstance(sent, v1.CommitDeltaTableRequest) else None
    return form_of(_path_of(sent.table, default_catalog), body=body)


def staging(sent: v1.StageDeltaTableRequest, default_catalog: str) -> Form:
    return form_of(_path_of(sent.table, default_catalog)[:2], body={"name": sent.table.name})


def creating(sent: v1.CreateDeltaTableRequest, default_catalog: str) -> Form:
    where = Name(catalog=sent.namespace.catalog, namespace=sent.namespace.levels)
    return form_of(_path_of(where, default_catalog)[:2], body=sent.body)


async def stage(call: Call, sent: v1.StageDeltaTableRequest) -> v1.DeltaStage:
    identifier = identifier_of(call, sent.table, "table")
    checked_new_name("table", identifier.name)
    staged = await operations.stage_table(call.lake, identifier, request=call.request())
    return v1.DeltaStage(
        name=name_message(identifier),
        uuid=staged.uuid,
        location=staged.location,
        stage=await stage_body(call.lake, staged),
    )


async def create(call: Call, sent: v1.CreateDeltaTableRequest) -> v1.DeltaTable:
    namespace = namespace_of(call, sent.namespace, "namespace")
    body = call.body(CreateTable, "create table request")
    check_new_keys(body.properties)
    identifier = Identifier(*namespace, checked_new_name("table", body.name))
    table = await create_table(call.lake, identifier, body, request=call.request())
    return _table(identifier, loads.render_table(call.lake, table))


async def get(call: Call, sent: v1.GetDeltaTableRequest) -> v1.DeltaTable:
    identifier = identifier_of(call, sent.table, "table")
    return _table(identifier, await loads.load_table(call.lake, identifier))


async def commit(call: Call, sent: v1.CommitDeltaTableRequest) -> v1.DeltaTable:
    identifier = identifier_of(call, sent.table, "table")
    change = parse_change(call.body(UpdateTable, "update table request"))
    checked_uuid("assert-table-uuid", change.asserted_uuid)
    if change.set_properties:
        check_new_keys(change.set_properties)
    table = await update_table(call.lake, identifier, change, call.request())
    return _table(identifier, loads.render_table(call.lake, table))


async def drop(call: Call, sent: v1.DropDeltaTableRequest) -> v1.DropDeltaTableResponse:
    await operations.drop_table(call.lake, identifier_of(call, sent.table, "table"), request=call.request())
    return v1.DropDeltaTableResponse()


def _table(identifier: Identifier, loaded: loads.LoadedDelta) -> v1.DeltaTable:
    return v1.DeltaTable(name=name_message(identifier), table=loaded_body(loaded))
