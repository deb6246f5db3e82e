"""The error map of the Iceberg REST API."""

from typing import Final

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
    Unavailable,
    Unfit,
    Unprocessable,
    Unsupported,
)
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Rule, encode_problem

_COMMIT_UNKNOWN: Final = Rule(500, "CommitStateUnknownException")
_NOT_ACCEPTABLE: Final = Rule(406, "UnsupportedOperationException")

ERRORS: Final = ErrorMap(
    rules={
        BadRequest: Rule(400, "BadRequestException"),
        Invalid: Rule(400, "IllegalArgumentException"),
        Unprocessable: Rule(422, "UnprocessableEntityException"),
        (NotFound, "catalog"): Rule(404, "NoSuchWarehouseException"),
        (NotFound, "namespace"): Rule(404, "NoSuchNamespaceException"),
        (NotFound, "table"): Rule(404, "NoSuchTableException"),
        (NotFound, "view"): Rule(404, "NoSuchViewException"),
        (NotFound, "function"): Rule(404, "NoSuchFunctionException"),
        (NotFound, "plan"): Rule(404, "NoSuchPlanIdException"),
        (NotFound, "plan task"): Rule(404, "NoSuchPlanTaskException"),
        NotFound: Rule(404, "NotFoundException"),
        AlreadyExists: Rule(409, "AlreadyExistsException"),
        NotEmpty: Rule(409, "NamespaceNotEmptyException"),
        Conflict: Rule(409, "CommitFailedException"),
        KeyReused: Rule(409, "CommitFailedException"),
        Forbidden: Rule(403, "ForbiddenException"),
        # The specification names 406 for these; elsewhere clients read 501 as "unsupported".
        (Unsupported, "createNamespace"): _NOT_ACCEPTABLE,
        (Unsupported, "updateProperties"): _NOT_ACCEPTABLE,
        (Unsupported, "renameTable"): _NOT_ACCEPTABLE,
        (Unsupported, "renameView"): _NOT_ACCEPTABLE,
        Unsupported: Rule(501, "UnsupportedOperationException"),
        Busy: Rule(503, "SlowDownException"),
        Unavailable: Rule(503, "ServiceUnavailableException", UNAVAILABLE_RETRY_SECONDS),
        Unfit: Rule(503, "ServiceUnavailableException"),
        # After these a client must keep the files that it wrote.
        (OutcomeUnknown, "updateTable"): _COMMIT_UNKNOWN,
        (OutcomeUnknown, "replaceView"): _COMMIT_UNKNOWN,
        (OutcomeUnknown, "commitTransaction"): _COMMIT_UNKNOWN,
        OutcomeUnknown: Rule(500, "InternalServerError"),
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
