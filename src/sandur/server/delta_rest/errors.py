"""The error map of the Delta REST API."""

from typing import Final, NamedTuple

import msgspec

from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Conflict,
    Exhausted,
    Forbidden,
    Invalid,
    KeyReused,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    Subject,
    Unavailable,
    Unfit,
    Unsupported,
    VersionTaken,
    WrongFormat,
)
from sandur.server.http import JSON, Answer, Headers, Refused, retry_after

UPDATE: Final = "updateTable"


class Problem(NamedTuple):
    """What an error becomes; every type ends in `Exception` on the wire."""

    status: int
    type: str
    message: str
    headers: Headers = ()


class _Error(msgspec.Struct):
    message: str
    type: str
    code: int


class _ErrorBody(msgspec.Struct):
    error: _Error


_NOT_FOUND: Final[dict[Subject, str]] = {
    "catalog": "NoSuchCatalog",
    "namespace": "NoSuchSchema",
    "table": "NoSuchTable",
    "view": "NoSuchTable",
}
_REFUSED: Final = {401: "NotAuthorized", 403: "PermissionDenied", 404: "NotFound", 501: "NotImplemented"}
_BAD_STATUSES_MAX: Final = 500
_UNAVAILABLE_RETRY_SECONDS: Final = 2


def problem_of(error: Exception, operation: str, request_id: str) -> Problem:  # noqa: C901, PLR0911, PLR0912 - one line per class
    """What the error is in this protocol; what nobody foresaw is told without its inside."""
    message = str(error)
    match error:
        case Refused():
            usual = "BadRequest" if error.status < _BAD_STATUSES_MAX else "InternalServerError"
            return Problem(error.status, _REFUSED.get(error.status, usual), message, error.headers)
        case WrongFormat():
            return Problem(400, "UnsupportedTableFormat", message)
        case Invalid():
            return Problem(400, "InvalidParameterValue", message)
        case BadRequest() | NotEmpty():
            return Problem(400, "BadRequest", message)
        case NotFound():
            return Problem(404, _NOT_FOUND.get(error.subject, "NotFound"), message)
        case AlreadyExists():
            return Problem(409, "AlreadyExists", message)
        case VersionTaken():
            return Problem(409, "CommitVersionConflict", message)
        case Conflict() | KeyReused():
            return Problem(409, "UpdateRequirementConflict", message)
        case Exhausted():
            return Problem(429, "ResourceExhausted", message, retry_after(error.retry_after_seconds))
        case Busy():
            return Problem(429, "TooManyRequests", message, retry_after(error.retry_after_seconds))
        case Forbidden():
            return Problem(403, "PermissionDenied", message)
        case Unsupported():
            return Problem(501, "NotImplemented", message)
        case Unavailable() | Unfit():
            return Problem(503, "InternalServerError", message, retry_after(_UNAVAILABLE_RETRY_SECONDS))
        case OutcomeUnknown() if operation == UPDATE:
            return Problem(500, "CommitStateUnknown", message)
        case OutcomeUnknown():
            return Problem(500, "InternalServerError", message)
        case _:
            return Problem(
                500, "InternalServerError", f"Something unexpected went wrong; the log tells of {request_id}"
            )


def refusal(error: Exception, operation: str, request_id: str) -> Answer:
    """The error as an answer."""
    problem = problem_of(error, operation, request_id)
    # A message may quote what a client sent; what is not text must not break the answer.
    message = problem.message.encode("utf-8", "backslashreplace").decode()
    body = msgspec.json.encode(_ErrorBody(_Error(message, f"{problem.type}Exception", problem.status)))
    return Answer(problem.status, body, (JSON, *problem.headers))
