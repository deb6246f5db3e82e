"""The routes of the Delta REST API."""

from typing import Final

import msgspec

from sandur.catalog import privileges
from sandur.catalog.privileges import Needs
from sandur.operations.access import authorize_caller
from sandur.operations.containers.catalogs import load_catalog
from sandur.server.app import Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.delta_rest import tables
from sandur.server.delta_rest.errors import ERRORS
from sandur.server.http import Answer, json_answer

_SCHEMA: Final = "/catalogs/{catalog}/schemas/{schema}"
_TABLE: Final = f"{_SCHEMA}/tables/{{table}}"


_STAGE_TABLE: Final = Needs("schema", privileges.CREATE_TABLE)
_CREATE_TABLE: Final = Needs("schema", privileges.CREATE_TABLE, {"location": privileges.CREATE_EXTERNAL_TABLE})
_DROP_TABLE: Final = Needs("table", privileges.MANAGED, {"purge": privileges.MANAGED})
_READ_TABLE: Final = Needs("table", privileges.READ_TABLE)


async def get_config(call: Call) -> Answer:
    """The endpoints of this API; clients call it first."""
    await authorize_caller(call.lake)
    await load_catalog(call.lake, call.required("catalog"))
    return json_answer(msgspec.json.encode({"endpoints": _ENDPOINTS, "protocol-version": "1.0"}))


ROUTES: Final = (
    Route("GET", "/config", "getConfig", get_config, Needs("catalog")),
    Route("POST", f"{_SCHEMA}/staging-tables", "createStagingTable", tables.stage, _STAGE_TABLE),
    Route("POST", f"{_SCHEMA}/tables", "createTable", tables.create, _CREATE_TABLE),
    Route("GET", _TABLE, "loadTable", tables.load, _READ_TABLE),
    Route("POST", _TABLE, "updateTable", tables.update, Needs("table", privileges.MODIFY_TABLE)),
    Route("DELETE", _TABLE, "deleteTable", tables.drop, _DROP_TABLE),
    Route("HEAD", _TABLE, "tableExists", tables.exists, _READ_TABLE),
    Route(
        "POST",
        f"{_TABLE}/rename",
        "renameTable",
        tables.rename,
        Needs("table", privileges.MANAGED, {"destination": privileges.CREATE_TABLE}),
    ),
    Route("POST", f"{_TABLE}/metrics", "reportMetrics", tables.report, _READ_TABLE),
    Route(
        "GET",
        f"{_TABLE}/credentials",
        "getTableCredentials",
        tables.credentials_for_table,
        Needs("table", privileges.READ_DATA, {"write": privileges.WRITE_DATA}),
    ),
    Route(
        "GET",
        "/staging-tables/{table_id}/credentials",
        "getStagingTableCredentials",
        tables.credentials_for_stage,
        Needs("schema", privileges.CREATE_TABLE, {"stage": privileges.CREATE_TABLE}),
    ),
    Route(
        "GET",
        "/temporary-path-credentials",
        "getTemporaryPathCredentials",
        tables.credentials_for_path,
        privileges.PATH_CREDENTIALS,
    ),
)

_ENDPOINTS: Final = tuple(f"{route.method} /v1{route.path}" for route in ROUTES if route.path != "/config")

DELTA: Final = Dialect(
    name="unity-delta",
    # The second mount catches paths that only begin like the first one: they get an error of this API.
    mounts=(b"/api/2.1/unity-catalog/delta/v1/", b"/api/2.1/unity-catalog/delta/v1"),
    router=Router(ROUTES, unknown_status=501, ignores_trailing_slash=True),
    errors=ERRORS,
)
