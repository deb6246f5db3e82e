"""The errors of the gRPC services: one table from the error classes to codes, and their details."""

import re
from typing import Final, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from sandur import errors
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Problem, Rule
from sandur.server.grpc.messages import InvalidField
from sandur.server.http import RETRY_AFTER, Refused

DOMAIN: Final = "sandur"
DEADLINE_STATUS: Final = 504
_INTERNAL: Final = "INTERNAL"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_DETAIL_BYTES_MAX: Final = 2_000
"""Of a message: gRPC sends it twice, in trailers, which clients bound to 8 KiB."""

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _without_body(_problem: Problem) -> bytes:
    raise AssertionError("gRPC encodes its errors as details")


# The number of a rule is the status of the REST APIs for the same error: the audit trail has it for every protocol.
ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "INVALID_ARGUMENT"),
        # The position of a subscription lies before what is kept.
        errors.Expired: Rule(410, "OUT_OF_RANGE"),
        errors.Unauthenticated: Rule(401, "UNAUTHENTICATED"),
        errors.Forbidden: Rule(403, "PERMISSION_DENIED"),
        errors.NotFound: Rule(404, "NOT_FOUND"),
        errors.AlreadyExists: Rule(409, "ALREADY_EXISTS"),
        # The client loads again and decides again; gRPC calls that a retry at a higher level.
        errors.Conflict: Rule(409, "ABORTED"),
        errors.SwapLost: Rule(409, "ABORTED"),
        errors.NotEmpty: Rule(409, "FAILED_PRECONDITION"),
        errors.KeyReused: Rule(409, "FAILED_PRECONDITION"),
        errors.Unsupported: Rule(501, "UNIMPLEMENTED"),
        errors.Busy: Rule(503, "RESOURCE_EXHAUSTED"),
        errors.Unavailable: Rule(503, "UNAVAILABLE", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "UNAVAILABLE"),
        # Never UNAVAILABLE: clients and proxies resend such a call by themselves.
        errors.OutcomeUnknown: Rule(500, "UNKNOWN"),
        Exception: Rule(500, _INTERNAL),
    },
    refusals={
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        413: "RESOURCE_EXHAUSTED",
        429: "RESOURCE_EXHAUSTED",
        DEADLINE_STATUS: "DEADLINE_EXCEEDED",
    },
    other_refusal="INVALID_ARGUMENT",
    encode=_without_body,
)


class Failure(NamedTuple):
    """An error as a client gets it: the code, the status of the REST APIs for it, and the details."""

    code: str
    status: int
    details: status_pb2.Status

    @property
    def grpc_code(self) -> grpc.StatusCode:
        return grpc.StatusCode[self.code]

    @property
    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        return ((_DETAILS_KEY, self.details.SerializeToString()),)


def failure_of(error: Exception, operation: str, request_id: str, *, is_public: bool) -> Failure:
    """What the error is over gRPC; `is_public` hides names and addresses of others."""
    if isinstance(error, errors.SwapLost) and not error.is_definite:
        error = errors.OutcomeUnknown(str(error))
    problem = ERRORS.problem(error, operation, request_id, is_public=is_public)
    text = problem.message.encode()[:_DETAIL_BYTES_MAX].decode("utf-8", "ignore")
    status = status_pb2.Status(code=code_pb2.Code.Value(problem.type), message=text)
    reason = problem.type if problem.type == _INTERNAL else reason_of(error)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    status.details.add().Pack(error_details_pb2.RequestInfo(request_id=request_id))
    retry_after = dict(problem.headers).get(RETRY_AFTER)
    if retry_after:
        delay = Duration(seconds=int(retry_after))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if problem.type == "INVALID_ARGUMENT":
        field = error.field if isinstance(error, InvalidField) else ""
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return Failure(problem.type, problem.status, status)


def reason_of(error: Exception) -> str:
    """The class of an error in the form that ErrorInfo prescribes: VersionTaken is VERSION_TAKEN."""
    if isinstance(error, Refused):
        return ERRORS.refusals.get(error.status, ERRORS.other_refusal)
    return _WORD.sub("_", type(error).__name__).upper()
