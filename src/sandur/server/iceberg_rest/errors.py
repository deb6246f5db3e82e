"""The error map of the Iceberg REST API."""

from typing import Final, NamedTuple

import msgspec

from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    KeyReused,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    Subject,
    Unavailable,
    Unfit,
    Unprocessable,
    Unsupported,
)
from sandur.server.http import JSON, Answer, Headers, Refused, retry_after


class Problem(NamedTuple):
    """What an error becomes; the headers say when to come back, or whom to ask."""

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
    "catalog": "NoSuchWarehouseException",
    "namespace": "NoSuchNamespaceException",
    "table": "NoSuchTableException",
    "view": "NoSuchViewException",
    "function": "NoSuchFunctionException",
    "file": "NotFoundException",
    "plan": "NoSuchPlanIdException",
    "plan task": "NoSuchPlanTaskException",
}

_REFUSED: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    405: "UnsupportedOperationException",
    408: "RequestTimeoutException",
    413: "RequestTooLargeException",
}

# Where a client that got no certain answer must keep the files it wrote.
_COMMITS: Final = frozenset({"updateTable", "replaceView", "commitTransaction"})

# Where the specification names 406; everywhere else clients read 501 as "unsupported".
_NOT_ACCEPTABLE: Final = frozenset({"createNamespace", "updateProperties", "renameTable", "renameView"})

_VALIDATION: Final = "ValidationException: "
_UNAVAILABLE_RETRY_SECONDS: Final = 2


def problem_of(error: Exception, operation: str, request_id: str) -> Problem:  # noqa: C901, PLR0911, PLR0912 - one line per class
    """What the error is in this protocol; what nobody foresaw is told without its inside."""
    message = str(error)
    match error:
        case Refused():
            return Problem(error.status, _REFUSED.get(error.status, "RESTException"), message, error.headers)
        case Unprocessable():
            return Problem(422, "UnprocessableEntityException", message)
        case Invalid() if message.startswith(_VALIDATION):
            return Problem(400, "ValidationException", message.removeprefix(_VALIDATION))
        case Invalid():
            return Problem(400, "IllegalArgumentException", message)
        case BadRequest():
            return Problem(400, "BadRequestException", message)
        case NotFound():
            return Problem(404, _NOT_FOUND.get(error.subject, "NotFoundException"), message)
        case AlreadyExists():
            return Problem(409, "AlreadyExistsException", message)
        case NotEmpty():
            return Problem(409, "NamespaceNotEmptyException", message)
        case Conflict() | KeyReused():
            return Problem(409, "CommitFailedException", message)
        case Forbidden():
            return Problem(403, "ForbiddenException", message)
        case Unsupported():
            return Problem(406 if operation in _NOT_ACCEPTABLE else 501, "UnsupportedOperationException", message)
        case Busy():
            return Problem(503, "SlowDownException", message, retry_after(error.retry_after_seconds))
        case Unavailable():
            return Problem(503, "ServiceUnavailableException", message, retry_after(_UNAVAILABLE_RETRY_SECONDS))
        case Unfit():
            return Problem(503, "ServiceUnavailableException", message)
        case OutcomeUnknown() if operation in _COMMITS:
            return Problem(500, "CommitStateUnknownException", message)
        case OutcomeUnknown():
            return Problem(500, "InternalServerError", message)
        case _:
            return Problem(
                500, "InternalServerError", f"Something unexpected went wrong; the log tells of {request_id}"
            )


def refusal(error: Exception, operation: str, request_id: str) -> Answer:
    """The error as an answer."""
    problem = problem_of(error, operation, request_id)
    return Answer(problem.status, msgspec.json.encode(_ErrorBody(_error(problem))), (JSON, *problem.headers))


def error_of(error: Exception, operation: str, request_id: str) -> object:
    """The error as an object inside of an answer that is none itself."""
    return _error(problem_of(error, operation, request_id))


def _error(problem: Problem) -> _Error:
    # A message may quote what a client sent; what is not text must not break the answer.
    return _Error(problem.message.encode("utf-8", "backslashreplace").decode(), problem.type, problem.status)
