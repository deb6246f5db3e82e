"""Every error class has its code, its details, and a text that hides what is not for clients."""

from collections.abc import Iterator

import pytest

from sandur import errors
from sandur.server.grpc.errors import failure_of
from sandur.server.grpc.messages import InvalidField
from sandur.server.http import Refused
from sandur.server.requests import UncheckedRequest
from tests.grpc.stubs import Problem, details_of

ERRORS: dict[Exception, str] = {
    errors.BadRequest("m"): "INVALID_ARGUMENT",
    errors.Incomplete("m"): "INVALID_ARGUMENT",
    errors.Invalid("m"): "INVALID_ARGUMENT",
    errors.Unprocessable("m"): "INVALID_ARGUMENT",
    errors.WrongFormat("m"): "INVALID_ARGUMENT",
    InvalidField("table.name", "m"): "INVALID_ARGUMENT",
    errors.Expired("m"): "OUT_OF_RANGE",
    errors.Unauthenticated("m"): "UNAUTHENTICATED",
    errors.Forbidden("m"): "PERMISSION_DENIED",
    errors.Unsupported("m"): "UNIMPLEMENTED",
    errors.NotFound("m", subject="table"): "NOT_FOUND",
    errors.Hidden("m", subject="table"): "NOT_FOUND",
    errors.AlreadyExists("m", subject="table"): "ALREADY_EXISTS",
    errors.NotEmpty("m"): "FAILED_PRECONDITION",
    errors.KeyReused("m"): "FAILED_PRECONDITION",
    errors.Conflict("m"): "ABORTED",
    errors.VersionTaken("m"): "ABORTED",
    errors.Trimmed(3, 7): "ABORTED",
    errors.SwapLost("m"): "ABORTED",
    errors.Busy("m"): "RESOURCE_EXHAUSTED",
    errors.Exhausted("m", retry_after_seconds=9): "RESOURCE_EXHAUSTED",
    errors.Renamed("m"): "RESOURCE_EXHAUSTED",
    errors.Unavailable("m"): "UNAVAILABLE",
    errors.ServiceRefused("m"): "UNAVAILABLE",
    errors.Damaged("key", "m"): "UNAVAILABLE",
    errors.NewerRecord("key", needed="2.0", known="1.0"): "UNAVAILABLE",
    errors.Unfit("m"): "UNAVAILABLE",
    errors.OutcomeUnknown("m"): "UNKNOWN",
    errors.SwapLost("m", is_definite=False): "UNKNOWN",
}
RETRIED = {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}


def problem(error: Exception, *, is_public: bool = False) -> Problem:
    failure = failure_of(error, "updateTable", "id-1", is_public=is_public)
    return Problem(failure.code, failure.details.message, details_of(failure.details))


def _below(kind: type[Exception]) -> Iterator[type[Exception]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def test_every_error_class_is_in_the_table() -> None:
    ours = {kind for kind in _below(errors.SandurError) if kind.__module__ == "sandur.errors"}

    assert ours == {type(error) for error in ERRORS} - {InvalidField}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}-{ERRORS[error]}")
def test_an_error_has_its_code_and_its_details(error: Exception) -> None:
    found = problem(error)

    assert found.code == ERRORS[error]
    assert found.details["ErrorInfo"].domain == "sandur"
    assert found.details["RequestInfo"].request_id == "id-1"
    is_retried = found.code in RETRIED and not isinstance(error, errors.Unfit)
    assert ("RetryInfo" in found.details) == is_retried
    assert ("BadRequest" in found.details) == (found.code == "INVALID_ARGUMENT")


def test_the_reason_is_the_class_of_the_error() -> None:
    assert problem(errors.VersionTaken("m")).reason == "VERSION_TAKEN"
    assert problem(errors.OutcomeUnknown("m")).reason == "OUTCOME_UNKNOWN"


def test_an_invalid_field_is_named() -> None:
    violations = problem(InvalidField("table.name", "it is empty")).details["BadRequest"].field_violations

    assert [(one.field, one.description) for one in violations] == [("table.name", "Invalid table.name: it is empty")]


def test_a_limit_says_when_to_call_again() -> None:
    delay = problem(errors.Exhausted("m", retry_after_seconds=9)).details["RetryInfo"].retry_delay.seconds

    assert 5 <= delay <= 9


@pytest.mark.parametrize(
    ("status", "code"), [(400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED")]
)
def test_a_refusal_before_any_operation_has_its_code(status: int, code: str) -> None:
    assert problem(Refused(status, "m")).code == code


def test_an_unexpected_error_says_nothing_but_the_request_id() -> None:
    for error in (RuntimeError("a secret"), UncheckedRequest("a secret")):
        found = problem(error)

        assert (found.code, found.reason) == ("INTERNAL", "INTERNAL")
        assert "secret" not in found.text
        assert "id-1" in found.text


def test_with_authentication_addresses_of_the_storage_are_hidden() -> None:
    assert "bucket" not in problem(errors.Unavailable("s3://bucket/key: no answer"), is_public=True).text


def test_a_long_text_fits_into_the_trailers() -> None:
    found = problem(errors.BadRequest("é" * 50_000))

    assert len(found.text.encode()) <= 2_000
