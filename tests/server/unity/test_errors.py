"""The errors of the Unity Catalog API: the status and code that clients dispatch on."""

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
    Unauthenticated,
    Unavailable,
    Unfit,
    Unprocessable,
    Unsupported,
    VersionTaken,
    WrongFormat,
)
from sandur.server.http import Refused
from sandur.server.unity_rest.errors import ERRORS

EXPECTED = [
    (BadRequest("m"), "createTable", 400, "INVALID_ARGUMENT"),
    (errors.Expired("m"), "getTable", 400, "INVALID_ARGUMENT"),
    (Incomplete("m"), "createTable", 400, "INVALID_ARGUMENT"),
    (Invalid("m"), "createTable", 400, "INVALID_ARGUMENT"),
    (Unprocessable("m"), "createTable", 400, "INVALID_ARGUMENT"),
    (WrongFormat("m"), "commit", 400, "UNSUPPORTED_TABLE_FORMAT"),
    (NotFound("m", subject="catalog"), "getCatalog", 404, "CATALOG_NOT_FOUND"),
    (NotFound("m", subject="namespace"), "getSchema", 404, "SCHEMA_NOT_FOUND"),
    (NotFound("m", subject="table"), "getTable", 404, "TABLE_NOT_FOUND"),
    (NotFound("m", subject="view"), "getTable", 404, "TABLE_NOT_FOUND"),
    (NotFound("m", subject="volume"), "getVolume", 404, "NOT_FOUND"),
    (AlreadyExists("m", subject="catalog"), "createCatalog", 400, "CATALOG_ALREADY_EXISTS"),
    (AlreadyExists("m", subject="namespace"), "createSchema", 400, "SCHEMA_ALREADY_EXISTS"),
    (AlreadyExists("m", subject="table"), "createTable", 400, "TABLE_ALREADY_EXISTS"),
    (AlreadyExists("m", subject="function"), "createFunction", 400, "RESOURCE_ALREADY_EXISTS"),
    (AlreadyExists("m", subject="model"), "createRegisteredModel", 409, "ALREADY_EXISTS"),
    (AlreadyExists("m", subject="credential"), "createCredential", 400, "STORAGE_CREDENTIAL_ALREADY_EXISTS"),
    (NotEmpty("m"), "deleteSchema", 400, "FAILED_PRECONDITION"),
    (Conflict("m"), "commit", 409, "ABORTED"),
    (errors.Trimmed(3, 7), "getTable", 409, "ABORTED"),
    (VersionTaken("m"), "commit", 409, "COMMIT_VERSION_CONFLICT"),
    (KeyReused("m"), "createTable", 409, "ABORTED"),
    (Unauthenticated("m"), "createTable", 401, "UNAUTHENTICATED"),
    (Forbidden("m"), "createTable", 403, "PERMISSION_DENIED"),
    (Unsupported("m"), "createTable", 501, "UNIMPLEMENTED"),
    (Exhausted("m"), "commit", 429, "RESOURCE_EXHAUSTED"),
    (errors.Renamed("m"), "commit", 503, "UNAVAILABLE"),
    (Busy("m"), "createTable", 503, "UNAVAILABLE"),
    (Unavailable("m"), "getTable", 503, "UNAVAILABLE"),
    (Damaged("k", "m"), "getTable", 503, "UNAVAILABLE"),
    (NewerRecord("k", needed="3.0", known="2.0"), "getTable", 503, "UNAVAILABLE"),
    (ServiceRefused("m"), "getTable", 503, "UNAVAILABLE"),
    (Unfit("m"), "getTable", 503, "UNAVAILABLE"),
    (OutcomeUnknown("m"), "commit", 500, "COMMIT_STATE_UNKNOWN"),
    (OutcomeUnknown("m"), "createTable", 500, "INTERNAL"),
    (Refused(401, "m"), "getTable", 401, "UNAUTHENTICATED"),
    (Refused(403, "m"), "getTable", 403, "PERMISSION_DENIED"),
    (Refused(501, "m"), "(none)", 501, "UNIMPLEMENTED"),
]


@pytest.mark.parametrize(("error", "operation", "status", "code"), EXPECTED)
def test_an_error_has_its_status_and_code(error: Exception, operation: str, status: int, code: str) -> None:
    answer = ERRORS.answer(error, operation, "id")

    assert answer.status == status
    assert json.loads(answer.body) == {
        "error_code": code,
        "message": str(error),
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}],
    }


def test_every_error_that_operations_raise_has_a_rule() -> None:
    known = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SandurError)}
    # Operations handle SwapLost themselves: they read again and decide again.
    # Hidden is answered as NotFound.
    not_raised = {SandurError, errors.SwapLost, errors.Hidden}

    assert {type(error) for error, *_ in EXPECTED} - {Refused} == known - not_raised


def test_an_unexpected_error_reveals_only_the_request_id() -> None:
    answer = ERRORS.answer(ValueError("secret"), "getTable", "the id")

    assert answer.status == 500
    assert b"secret" not in answer.body
    assert b"the id" in answer.body


def test_a_message_with_invalid_unicode_does_not_break_the_answer() -> None:
    assert json.loads(ERRORS.answer(BadRequest("\ud800"), "getTable", "id").body)["message"] == "\\ud800"
