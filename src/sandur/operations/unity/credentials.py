"""The locations that clients request credentials for, and whether a location needs credentials at all."""

from typing import Final

from sandur.catalog.locations import checked_location, normalize_location
from sandur.catalog.storage_registry import checked_url
from sandur.errors import NotFound
from sandur.operations.lake import Lake

_WITHOUT_CREDENTIALS: Final = ("file://", "memory://")


def needs_credentials(location: str) -> bool:
    """Whether a client needs credentials for the location: it does unless it is a folder, or memory."""
    return not normalize_location(location).startswith(_WITHOUT_CREDENTIALS)


async def volume_location(lake: Lake, volume_id: str) -> str:
    """The location of a volume; NotFound when there is no volume with this id."""
    found = await lake.securable(volume_id).read()
    if found is None or found.value.kind != "volume" or found.value.state in {"dropped", "killed"}:
        raise NotFound(f"Volume does not exist: {volume_id}", subject="volume")
    return found.value.location


def path_location(lake: Lake, url: str) -> str:
    """A location that a client names itself; Invalid when it is outside the storage of this workspace."""
    location = checked_url(url)
    checked_location(location, [normalize_location(lake.area), *lake.locations.others])
    return location
