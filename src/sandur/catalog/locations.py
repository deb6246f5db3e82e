"""Locations of files: their normal form, the form in which places are compared, where a client may name one."""

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from sandur.catalog.identifiers import Identifier
from sandur.errors import Invalid

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):(.*)$", re.DOTALL)
_SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
_SCHEMES: Final = (
    {name: name for name in ("file", "s3", "gs", "abfs", "az", "memory")} | _SAME_SCHEMES | {"azure": "az"}
)
_AZURE_ACCOUNT: Final = re.compile(r"^([a-z0-9]+)((?:\.z\d+)?)\.(?:dfs|blob)\.(.+)$")
_WILDCARDS: Final = frozenset("*?[]{}\\")
# Characters that end a URL, or that the policies of clouds and the shells of users read as syntax.
_REFUSED: Final = _WILDCARDS | frozenset("#;$'\"`<>|")
# The folder of the catalog's own state (see the layout of the store), for any tenant and below any root.
_OWN_FOLDER = re.compile(r"(^|/)tenant=[^/]+/workspace=[^/]+/_catalog(/|$)")
_UNSAFE_IN_FOLDERS = re.compile(r"[^A-Za-z0-9_.-]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

RESERVED_PREFIX: Final = "sandur."

LOCATION_CHARS_MAX: Final = 4_096
"""No bucket and no file system has a longer path: keys have up to 1,024 bytes, paths up to 4,096."""

SEGMENTS_MAX: Final = 64
DECODES_MAX: Final = 8
ADDRESSES_CACHED_MAX: Final = 4_096
FOLDER_CHARS_MAX: Final = 100

MANAGED_FOLDER: Final = "__unitystorage"
"""The places that the catalog generates are below a folder of this name (P1): no client may name a place there."""

PATH_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def normalize_location(location: str) -> str:
    """The location with one spelling of its scheme: `file:///…` or `scheme://host/…` without a trailing slash.

    Nothing is decoded, because engines use the text of a location unchanged. `canonical_address` gives the form in
    which the places of two tables are compared.
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


class Address(NamedTuple):
    """A place in the one form in which places are compared. Two spellings of one place have equal addresses."""

    scheme: str
    host: str
    segments: tuple[str, ...]

    def is_within(self, other: "Address") -> bool:
        """Whether this address is the other one or below it."""
        return (self.scheme, self.host, self.segments[: len(other.segments)]) == other

    def overlaps(self, other: "Address") -> bool:
        return self.is_within(other) or other.is_within(self)

    @property
    def above(self) -> "Sequence[Address]":
        """The addresses above this one, the whole bucket first."""
        return [self._replace(segments=self.segments[:depth]) for depth in range(len(self.segments))]

    @property
    def is_managed(self) -> bool:
        """Whether it lies in a folder that only the catalog gives out (P1)."""
        return MANAGED_FOLDER in self.segments

    @property
    def generated_for(self) -> str | None:
        """The uuid of the table that a generated place was made for (P1); None if it is not a generated place."""
        if self.segments[-3:-2] != (MANAGED_FOLDER,) or self.segments.index(MANAGED_FOLDER) != len(self.segments) - 3:
            return None
        found = _UUID.search(self.segments[-1])
        return found[0] if found else None

    @property
    def generated_place(self) -> "Address | None":
        """The generated place that this address is, or lies in; None for any other address."""
        end = self.segments.index(MANAGED_FOLDER) + 3 if self.is_managed else len(self.segments) + 1
        return self._replace(segments=self.segments[:end]) if end <= len(self.segments) else None

    @property
    def root(self) -> "Address":
        """The root that a generated place lies below."""
        return self._replace(segments=self.segments[:-3])

    def __str__(self) -> str:
        return "/".join((f"{self.scheme}://{self.host}", *self.segments))


@functools.lru_cache(ADDRESSES_CACHED_MAX)
def canonical_address(location: str) -> Address:
    """The address of a location; raises Invalid if some engine could read the location as another place.

    Percent-encoding is removed until nothing changes, because engines differ in how often they decode. A table keeps
    the text of its location.
    """
    check_length("location", location)
    match = _SCHEME.match(location)
    scheme, rest = (_SCHEMES.get(match[1].lower()), match[2]) if match else ("file", location)
    if scheme is None:
        raise _invalid(location, f"its scheme is not one of {', '.join(sorted(set(_SCHEMES.values())))}")
    if scheme == "file":
        host, path = "", rest.removeprefix("//localhost") if rest.startswith("//localhost/") else rest
        if re.match("//[^/]", path):
            raise _invalid(location, "a file address must not name a host")
    else:
        host, _, path = rest.removeprefix("//").partition("/")
        scheme, host = _host(location, scheme, host if rest.startswith("//") else "")
    path = unicodedata.normalize("NFC", _decoded(location, path)).strip("/")
    segments = tuple(path.split("/")) if path else ()
    for segment in segments:
        if segment in {"", ".", ".."}:
            raise _invalid(location, f"it contains the segment {segment!r}")
        if not segment.isprintable():
            raise _invalid(location, "it contains a character that is not printable")
        if found := _WILDCARDS.union("#").intersection(segment):
            raise _invalid(location, f"it contains {' '.join(sorted(found))}")
    if len(segments) > SEGMENTS_MAX:
        raise _invalid(location, f"it has {len(segments)} segments, at most {SEGMENTS_MAX} are allowed")
    return Address(scheme, host, segments)


def address_around(location: str) -> Address:
    """The address of a file, or of the innermost folder of it that has one: the names of files may contain more than
    those of places. Invalid if there is none.
    """
    while True:
        try:
            return canonical_address(location)
        except Invalid:
            folder, slash, _ = location.rpartition("/")
            if not slash or folder.endswith((":", "/")) or len(location) > LOCATION_CHARS_MAX:
                raise
            location = folder


def _host(location: str, scheme: str, text: str) -> tuple[str, str]:
    """The scheme and the host, without what only says how to reach it. Azure has two spellings with and without `@`."""
    host = text.lower().rstrip(".")
    if scheme in {"abfs", "az"}:
        container, at, account = host.partition("@")
        if at and container and account and not set(account) & set("@:"):
            found = _AZURE_ACCOUNT.match(account)
            return "abfs", f"{container}@{found[1]}{found[2]}.{found[3]}" if found else host
        scheme = "az"
    if not host or not host.isprintable() or set(host) & (_REFUSED | set("@:%")):
        raise _invalid(location, f"{text!r} is not the name of a bucket; no user, no port")
    return scheme, host


def _decoded(location: str, path: str) -> str:
    for _ in range(DECODES_MAX):
        try:
            once = unquote(path, errors="strict")
        except UnicodeDecodeError:
            raise _invalid(location, "its percent-encoding is not UTF-8") from None
        if once == path:
            return path
        path = once
    raise _invalid(location, "it is percent-encoded many times")


def _invalid(location: str, problem: str) -> Invalid:
    return Invalid(f"Invalid location {location}: {problem}")


class Realm(NamedTuple):
    """Where the places of one catalog may lie.

    `store` is the catalog's own store, `home` the folder in it that belongs to the catalog. `roots` are the catalog's
    root and the roots that the settings allow, normalized or not.
    """

    store: Address
    home: Address
    roots: tuple[str, ...]


def named_address(
    location: str, realm: Realm, *, may_be_root: bool = False, generated_for: str | None = None
) -> Address:
    """P1: the address of a place that a client names; Invalid if it may not be there.

    It is below one of the roots, or is one of them if `may_be_root`. It does not touch the folders that a catalog gives
    out, unless it is exactly a place that another deployment generated for the uuid `generated_for`. In the catalog's
    own store it is in the folder of its own catalog.
    """
    is_generated = generated_for is not None and canonical_address(location).generated_for == generated_for.lower()
    address = _checked_characters(location, may_be_managed=is_generated)
    if not (may_be_root and normalize_location(location) in map(normalize_location, realm.roots)):
        checked_location(location, map(normalize_location, realm.roots))
    check_own_store(location, address, realm)
    return address


def external_address(location: str, store: Address, area: Address) -> Address:
    """P1: the address of an external location; in the catalog's own store it is in the area of its workspace."""
    address = _checked_characters(location)
    check_beside_store(location, address, store, area)
    return address


def check_beside_store(location: str, address: Address, store: Address, area: Address) -> None:
    """P1: raise Invalid for a place in or around the catalog's own store, except in the area of its workspace."""
    if store.is_within(address) or (address.is_within(store) and not address.is_within(area)):
        raise _invalid(location, "it is in or around the store of the catalog")


def _checked_characters(location: str, *, may_be_managed: bool = False) -> Address:
    """The address of a place that a client names; Invalid for odd characters and for managed folders."""
    address = canonical_address(location)
    if found := _REFUSED.intersection("".join(address.segments)):
        raise _invalid(location, f"it contains {' '.join(sorted(found))}")
    if address.is_managed and not may_be_managed:
        raise _invalid(location, f"{MANAGED_FOLDER} is reserved for managed tables")
    return address


def check_own_store(location: str, address: Address, realm: Realm) -> None:
    """P1: raise Invalid for a place in or around the catalog's own store, except in the folder of its own catalog."""
    if realm.store.is_within(address):
        raise _invalid(location, "it holds the store of the catalog")
    if address.is_within(realm.store) and (address == realm.home or not address.is_within(realm.home)):
        raise _invalid(location, "it is in the store of the catalog, but not below the folder of its own catalog")


def outermost(addresses: Iterable[Address]) -> Sequence[Address]:
    """The addresses that are not within another one, each once, in a stable order."""
    found: list[Address] = []
    for address in sorted(set(addresses), key=lambda one: (len(one.segments), one)):
        if not any(address.is_within(outer) for outer in found):
            found.append(address)
    return found


def generated_location(root: str, identifier: Identifier, uuid: str) -> str:
    """P1: the place that the catalog gives to a table, view, volume or model.

    It is always three segments below a root, whatever the depth of the namespace. So two generated places overlap only
    if they are equal, and then they have one uuid.
    """
    levels = ".".join(map(folder_name, identifier.levels))[:FOLDER_CHARS_MAX].rstrip(".")
    name = folder_name(identifier.name)[:FOLDER_CHARS_MAX]
    return f"{root.rstrip('/')}/{MANAGED_FOLDER}/{levels}/{name}-{uuid}"


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
    if is_own_folder(path):
        return "it is in the catalog's own folder"
    return None


def is_own_folder(path: str) -> bool:
    """Whether a path is in the folder of the catalog's own state, of any tenant and below any root."""
    return _OWN_FOLDER.search(path) is not None


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
