"""What an answer rests on: objects at versions. While all of them stand, it need not be worked out again.

Only for stores that can be looked at without waiting. A look at a version tells as much as the read that would follow
it, for no version ever comes back; so these looks are the same round of reads as the full way, without its cost.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import Unavailable
from sandur.operations.lake import Lake
from sandur.operations.tables.names import ResolvedName
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import Looks, Version, looks_of

T = TypeVar("T", bound=msgspec.Struct)


class Ground(NamedTuple):
    """An object, and the version at which it was relied on."""

    looks: Looks
    key: str
    version: Version

    def stands(self) -> bool:
        return self.looks.version_now(self.key) == self.version


class Standing(NamedTuple):
    """Which metadata file is current, as long as the name, the pointer and the file itself stay as they are."""

    location: str
    grounds: Sequence[Ground]


def as_last_seen(lake: Lake, *seen: tuple[str, Version]) -> bool | None:
    """Whether all these objects of the catalog are at these versions; None when only waiting would tell."""
    looks = looks_of(lake.store)
    if looks is None:
        return None
    try:
        return all(Ground(looks, key, version).stands() for key, version in seen)
    except Unavailable:
        return None


def still_held(lake: Lake, cell: Cell[T]) -> Versioned[T] | None:
    """What a cell held when it was seen last, if a look says that it still does; None when unsure."""
    held = cell.last_seen
    return held if held and as_last_seen(lake, (cell.key, held.version)) else None


def standing_location(lake: Lake, identifier: Identifier) -> str | None:
    """The metadata file that was current and, by a look at everything that says so, still is; None when unsure."""
    standing: Standing | None = lake.standing.get(identifier)
    if standing is None:
        return None
    try:
        if all(ground.stands() for ground in standing.grounds):
            return standing.location
    except Unavailable:
        return None
    del lake.standing[identifier]
    return None


def note_standing(lake: Lake, found: ResolvedName, location: str) -> None:
    """Remember what a load found, if it rests on nothing that a look cannot confirm."""
    store, file_key = lake.locations.holder(location)
    looks, file_looks = looks_of(lake.store), looks_of(store)
    # A pending also rests on the record of its transaction (T6).
    pointer = found.iceberg_pointer
    if looks is None or file_looks is None or pointer is None or pointer.value.pending is not None:
        return
    homes = _homes(lake, looks, found)
    file_version = file_looks.version_now(file_key)
    if homes is None or file_version is None:
        return
    grounds = (
        Ground(looks, lake.layout.name(found.identifier), found.name.version),
        Ground(looks, lake.layout.pointer(found.uuid), found.pointer.version),
        Ground(file_looks, file_key, file_version),
        *homes,
    )
    lake.standing[found.identifier] = Standing(location, grounds)


def _homes(lake: Lake, looks: Looks, found: ResolvedName) -> Sequence[Ground] | None:
    """The namespaces that the name rests on (N4); None when that is not certain.

    A name or a namespace that is `new` exists only with the namespace it was made for; an `active` one by itself.
    """
    grounds: list[Ground] = []
    state: str = found.name.value.state
    home_id = found.name.value.namespace_id
    home: Namespace | None = found.identifier.namespace
    while state == "new" and home is not None:
        held = lake.namespace(home).last_seen
        if held is None or held.value.id != home_id:
            return None
        grounds.append(Ground(looks, lake.layout.namespace(home), held.version))
        state, home_id, home = held.value.state, held.value.parent_id, home.parent
    return grounds if state in {"active", "new"} else None
