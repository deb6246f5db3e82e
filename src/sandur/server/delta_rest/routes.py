"""The routes of the Delta REST API."""

from typing import Final

import msgspec

from sandur.operations.containers.catalogs import load_catalog
from sandur.server.delta_rest import tables
from sandur.server.delta_rest import tables as credentials
from sandur.server.delta_rest.bodies import ConfigBody
from sandur.server.http import Answer, json_answer
from sandur.server.unity_rest.call import Call
from sandur.server.unity_rest.routing import Route

_SCHEMA: Final = "/catalogs/{catalog}/schemas/{schema}"
_TABLE: Final = f"{_SCHEMA}/tables/{{table}}"


async def config(call: Call) -> Answer:
    """What is served here, for whoever asks before they begin."""
    await load_catalog(call.lake, call.wanted("catalog"))
    return json_answer(msgspec.json.encode(ConfigBody(_ENDPOINTS)))


DELTA_ROUTES: Final = (
    Route("GET", "/config", "getConfig", config),
    Route("POST", f"{_SCHEMA}/staging-tables", "createStagingTable", tables.stage),
    Route("POST", f"{_SCHEMA}/tables", "createTable", tables.create),
    Route("GET", _TABLE, "loadTable", tables.load),
    Route("POST", _TABLE, "updateTable", tables.update),
    Route("DELETE", _TABLE, "deleteTable", tables.drop),
    Route("HEAD", _TABLE, "tableExists", tables.exists),
    Route("POST", f"{_TABLE}/rename", "renameTable", tables.rename),
    Route("POST", f"{_TABLE}/metrics", "reportMetrics", tables.report),
    Route("GET", f"{_TABLE}/credentials", "getTableCredentials", credentials.of_table),
    Route("GET", "/staging-tables/{table_id}/credentials", "getStagingTableCredentials", credentials.of_stage),
    Route("GET", "/temporary-path-credentials", "getTemporaryPathCredentials", credentials.of_path),
)

_ENDPOINTS: Final = tuple(
    f"{route.method} /v1{route.template}" for route in DELTA_ROUTES if route.template != "/config"
)
