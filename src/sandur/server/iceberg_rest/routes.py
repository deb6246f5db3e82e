"""The routes of the Iceberg REST API."""

from typing import Final

from sandur.server.app import Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.iceberg_rest import config, namespaces, tables, views
from sandur.server.iceberg_rest.errors import ERRORS
from sandur.settings import Settings

_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{table}"
_VIEW: Final = _NAMESPACE + "/views/{view}"


async def get_config(call: Call) -> Answer:
    return await config.answer_config(call, _ENDPOINTS)


ROUTES: Final = (
    Route("GET", "/v1/config", "getConfig", get_config),
    Route("POST", "/v1/oauth/tokens", "getToken", config.get_token, is_open=True),
    Route("GET", _NAMESPACES, "listNamespaces", namespaces.list_namespaces),
    Route("POST", _NAMESPACES, "createNamespace", namespaces.create_namespace),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespaces.load_namespace),
    Route("HEAD", _NAMESPACE, "namespaceExists", namespaces.namespace_exists),
    Route("DELETE", _NAMESPACE, "dropNamespace", namespaces.drop_namespace),
    Route("POST", _NAMESPACE + "/properties", "updateProperties", namespaces.update_properties),
    Route("GET", _NAMESPACE + "/tables", "listTables", tables.list_tables),
    Route("POST", _NAMESPACE + "/tables", "createTable", tables.create),
    Route("POST", _NAMESPACE + "/register", "registerTable", tables.register_table),
    Route("GET", _TABLE, "loadTable", tables.load),
    Route("POST", _TABLE, "updateTable", tables.commit),
    Route("DELETE", _TABLE, "dropTable", tables.drop),
    Route("HEAD", _TABLE, "tableExists", tables.exists),
    Route("POST", _TABLE + "/unregister", "unregisterTable", tables.unregister),
    Route("POST", _TABLE + "/plan", "planTableScan", tables.plan_scan),
    Route("GET", _TABLE + "/plan/{plan-id}", "fetchPlanningResult", tables.fetch_plan),
    Route("DELETE", _TABLE + "/plan/{plan-id}", "cancelPlanning", tables.cancel_plan),
    Route("POST", _TABLE + "/tasks", "fetchScanTasks", tables.fetch_scan_tasks),
    Route("POST", _TABLE + "/metrics", "reportMetrics", tables.metrics),
    Route("POST", "/v1/{prefix}/tables/rename", "renameTable", tables.rename_table),
    Route("POST", "/v1/{prefix}/transactions/commit", "commitTransaction", tables.commit_tables),
    Route("GET", _NAMESPACE + "/views", "listViews", views.list_views),
    Route("POST", _NAMESPACE + "/views", "createView", views.create),
    Route("GET", _VIEW, "loadView", views.load),
    Route("POST", _VIEW, "replaceView", views.replace),
    Route("DELETE", _VIEW, "dropView", views.drop),
    Route("HEAD", _VIEW, "viewExists", views.exists),
    Route("POST", "/v1/{prefix}/views/rename", "renameView", views.rename_view),
    Route("POST", _NAMESPACE + "/register-view", "registerView", views.register_view),
    Route("GET", _NAMESPACE + "/functions", "listFunctions", views.list_functions),
    Route("GET", _NAMESPACE + "/functions/{function}", "loadFunction", views.load_function),
    Route("GET", _TABLE + "/schemas", "tableSchemas", tables.schemas, is_advertised=False),
    Route("GET", _TABLE + "/partition-specs", "tablePartitionSpecs", tables.partition_specs, is_advertised=False),
    Route("GET", _TABLE + "/snapshots", "tableSnapshots", tables.snapshots, is_advertised=False),
)

_ENDPOINTS: Final = [f"{route.method} {route.path}" for route in ROUTES if route.is_advertised]


def iceberg_dialect(settings: Settings) -> Dialect:
    """The Iceberg REST API at `/v1` and `/iceberg/v1`, and where the servers of Unity Catalog have it."""
    return Dialect(
        name="iceberg",
        mounts=(b"/v1/", b"/iceberg/v1/", b"/api/2.1/unity-catalog/iceberg/v1/"),
        router=Router(ROUTES, unknown_status=400, base="/v1", default_prefix=settings.default_catalog),
        errors=ERRORS,
    )
