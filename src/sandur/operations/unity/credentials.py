"""Storage credentials for clients of Unity Catalog and Delta: which locations, and the credential for them."""

from collections.abc import Mapping, Sequence
from typing import Final

from sandur.catalog.credentials.profiles import StorageCredential
from sandur.catalog.credentials.registry import checked_url
from sandur.catalog.events import Source
from sandur.catalog.identifiers import checked_uuid
from sandur.catalog.location_claims import Seen
from sandur.catalog.locations import (
    Address,
    canonical_address,
    check_beside_store,
    checked_location,
    normalize_location,
)
from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import Link, Rule, SecurableType
from sandur.errors import Forbidden, Invalid, NotFound, Unsupported
from sandur.operations.access import authorize_location, read_authority
from sandur.operations.credentials.profiles import needs_credentials, read_profiles
from sandur.operations.credentials.table_access import check_outside_state, table_of_record, table_places
from sandur.operations.credentials.vend import vend
from sandur.operations.delta.tables import load_stage
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import is_anothers, overlapping
from sandur.operations.locations.owners import standing_of
from sandur.operations.name_access import read_allowed
from sandur.operations.securable_chains import TYPES, namespace_chain
from sandur.operations.tables.names import is_alive, namespace_not_found
from sandur.operations.unity.registry import located_entries
from sandur.storage.cell import gather_all


async def credential_for(lake: Lake, locations: Sequence[str], *, writes: bool) -> StorageCredential | None:
    """A credential for everything below the locations, for a caller that has been authorized; None if they need none.

    Raises Invalid, with the reason, if clients get none, and Unavailable if the issuer fails.
    """
    if not any(map(needs_credentials, locations)):
        return None
    try:
        check_outside_state(lake, locations)
        credential = await vend(lake, locations, writes=writes)
    except Unsupported as error:
        raise Invalid(str(error)) from error
    if credential is None:
        raise await _refusal(lake, locations[0])
    return credential


async def _refusal(lake: Lake, location: str) -> Invalid:
    profiles = await read_profiles(lake)
    profile = profiles.of(location)
    if profile is None:
        return Invalid(f"No temporary credentials for {location}: no external location covers it")
    if profile.access == "sign":
        return Invalid(
            f"No temporary credentials for {location}: its requests are signed by the server, which clients of Unity "
            'Catalog and Delta cannot use; set its access to "vend"'
        )
    return Invalid(f"No temporary credentials for {location}: {profiles.reason(location)}")


async def table_locations(lake: Lake, table_id: str, source: Source, *, writes: bool) -> Sequence[str]:
    """The locations of a table, or of a stage of this principal, by its id, its own first; NotFound if neither exists.

    Needs the right to read the data, and to write it if the caller wants to.
    """
    table_id = checked_uuid("table_id", table_id)
    missing = NotFound(f"Staging table does not exist: {table_id}", subject="table")
    situation = "write" if writes else ""
    pointer, table = await gather_all((lake.pointer(table_id).read(), lake.delta_table(table_id).read()))
    if is_alive(table):
        held = await read_allowed(lake, lake.delta_table(table_id), missing=missing, situation=situation)
        return (held.value.location,)
    if pointer and pointer.value.kind == "table" and is_alive(pointer):
        record = await read_allowed(lake, lake.pointer(table_id), missing=missing, situation=situation)
        # Never a folder around the metadata file: a registered file may lie anywhere.
        return tuple(table_places(await table_of_record(lake, record, missing)))
    return ((await load_stage(lake, table_id, source)).location,)


async def volume_location(lake: Lake, volume_id: str, *, writes: bool) -> str:
    """The location of a volume that the caller may read, or write; NotFound if there is no volume with this id."""
    volume_id = checked_uuid("volume_id", volume_id)
    missing = NotFound(f"Volume does not exist: {volume_id}", subject="volume")
    found = await lake.securable(volume_id).read()
    if found is None or found.value.kind != "volume":
        raise missing
    situation = "write" if writes else ""
    return (await read_allowed(lake, lake.securable(volume_id), missing=missing, situation=situation)).value.location


async def path_location(lake: Lake, url: str, *, situation: str = "") -> str:
    """A location that a client names itself; Invalid if it is outside the storage of this workspace.

    Workspaces may share an allowed location. A place in it that another workspace has claimed is not this one's. The
    caller needs the right on the external location that covers it, and the same right on the data of every table,
    volume and model whose files are there.
    """
    location = checked_url(url)
    await authorize_location(lake, location, situation=situation)
    checked_location(location, [normalize_location(lake.area), *lake.locations.others])
    own, area = canonical_address(lake.locations.own), canonical_address(lake.area)
    check_beside_store(location, canonical_address(location), own, area)
    if await is_anothers(lake, canonical_address(location)):
        raise Invalid(f"Invalid location {url}: it overlaps a location in use")
    if lake.access:
        await _check_overlaps(lake, location, writes=bool(situation))
    return location


async def _check_overlaps(lake: Lake, location: str, *, writes: bool) -> None:
    """Raise Forbidden if the path overlaps something whose data the caller may not read, or write.

    That is everything with a location, whatever claims a place there, as a stage or a table whose files wait for their
    purge, and the folders in which the catalog generates places: a path there must be in a table of the caller.
    """
    access, authority = lake.access, await read_authority(lake)
    if access is None or authority is None:
        return
    place = canonical_address(location)
    refused = Forbidden(f"{access.caller.name} may not use {location}: it overlaps data of others")
    if _is_home(lake, place):
        raise refused
    claimed = await _claimants(lake, place, refused)
    is_known = not place.is_managed
    async for namespace, entry, address in located_entries(lake.acting_for(None)):
        here = canonical_address(address)
        if not here.overlaps(place) and entry.uuid not in claimed:
            continue
        claimed.discard(entry.uuid)
        is_known |= place.is_within(here)
        above = await namespace_chain(lake, authority, namespace, missing=namespace_not_found(namespace))
        link = Link(entry.object_id or entry.uuid, TYPES[entry.kind], entry.name, entry.owner_id)
        rule = _DATA_RULES[link.type][writes]
        is_restricted = link.type == "table" and authority.restrictions_for(access.caller, link) is not None
        if is_restricted or authority.decide(access.caller, (*above, link), rule).outcome != "allowed":
            raise refused
    if claimed or not is_known:
        raise refused


def _is_home(lake: Lake, place: Address) -> bool:
    """Whether it is the folder of a catalog in the own store, where places are generated without claims."""
    area = canonical_address(lake.area)
    return place.is_within(area) and len(place.segments) == len(area.segments) + 1


async def _claimants(lake: Lake, place: Address, refused: Forbidden) -> set[str]:
    """The ids of what holds a place there; raises `refused` if the root of a catalog or schema is at or below it."""
    own = (lake.layout.tenant, lake.layout.workspace)
    found = await overlapping(lake.store, place, with_own=True)
    seen = [Seen(at, holder) for at, claim in found for holder in claim.value.holders if holder.workspace == own]
    claimants = set()
    for one in seen:
        is_place = one.holder.kind == "place"
        if not is_place and not (one.holder.kind == "root" and one.address.is_within(place)):
            continue
        if await standing_of(lake, one) in {"open", "over"}:
            continue
        if not is_place:
            raise refused
        claimants.add(one.holder.owner.uuid)
    return claimants


# What reading and writing the files of a securable needs.
_DATA_RULES: Final[Mapping[SecurableType, tuple[Rule, Rule]]] = {
    "table": (privileges.READ_DATA, privileges.WRITE_DATA),
    "volume": (privileges.READ_VOLUME_DATA, privileges.WRITE_VOLUME_DATA),
    "registered_model": (privileges.READ_MODEL_DATA, privileges.WRITE_MODEL_DATA),
    "function": (privileges.EXECUTE, privileges.MANAGED),
}
