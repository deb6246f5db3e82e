"""The methods of every service, with the privileges that each needs. A method that is missing here fails the start."""

from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.descriptor import FileDescriptor

from sandur.catalog.security.privileges import AUTHENTICATED
from sandur.server import needs
from sandur.server.grpc import containers, delta, events, tables
from sandur.server.grpc.messages import by_name, in_namespace
from sandur.server.grpc.service import Method, stream, unary
from sandur.v1 import catalogs_pb2, delta_pb2, events_pb2, scans_pb2, tables_pb2

_FILES: Final[Sequence[FileDescriptor]] = (
    catalogs_pb2.DESCRIPTOR,
    tables_pb2.DESCRIPTOR,
    scans_pb2.DESCRIPTOR,
    delta_pb2.DESCRIPTOR,
    events_pb2.DESCRIPTOR,
)
SERVICES: Final = tuple(service.full_name for file in _FILES for service in file.services_by_name.values())

_CATALOGS: Final = {
    "List": unary(
        "listCatalogs",
        "GET",
        catalogs_pb2.ListCatalogsRequest,
        needs.LIST_CATALOGS,
        containers.no_names,
        containers.list_catalogs,
    ),
    "Get": unary(
        "getCatalog",
        "GET",
        catalogs_pb2.GetCatalogRequest,
        needs.SEE_CATALOG,
        containers.by_catalog,
        containers.get_catalog,
    ),
    "Create": unary(
        "createCatalog",
        "POST",
        catalogs_pb2.CreateCatalogRequest,
        needs.CREATE_CATALOG,
        containers.creation_of_catalog,
        containers.create_catalog,
    ),
    "Update": unary(
        "updateCatalog",
        "PATCH",
        catalogs_pb2.UpdateCatalogRequest,
        needs.CHANGE_CATALOG,
        containers.change_of_catalog,
        containers.update_catalog,
    ),
    "Delete": unary(
        "deleteCatalog",
        "DELETE",
        catalogs_pb2.DeleteCatalogRequest,
        needs.MANAGE_CATALOG,
        containers.deletion_of_catalog,
        containers.delete_catalog,
    ),
}

_NAMESPACES: Final = {
    "List": unary(
        "listNamespaces",
        "GET",
        catalogs_pb2.ListNamespacesRequest,
        needs.SEE_CATALOG,
        containers.below_parent,
        containers.list_namespaces,
    ),
    "Get": unary(
        "loadNamespaceMetadata",
        "GET",
        catalogs_pb2.GetNamespaceRequest,
        needs.SEE_NAMESPACE,
        containers.by_namespace,
        containers.get_namespace,
    ),
    "Create": unary(
        "createNamespace",
        "POST",
        catalogs_pb2.CreateNamespaceRequest,
        needs.CREATE_NAMESPACE,
        containers.creation_of_namespace,
        containers.create_namespace,
    ),
    "Update": unary(
        "updateProperties",
        "POST",
        catalogs_pb2.UpdateNamespaceRequest,
        needs.CHANGE_NAMESPACE,
        containers.change_of_namespace,
        containers.update_namespace,
    ),
    "Delete": unary(
        "dropNamespace",
        "DELETE",
        catalogs_pb2.DeleteNamespaceRequest,
        needs.DROP_NAMESPACE,
        containers.by_namespace,
        containers.delete_namespace,
    ),
}

# Each name and each id is decided about by itself: what the caller must not see is absent from the answer.
_DIRECTORY: Final = {
    "Resolve": unary(
        "resolveNames",
        "GET",
        catalogs_pb2.ResolveRequest,
        AUTHENTICATED,
        containers.no_names,
        containers.resolve_names,
    ),
    "Lookup": unary(
        "lookUpIds", "GET", catalogs_pb2.LookupRequest, AUTHENTICATED, containers.no_names, containers.look_up_ids
    ),
}

_TABLE: Final = by_name("table")
_TABLES: Final = {
    "List": unary(
        "listTables", "GET", tables_pb2.ListTablesRequest, needs.SEE_NAMESPACE, in_namespace, tables.list_tables
    ),
    "Get": unary("loadTable", "GET", tables_pb2.GetTableRequest, needs.READ_TABLE, _TABLE, tables.get_table),
    "Create": unary(
        "createTable", "POST", tables_pb2.CreateTableRequest, needs.CREATE_TABLE, in_namespace, tables.create
    ),
    "Stage": unary("createTable", "POST", tables_pb2.StageTableRequest, needs.CREATE_TABLE, in_namespace, tables.stage),
    "Register": unary(
        "registerTable",
        "POST",
        tables_pb2.RegisterTableRequest,
        needs.REGISTER_TABLE,
        tables.registering,
        tables.register_table,
    ),
    "Rename": unary(
        "renameTable", "POST", tables_pb2.RenameTableRequest, needs.RENAME_TABLE, tables.renaming, tables.rename_table
    ),
    "Drop": unary("dropTable", "DELETE", tables_pb2.DropTableRequest, needs.DROP_TABLE, tables.dropping, tables.drop),
    "Commit": unary("updateTable", "POST", tables_pb2.CommitTableRequest, needs.COMMIT_TABLE, _TABLE, tables.commit),
    "CommitTransaction": unary(
        "commitTransaction",
        "POST",
        tables_pb2.CommitTransactionRequest,
        needs.COMMIT_TRANSACTION,
        tables.in_catalog,
        tables.commit_tables,
    ),
    "GetCredentials": unary(
        "loadCredentials",
        "GET",
        tables_pb2.GetCredentialsRequest,
        needs.READ_FILES,
        _TABLE,
        tables.get_credentials,
    ),
    "ListSnapshots": unary(
        "tableSnapshots", "GET", tables_pb2.ListSnapshotsRequest, needs.READ_TABLE, _TABLE, tables.list_snapshots
    ),
    "ListSchemas": unary(
        "tableSchemas", "GET", tables_pb2.ListSchemasRequest, needs.READ_TABLE, _TABLE, tables.list_schemas
    ),
    "ListPartitionSpecs": unary(
        "tablePartitionSpecs",
        "GET",
        tables_pb2.ListPartitionSpecsRequest,
        needs.READ_TABLE,
        _TABLE,
        tables.list_partition_specs,
    ),
}

_VIEW: Final = by_name("view")
_VIEWS: Final = {
    "List": unary(
        "listViews", "GET", tables_pb2.ListViewsRequest, needs.SEE_NAMESPACE, in_namespace, tables.list_views
    ),
    "Get": unary("loadView", "GET", tables_pb2.GetViewRequest, needs.READ_VIEW, _VIEW, tables.get_view),
    "Create": unary(
        "createView", "POST", tables_pb2.CreateViewRequest, needs.CREATE_VIEW, in_namespace, tables.create_view
    ),
    "Register": unary(
        "registerView",
        "POST",
        tables_pb2.RegisterViewRequest,
        needs.REGISTER_VIEW,
        tables.registering_view,
        tables.register_view,
    ),
    "Replace": unary(
        "replaceView", "POST", tables_pb2.ReplaceViewRequest, needs.REPLACE_VIEW, _VIEW, tables.replace_view
    ),
    "Rename": unary(
        "renameView", "POST", tables_pb2.RenameViewRequest, needs.RENAME_VIEW, tables.renaming, tables.rename_view
    ),
    "Drop": unary("dropView", "DELETE", tables_pb2.DropViewRequest, needs.DROP_VIEW, _VIEW, tables.drop_view),
}

_SCANS: Final = {
    "Plan": stream("planTableScan", "POST", scans_pb2.PlanScanRequest, needs.PLAN_SCAN, _TABLE, tables.plan_scan),
    "Cancel": unary(
        "cancelPlanning",
        "DELETE",
        scans_pb2.CancelScanRequest,
        needs.SCAN_TABLE,
        tables.cancelling,
        tables.cancel_scan,
    ),
}

_DELTA_TABLES: Final = {
    "Stage": unary(
        "createStagingTable",
        "POST",
        delta_pb2.StageDeltaTableRequest,
        needs.STAGE_DELTA_TABLE,
        delta.staging,
        delta.stage,
    ),
    "Create": unary(
        "createTable",
        "POST",
        delta_pb2.CreateDeltaTableRequest,
        needs.CREATE_DELTA_TABLE,
        delta.creating,
        delta.create,
    ),
    "Get": unary("loadTable", "GET", delta_pb2.GetDeltaTableRequest, needs.READ_TABLE, delta.by_table, delta.get),
    "Commit": unary(
        "updateTable",
        "POST",
        delta_pb2.CommitDeltaTableRequest,
        needs.COMMIT_DELTA_TABLE,
        delta.by_table,
        delta.commit,
    ),
    "Drop": unary(
        "deleteTable", "DELETE", delta_pb2.DropDeltaTableRequest, needs.DROP_DELTA_TABLE, delta.by_table, delta.drop
    ),
}

# Each event is decided about by itself, like a name of the directory.
_EVENTS: Final = {
    "Subscribe": stream(
        "streamEvents",
        "GET",
        events_pb2.SubscribeRequest,
        AUTHENTICATED,
        events.subscribing,
        events.subscribe,
        is_endless=True,
    ),
    "Query": unary("loadEvents", "GET", events_pb2.QueryEventsRequest, AUTHENTICATED, events.querying, events.query),
}

_BY_SERVICE: Final[Mapping[str, Mapping[str, Method]]] = {
    "Catalogs": _CATALOGS,
    "Namespaces": _NAMESPACES,
    "Directory": _DIRECTORY,
    "Tables": _TABLES,
    "Views": _VIEWS,
    "Scans": _SCANS,
    "DeltaTables": _DELTA_TABLES,
    "Events": _EVENTS,
}


METHODS: Final[Mapping[str, Method]] = {
    f"/{service.full_name}/{method.name}": _BY_SERVICE[service.name][method.name]
    for file in _FILES
    for service in file.services_by_name.values()
    for method in service.methods
}
"""Every method of the definitions, by its path."""
