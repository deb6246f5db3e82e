"""What no client may set: properties that belong to the catalog, and locations outside of its storage."""

from collections.abc import Iterable, Mapping
from typing import Final

from sandur.catalog.locations import checked_location, normalized
from sandur.errors import Invalid

RESERVED_PREFIX: Final = "sandur."

PATH_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def check_property_keys(keys: Iterable[str]) -> None:
    """Refuse keys that begin with `sandur.`, in whatever case."""
    reserved = sorted(key for key in keys if key.lower().startswith(RESERVED_PREFIX))
    if reserved:
        raise Invalid(f"Invalid properties: {', '.join(reserved)} belong to the catalog (sandur.*)")


def check_paths(properties: Mapping[str, str], roots: Iterable[str]) -> None:
    """Refuse paths that would send a table's files out of its storage."""
    allowed = tuple(roots)
    for key in PATH_PROPERTIES:
        if path := properties.get(key):
            checked_location(path, allowed)


def check_moved_location(location: str, current: str | None, roots: Iterable[str]) -> None:
    """A location may be set to what it is already, or to a place the policy allows."""
    if current is None or normalized(location) != normalized(current):
        checked_location(location, roots)
