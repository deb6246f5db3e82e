"""The routes of the Iceberg REST API."""

from typing import Final

from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import AUTHENTICATED, OPEN, Needs
from sandur.extras import has_planning
from sandur.server import needs
from sandur.server.app import Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.iceberg_rest import config, events, namespaces, signatures, tables, views
from sandur.server.iceberg_rest.errors import ERRORS
from sandur.settings import Settings

_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{table}"
_VIEW: Final = _NAMESPACE + "/views/{view}"

_SIGNED: Final = {"write": privileges.WRITE_DATA}
_SIGN: Final = Needs("table", privileges.READ_DATA, {**_SIGNED, "staged": privileges.CREATE_TABLE})
_SIGN_LOCATED: Final = Needs("table", privileges.READ_DATA, _SIGNED)


async def get_config(call: Call) -> Answer:
    return await config.answer_config(call, _ENDPOINTS)


ROUTES: Final = (
    Route("GET", "/v1/config", "getConfig", get_config, Needs("caller", further={"warehouse": privileges.VISIBLE})),
    Route("POST", "/v1/oauth/tokens", "getToken", config.get_token, OPEN),
    Route("GET", _NAMESPACES, "listNamespaces", namespaces.list_namespaces, needs.SEE_CATALOG),
    Route(
        "POST",
        _NAMESPACES,
        "createNamespace",
        namespaces.create_namespace,
        needs.CREATE_NAMESPACE,
    ),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespaces.load_namespace, needs.SEE_NAMESPACE),
    Route("HEAD", _NAMESPACE, "namespaceExists", namespaces.namespace_exists, needs.SEE_NAMESPACE),
    Route("DELETE", _NAMESPACE, "dropNamespace", namespaces.drop_namespace, needs.DROP_NAMESPACE),
    Route(
        "POST",
        _NAMESPACE + "/properties",
        "updateProperties",
        namespaces.update_properties,
        needs.CHANGE_NAMESPACE,
    ),
    Route("GET", _NAMESPACE + "/tables", "listTables", tables.list_tables, needs.SEE_NAMESPACE),
    Route("POST", _NAMESPACE + "/tables", "createTable", tables.create, needs.CREATE_TABLE),
    Route(
        "POST",
        _NAMESPACE + "/register",
        "registerTable",
        tables.register_table,
        needs.REGISTER_TABLE,
    ),
    Route("GET", _TABLE, "loadTable", tables.load, needs.READ_TABLE),
    Route("POST", _TABLE, "updateTable", tables.commit, needs.COMMIT_TABLE),
    Route(
        "DELETE",
        _TABLE,
        "dropTable",
        tables.drop,
        needs.DROP_TABLE,
    ),
    Route("HEAD", _TABLE, "tableExists", tables.exists, needs.READ_TABLE),
    Route("POST", _TABLE + "/unregister", "unregisterTable", tables.unregister, Needs("table", privileges.MANAGED)),
    Route(
        "GET",
        _TABLE + "/credentials",
        "loadCredentials",
        tables.load_credentials,
        needs.READ_FILES,
    ),
    Route("POST", _TABLE + "/plan", "planTableScan", tables.plan_scan, needs.PLAN_SCAN),
    Route("GET", _TABLE + "/plan/{plan-id}", "fetchPlanningResult", tables.fetch_plan, needs.PLAN_SCAN),
    Route("DELETE", _TABLE + "/plan/{plan-id}", "cancelPlanning", tables.cancel_plan, needs.SCAN_TABLE),
    Route("POST", _TABLE + "/tasks", "fetchScanTasks", tables.fetch_scan_tasks, needs.SCAN_TABLE),
    Route("POST", _TABLE + "/metrics", "reportMetrics", tables.metrics, needs.READ_TABLE),
    Route("POST", _TABLE + "/sign", "signRequest", signatures.sign, _SIGN),
    Route("POST", "/v1/aws/s3/sign", "signS3Request", signatures.sign_located, _SIGN_LOCATED, is_advertised=False),
    Route(
        "POST",
        "/v1/{prefix}/tables/rename",
        "renameTable",
        tables.rename_table,
        needs.RENAME_TABLE,
    ),
    Route(
        "POST",
        "/v1/{prefix}/transactions/commit",
        "commitTransaction",
        tables.commit_tables,
        needs.COMMIT_TRANSACTION,
    ),
    Route("GET", _NAMESPACE + "/views", "listViews", views.list_views, needs.SEE_NAMESPACE),
    Route("POST", _NAMESPACE + "/views", "createView", views.create, needs.CREATE_VIEW),
    Route("GET", _VIEW, "loadView", views.load, needs.READ_VIEW),
    Route(
        "POST",
        _VIEW,
        "replaceView",
        views.replace,
        needs.REPLACE_VIEW,
    ),
    Route("DELETE", _VIEW, "dropView", views.drop, needs.DROP_VIEW),
    Route("HEAD", _VIEW, "viewExists", views.exists, needs.READ_VIEW),
    Route(
        "POST",
        "/v1/{prefix}/views/rename",
        "renameView",
        views.rename_view,
        needs.RENAME_VIEW,
    ),
    Route(
        "POST",
        _NAMESPACE + "/register-view",
        "registerView",
        views.register_view,
        needs.REGISTER_VIEW,
    ),
    Route("GET", _NAMESPACE + "/functions", "listFunctions", views.list_functions, needs.SEE_NAMESPACE),
    Route(
        "GET",
        _NAMESPACE + "/functions/{function}",
        "loadFunction",
        views.load_function,
        Needs("function", privileges.EXECUTE),
    ),
    Route("GET", _TABLE + "/schemas", "tableSchemas", tables.schemas, needs.READ_TABLE, is_advertised=False),
    Route(
        "GET",
        _TABLE + "/partition-specs",
        "tablePartitionSpecs",
        tables.partition_specs,
        needs.READ_TABLE,
        is_advertised=False,
    ),
    Route("GET", _TABLE + "/governance", "tableGovernance", tables.governance, needs.READ_TABLE, is_advertised=False),
    Route("GET", _TABLE + "/snapshots", "tableSnapshots", tables.snapshots, needs.READ_TABLE, is_advertised=False),
)

# A proposal that may still change: served only if the setting `iceberg_events` says so, and never advertised.
EVENT_ROUTES: Final = (
    Route("POST", "/v1/{prefix}/events", "queryEvents", events.query_events, AUTHENTICATED, is_advertised=False),
)

_PLANNING: Final = frozenset({"planTableScan", "fetchPlanningResult", "cancelPlanning", "fetchScanTasks"})
"""Without their packages, clients are not offered these operations, and plan scans themselves."""
_LEFT_OUT: Final = frozenset() if has_planning() else _PLANNING
_ENDPOINTS: Final = [
    f"{route.method} {route.path}" for route in ROUTES if route.is_advertised and route.operation not in _LEFT_OUT
]


def iceberg_dialect(settings: Settings) -> Dialect:
    """The Iceberg REST API at `/v1` and `/iceberg/v1`, and where the servers of Unity Catalog have it."""
    routes = (*ROUTES, *EVENT_ROUTES) if settings.iceberg_events else ROUTES
    return Dialect(
        name="iceberg",
        mounts=(b"/v1/", b"/iceberg/v1/", b"/api/2.1/unity-catalog/iceberg/v1/"),
        router=Router(routes, unknown_status=400, base="/v1", default_prefix=settings.default_catalog),
        errors=ERRORS,
    )
