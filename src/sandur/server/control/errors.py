"""The error map of Sandur's own API. Error bodies have the form of the Iceberg REST API."""

from typing import Final

from sandur import errors
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Rule, encode_problem

ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "BadRequestException"),
        errors.Expired: Rule(410, "GoneException"),
        errors.Unauthenticated: Rule(401, "NotAuthorizedException"),
        errors.Forbidden: Rule(403, "ForbiddenException"),
        errors.NotFound: Rule(404, "NotFoundException"),
        errors.AlreadyExists: Rule(409, "AlreadyExistsException"),
        errors.NotEmpty: Rule(409, "ConflictException"),
        errors.Conflict: Rule(409, "ConflictException"),
        errors.KeyReused: Rule(409, "ConflictException"),
        errors.Unsupported: Rule(501, "UnsupportedOperationException"),
        errors.Busy: Rule(503, "SlowDownException"),
        errors.Unavailable: Rule(503, "ServiceUnavailableException", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "ServiceUnavailableException", UNAVAILABLE_RETRY_SECONDS),
        errors.OutcomeUnknown: Rule(500, "OutcomeUnknownException"),
        Exception: Rule(500, "InternalServerError"),
    },
    refusals={
        404: "NotFoundException",
        405: "MethodNotAllowedException",
        400: "BadRequestException",
        401: "NotAuthorizedException",
        403: "ForbiddenException",
        413: "RequestTooLargeException",
    },
    other_refusal="RESTException",
    encode=encode_problem,
)
