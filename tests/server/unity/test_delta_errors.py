"""The errors of the Delta REST API: the code and type that clients dispatch on."""

import inspect
import json

import pytest

from sandur import errors
from sandur.errors import SandurError
from sandur.server.delta_rest.errors import ERRORS
from sandur.server.http import Refused

EXPECTED = [
    (errors.BadRequest("m"), "createTable", 400, "BadRequestException"),
    (errors.Expired("m"), "loadTable", 400, "BadRequestException"),
    (errors.Incomplete("m"), "createTable", 400, "InvalidParameterValueException"),
    (errors.Unprocessable("m"), "createTable", 400, "BadRequestException"),
    (errors.NotEmpty("m"), "deleteTable", 400, "BadRequestException"),
    (errors.Invalid("m"), "createTable", 400, "InvalidParameterValueException"),
    (errors.WrongFormat("m"), "loadTable", 400, "UnsupportedTableFormatException"),
    (errors.NotFound("m", subject="catalog"), "loadTable", 404, "NoSuchCatalogException"),
    (errors.NotFound("m", subject="namespace"), "loadTable", 404, "NoSuchSchemaException"),
    (errors.NotFound("m", subject="table"), "loadTable", 404, "NoSuchTableException"),
    (errors.NotFound("m", subject="view"), "loadTable", 404, "NoSuchTableException"),
    (errors.NotFound("m", subject="file"), "loadTable", 404, "NotFoundException"),
    (errors.AlreadyExists("m", subject="table"), "createTable", 409, "AlreadyExistsException"),
    (errors.VersionTaken("m"), "updateTable", 409, "CommitVersionConflictException"),
    (errors.Conflict("m"), "updateTable", 409, "UpdateRequirementConflictException"),
    (errors.Trimmed(3, 7), "loadTable", 409, "UpdateRequirementConflictException"),
    (errors.KeyReused("m"), "updateTable", 409, "UpdateRequirementConflictException"),
    (errors.Exhausted("m"), "updateTable", 429, "ResourceExhaustedException"),
    (errors.Renamed("m"), "updateTable", 429, "TooManyRequestsException"),
    (errors.Busy("m"), "updateTable", 429, "TooManyRequestsException"),
    (errors.Unauthenticated("m"), "updateTable", 401, "NotAuthorizedException"),
    (errors.Forbidden("m"), "updateTable", 403, "PermissionDeniedException"),
    (errors.Unsupported("m"), "getTableCredentials", 501, "NotImplementedException"),
    (errors.Unavailable("m"), "loadTable", 503, "InternalServerErrorException"),
    (errors.Damaged("k", "m"), "loadTable", 503, "InternalServerErrorException"),
    (errors.NewerRecord("k", needed="3.0", known="2.0"), "loadTable", 503, "InternalServerErrorException"),
    (errors.ServiceRefused("m"), "loadTable", 503, "InternalServerErrorException"),
    (errors.Unfit("m"), "loadTable", 503, "InternalServerErrorException"),
    (errors.OutcomeUnknown("m"), "updateTable", 500, "CommitStateUnknownException"),
    (errors.OutcomeUnknown("m"), "createTable", 500, "InternalServerErrorException"),
    (Refused(401, "m"), "loadTable", 401, "NotAuthorizedException"),
    (Refused(405, "m"), "(none)", 405, "BadRequestException"),
    (Refused(501, "m"), "(none)", 501, "NotImplementedException"),
]


@pytest.mark.parametrize(("error", "operation", "code", "kind"), EXPECTED)
def test_an_error_has_its_code_and_type(error: Exception, operation: str, code: int, kind: str) -> None:
    answer = ERRORS.answer(error, operation, "request-1")

    assert answer.status == code
    assert json.loads(answer.body) == {"error": {"message": str(error), "type": kind, "code": code}}


def test_every_error_that_operations_raise_has_a_rule() -> None:
    known = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SandurError)}
    handled_below = {SandurError, errors.SwapLost}
    answered_as_not_found = {errors.Hidden}

    assert {type(error) for error, *_ in EXPECTED} - {Refused} == known - handled_below - answered_as_not_found


@pytest.mark.parametrize("error", [errors.Busy("m", retry_after_seconds=2), errors.Unavailable("m"), errors.Unfit("m")])
def test_a_call_that_may_be_retried_says_when(error: SandurError) -> None:
    assert 1 <= int(dict(ERRORS.answer(error, "updateTable", "request-1").headers)[b"Retry-After"]) <= 4


def test_an_unexpected_error_reveals_only_the_request_id() -> None:
    answer = ERRORS.answer(RuntimeError("/secret/path"), "loadTable", "request-1")

    assert answer.status == 500
    assert b"secret" not in answer.body
    assert b"request-1" in answer.body
