"""The error map of the Delta REST API."""

from typing import Final

from sandur import errors
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Rule, encode_problem

ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "BadRequestException"),
        errors.NotEmpty: Rule(400, "BadRequestException"),
        errors.Incomplete: Rule(400, "InvalidParameterValueException"),
        errors.Invalid: Rule(400, "InvalidParameterValueException"),
        errors.WrongFormat: Rule(400, "UnsupportedTableFormatException"),
        (errors.NotFound, "catalog"): Rule(404, "NoSuchCatalogException"),
        (errors.NotFound, "namespace"): Rule(404, "NoSuchSchemaException"),
        (errors.NotFound, "table"): Rule(404, "NoSuchTableException"),
        (errors.NotFound, "view"): Rule(404, "NoSuchTableException"),
        errors.NotFound: Rule(404, "NotFoundException"),
        errors.AlreadyExists: Rule(409, "AlreadyExistsException"),
        errors.VersionTaken: Rule(409, "CommitVersionConflictException"),
        errors.Conflict: Rule(409, "UpdateRequirementConflictException"),
        errors.KeyReused: Rule(409, "UpdateRequirementConflictException"),
        errors.Exhausted: Rule(429, "ResourceExhaustedException"),
        errors.Busy: Rule(429, "TooManyRequestsException"),
        errors.Unauthenticated: Rule(401, "NotAuthorizedException"),
        errors.Forbidden: Rule(403, "PermissionDeniedException"),
        errors.Unsupported: Rule(501, "NotImplementedException"),
        errors.Unavailable: Rule(503, "InternalServerErrorException", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "InternalServerErrorException", UNAVAILABLE_RETRY_SECONDS),
        # After this a client must keep the files that it wrote.
        (errors.OutcomeUnknown, "updateTable"): Rule(500, "CommitStateUnknownException"),
        errors.OutcomeUnknown: Rule(500, "InternalServerErrorException"),
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
