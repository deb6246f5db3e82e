"""The routes of the OpenLineage API, and its errors. Its clients look at the status only."""

from typing import Final

import msgspec

from sandur import errors
from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import Needs
from sandur.server.app import Dialect, Route, Router
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Problem, Rule
from sandur.server.openlineage import events, graphs

_SENDER: Final = Needs("metastore", privileges.WRITE_LINEAGE)
_READER: Final = Needs("metastore")  # Every table of the graph is checked by itself.


def _encode(problem: Problem) -> bytes:
    return msgspec.json.encode({"code": problem.status, "type": problem.type, "message": problem.message})


ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "BadRequest"),
        errors.Unauthenticated: Rule(401, "Unauthorized"),
        errors.Forbidden: Rule(403, "Forbidden"),
        errors.NotFound: Rule(404, "NotFound"),
        errors.SandurError: Rule(500, "Failed"),
        errors.Busy: Rule(429, "TooManyRequests"),
        errors.Unavailable: Rule(503, "ServiceUnavailable", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "ServiceUnavailable", UNAVAILABLE_RETRY_SECONDS),
        Exception: Rule(500, "InternalServerError"),
    },
    refusals={
        400: "BadRequest",
        401: "Unauthorized",
        403: "Forbidden",
        404: "NotFound",
        405: "MethodNotAllowed",
        413: "PayloadTooLarge",
        415: "UnsupportedMediaType",
    },
    other_refusal="Refused",
    encode=_encode,
)

ROUTES: Final = (
    Route("POST", "/lineage", "postLineage", events.post_events, _SENDER),
    Route("POST", "/openlineage/lineage", "postLineageBatch", events.post_events, _SENDER),
    Route("GET", "/lineage", "getLineage", graphs.get_lineage, _READER),
    Route("GET", "/column-lineage", "getColumnLineage", graphs.get_column_lineage, _READER),
)

OPENLINEAGE: Final = Dialect(
    name="openlineage",
    mounts=(b"/api/v1/", b"/api/v1"),
    router=Router(ROUTES, unknown_status=404, ignores_trailing_slash=True),
    errors=ERRORS,
)
