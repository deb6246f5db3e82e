"""The error map of the Unity Catalog API."""

from typing import Final, NamedTuple

import msgspec

from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Conflict,
    Exhausted,
    Forbidden,
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


class Problem(NamedTuple):
    """What an error becomes; the headers say when to come back, or whom to ask."""

    status: int
    code: str
    message: str
    headers: Headers = ()


class _Detail(msgspec.Struct):
    type: str = msgspec.field(name="@type")
    reason: str


class _ErrorBody(msgspec.Struct):
    error_code: str
    message: str
    details: list[_Detail]


_DETAIL_TYPE: Final = "type.googleapis.com/google.rpc.ErrorInfo"

_NOT_FOUND: Final[dict[Subject, str]] = {
    "catalog": "CATALOG_NOT_FOUND",
    "namespace": "SCHEMA_NOT_FOUND",
    "table": "TABLE_NOT_FOUND",
    "view": "TABLE_NOT_FOUND",
}

# The classic API answers these with 400; only models have a conflict.
_ALREADY_EXISTS: Final[dict[Subject, tuple[int, str]]] = {
    "catalog": (400, "CATALOG_ALREADY_EXISTS"),
    "namespace": (400, "SCHEMA_ALREADY_EXISTS"),
    "table": (400, "TABLE_ALREADY_EXISTS"),
    "view": (400, "TABLE_ALREADY_EXISTS"),
    "model": (409, "ALREADY_EXISTS"),
    "credential": (400, "STORAGE_CREDENTIAL_ALREADY_EXISTS"),
    "external location": (400, "EXTERNAL_LOCATION_ALREADY_EXISTS"),
}
_RESOURCE_EXISTS: Final = (400, "RESOURCE_ALREADY_EXISTS")

_REFUSED: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    501: "UNIMPLEMENTED",
}

_COMMITS: Final = frozenset({"commit"})
_UNAVAILABLE_RETRY_SECONDS: Final = 2


def problem_of(error: Exception, operation: str, request_id: str) -> Problem:  # noqa: C901, PLR0911, PLR0912 - one line per class
    """What the error is in this protocol; what nobody foresaw is told without its inside."""
    message = str(error)
    match error:
        case Refused():
            return Problem(error.status, _REFUSED.get(error.status, "INTERNAL"), message, error.headers)
        case WrongFormat():
            return Problem(400, "UNSUPPORTED_TABLE_FORMAT", message)
        case BadRequest():
            return Problem(400, "INVALID_ARGUMENT", message)
        case NotFound():
            return Problem(404, _NOT_FOUND.get(error.subject, "NOT_FOUND"), message)
        case AlreadyExists():
            return Problem(*_ALREADY_EXISTS.get(error.subject, _RESOURCE_EXISTS), message)
        case NotEmpty():
            return Problem(400, "FAILED_PRECONDITION", message)
        case VersionTaken():
            return Problem(409, "COMMIT_VERSION_CONFLICT", message)
        case Conflict() | KeyReused():
            return Problem(409, "ABORTED", message)
        case Forbidden():
            return Problem(403, "PERMISSION_DENIED", message)
        case Unsupported():
            return Problem(501, "UNIMPLEMENTED", message)
        case Exhausted():
            return Problem(429, "RESOURCE_EXHAUSTED", message, retry_after(error.retry_after_seconds))
        case Busy():
            return Problem(503, "UNAVAILABLE", message, retry_after(error.retry_after_seconds))
        case Unavailable() | Unfit():
            return Problem(503, "UNAVAILABLE", message, retry_after(_UNAVAILABLE_RETRY_SECONDS))
        case OutcomeUnknown():
            return Problem(500, "COMMIT_STATE_UNKNOWN" if operation in _COMMITS else "INTERNAL", message)
        case _:
            return Problem(500, "INTERNAL", f"Something unexpected went wrong; the log tells of {request_id}")


def refusal(error: Exception, operation: str, request_id: str) -> Answer:
    """The error as an answer."""
    problem = problem_of(error, operation, request_id)
    # A message may quote what a client sent; what is not text must not break the answer.
    message = problem.message.encode("utf-8", "backslashreplace").decode()
    body = _ErrorBody(problem.code, message, [_Detail(_DETAIL_TYPE, problem.code)])
    return Answer(problem.status, msgspec.json.encode(body), (JSON, *problem.headers))
