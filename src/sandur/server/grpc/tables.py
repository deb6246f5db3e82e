"""Handlers of the services Tables, Views and Scans."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import msgspec

from sandur.catalog.identifiers import Identifier, Kind
from sandur.errors import BadRequest, Busy, Conflict
from sandur.extras import LazyModule
from sandur.iceberg.requests import decode_create_table, decode_table_commit, decode_transaction
from sandur.iceberg.scan.requests import decode_scan_request
from sandur.iceberg.view_commit import decode_create_view, decode_view_commit
from sandur.operations.credentials import table_access
from sandur.operations.credentials.table_access import NO_ACCESS, Delegated
from sandur.operations.index.lists import list_names
from sandur.operations.tables import history, register
from sandur.operations.tables import views as view_operations
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, NotModified, Snapshots, load_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.tables.views import LoadedView
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.server.context import Call, validate_stage_id
from sandur.server.grpc.messages import (
    ACCEPTED,
    Form,
    InvalidField,
    catalog_of,
    credential_messages,
    encode_json,
    form_of,
    identifier_of,
    name_message,
    namespace_of,
    page_of,
    path_of,
)
from sandur.settings import seconds_of
from sandur.v1 import scans_pb2, tables_pb2
from sandur.v1.common_pb2 import Name, NamespaceName, Page
from sandur.v1.tables_pb2 import Table, View

if TYPE_CHECKING:
    from sandur.operations.planning import plans
else:
    plans = LazyModule("sandur.operations.planning.plans")  # It needs numpy and pyarrow.


class _Field(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    transform: str
    source_id: int | None = None
    source_ids: tuple[int, ...] = ()
    field_id: int | None = None


class _SpecRow(msgspec.Struct, frozen=True, rename="kebab"):
    spec_id: int | None
    spec_name: str | None
    is_default: bool
    fields: tuple[_Field, ...] | None
    snapshot_id: int | None = None
    timestamp_ms: int = 0
    ingested_at_ms: int | None = None


class _SchemaRow(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int | None
    timestamp_ms: int
    ingested_at_ms: int | None
    schema_id: int | None
    schema: dict[str, object] | None


class _SnapshotRow(_SchemaRow, frozen=True, rename="kebab"):
    parent_snapshot_id: int | None
    sequence_number: int | None
    partition_spec: _SpecRow
    manifest_list: str | None
    summary: dict[str, str]
    is_current: bool
    refs: tuple[str, ...]


def renaming(sent: tables_pb2.RenameTableRequest | tables_pb2.RenameViewRequest, default_catalog: str) -> Form:
    """The form of a rename: the names are in its body."""
    names = {"source": sent.source, "destination": sent.destination}
    body = {field: {"namespace": list(name.namespace), "name": name.name} for field, name in names.items()}
    return form_of((("prefix", sent.source.catalog or default_catalog),), body=body)


def registering(sent: tables_pb2.RegisterTableRequest, default_catalog: str) -> Form:
    body = {"name": sent.table.name, "metadata-location": sent.metadata_location}
    flag = {"overwrite": True} if sent.overwrite else {}
    return form_of(path_of(sent.table, "table", default_catalog)[:2], body={**body, **flag})


def registering_view(sent: tables_pb2.RegisterViewRequest, default_catalog: str) -> Form:
    body = {"name": sent.view.name, "metadata-location": sent.metadata_location}
    return form_of(path_of(sent.view, "view", default_catalog)[:2], body=body)


def dropping(sent: tables_pb2.DropTableRequest, default_catalog: str) -> Form:
    query = {"purgeRequested": "true"} if sent.purge else {}
    return form_of(path_of(sent.table, "table", default_catalog), query=query)


def in_catalog(sent: tables_pb2.CommitTransactionRequest, default_catalog: str) -> Form:
    return form_of((("prefix", sent.catalog or default_catalog),), body=sent.body)


def cancelling(sent: scans_pb2.CancelScanRequest, default_catalog: str) -> Form:
    return form_of((*path_of(sent.table, "table", default_catalog), ("plan-id", sent.plan_id)))


async def list_tables(call: Call, sent: tables_pb2.ListTablesRequest) -> tables_pb2.ListTablesResponse:
    names, token = await _list(call, "table", sent.namespace, sent.page)
    return tables_pb2.ListTablesResponse(tables=names, next_page_token=token)


async def list_views(call: Call, sent: tables_pb2.ListViewsRequest) -> tables_pb2.ListViewsResponse:
    names, token = await _list(call, "view", sent.namespace, sent.page)
    return tables_pb2.ListViewsResponse(views=names, next_page_token=token)


async def _list(call: Call, kind: Kind, sent: NamespaceName, page: Page) -> tuple[list[Name], str]:
    namespace, wanted = namespace_of(call, sent, "namespace"), page_of(page)
    found = await list_names(call.lake, namespace, kind=kind, page_token=wanted.token, page_size=wanted.size)
    return [name_message(Identifier(*namespace, entry.name)) for entry in found.entries], found.next_token or ""


async def get_table(call: Call, sent: tables_pb2.GetTableRequest) -> Table:
    lake, identifier = call.lake, identifier_of(call, sent.table, "table")
    snapshots: Snapshots = "refs" if sent.snapshots == tables_pb2.SNAPSHOT_SELECTION_REFS else "all"
    etag, delegated = sent.if_none_match or None, NO_ACCESS
    loaded: LoadedTable | NotModified
    if sent.with_credentials:
        loaded, delegated = await table_access.load_with_access(
            lake, identifier, ACCEPTED, snapshots=snapshots, if_none_match=etag
        )
    else:
        loaded = await load_table(lake, identifier, snapshots=snapshots, if_none_match=etag)
    restrictions = call.access.restrictions if call.access else None
    if restrictions is not None and isinstance(loaded, NotModified):
        # The tag does not depend on the restrictions, so a client must not keep a restricted answer by it.
        loaded = await load_table(lake, identifier, snapshots=snapshots)
    if isinstance(loaded, NotModified):
        return Table(name=name_message(identifier), etag=loaded.etag, not_modified=True)
    if restrictions is not None:
        table = _table(identifier, loaded._replace(etag=None), NO_ACCESS)
        table.read_restrictions = encode_json(restrictions)
        return table
    return _table(identifier, loaded, delegated)


async def create(call: Call, sent: tables_pb2.CreateTableRequest) -> Table:
    body = decode_create_table(sent.body)
    if body.stage_create:
        raise InvalidField("body", "it has stage-create; call Tables.Stage")
    loaded = await create_table(call.lake, namespace_of(call, sent.namespace, "namespace"), body, call.request())
    return await _created(call, sent.namespace, body.name, loaded, with_credentials=sent.with_credentials)


async def stage(call: Call, sent: tables_pb2.StageTableRequest) -> Table:
    body = msgspec.structs.replace(decode_create_table(sent.body), stage_create=True)
    stage_id = validate_stage_id(sent.stage_id, "stage_id")
    namespace = namespace_of(call, sent.namespace, "namespace")
    loaded = await create_table(call.lake, namespace, body, call.request("stage", stage_id), stage_id=stage_id)
    return await _created(call, sent.namespace, body.name, loaded, with_credentials=sent.with_credentials)


async def register_table(call: Call, sent: tables_pb2.RegisterTableRequest) -> Table:
    identifier = identifier_of(call, sent.table, "table")
    location = _location(sent.metadata_location)
    loaded = await register.register_table(
        call.lake, identifier.namespace, identifier.name, location, overwrite=sent.overwrite, request=call.request()
    )
    where = NamespaceName(catalog=identifier.catalog, levels=identifier.levels)
    return await _created(call, where, identifier.name, loaded, with_credentials=sent.with_credentials)


def _location(text: str) -> str:
    if not text:
        raise InvalidField("metadata_location", "it is empty")
    return text


async def _created(
    call: Call, where: NamespaceName, name: str, loaded: LoadedTable, *, with_credentials: bool
) -> Table:
    """A table that the request created, registered or staged, with access to its files if the client wants that."""
    identifier, delegated = Identifier(catalog_of(call, where.catalog), tuple(where.levels), name), NO_ACCESS
    if with_credentials:
        delegated = await table_access.access_to_created(call.lake, identifier, loaded, ACCEPTED)
        if delegated.access and loaded.etag:
            loaded = loaded._replace(etag=table_access.etag_with_access(call.lake, loaded.etag, delegated.access))
    return _table(identifier, loaded, delegated)


def _table(identifier: Identifier, loaded: LoadedTable, delegated: Delegated) -> Table:
    return Table(
        name=name_message(identifier),
        metadata_location=loaded.metadata_location,
        metadata=loaded.metadata,
        etag=loaded.etag,
        stage_id=loaded.stage_id,
        storage_credentials=credential_messages(delegated),
    )


async def commit(call: Call, sent: tables_pb2.CommitTableRequest) -> Table:
    identifier = identifier_of(call, sent.table, "table")
    loaded = await commit_table(call.lake, identifier, decode_table_commit(sent.body), call.request())
    return _table(identifier, loaded, NO_ACCESS)


async def commit_tables(call: Call, sent: tables_pb2.CommitTransactionRequest) -> tables_pb2.CommitTransactionResponse:
    catalog, commits = catalog_of(call, sent.catalog), []
    for change in decode_transaction(sent.body):
        if change.identifier is None:
            raise BadRequest("Invalid table changes: every change needs an identifier")
        commits.append((Identifier(catalog, change.identifier.namespace, change.identifier.name), change))
    await commit_transaction(call.lake, catalog, commits, call.request())
    return tables_pb2.CommitTransactionResponse()


async def rename_table(call: Call, sent: tables_pb2.RenameTableRequest) -> tables_pb2.RenameTableResponse:
    await _rename(call, sent.source, sent.destination, "table")
    return tables_pb2.RenameTableResponse()


async def rename_view(call: Call, sent: tables_pb2.RenameViewRequest) -> tables_pb2.RenameViewResponse:
    await _rename(call, sent.source, sent.destination, "view")
    return tables_pb2.RenameViewResponse()


async def _rename(call: Call, source: Name, destination: Name, kind: Kind) -> None:
    before, after = identifier_of(call, source, "source"), identifier_of(call, destination, "destination")
    if destination.catalog and after.catalog != before.catalog:
        raise InvalidField("destination.catalog", f"a {kind} stays in its catalog, {before.catalog}")
    after = after._replace(catalog=before.catalog)
    await rename(call.lake, before, after, kind=kind, request=call.request())


async def drop(call: Call, sent: tables_pb2.DropTableRequest) -> tables_pb2.DropTableResponse:
    identifier, request = identifier_of(call, sent.table, "table"), call.request(f"purge={sent.purge}")
    await drop_name(call.lake, identifier, kind="table", purge=sent.purge, request=request)
    return tables_pb2.DropTableResponse()


async def get_credentials(call: Call, sent: tables_pb2.GetCredentialsRequest) -> tables_pb2.GetCredentialsResponse:
    found = await table_access.load_access(call.lake, identifier_of(call, sent.table, "table"))
    return tables_pb2.GetCredentialsResponse(storage_credentials=credential_messages(Delegated(found)))


async def list_snapshots(call: Call, sent: tables_pb2.ListSnapshotsRequest) -> tables_pb2.ListSnapshotsResponse:
    found = await history.snapshot_history(call.lake, identifier_of(call, sent.table, "table"))
    rows = msgspec.convert(found, list[_SnapshotRow])
    return tables_pb2.ListSnapshotsResponse(snapshots=[_snapshot(row) for row in rows])


async def list_schemas(call: Call, sent: tables_pb2.ListSchemasRequest) -> tables_pb2.ListSchemasResponse:
    found = await history.schema_history(call.lake, identifier_of(call, sent.table, "table"))
    rows = msgspec.convert(found, list[_SchemaRow])
    return tables_pb2.ListSchemasResponse(schemas=[_schema(row) for row in rows])


async def list_partition_specs(
    call: Call, sent: tables_pb2.ListPartitionSpecsRequest
) -> tables_pb2.ListPartitionSpecsResponse:
    found = await history.partition_spec_history(call.lake, identifier_of(call, sent.table, "table"))
    rows = msgspec.convert(found, list[_SpecRow])
    return tables_pb2.ListPartitionSpecsResponse(partition_specs=[_spec(row) for row in rows])


def _snapshot(row: _SnapshotRow) -> tables_pb2.Snapshot:
    return tables_pb2.Snapshot(
        snapshot_id=row.snapshot_id,
        parent_snapshot_id=row.parent_snapshot_id,
        timestamp_ms=row.timestamp_ms,
        ingested_at_ms=row.ingested_at_ms,
        sequence_number=row.sequence_number,
        schema_id=row.schema_id,
        schema=encode_json(row.schema) if row.schema is not None else b"",
        partition_spec=_spec(row.partition_spec),
        manifest_list=row.manifest_list,
        summary=row.summary,
        is_current=row.is_current,
        refs=row.refs,
    )


def _schema(row: _SchemaRow) -> tables_pb2.Schema:
    return tables_pb2.Schema(
        schema_id=row.schema_id,
        schema=encode_json(row.schema) if row.schema is not None else b"",
        snapshot_id=row.snapshot_id,
        timestamp_ms=row.timestamp_ms,
        ingested_at_ms=row.ingested_at_ms,
    )


def _spec(row: _SpecRow) -> tables_pb2.PartitionSpec:
    fields = [
        tables_pb2.PartitionField(
            source_id=field.source_id,
            field_id=field.field_id,
            name=field.name,
            transform=field.transform,
            source_ids=field.source_ids,
        )
        for field in row.fields or ()
    ]
    return tables_pb2.PartitionSpec(
        spec_id=row.spec_id,
        spec_name=row.spec_name,
        is_default=row.is_default,
        fields=fields,
        snapshot_id=row.snapshot_id,
        timestamp_ms=row.timestamp_ms,
        ingested_at_ms=row.ingested_at_ms,
    )


async def get_view(call: Call, sent: tables_pb2.GetViewRequest) -> View:
    identifier = identifier_of(call, sent.view, "view")
    return _view(identifier, await view_operations.load_view(call.lake, identifier))


async def create_view(call: Call, sent: tables_pb2.CreateViewRequest) -> View:
    body, namespace = decode_create_view(sent.body), namespace_of(call, sent.namespace, "namespace")
    loaded = await view_operations.create_view(call.lake, namespace, body, call.request())
    return _view(Identifier(*namespace, body.name), loaded)


async def register_view(call: Call, sent: tables_pb2.RegisterViewRequest) -> View:
    identifier, location = identifier_of(call, sent.view, "view"), _location(sent.metadata_location)
    loaded = await register.register_view(
        call.lake, identifier.namespace, identifier.name, location, request=call.request()
    )
    return _view(identifier, loaded)


async def replace_view(call: Call, sent: tables_pb2.ReplaceViewRequest) -> View:
    identifier = identifier_of(call, sent.view, "view")
    body = decode_view_commit(sent.body)
    return _view(identifier, await view_operations.commit_view(call.lake, identifier, body, call.request()))


async def drop_view(call: Call, sent: tables_pb2.DropViewRequest) -> tables_pb2.DropViewResponse:
    identifier = identifier_of(call, sent.view, "view")
    await drop_name(call.lake, identifier, kind="view", purge=False, request=call.request())
    return tables_pb2.DropViewResponse()


def _view(identifier: Identifier, loaded: LoadedView) -> View:
    return View(name=name_message(identifier), metadata_location=loaded.metadata_location, metadata=loaded.metadata)


async def plan_scan(call: Call, sent: scans_pb2.PlanScanRequest) -> AsyncGenerator[scans_pb2.PlanScanResponse, None]:
    """The parts of a plan, each as soon as it is computed."""
    lake, identifier, principal = call.lake, identifier_of(call, sent.table, "table"), call.identity.principal
    result = await plans.plan_table_scan(lake, identifier, decode_scan_request(sent.body), call.request())
    completed = await _completed(call, identifier, result)
    delegated = await table_access.scan_access(lake, identifier, ACCEPTED) if sent.with_credentials else NO_ACCESS
    yield scans_pb2.PlanScanResponse(
        plan_id=completed.plan_id,
        tasks=b"{" + completed.result.fields + b"}",
        storage_credentials=credential_messages(delegated),
    )
    for token in completed.result.plan_tasks:
        fields = await plans.fetch_scan_tasks(lake, identifier, token, principal=principal)
        yield scans_pb2.PlanScanResponse(tasks=b"{" + fields + b"}")


async def _completed(call: Call, identifier: Identifier, result: "plans.Result") -> "plans.Completed":
    """The result of a plan, after a wait if it takes long; raises if the plan fails, is cancelled or expires."""
    settings, principal = call.settings, call.identity.principal
    waits_max = 1 + seconds_of(settings.plan_ttl) // max(1, seconds_of(settings.plan_wait))
    for _ in range(waits_max):
        match result:
            case plans.Completed():
                return result
            case plans.Failed(error=error):
                raise error
            case plans.Cancelled():
                raise Conflict("The plan was cancelled")
            case plans.Submitted(plan_id=plan_id):
                result = await plans.fetch_planning_result(call.lake, identifier, plan_id, principal=principal)
    raise Busy("The plan takes longer than it is kept; plan again with a narrower filter")


async def cancel_scan(call: Call, sent: scans_pb2.CancelScanRequest) -> scans_pb2.CancelScanResponse:
    identifier = identifier_of(call, sent.table, "table")
    await plans.cancel_planning(call.lake, identifier, sent.plan_id, principal=call.identity.principal)
    return scans_pb2.CancelScanResponse()
