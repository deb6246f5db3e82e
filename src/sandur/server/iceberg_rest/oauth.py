"""`POST /v1/oauth/tokens`: tokens for clients that ask for one before anything else."""

from typing import Final

from sandur.errors import BadRequest
from sandur.server.iceberg_rest.bodies import encoded
from sandur.server.iceberg_rest.call import Call
from sandur.server.iceberg_rest.names import decoded_query
from sandur.server.identity import ANONYMOUS, is_good_token
from sandur.server.messages import CACHE_CONTROL, JSON, Answer

_CLIENT_CREDENTIALS: Final = "client_credentials"
_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name, not a secret
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name, not a secret
_LIFETIME_SECONDS: Final = 3600

_NOT_STORED: Final = (CACHE_CONTROL, b"no-store")


async def get_token(call: Call) -> Answer:
    """A token for whoever proves to know the secret; where authentication is off, for everybody."""
    try:
        form = decoded_query(call.http.body)
    except BadRequest as error:
        return _refused(400, "invalid_request", str(error))
    match form.get("grant_type"):
        case "client_credentials":
            secret = form.get("client_secret")
        case "urn:ietf:params:oauth:grant-type:token-exchange":
            secret = form.get("subject_token")
        case None:
            return _refused(400, "invalid_request", "grant_type is missing")
        case other:
            return _refused(
                400, "unsupported_grant_type", f"{other[:80]}: use {_CLIENT_CREDENTIALS} or {_TOKEN_EXCHANGE}"
            )
    if not is_good_token(secret or "", call.service.settings):
        return _refused(401, "invalid_client", "the client is unknown or its secret is wrong")
    return _granted(secret or ANONYMOUS, form.get("scope") or "catalog")


def _granted(token: str, scope: str) -> Answer:
    """What was shown is given back: a token that holds its bearer to one place is never changed for a wider one."""
    body = {
        "access_token": token,
        "token_type": "bearer",
        "expires_in": _LIFETIME_SECONDS,
        "issued_token_type": _ACCESS_TOKEN,
        "scope": scope,
    }
    return Answer(200, encoded(body), (JSON, _NOT_STORED))


def _refused(status: int, error: str, description: str) -> Answer:
    return Answer(status, encoded({"error": error, "error_description": description}), (JSON, _NOT_STORED))
