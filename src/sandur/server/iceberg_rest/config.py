"""Handlers that a client calls before anything else: the configuration and a token."""

from typing import Final

from sandur.errors import BadRequest, NotFound
from sandur.operations.containers.catalogs import list_catalogs, load_catalog
from sandur.server.http import CACHE_CONTROL, JSON, Answer, json_answer
from sandur.server.iceberg_rest.bodies import encoded
from sandur.server.iceberg_rest.call import SEPARATOR, Call, decoded_query, encoded_segment
from sandur.server.identity import ANONYMOUS, is_valid_token

_CATALOGS_SHOWN_MAX = 20


async def get_config(call: Call) -> Answer:
    overrides = {"namespace-separator": SEPARATOR}
    if warehouse := call.query.get("warehouse"):
        overrides["prefix"] = encoded_segment(await _catalog_of(call, warehouse))
    body = {
        "defaults": {},
        "overrides": overrides,
        "endpoints": call.service.endpoints,
        "idempotency-key-lifetime": call.service.settings.idempotency_key_lifetime,
    }
    return json_answer(encoded(body))


async def _catalog_of(call: Call, warehouse: str) -> str:
    try:
        return (await load_catalog(call.lake, warehouse)).name
    except NotFound:
        known = sorted(catalog.name for catalog in await list_catalogs(call.lake))
        shown = ", ".join(known[:_CATALOGS_SHOWN_MAX]) + (", …" if len(known) > _CATALOGS_SHOWN_MAX else "")
        raise NotFound(
            f"Warehouse does not exist: {warehouse}. Known here: {shown or 'none'}. Leave `warehouse` out for the "
            f"default, {call.service.settings.default_catalog}, or create it: sandur catalog create {warehouse}",
            subject="catalog",
        ) from None


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
    if not is_valid_token(secret or "", call.service.settings):
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
