"""The error map of the Iceberg REST API."""

from typing import Final

from sandur import errors
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Rule, encode_problem

_COMMIT_UNKNOWN: Final = Rule(500, "CommitStateUnknownException")
_NOT_ACCEPTABLE: Final = Rule(406, "UnsupportedOperationException")

ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "BadRequestException"),
        errors.Invalid: Rule(400, "IllegalArgumentException"),
        errors.Unprocessable: Rule(422, "UnprocessableEntityException"),
        (errors.NotFound, "catalog"): Rule(404, "NoSuchWarehouseException"),
        (errors.NotFound, "namespace"): Rule(404, "NoSuchNamespaceException"),
        (errors.NotFound, "table"): Rule(404, "NoSuchTableException"),
        (errors.NotFound, "view"): Rule(404, "NoSuchViewException"),
        (errors.NotFound, "function"): Rule(404, "NoSuchFunctionException"),
        (errors.NotFound, "plan"): Rule(404, "NoSuchPlanIdException"),
        (errors.NotFound, "plan task"): Rule(404, "NoSuchPlanTaskException"),
        errors.NotFound: Rule(404, "NotFoundException"),
        errors.AlreadyExists: Rule(409, "AlreadyExistsException"),
        errors.NotEmpty: Rule(409, "NamespaceNotEmptyException"),
        errors.Conflict: Rule(409, "CommitFailedException"),
        errors.KeyReused: Rule(409, "CommitFailedException"),
        errors.Unauthenticated: Rule(401, "NotAuthorizedException"),
        errors.Forbidden: Rule(403, "ForbiddenException"),
        # The specification names 406 for these; elsewhere clients read 501 as "unsupported".
        (errors.Unsupported, "createNamespace"): _NOT_ACCEPTABLE,
        (errors.Unsupported, "updateProperties"): _NOT_ACCEPTABLE,
        (errors.Unsupported, "renameTable"): _NOT_ACCEPTABLE,
        (errors.Unsupported, "renameView"): _NOT_ACCEPTABLE,
        errors.Unsupported: Rule(501, "UnsupportedOperationException"),
        errors.Busy: Rule(503, "SlowDownException"),
        errors.Unavailable: Rule(503, "ServiceUnavailableException", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "ServiceUnavailableException"),
        # After these a client must keep the files that it wrote.
        (errors.OutcomeUnknown, "updateTable"): _COMMIT_UNKNOWN,
        (errors.OutcomeUnknown, "replaceView"): _COMMIT_UNKNOWN,
        (errors.OutcomeUnknown, "commitTransaction"): _COMMIT_UNKNOWN,
        errors.OutcomeUnknown: Rule(500, "InternalServerError"),
        Exception: Rule(500, "InternalServerError"),
    },
    refusals={
        400: "BadRequestException",
        401: "NotAuthorizedException",
        403: "ForbiddenException",
        405: "UnsupportedOperationException",
        408: "RequestTimeoutException",
        413: "RequestTooLargeException",
    },
    other_refusal="RESTException",
    encode=encode_problem,
)
