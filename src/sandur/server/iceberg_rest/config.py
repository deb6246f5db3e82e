"""Handlers that a client calls before anything else: the configuration and a token."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from sandur.errors import BadRequest, NotFound
from sandur.operations.access import authorize_caller
from sandur.operations.containers.catalogs import list_catalogs, load_catalog
from sandur.server import context
from sandur.server.context import Call
from sandur.server.http import NO_STORE, Answer, decode_query, json_answer
from sandur.server.iceberg_rest.tables import SEPARATOR, encode

_CATALOGS_LISTED_MAX: Final = 20
_LOCATION: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[./~]")


async def answer_config(call: Call, endpoints: Sequence[str]) -> Answer:
    """The catalog of a warehouse, the endpoints of this server, and how long it keeps idempotency keys."""
    overrides = {"namespace-separator": SEPARATOR}
    await authorize_caller(call.lake)
    if warehouse := call.query.get("warehouse"):
        overrides["prefix"] = quote(await _load_catalog_name(call, warehouse), safe="")
    body = {
        "defaults": {},
        "overrides": overrides,
        "endpoints": endpoints,
        "idempotency-key-lifetime": call.settings.idempotency_key_lifetime,
    }
    return json_answer(encode(body))


async def _load_catalog_name(call: Call, warehouse: str) -> str:
    try:
        return (await load_catalog(call.lake, warehouse)).name
    except NotFound:
        if call.settings.authentication != "off":
            raise NotFound(f"Warehouse does not exist: {warehouse}", subject="catalog") from None
        known = sorted(catalog.name for catalog in await list_catalogs(call.lake))
        listed = ", ".join(known[:_CATALOGS_LISTED_MAX]) + (", …" if len(known) > _CATALOGS_LISTED_MAX else "")
        if _LOCATION.match(warehouse):
            create = "A warehouse is the name of a catalog, not the location of its tables."
        else:
            create = f"Create it with: sandur catalog create {warehouse}"
        raise NotFound(
            f"Warehouse does not exist: {warehouse}. {create} Existing warehouses: {listed or 'none'}. Omit "
            f"`warehouse` to use the default, {call.settings.default_catalog}",
            subject="catalog",
        ) from None


async def get_token(call: Call) -> Answer:
    """A token in exchange for the secret or for a signed token; for every client when authentication is off."""
    try:
        form = decode_query(call.http.body)
    except BadRequest as error:
        return _token_error(400, "invalid_request", str(error))
    grant_type = form.get("grant_type")
    if grant_type is None:
        return _token_error(400, "invalid_request", "grant_type is missing")
    if grant_type not in {context.CLIENT_CREDENTIALS, context.TOKEN_EXCHANGE}:
        described = f"{grant_type[:80]}: use {context.CLIENT_CREDENTIALS} or {context.TOKEN_EXCHANGE}"
        return _token_error(400, "unsupported_grant_type", described)
    secret = form.get("client_secret" if grant_type == context.CLIENT_CREDENTIALS else "subject_token") or ""
    if not context.is_valid_token(secret, call.settings):
        return _token_error(401, "invalid_client", "the client is unknown or its secret is wrong")
    # The client gets back what it sent: a token that is bound to one workspace is never exchanged for a wider one.
    body = {
        "access_token": secret or context.ANONYMOUS,
        "token_type": "bearer",
        "expires_in": context.TOKEN_LIFETIME_SECONDS,
        "issued_token_type": context.ACCESS_TOKEN_TYPE,
        "scope": form.get("scope") or "catalog",
    }
    return json_answer(encode(body), NO_STORE)


def _token_error(status: int, error: str, description: str) -> Answer:
    return json_answer(encode({"error": error, "error_description": description}), NO_STORE, status=status)
