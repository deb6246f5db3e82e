"""The routes of the web UI, with what each page needs. A page needs what the same operation of the other APIs needs."""

from typing import Final

from sandur.catalog.security.privileges import AUTHENTICATED, OPEN, READ_GRANTS
from sandur.server.app import Browsers, Dialect, Route, Router
from sandur.server.needs import (
    ADMINISTER,
    DESCRIBE_OBJECT,
    LIST_CATALOGS,
    OWN_OR_ADMINISTER,
    READ_FILES,
    READ_TABLE,
    SCAN_TABLE,
    SEE_CATALOG,
    SEE_METASTORE,
    SEE_NAMESPACE,
)
from sandur.server.ui.actions.routes import ACTION_ROUTES
from sandur.server.ui.failures import ERRORS, failure_page
from sandur.server.ui.pages import data, login, objects, tables, workspace
from sandur.server.ui.renderer import load_static_file
from sandur.server.ui.sessions import signed_in

_CATALOG: Final = "/data/{catalog}"
_NAMESPACE: Final = _CATALOG + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{name}"
_VIEW: Final = _NAMESPACE + "/views/{name}"
_VOLUME: Final = _NAMESPACE + "/volumes/{name}"
_FUNCTION: Final = _NAMESPACE + "/functions/{name}"
_MODEL: Final = _NAMESPACE + "/models/{name}"

ROUTES: Final = (
    Route("GET", "/", "showHome", data.show_home, LIST_CATALOGS),
    Route("GET", "/static/{hash}/{file}", "loadStaticFile", load_static_file, OPEN),
    Route("GET", "/login", "showLogin", login.show_login, OPEN),
    Route("POST", "/login", "logIn", login.log_in, OPEN),
    Route("GET", "/callback", "endProviderLogin", login.end_provider_login, OPEN),
    Route("POST", "/logout", "logout", login.log_out, OPEN),
    Route("GET", "/search", "showSearch", workspace.show_search, SEE_METASTORE),
    Route("GET", "/activity", "showActivity", workspace.show_activity, SEE_METASTORE),
    Route("GET", "/jobs", "showJobs", workspace.show_jobs, ADMINISTER),
    Route("GET", "/maintenance", "showMaintenance", workspace.show_maintenance, SEE_METASTORE),
    Route("GET", "/audit", "showAudit", workspace.show_audit, ADMINISTER),
    Route("GET", "/subscriptions", "showSubscriptions", workspace.show_subscriptions, OWN_OR_ADMINISTER),
    Route("GET", "/subscriptions/{id}", "showSubscription", workspace.show_subscription, OWN_OR_ADMINISTER),
    Route("GET", "/policies", "showPolicies", workspace.show_policies, SEE_METASTORE),
    Route("GET", "/server", "showServer", workspace.show_server, AUTHENTICATED),
    Route("GET", "/me", "showMe", workspace.show_me, AUTHENTICATED),
    Route("GET", "/id/{uuid}", "showId", objects.show_id, AUTHENTICATED),
    Route("GET", _CATALOG, "showCatalog", data.show_catalog, SEE_CATALOG),
    Route("GET", _NAMESPACE, "showNamespace", data.show_namespace, SEE_NAMESPACE),
    Route("GET", _TABLE, "showTable", objects.show_table, DESCRIBE_OBJECT),
    Route("GET", _TABLE + "/snapshots", "showSnapshots", tables.show_snapshots, READ_TABLE),
    Route("GET", _TABLE + "/timeline", "showTimeline", tables.show_timeline, READ_TABLE),
    Route("GET", _TABLE + "/versions/{version}", "showVersion", tables.show_version, READ_TABLE),
    Route("GET", _TABLE + "/diff", "showDiff", tables.show_diff, READ_TABLE),
    Route("GET", _TABLE + "/files", "showFiles", tables.show_files, SCAN_TABLE),
    Route("GET", _TABLE + "/preview", "showPreview", tables.show_preview, READ_FILES),
    Route("GET", _TABLE + "/health", "showHealth", tables.show_health, READ_TABLE),
    Route("GET", _TABLE + "/lineage", "showLineage", tables.show_lineage, SEE_METASTORE),
    Route("GET", _TABLE + "/grants", "showTableGrants", objects.show_table_grants, READ_GRANTS),
    Route("GET", _VIEW, "showView", objects.show_view, DESCRIBE_OBJECT),
    Route("GET", _VIEW + "/timeline", "showViewTimeline", tables.show_timeline, READ_TABLE),
    Route("GET", _VIEW + "/lineage", "showViewLineage", tables.show_view_lineage, SEE_METASTORE),
    Route("GET", _VIEW + "/grants", "showViewGrants", objects.show_view_grants, READ_GRANTS),
    Route("GET", _VOLUME, "showVolume", objects.show_volume, DESCRIBE_OBJECT),
    Route("GET", _VOLUME + "/grants", "showVolumeGrants", objects.show_volume_grants, READ_GRANTS),
    Route("GET", _FUNCTION, "showFunction", objects.show_function, DESCRIBE_OBJECT),
    Route("GET", _FUNCTION + "/grants", "showFunctionGrants", objects.show_function_grants, READ_GRANTS),
    Route("GET", _MODEL, "showModel", objects.show_model, DESCRIBE_OBJECT),
    Route("GET", _MODEL + "/grants", "showModelGrants", objects.show_model_grants, READ_GRANTS),
    *ACTION_ROUTES,
)

UI: Final = Dialect(
    name="ui",
    mounts=(b"/ui/", b"/ui"),
    router=Router(ROUTES, unknown_status=404, ignores_trailing_slash=True),
    errors=ERRORS,
    browsers=Browsers(signed_in, failure_page),
)
