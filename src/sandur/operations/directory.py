"""The directory: ids of names and names of ids, many at once, as far as the caller may see them."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, get_args

from sandur.catalog.identifiers import Format, Identifier, Kind, checked_uuid
from sandur.errors import NotFound
from sandur.operations.access import authorize_caller, read_authority, resolve_authorized
from sandur.operations.lake import Lake
from sandur.operations.tables.names import follow_renames, is_alive
from sandur.operations.tables.undrop import DroppedInfo, dropped_info
from sandur.operations.unity.registry import named_entries
from sandur.storage.cell import gather_all

_FORMATS: Final[tuple[Format, ...]] = get_args(Format)


class DirectoryEntry(NamedTuple):
    """An object with its name and its id."""

    identifier: Identifier
    uuid: str
    kind: Kind
    format: Format


async def resolve_names(lake: Lake, identifiers: Sequence[Identifier]) -> Sequence[DirectoryEntry | None]:
    """The objects of these names, in their order; None for one that does not exist or that the caller must not see."""
    await authorize_caller(lake)
    return await gather_all([_resolve(lake, identifier) for identifier in identifiers])


async def _resolve(lake: Lake, identifier: Identifier) -> DirectoryEntry | None:
    missing = NotFound(f"{identifier} does not exist", subject="object")
    try:
        found = await resolve_authorized(lake, identifier, lambda _found: True, missing=missing)
    except NotFound:
        return None
    return DirectoryEntry(identifier, found.uuid, found.name.value.kind, found.name.value.format)


async def look_up_ids(lake: Lake, uuids: Sequence[str]) -> Sequence[DirectoryEntry | None]:
    """The objects with these ids, in their order; None for one that does not exist or that the caller must not see.

    A record says for which name it was made. Names that it lost by a rename say where it went, until a janitor removes
    them; then the lists are searched. Raises Invalid for a text that is not a UUID.
    """
    wanted = [checked_uuid("uuid", uuid) for uuid in uuids]
    program = lake.acting_for(None)
    _, made_for = await gather_all((authorize_caller(lake), gather_all([_made_for(program, uuid) for uuid in wanted])))
    known = {uuid: place for uuid, place in zip(wanted, made_for, strict=True) if place}
    # A name that had the id when this process read it last is resolved while its renames are followed.
    direct = {uuid: place for uuid, place in known.items() if _is_remembered(lake, place, uuid)}
    resolved, places = await gather_all(
        (gather_all([_resolve(lake, place) for place in direct.values()]), _current_places(program, known))
    )
    moved = [place for uuid, place in places.items() if place != direct.get(uuid)]
    found = (*resolved, *await gather_all([_resolve(lake, place) for place in moved]))
    entries = {entry.uuid: entry for entry in found if entry}
    return [entries.get(uuid) for uuid in wanted]


def _is_remembered(lake: Lake, identifier: Identifier, uuid: str) -> bool:
    seen = lake.name(identifier).last_seen
    return seen is not None and seen.value.uuid == uuid


async def _made_for(lake: Lake, uuid: str) -> Identifier | None:
    """The name that the object with this id was made for; None if no such object exists."""
    held = await gather_all([lake.bound_record(uuid, one).read() for one in _FORMATS])
    return next((record.value.made_for for record in held if record and is_alive(record)), None)


async def _current_places(lake: Lake, known: Mapping[str, Identifier]) -> Mapping[str, Identifier]:
    """The current names of objects, from the names that they were made for."""
    followed = await gather_all([follow_renames(lake, place, uuid) for uuid, place in known.items()])
    places = {uuid: place for uuid, place in zip(known, followed, strict=True) if place}
    return {**places, **await _listed(lake, set(known) - set(places))}


async def _listed(lake: Lake, uuids: set[str]) -> Mapping[str, Identifier]:
    """The names of these objects in the lists of all namespaces, which are read only if there is such an object."""
    found: dict[str, Identifier] = {}
    if not uuids:
        return found
    async for namespace, entry in named_entries(lake):
        if entry.uuid in uuids:
            found[entry.uuid] = Identifier(*namespace, entry.name)
            if len(found) == len(uuids):
                break
    return found


async def find_id(lake: Lake, uuid: str) -> DirectoryEntry | DroppedInfo | None:
    """The object with an id under its current name, or when it was dropped, for those who may bring it back.

    None if it does not exist, or the caller must not see it.
    """
    (entry,) = await look_up_ids(lake, [uuid])
    if entry:
        return entry
    wanted = checked_uuid("uuid", uuid)
    held = await gather_all([lake.bound_record(wanted, one).read() for one in _FORMATS])
    dropped = next((one for one in held if one and one.value.state == "dropped"), None)
    return await dropped_info(lake, await read_authority(lake), dropped) if dropped else None
