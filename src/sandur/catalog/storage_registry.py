"""Storage credentials and external locations, in one record, because each is checked against the others."""

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import checked_new_name
from sandur.catalog.infos import EntityInfo
from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import LastChange, Record
from sandur.errors import AlreadyExists, Invalid, NotEmpty, NotFound, Subject

ENTRIES_MAX: Final = 5_000
"""The most credentials, and the most locations, of a workspace: they share one record."""

_ARN: Final = re.compile(r"arn:[a-z0-9-]{1,20}:iam::\d{12}:role/[\w+=,.@/-]{1,512}\Z", re.ASCII)
_SCHEMES: Final = ("file", "s3", "gs", "abfs")

E = TypeVar("E", "Credential", "ExternalLocation")


class AwsIamRole(msgspec.Struct, frozen=True):
    role_arn: str


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    id: str
    comment: str | None = None
    owner: str = ""
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0
    changed_by: str = ""


class Credential(_Entry, frozen=True, kw_only=True):
    aws_iam_role: AwsIamRole | None = None


class ExternalLocation(_Entry, frozen=True, kw_only=True):
    url: str
    credential_id: str


class StorageRegistry(Record, frozen=True, kw_only=True):
    """All credentials and locations by name, in one record: no locations overlap, and no used credential is missing."""

    credentials: dict[str, Credential] = msgspec.field(default_factory=dict)
    locations: dict[str, ExternalLocation] = msgspec.field(default_factory=dict)
    change: LastChange | None = None


class CredentialInfo(EntityInfo, frozen=True, kw_only=True):
    full_name: str
    id: str
    purpose: Literal["STORAGE"]
    aws_iam_role: AwsIamRole | None = None


class ExternalLocationInfo(EntityInfo, frozen=True, kw_only=True):
    id: str
    url: str
    credential_name: str
    credential_id: str


def credential_info(credential: Credential) -> CredentialInfo:
    return CredentialInfo(
        name=credential.name,
        full_name=credential.name,
        id=credential.id,
        purpose="STORAGE",
        created_at=credential.created_ms,
        updated_at=credential.changed_ms,
        aws_iam_role=credential.aws_iam_role,
        comment=credential.comment,
        owner=credential.owner or None,
        created_by=credential.created_by or None,
        updated_by=credential.changed_by or None,
    )


def location_info(registry: StorageRegistry, location: ExternalLocation) -> ExternalLocationInfo:
    names = {credential.id: credential.name for credential in registry.credentials.values()}
    return ExternalLocationInfo(
        name=location.name,
        id=location.id,
        url=location.url,
        credential_name=names.get(location.credential_id, ""),
        credential_id=location.credential_id,
        created_at=location.created_ms,
        updated_at=location.changed_ms,
        comment=location.comment,
        owner=location.owner or None,
        created_by=location.created_by or None,
        updated_by=location.changed_by or None,
    )


def checked_role(role: AwsIamRole) -> AwsIamRole:
    if not _ARN.match(role.role_arn):
        raise Invalid(f"Invalid role_arn {role.role_arn[:200]!r}: expected arn:aws:iam::<account>:role/<name>")
    return role


def checked_url(url: str) -> str:
    """The normalized url; raises Invalid for an unsupported scheme, and for a url that names a whole store."""
    plain = normalize_location(url)
    scheme, _, path = plain.partition("://")
    if scheme not in _SCHEMES or not path.strip("/") or not plain.isprintable():
        raise Invalid(f"Invalid url {url[:200]!r}: expected one of {', '.join(f'{known}://' for known in _SCHEMES)}")
    if any(segment in {"", ".", ".."} for segment in path.strip("/").split("/")):
        raise Invalid(f"Invalid url {url[:200]!r}: it contains an empty segment or dots")
    return plain


def with_credential(registry: StorageRegistry, credential: Credential) -> StorageRegistry:
    """The registry with a new credential; raises AlreadyExists if the name is taken."""
    checked_new_name("credential", credential.name)
    _check_free(registry.credentials, credential.name, "credential")
    return replace(registry, credentials={**registry.credentials, credential.name: credential})


def with_location(registry: StorageRegistry, location: ExternalLocation) -> StorageRegistry:
    """The registry with a new location; raises Invalid if it overlaps another one."""
    checked_new_name("external location", location.name)
    _check_free(registry.locations, location.name, "external location")
    _check_apart(registry, location)
    return replace(registry, locations={**registry.locations, location.name: location})


def credential_named(registry: StorageRegistry | None, name: str) -> Credential:
    found = registry.credentials.get(name) if registry else None
    if found is None:
        raise NotFound(f"Credential does not exist: {name}", subject="credential")
    return found


def location_named(registry: StorageRegistry | None, name: str) -> ExternalLocation:
    found = registry.locations.get(name) if registry else None
    if found is None:
        raise NotFound(f"External location does not exist: {name}", subject="external location")
    return found


def with_changed_credential(registry: StorageRegistry, name: str, changed: Credential) -> StorageRegistry:
    """The registry with a changed credential, which may have a new name."""
    credentials = _renamed(registry.credentials, name, changed, "credential", lambda entry: entry.name)
    return replace(registry, credentials=credentials)


def with_changed_location(registry: StorageRegistry, name: str, changed: ExternalLocation) -> StorageRegistry:
    """The registry with a changed location, which may have a new name; raises Invalid if it overlaps another one."""
    _check_apart(registry, changed)
    locations = _renamed(registry.locations, name, changed, "external location", lambda entry: entry.name)
    return replace(registry, locations=locations)


def without_credential(registry: StorageRegistry, name: str, *, force: bool) -> StorageRegistry:
    """The registry without a credential; raises NotEmpty if a location uses it, unless `force` drops those too."""
    credential = credential_named(registry, name)
    needing = [location.name for location in registry.locations.values() if location.credential_id == credential.id]
    if needing and not force:
        raise NotEmpty(f"Credential {name} is in use by the external location {needing[0]}")
    return replace(
        registry,
        credentials={other: entry for other, entry in registry.credentials.items() if other != name},
        locations={other: entry for other, entry in registry.locations.items() if other not in needing},
    )


def without_location(registry: StorageRegistry, name: str) -> StorageRegistry:
    location_named(registry, name)
    return replace(registry, locations={other: entry for other, entry in registry.locations.items() if other != name})


def _check_free(entries: Mapping[str, object], name: str, what: Subject) -> None:
    if name in entries:
        raise AlreadyExists(f"{what.capitalize()} already exists: {name}", subject=what)
    if len(entries) >= ENTRIES_MAX:
        raise Invalid(f"{what.capitalize()} {name}: there are already {ENTRIES_MAX}, which is the limit")


def _check_apart(registry: StorageRegistry, location: ExternalLocation) -> None:
    for other in registry.locations.values():
        if other.id != location.id and (is_within(other.url, location.url) or is_within(location.url, other.url)):
            raise Invalid(f"External location {location.name}: {location.url} overlaps {other.url} of {other.name}")


def _renamed(
    entries: Mapping[str, E], name: str, changed: E, what: Subject, name_of: Callable[[E], str]
) -> dict[str, E]:
    new_name = name_of(changed)
    if new_name != name:
        checked_new_name(what, new_name)
        _check_free(entries, new_name, what)
    return {**{other: entry for other, entry in entries.items() if other != name}, new_name: changed}
