"""The error map of the Delta REST API."""

from typing import Final

from sandur.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Conflict,
    Exhausted,
    Forbidden,
    Invalid,
    KeyReused,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    Unavailable,
    Unfit,
    Unsupported,
    VersionTaken,
    WrongFormat,
)
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Rule, encode_problem

ERRORS: Final = ErrorMap(
    rules={
        BadRequest: Rule(400, "BadRequestException"),
        NotEmpty: Rule(400, "BadRequestException"),
        Invalid: Rule(400, "InvalidParameterValueException"),
        WrongFormat: Rule(400, "UnsupportedTableFormatException"),
        (NotFound, "catalog"): Rule(404, "NoSuchCatalogException"),
        (NotFound, "namespace"): Rule(404, "NoSuchSchemaException"),
        (NotFound, "table"): Rule(404, "NoSuchTableException"),
        (NotFound, "view"): Rule(404, "NoSuchTableException"),
        NotFound: Rule(404, "NotFoundException"),
        AlreadyExists: Rule(409, "AlreadyExistsException"),
        VersionTaken: Rule(409, "CommitVersionConflictException"),
        Conflict: Rule(409, "UpdateRequirementConflictException"),
        KeyReused: Rule(409, "UpdateRequirementConflictException"),
        Exhausted: Rule(429, "ResourceExhaustedException"),
        Busy: Rule(429, "TooManyRequestsException"),
        Forbidden: Rule(403, "PermissionDeniedException"),
        Unsupported: Rule(501, "NotImplementedException"),
        Unavailable: Rule(503, "InternalServerErrorException", UNAVAILABLE_RETRY_SECONDS),
        Unfit: Rule(503, "InternalServerErrorException", UNAVAILABLE_RETRY_SECONDS),
        # After this a client must keep the files that it wrote.
        (OutcomeUnknown, "updateTable"): Rule(500, "CommitStateUnknownException"),
        OutcomeUnknown: Rule(500, "InternalServerErrorException"),
        Exception: Rule(500, "InternalServerErrorException"),
    },
    refusals={
        401: "NotAuthorizedException",
        403: "PermissionDeniedException",
        404: "NotFoundException",
        501: "NotImplementedException",
    },
    other_refusal="BadRequestException",
    encode=encode_problem,
)
