"""The routes of the Delta REST API."""

import re
from typing import Final

import msgspec

from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import Needs
from sandur.errors import Invalid
from sandur.operations.access import authorize_caller
from sandur.operations.containers.catalogs import load_catalog
from sandur.server import needs
from sandur.server.app import Dialect, Route, Router
from sandur.server.context import Call
from sandur.server.delta_rest import tables
from sandur.server.delta_rest.errors import ERRORS
from sandur.server.http import Answer, json_answer

_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\Z", re.ASCII)
_SUPPORTED: Final = {1: 0}
"""The newest minor version of each major version of this API that the server speaks."""

_SCHEMA: Final = "/catalogs/{catalog}/schemas/{schema}"
_TABLE: Final = f"{_SCHEMA}/tables/{{table}}"


async def get_config(call: Call) -> Answer:
    """The endpoints of this API, for the newest version of it that client and server know; clients call it first."""
    await authorize_caller(call.lake)
    await load_catalog(call.lake, call.required("catalog"))
    version = negotiated_version(call.required("protocol-versions"))
    return json_answer(msgspec.json.encode({"endpoints": _ENDPOINTS, "protocol-version": version}))


def negotiated_version(text: str) -> str:
    """The newest version that both sides know. A client names the newest minor version of each major one it knows.

    Raises Invalid if the text is not a list of versions, or if no version is common.
    """
    versions = [_VERSION.match(part.strip()) for part in text.split(",")]
    known = {int(found[1]): int(found[2]) for found in versions if found}
    if not all(versions) or len(known) != len(versions):
        raise Invalid(f"Invalid protocol-versions {text[:100]!r}: expected one version per major, such as 1.0,2.3")
    common = [(major, min(minor, known[major])) for major, minor in _SUPPORTED.items() if major in known]
    if not common:
        supported = ", ".join(f"{major}.{minor}" for major, minor in _SUPPORTED.items())
        raise Invalid(f"No common protocol version: the client knows {text[:100]}, this server {supported}")
    major, minor = max(common)
    return f"{major}.{minor}"


ROUTES: Final = (
    Route("GET", "/config", "getConfig", get_config, needs.SEE_CATALOG),
    Route("POST", f"{_SCHEMA}/staging-tables", "createStagingTable", tables.stage, needs.STAGE_DELTA_TABLE),
    Route("POST", f"{_SCHEMA}/tables", "createTable", tables.create, needs.CREATE_DELTA_TABLE),
    Route("GET", _TABLE, "loadTable", tables.load, needs.READ_TABLE),
    Route("POST", _TABLE, "updateTable", tables.update, needs.COMMIT_DELTA_TABLE),
    Route("DELETE", _TABLE, "deleteTable", tables.drop, needs.DROP_DELTA_TABLE),
    Route("HEAD", _TABLE, "tableExists", tables.exists, needs.READ_TABLE),
    Route(
        "POST",
        f"{_TABLE}/rename",
        "renameTable",
        tables.rename,
        needs.RENAME_TABLE,
    ),
    Route("POST", f"{_TABLE}/metrics", "reportMetrics", tables.report, needs.READ_TABLE),
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
