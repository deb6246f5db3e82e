"""Handlers that a client calls before anything else: the configuration and a token."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from sandur.errors import NotFound
from sandur.operations.access import authorize_caller
from sandur.operations.containers.catalogs import list_catalogs, load_catalog
from sandur.server.authentication.oauth import ACCESS_TOKEN_TYPE, OAuthProblem, grant_token
from sandur.server.context import Call
from sandur.server.http import NO_STORE, Answer, json_answer
from sandur.server.iceberg_rest.tables import SEPARATOR, encode

_CATALOGS_LISTED_MAX: Final = 20
# Iceberg's Java clients delegate only if a property says so; the other clients do it by themselves.
_DEFAULTS: Final = {"header.X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
_LOCATION: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[./~]")


async def answer_config(call: Call, endpoints: Sequence[str]) -> Answer:
    """The catalog of a warehouse, the endpoints of this server, and how long it keeps idempotency keys."""
    overrides = {"namespace-separator": SEPARATOR}
    await authorize_caller(call.lake)
    if warehouse := call.query.get("warehouse"):
        overrides["prefix"] = quote(await _load_catalog_name(call, warehouse), safe="")
    body = {
        "defaults": _DEFAULTS,
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
            message = f"Warehouse does not exist, or you have no right in it: {warehouse}"
            raise NotFound(message, subject="catalog") from None
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
    """A token for client credentials or in exchange for another token; errors have the form of OAuth 2."""
    try:
        grant = await grant_token(call)
    except OAuthProblem as problem:
        body = {"error": problem.error, "error_description": problem.description}
        return json_answer(encode(body), NO_STORE, *problem.headers, status=problem.status)
    granted = {
        "access_token": grant.token.text,
        "token_type": "bearer",
        "expires_in": grant.token.seconds,
        "issued_token_type": ACCESS_TOKEN_TYPE,
        "scope": grant.scope,
    }
    return json_answer(encode(granted), NO_STORE)
