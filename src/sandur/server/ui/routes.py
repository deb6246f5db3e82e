"""The routes of the web UI, with what each page needs. A page needs what the same operation of the other APIs needs."""

from collections.abc import Iterator
from functools import partial
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
from sandur.server.ui.links import FOLDERS
from sandur.server.ui.pages import data, login, objects, tables, workspace
from sandur.server.ui.renderer import load_static_file
from sandur.server.ui.sessions import signed_in
from sandur.server.ui.views.data import KINDS

_CATALOG: Final = "/data/{catalog}"
_NAMESPACE: Final = _CATALOG + "/{namespace}"
_TABLE: Final = _NAMESPACE + "/tables/{name}"
_VIEW: Final = _NAMESPACE + "/views/{name}"


def _of_every_kind() -> Iterator[Route]:
    for kind in KINDS:
        path, shown = f"{_NAMESPACE}/{FOLDERS[kind]}/{{name}}", f"show{kind.capitalize()}"
        yield Route("GET", path, shown, partial(objects.show_object, kind=kind), DESCRIBE_OBJECT)
        grants = partial(objects.show_grants, kind=kind)
        yield Route("GET", f"{path}/grants", f"{shown}Grants", grants, READ_GRANTS)


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
    *_of_every_kind(),
    Route("GET", _TABLE + "/snapshots", "showSnapshots", tables.show_snapshots, READ_TABLE),
    Route("GET", _TABLE + "/timeline", "showTimeline", tables.show_timeline, READ_TABLE),
    Route("GET", _TABLE + "/versions/{version}", "showVersion", tables.show_version, READ_TABLE),
    Route("GET", _TABLE + "/diff", "showDiff", tables.show_diff, READ_TABLE),
    Route("GET", _TABLE + "/files", "showFiles", tables.show_files, SCAN_TABLE),
    Route("GET", _TABLE + "/preview", "showPreview", tables.show_preview, READ_FILES),
    Route("GET", _TABLE + "/health", "showHealth", tables.show_health, READ_TABLE),
    Route("GET", _TABLE + "/lineage", "showLineage", partial(tables.show_lineage, kind="table"), SEE_METASTORE),
    Route("GET", _VIEW + "/timeline", "showViewTimeline", tables.show_timeline, READ_TABLE),
    Route("GET", _VIEW + "/lineage", "showViewLineage", partial(tables.show_lineage, kind="view"), SEE_METASTORE),
    *ACTION_ROUTES,
)

UI: Final = Dialect(
    name="ui",
    mounts=(b"/ui/", b"/ui"),
    router=Router(ROUTES, unknown_status=404, ignores_trailing_slash=True),
    errors=ERRORS,
    browsers=Browsers(signed_in, failure_page),
)
