"""What confines a credential on Google Cloud Storage and on Azure: access boundaries and directories."""

import re
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.credentials.access_policies import access_scope
from sandur.catalog.credentials.profiles import AccessScope
from sandur.catalog.locations import canonical_address
from sandur.errors import Unsupported

RULES_MAX: Final = 10
BOUNDARY_CHARS_MAX: Final = 2_048
"""Limits of Google's Security Token Service for one access boundary."""

_READ_ROLE: Final = "inRole:roles/storage.objectViewer"
_WRITE_ROLE: Final = "inRole:roles/storage.objectAdmin"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_CONTAINER: Final = re.compile(r"(?=.{3,63}\Z)[a-z0-9](?:-?[a-z0-9])*")
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
# They end a string of the Common Expression Language, or change what it contains (CVE-2026-42811).
_QUOTES: Final = frozenset("'\"`\\")


class Directory(NamedTuple):
    """A directory in a container of Azure; `depth` is the number of its segments."""

    container: str
    path: str

    @property
    def depth(self) -> int:
        return len(self.path.split("/"))


def access_boundary(scope: AccessScope) -> str:
    """The credential access boundary of a downscoped token, as JSON: one rule for each location.

    Raises Unsupported or Invalid, with the reason, if no boundary can confine a token to these locations.
    """
    places = [_bucket_and_folder(location) for location in _locations(scope)]
    if len(places) > RULES_MAX:
        raise Unsupported(f"No credential for {len(places)} locations: Google allows {RULES_MAX} in one token")
    role = _WRITE_ROLE if scope.writes else _READ_ROLE
    rules = [_rule(bucket, folder, role) for bucket, folder in places]
    boundary = msgspec.json.encode({"accessBoundary": {"accessBoundaryRules": rules}}).decode()
    if len(boundary) > BOUNDARY_CHARS_MAX:
        problem = f"their access boundary has {len(boundary)} characters, and Google allows {BOUNDARY_CHARS_MAX}"
        raise Unsupported(f"No credential for {len(places)} locations: {problem}; use shorter or fewer locations")
    return boundary


def _rule(bucket: str, folder: str, role: str) -> dict[str, object]:
    # Both ends have a slash: without it, a token for `orders` would open `orders-archive` as well.
    objects = f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{folder}/')"
    listings = f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{folder}/')"
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [role],
        "availabilityCondition": {"expression": f"{objects} || {listings}"},
    }


def _bucket_and_folder(location: str) -> tuple[str, str]:
    scheme, _, rest = _checked(location).partition("://")
    bucket, _, folder = rest.partition("/")
    if scheme != "gs" or not _BUCKET.fullmatch(bucket):
        raise _refusal(location, "it is not in a bucket of Google Cloud Storage")
    return bucket, folder


def azure_directory(scope: AccessScope, account: str) -> Directory:
    """The one directory that a shared access signature can be for.

    Raises Unsupported or Invalid, with the reason, if there are several, or if it is in another account.
    """
    if not _ACCOUNT.fullmatch(account):
        raise Unsupported("No credential: the name of the storage account is missing or invalid (azure.account_name)")
    locations = _locations(scope)
    if len(locations) > 1:
        problem = "a shared access signature of Azure is for one directory, and clients use one for each account"
        raise Unsupported(f"No credential for {len(locations)} locations: {problem}; put them into one folder")
    [location] = locations
    scheme, _, rest = _checked(location).partition("://")
    host, _, path = rest.partition("/")
    container, _, named = host.partition("@")
    if scheme not in {"az", "abfs", "azure"} or not _CONTAINER.fullmatch(container):
        raise _refusal(location, "it is not in a container of Azure")
    if named and named.partition(".")[0].lower() != account:
        raise _refusal(location, f"it is not in the storage account {account}")
    return Directory(container, path)


def _locations(scope: AccessScope) -> tuple[str, ...]:
    """The locations that are not below another one, each once."""
    locations = access_scope(scope.locations, writes=scope.writes).locations
    if not locations:
        raise Unsupported("No credential without a location")
    return locations


def _checked(location: str) -> str:
    """The location; Unsupported if it contains syntax of the policies, or is a whole bucket."""
    if not location.isprintable() or _QUOTES.intersection(location):
        raise _refusal(location, "it contains a quote, a backslash or a control character")
    if not canonical_address(location).segments:
        raise _refusal(location, "it would open the whole bucket")
    return location


def _refusal(location: str, problem: str) -> Unsupported:
    return Unsupported(f"No credential for {location!r}: {problem}")
