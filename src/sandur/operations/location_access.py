"""Authorize the use of a location that a client names: the right comes from the external location that covers it."""

from typing import Final

from sandur.catalog.credentials.registry import location_covering
from sandur.catalog.security.privileges import Chain, Link
from sandur.errors import NotFound
from sandur.operations.access import may_see, read_authority, require
from sandur.operations.lake import Lake


async def authorize_location(lake: Lake, location: str, *, situation: str = "") -> None:
    """Check what the route declares for a location that the client named, on the external location that covers it.

    Where no external location covers it, or only one that the caller must not see, the right on the metastore counts.
    """
    authority = await read_authority(lake)
    if authority is None:
        return
    found = await lake.storage_registry().read()
    covering = location_covering(found.value, location) if found else None
    chain: Chain = (authority.metastore,)
    if covering:
        below = (*chain, Link(covering.id, "external_location", covering.name, covering.owner_id))
        chain = below if may_see(lake, authority, below) else chain
    require(lake, authority, chain, missing=_METASTORE, situation=situation)


_METASTORE: Final = NotFound("Metastore does not exist", subject="metastore")  # Never raised: every caller sees it.
