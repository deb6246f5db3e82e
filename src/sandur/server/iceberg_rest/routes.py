"""Every route of the protocol, in one table: what is mounted, what `config` advertises, and who answers."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from sandur.server.iceberg_rest import (
    config,
    functions,
    history,
    namespaces,
    oauth,
    planning,
    tables,
    transactions,
    views,
)
from sandur.server.iceberg_rest.call import Call
from sandur.server.messages import Answer

Handler = Callable[[Call], Awaitable[Answer]]


class Route(NamedTuple):
    """An operation of the protocol, spelled as in its specification. An open one is for those without a token, too."""

    method: str
    template: str
    operation: str
    answer: Handler
    is_advertised: bool = True
    is_open: bool = False

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.template}"


_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{table}"
_VIEW: Final = _NAMESPACE + "/views/{view}"

ROUTES: Final = (
    Route("GET", "/v1/config", "getConfig", config.get_config),
    Route("POST", "/v1/oauth/tokens", "getToken", oauth.get_token, is_open=True),
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
    Route("POST", _TABLE + "/plan", "planTableScan", planning.plan),
    Route("GET", _TABLE + "/plan/{plan-id}", "fetchPlanningResult", planning.fetch_result),
    Route("DELETE", _TABLE + "/plan/{plan-id}", "cancelPlanning", planning.cancel),
    Route("POST", _TABLE + "/tasks", "fetchScanTasks", planning.fetch_tasks),
    Route("POST", _TABLE + "/metrics", "reportMetrics", tables.metrics),
    Route("POST", "/v1/{prefix}/tables/rename", "renameTable", tables.rename_table),
    Route("POST", "/v1/{prefix}/transactions/commit", "commitTransaction", transactions.commit),
    Route("GET", _NAMESPACE + "/views", "listViews", views.list_views),
    Route("POST", _NAMESPACE + "/views", "createView", views.create),
    Route("GET", _VIEW, "loadView", views.load),
    Route("POST", _VIEW, "replaceView", views.replace),
    Route("DELETE", _VIEW, "dropView", views.drop),
    Route("HEAD", _VIEW, "viewExists", views.exists),
    Route("POST", "/v1/{prefix}/views/rename", "renameView", views.rename_view),
    Route("POST", _NAMESPACE + "/register-view", "registerView", views.register_view),
    Route("GET", _NAMESPACE + "/functions", "listFunctions", functions.list_functions),
    Route("GET", _NAMESPACE + "/functions/{function}", "loadFunction", functions.load_function),
    Route("GET", _TABLE + "/schemas", "tableSchemas", history.schemas, is_advertised=False),
    Route("GET", _TABLE + "/partition-specs", "tablePartitionSpecs", history.partition_specs, is_advertised=False),
    Route("GET", _TABLE + "/snapshots", "tableSnapshots", history.snapshots, is_advertised=False),
)
