"""`GET /v1/config`: which catalog a warehouse is, what this server can do, and for how long it remembers keys."""

from sandur.errors import NotFound
from sandur.operations.catalogs import list_catalogs, load_catalog
from sandur.server.iceberg_rest.bodies import encoded
from sandur.server.iceberg_rest.call import Call
from sandur.server.iceberg_rest.names import SEPARATOR, encoded_segment
from sandur.server.messages import Answer, json_answer

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
