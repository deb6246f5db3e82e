"""The routes of the Delta REST API."""

from typing import Final

import msgspec

from sandur.operations.containers.catalogs import load_catalog
from sandur.server.app import Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.delta_rest import tables
from sandur.server.delta_rest.errors import ERRORS
from sandur.server.http import Answer, json_answer

_SCHEMA: Final = "/catalogs/{catalog}/schemas/{schema}"
_TABLE: Final = f"{_SCHEMA}/tables/{{table}}"


async def get_config(call: Call) -> Answer:
    """The endpoints of this API; clients call it first."""
    await load_catalog(call.lake, call.required("catalog"))
    return json_answer(msgspec.json.encode({"endpoints": _ENDPOINTS, "protocol-version": "1.0"}))


ROUTES: Final = (
    Route("GET", "/config", "getConfig", get_config),
    Route("POST", f"{_SCHEMA}/staging-tables", "createStagingTable", tables.stage),
    Route("POST", f"{_SCHEMA}/tables", "createTable", tables.create),
    Route("GET", _TABLE, "loadTable", tables.load),
    Route("POST", _TABLE, "updateTable", tables.update),
    Route("DELETE", _TABLE, "deleteTable", tables.drop),
    Route("HEAD", _TABLE, "tableExists", tables.exists),
    Route("POST", f"{_TABLE}/rename", "renameTable", tables.rename),
    Route("POST", f"{_TABLE}/metrics", "reportMetrics", tables.report),
    Route("GET", f"{_TABLE}/credentials", "getTableCredentials", tables.credentials_for_table),
    Route("GET", "/staging-tables/{table_id}/credentials", "getStagingTableCredentials", tables.credentials_for_stage),
    Route("GET", "/temporary-path-credentials", "getTemporaryPathCredentials", tables.credentials_for_path),
)

_ENDPOINTS: Final = tuple(f"{route.method} /v1{route.path}" for route in ROUTES if route.path != "/config")

DELTA: Final = Dialect(
    name="unity-delta",
    # The second mount catches paths that only begin like the first one: they get an error of this API.
    mounts=(b"/api/2.1/unity-catalog/delta/v1/", b"/api/2.1/unity-catalog/delta/v1"),
    router=Router(ROUTES, unknown_status=501, ignores_trailing_slash=True),
    errors=ERRORS,
)
