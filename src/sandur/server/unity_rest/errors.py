"""The error map of the Unity Catalog API."""

from typing import Final

import msgspec

from sandur import errors
from sandur.server.errors import UNAVAILABLE_RETRY_SECONDS, ErrorMap, Problem, Rule


def _encode(problem: Problem) -> bytes:
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": problem.type}
    return msgspec.json.encode({"error_code": problem.type, "message": problem.message, "details": [detail]})


ERRORS: Final = ErrorMap(
    rules={
        errors.BadRequest: Rule(400, "INVALID_ARGUMENT"),
        errors.WrongFormat: Rule(400, "UNSUPPORTED_TABLE_FORMAT"),
        (errors.NotFound, "catalog"): Rule(404, "CATALOG_NOT_FOUND"),
        (errors.NotFound, "namespace"): Rule(404, "SCHEMA_NOT_FOUND"),
        (errors.NotFound, "table"): Rule(404, "TABLE_NOT_FOUND"),
        (errors.NotFound, "view"): Rule(404, "TABLE_NOT_FOUND"),
        errors.NotFound: Rule(404, "NOT_FOUND"),
        # This API answers them with 400; only models have a conflict.
        (errors.AlreadyExists, "catalog"): Rule(400, "CATALOG_ALREADY_EXISTS"),
        (errors.AlreadyExists, "namespace"): Rule(400, "SCHEMA_ALREADY_EXISTS"),
        (errors.AlreadyExists, "table"): Rule(400, "TABLE_ALREADY_EXISTS"),
        (errors.AlreadyExists, "view"): Rule(400, "TABLE_ALREADY_EXISTS"),
        (errors.AlreadyExists, "model"): Rule(409, "ALREADY_EXISTS"),
        (errors.AlreadyExists, "credential"): Rule(400, "STORAGE_CREDENTIAL_ALREADY_EXISTS"),
        (errors.AlreadyExists, "external location"): Rule(400, "EXTERNAL_LOCATION_ALREADY_EXISTS"),
        errors.AlreadyExists: Rule(400, "RESOURCE_ALREADY_EXISTS"),
        errors.NotEmpty: Rule(400, "FAILED_PRECONDITION"),
        errors.VersionTaken: Rule(409, "COMMIT_VERSION_CONFLICT"),
        errors.Conflict: Rule(409, "ABORTED"),
        errors.KeyReused: Rule(409, "ABORTED"),
        errors.Unauthenticated: Rule(401, "UNAUTHENTICATED"),
        errors.Forbidden: Rule(403, "PERMISSION_DENIED"),
        errors.Unsupported: Rule(501, "UNIMPLEMENTED"),
        errors.Exhausted: Rule(429, "RESOURCE_EXHAUSTED"),
        errors.Busy: Rule(503, "UNAVAILABLE"),
        errors.Unavailable: Rule(503, "UNAVAILABLE", UNAVAILABLE_RETRY_SECONDS),
        errors.Unfit: Rule(503, "UNAVAILABLE", UNAVAILABLE_RETRY_SECONDS),
        # After this a client must keep the files that it wrote.
        (errors.OutcomeUnknown, "commit"): Rule(500, "COMMIT_STATE_UNKNOWN"),
        errors.OutcomeUnknown: Rule(500, "INTERNAL"),
        Exception: Rule(500, "INTERNAL"),
    },
    refusals={
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        405: "UNIMPLEMENTED",
        408: "DEADLINE_EXCEEDED",
        413: "INVALID_ARGUMENT",
        501: "UNIMPLEMENTED",
    },
    other_refusal="INTERNAL",
    encode=_encode,
)
