"""The routes of the Iceberg REST API."""

from typing import Final

from sandur.catalog import privileges
from sandur.catalog.privileges import OPEN, Needs
from sandur.operations.credentials.table_access import SITUATION
from sandur.server.app import Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.iceberg_rest import config, namespaces, signatures, tables, views
from sandur.server.iceberg_rest.errors import ERRORS
from sandur.settings import Settings

_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{table}"
_VIEW: Final = _NAMESPACE + "/views/{view}"

# At a location that the client names, below an external location.
_AT_LOCATION: Final = {"location": privileges.CREATE_EXTERNAL_TABLE}
_COMMIT: Final = {"relocate": privileges.MANAGED, "create": privileges.CREATE_TABLE, **_AT_LOCATION}
_TRANSACTION: Final = {**_COMMIT, "view": privileges.MANAGED, "create view": privileges.CREATE_VIEW}
# With credentials for the files, which a client may want together with a table or a plan.
_CREDENTIALS: Final = {SITUATION: privileges.READ_DATA}
_CREATE_TABLE: Final = Needs("schema", privileges.CREATE_TABLE, {**_AT_LOCATION, **_CREDENTIALS})
_READ_TABLE: Final = Needs("table", privileges.READ_TABLE)
_SCAN_TABLE: Final = Needs("table", privileges.SCAN_TABLE)
_SIGNED: Final = {"write": privileges.WRITE_DATA}
_SIGN: Final = Needs("table", privileges.READ_DATA, {**_SIGNED, "staged": privileges.CREATE_TABLE})
_SIGN_LOCATED: Final = Needs("table", privileges.READ_DATA, _SIGNED)
_PLAN_SCAN: Final = Needs("table", privileges.SCAN_TABLE, _CREDENTIALS)


async def get_config(call: Call) -> Answer:
    return await config.answer_config(call, _ENDPOINTS)


ROUTES: Final = (
    Route("GET", "/v1/config", "getConfig", get_config, Needs("caller", further={"warehouse": privileges.VISIBLE})),
    Route("POST", "/v1/oauth/tokens", "getToken", config.get_token, OPEN),
    Route("GET", _NAMESPACES, "listNamespaces", namespaces.list_namespaces, Needs("catalog")),
    Route(
        "POST",
        _NAMESPACES,
        "createNamespace",
        namespaces.create_namespace,
        Needs("catalog", privileges.CREATE_SCHEMA, {"location": privileges.CREATE_MANAGED_STORAGE}),
    ),
    Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespaces.load_namespace, Needs("schema")),
    Route("HEAD", _NAMESPACE, "namespaceExists", namespaces.namespace_exists, Needs("schema")),
    Route("DELETE", _NAMESPACE, "dropNamespace", namespaces.drop_namespace, Needs("schema", privileges.MANAGED)),
    Route(
        "POST",
        _NAMESPACE + "/properties",
        "updateProperties",
        namespaces.update_properties,
        Needs("schema", privileges.MANAGED, {"location": privileges.CREATE_MANAGED_STORAGE}),
    ),
    Route("GET", _NAMESPACE + "/tables", "listTables", tables.list_tables, Needs("schema")),
    Route("POST", _NAMESPACE + "/tables", "createTable", tables.create, _CREATE_TABLE),
    Route(
        "POST",
        _NAMESPACE + "/register",
        "registerTable",
        tables.register_table,
        Needs(
            "schema",
            privileges.CREATE_TABLE,
            {**_AT_LOCATION, **_CREDENTIALS, "files": privileges.READ_FILES, "overwrite": privileges.MANAGED},
        ),
    ),
    Route("GET", _TABLE, "loadTable", tables.load, _READ_TABLE),
    Route("POST", _TABLE, "updateTable", tables.commit, Needs("table", privileges.MODIFY_TABLE, _COMMIT)),
    Route(
        "DELETE",
        _TABLE,
        "dropTable",
        tables.drop,
        Needs("table", privileges.MANAGED, {"purge": privileges.PURGE_TABLE}),
    ),
    Route("HEAD", _TABLE, "tableExists", tables.exists, _READ_TABLE),
    Route("POST", _TABLE + "/unregister", "unregisterTable", tables.unregister, Needs("table", privileges.MANAGED)),
    Route(
        "GET",
        _TABLE + "/credentials",
        "loadCredentials",
        tables.load_credentials,
        Needs("table", privileges.READ_DATA),
    ),
    Route("POST", _TABLE + "/plan", "planTableScan", tables.plan_scan, _PLAN_SCAN),
    Route("GET", _TABLE + "/plan/{plan-id}", "fetchPlanningResult", tables.fetch_plan, _PLAN_SCAN),
    Route("DELETE", _TABLE + "/plan/{plan-id}", "cancelPlanning", tables.cancel_plan, _SCAN_TABLE),
    Route("POST", _TABLE + "/tasks", "fetchScanTasks", tables.fetch_scan_tasks, _SCAN_TABLE),
    Route("POST", _TABLE + "/metrics", "reportMetrics", tables.metrics, _READ_TABLE),
    Route("POST", _TABLE + "/sign", "signRequest", signatures.sign, _SIGN),
    Route("POST", "/v1/aws/s3/sign", "signS3Request", signatures.sign_located, _SIGN_LOCATED, is_advertised=False),
    Route(
        "POST",
        "/v1/{prefix}/tables/rename",
        "renameTable",
        tables.rename_table,
        Needs("table", privileges.MANAGED, {"destination": privileges.CREATE_TABLE}),
    ),
    Route(
        "POST",
        "/v1/{prefix}/transactions/commit",
        "commitTransaction",
        tables.commit_tables,
        Needs("tables", privileges.MODIFY_TABLE, _TRANSACTION),
    ),
    Route("GET", _NAMESPACE + "/views", "listViews", views.list_views, Needs("schema")),
    Route(
        "POST", _NAMESPACE + "/views", "createView", views.create, Needs("schema", privileges.CREATE_VIEW, _AT_LOCATION)
    ),
    Route("GET", _VIEW, "loadView", views.load, Needs("view", privileges.READ_VIEW)),
    Route(
        "POST",
        _VIEW,
        "replaceView",
        views.replace,
        Needs("view", privileges.MANAGED, {"relocate": privileges.MANAGED, **_AT_LOCATION}),
    ),
    Route("DELETE", _VIEW, "dropView", views.drop, Needs("view", privileges.MANAGED)),
    Route("HEAD", _VIEW, "viewExists", views.exists, Needs("view", privileges.READ_VIEW)),
    Route(
        "POST",
        "/v1/{prefix}/views/rename",
        "renameView",
        views.rename_view,
        Needs("view", privileges.MANAGED, {"destination": privileges.CREATE_VIEW}),
    ),
    Route(
        "POST",
        _NAMESPACE + "/register-view",
        "registerView",
        views.register_view,
        Needs(
            "schema",
            privileges.CREATE_VIEW,
            {**_AT_LOCATION, "files": privileges.READ_FILES, "overwrite": privileges.MANAGED},
        ),
    ),
    Route("GET", _NAMESPACE + "/functions", "listFunctions", views.list_functions, Needs("schema")),
    Route(
        "GET",
        _NAMESPACE + "/functions/{function}",
        "loadFunction",
        views.load_function,
        Needs("function", privileges.EXECUTE),
    ),
    Route("GET", _TABLE + "/schemas", "tableSchemas", tables.schemas, _READ_TABLE, is_advertised=False),
    Route(
        "GET",
        _TABLE + "/partition-specs",
        "tablePartitionSpecs",
        tables.partition_specs,
        _READ_TABLE,
        is_advertised=False,
    ),
    Route("GET", _TABLE + "/governance", "tableGovernance", tables.governance, _READ_TABLE, is_advertised=False),
    Route("GET", _TABLE + "/snapshots", "tableSnapshots", tables.snapshots, _READ_TABLE, is_advertised=False),
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
