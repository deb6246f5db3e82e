"""The errors of the Iceberg REST API: the code and type that clients dispatch on."""

import inspect
import json

import pytest

from sandur import errors
from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Conflict,
    Damaged,
    Exhausted,
    Expired,
    Forbidden,
    Incomplete,
    Invalid,
    KeyReused,
    NewerRecord,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    SandurError,
    ServiceRefused,
    Trimmed,
    Unavailable,
    Unfit,
    Unprocessable,
    Unsupported,
    VersionTaken,
    WrongFormat,
)
from sandur.server.http import Refused
from sandur.server.iceberg_rest.errors import ERRORS

EXPECTED = [
    (BadRequest("m"), "updateTable", 400, "BadRequestException"),
    (Incomplete("m"), "updateTable", 400, "BadRequestException"),
    (Invalid("m"), "updateTable", 400, "IllegalArgumentException"),
    (WrongFormat("m"), "loadTable", 400, "IllegalArgumentException"),
    (Unprocessable("m"), "updateProperties", 422, "UnprocessableEntityException"),
    (Expired("m"), "queryEvents", 400, "BadRequestException"),
    (Trimmed(1, 2), "queryEvents", 409, "CommitFailedException"),
    (NotFound("m", subject="catalog"), "getConfig", 404, "NoSuchWarehouseException"),
    (NotFound("m", subject="namespace"), "createTable", 404, "NoSuchNamespaceException"),
    (NotFound("m", subject="table"), "loadTable", 404, "NoSuchTableException"),
    (NotFound("m", subject="view"), "loadView", 404, "NoSuchViewException"),
    (NotFound("m", subject="function"), "loadFunction", 404, "NoSuchFunctionException"),
    (NotFound("m", subject="file"), "loadTable", 404, "NotFoundException"),
    (NotFound("m", subject="volume"), "loadTable", 404, "NotFoundException"),
    (AlreadyExists("m", subject="table"), "createTable", 409, "AlreadyExistsException"),
    (NotEmpty("m"), "dropNamespace", 409, "NamespaceNotEmptyException"),
    (Conflict("m"), "updateTable", 409, "CommitFailedException"),
    (VersionTaken("m"), "updateTable", 409, "CommitFailedException"),
    (KeyReused("m"), "createTable", 409, "CommitFailedException"),
    (Forbidden("m"), "loadTable", 403, "ForbiddenException"),
    (Unsupported("m"), "createTable", 501, "UnsupportedOperationException"),
    (Unsupported("m"), "createNamespace", 406, "UnsupportedOperationException"),
    (Busy("m"), "updateTable", 503, "SlowDownException"),
    (Exhausted("m"), "updateTable", 503, "SlowDownException"),
    (errors.Renamed("m"), "updateTable", 503, "SlowDownException"),
    (Unavailable("m"), "loadTable", 503, "ServiceUnavailableException"),
    (Damaged("k", "m"), "loadTable", 503, "ServiceUnavailableException"),
    (NewerRecord("k", needed="3.0", known="2.0"), "loadTable", 503, "ServiceUnavailableException"),
    (ServiceRefused("m"), "loadTable", 503, "ServiceUnavailableException"),
    (Unfit("m"), "loadTable", 503, "ServiceUnavailableException"),
    (OutcomeUnknown("m"), "updateTable", 500, "CommitStateUnknownException"),
    (OutcomeUnknown("m"), "commitTransaction", 500, "CommitStateUnknownException"),
    (OutcomeUnknown("m"), "replaceView", 500, "CommitStateUnknownException"),
    (OutcomeUnknown("m"), "createTable", 500, "InternalServerError"),
    (errors.Unauthenticated("m"), "loadTable", 401, "NotAuthorizedException"),
    (Refused(401, "m"), "loadTable", 401, "NotAuthorizedException"),
    (Refused(413, "m"), "updateTable", 413, "RequestTooLargeException"),
]


@pytest.mark.parametrize(("error", "operation", "code", "kind"), EXPECTED)
def test_an_error_has_the_code_and_type_that_clients_dispatch_on(
    error: Exception, operation: str, code: int, kind: str
) -> None:
    answer = ERRORS.answer(error, operation, "request-1")

    assert answer.status == code
    assert json.loads(answer.body) == {"error": {"message": str(error), "type": kind, "code": code}}


def test_every_error_that_operations_raise_has_a_rule() -> None:
    known = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SandurError)}
    # Operations handle SwapLost themselves: they read again and decide again.
    # Hidden is answered as NotFound.
    not_raised = {SandurError, errors.SwapLost, errors.Hidden}

    assert {type(error) for error, *_ in EXPECTED} - {Refused} == known - not_raised


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (Busy("m", retry_after_seconds=1), {1, 2}),
        (Busy("m", retry_after_seconds=3), {2, 3, 4, 5}),
        (Unavailable("m"), {1, 2, 3, 4}),
        (Busy("m", retry_after_seconds=30), set(range(15, 31))),
    ],
)
def test_a_call_that_may_be_retried_says_when_and_others_at_another_time(error: SandurError, times: set[int]) -> None:
    answers = [ERRORS.answer(error, "updateTable", f"request-{number}") for number in range(500)]

    assert {int(dict(answer.headers)[b"Retry-After"]) for answer in answers} == times


def test_an_unexpected_error_reveals_only_the_request_id() -> None:
    answer = ERRORS.answer(RuntimeError("/secret/path"), "loadTable", "request-1")

    assert answer.status == 500
    assert b"secret" not in answer.body
    assert b"request-1" in answer.body
    assert json.loads(answer.body)["error"]["type"] == "InternalServerError"


def test_a_message_with_invalid_unicode_does_not_break_the_answer() -> None:
    answer = ERRORS.answer(BadRequest("name \ud800"), "loadTable", "request-1")

    assert json.loads(answer.body)["error"]["message"] == "name \\ud800"
