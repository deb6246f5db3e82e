"""Locations of tables: their normal form, the roots that they must be below, and reserved properties."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.errors import Invalid

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):(.*)$", re.DOTALL)
_SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
_WILDCARDS: Final = frozenset("*?[]{}\\")
# The folder of the catalog's own state (see the layout of the store), for any tenant and below any root.
_OWN_FOLDER = re.compile(r"(^|/)tenant=[^/]+/workspace=[^/]+/_catalog(/|$)")
_UNSAFE_IN_FOLDERS = re.compile(r"[^A-Za-z0-9_.-]+")

RESERVED_PREFIX: Final = "sandur."

LOCATION_CHARS_MAX: Final = 4_096
"""No bucket and no file system has a longer path: keys have up to 1,024 bytes, paths up to 4,096."""

MANAGED_FOLDER: Final = "__unitystorage"
"""Everything below this folder belongs to the catalog: no external table or volume may be there."""

PATH_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def normalize_location(location: str) -> str:
    """The normal form in which locations are compared: `file:///…` or `scheme://host/…` without a trailing slash.

    Nothing is decoded, because engines use the text of a location unchanged.
    """
    match = _SCHEME.match(location)
    if match is None:
        scheme, rest = "file", location
    else:
        scheme, rest = match[1].lower(), match[2]
    scheme = _SAME_SCHEMES.get(scheme, scheme)
    if scheme == "file":
        path = rest.removeprefix("//localhost") if rest.startswith("//localhost/") else rest
        return "file:///" + path.strip("/")
    return f"{scheme}://{rest.strip('/')}"


def hadoop_form(location: str) -> str:
    """The location as Hadoop writes it: `file:/…` for any spelling of a folder, otherwise the same text.

    Spark turns `file:///…` into `file:/…` in the paths that it writes, and some of its procedures compare them with the
    table's location as texts.
    """
    plain = normalize_location(location)
    return f"file:/{plain.removeprefix('file:///')}" if plain.startswith("file:///") else location


def spellings(location: str) -> Sequence[str]:
    """The location, then the other texts with the same normal form that a client may have used for it."""
    plain = normalize_location(location)
    scheme, _, path = plain.partition("://")
    others = [f"{name}://{path}" for name, same in _SAME_SCHEMES.items() if same == scheme]
    paths = [f"file:{path}", path] if scheme == "file" else []
    return tuple(dict.fromkeys((location, plain, *others, *paths)))


def is_within(location: str, root: str) -> bool:
    """Whether the location is the root or below it; both are normalized."""
    return location == root or location.startswith(root.rstrip("/") + "/")


def is_same(location: str, other: str) -> bool:
    """Whether two texts are the same location."""
    return normalize_location(location) == normalize_location(other)


def checked_location(location: str, roots: Iterable[str]) -> str:
    """The location itself; raises Invalid unless it is below one of the roots (normalized), without a way out of it."""
    check_length("location", location)
    plain = normalize_location(location)
    if problem := _problem(plain):
        raise Invalid(f"Invalid location {location}: {problem}")
    allowed = tuple(roots)
    if not any(is_within(plain, root) and plain != root for root in allowed):
        raise not_allowed(location, allowed)
    return location


def check_length(what: str, location: str) -> None:
    """Raise Invalid for a location that no storage has."""
    if len(location) > LOCATION_CHARS_MAX:
        text = f"it has {len(location)} characters, at most {LOCATION_CHARS_MAX} are allowed"
        raise Invalid(f"Invalid {what} {location[:100]}…: {text}")


def checked_external_location(location: str, roots: Iterable[str]) -> str:
    """The normalized location of files that a client owns; Invalid outside the roots or in a managed folder."""
    plain = normalize_location(location)
    if MANAGED_FOLDER in plain.split("/"):
        raise Invalid(f"Invalid location {location}: {MANAGED_FOLDER} is reserved for managed tables")
    return checked_location(plain, roots)


def not_allowed(location: str, allowed: Iterable[str]) -> Invalid:
    """The error for a location that is not below any of the allowed roots."""
    return Invalid(
        f"Invalid location {location}: it is not below {' or '.join(allowed)}; to allow it, add it or a folder above "
        "it to the setting allowed_locations, or pass it with --allow-location",
        public_text=f"Invalid location {location}: it is not below a location that this server allows",
    )


def _problem(plain: str) -> str | None:
    path = plain.partition("://")[2]
    if found := _WILDCARDS.intersection(path):
        return f"it contains {' '.join(sorted(found))}"
    if not path.isprintable():
        return "it contains a character that is not printable"
    for segment in path.lstrip("/").split("/"):
        if segment in {"", ".", ".."}:
            return f"it contains the segment {segment!r}"
    if _OWN_FOLDER.search(path):
        return "it is in the catalog's own folder"
    return None


class Occupied(NamedTuple):
    """A location in use, normalized, and the text that names its user in errors."""

    location: str
    user: str


def find_overlap(places: Iterable[str], occupied: Iterable[Occupied]) -> Invalid | None:
    """The error if one of the places is at, below or above a location in use; None if they are free."""
    normalized = {normalize_location(place): place for place in places if place}
    for other in occupied:
        for plain, place in normalized.items():
            if is_within(plain, other.location) or is_within(other.location, plain):
                return Invalid(
                    f"Invalid location {place}: it overlaps {other.user} at {other.location}",
                    public_text=f"Invalid location {place}: it overlaps a location in use",
                )
    return None


def check_free(places: Iterable[str], occupied: Iterable[Occupied]) -> None:
    """Raise Invalid if one of the places is at, below or above a location in use."""
    if error := find_overlap(places, occupied):
        raise error


def folder_name(text: str) -> str:
    """A folder name that every engine supports; it is not unique, so add an id where that matters."""
    return _UNSAFE_IN_FOLDERS.sub("_", text).lstrip(".") or "_"


def check_property_keys(keys: Iterable[str]) -> None:
    """Raise Invalid for keys that begin with `sandur.`, in any case."""
    reserved = sorted(key for key in keys if key.lower().startswith(RESERVED_PREFIX))
    if reserved:
        raise Invalid(f"Invalid properties: {', '.join(reserved)} belong to the catalog (sandur.*)")


def paths_of(properties: Mapping[str, str]) -> Sequence[str]:
    """The paths in the properties of a table or view."""
    return [path for key in PATH_PROPERTIES if (path := properties.get(key))]


def check_paths(properties: Mapping[str, str], roots: Iterable[str], occupied: Iterable[Occupied] = ()) -> None:
    """Raise Invalid for a path property that is outside the roots or in use."""
    allowed, paths = tuple(roots), paths_of(properties)
    for path in paths:
        checked_location(path, allowed)
    check_free(paths, occupied)


def check_moved_location(
    location: str, current: str | None, roots: Iterable[str], occupied: Iterable[Occupied] = ()
) -> None:
    """Raise Invalid for a new location that is outside the roots or in use; the current one is always allowed."""
    if current is None or normalize_location(location) != normalize_location(current):
        checked_location(location, roots)
        check_free((location,), occupied)
