"""Storage credentials and external locations, in one record, because each is checked against the others."""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.credentials.profiles import Cloud
from sandur.catalog.credentials.storage_access import StorageFields, StorageRequest, check_scheme
from sandur.catalog.events import CatalogEvent
from sandur.catalog.identifiers import checked_new_name
from sandur.catalog.infos import Comment, EntityInfo, entity_fields
from sandur.catalog.locations import check_length, is_within, normalize_location
from sandur.catalog.record_versions import Record
from sandur.catalog.records import LastChange, RegistryEntry
from sandur.errors import AlreadyExists, Invalid, NotFound, Subject

ENTRIES_MAX: Final = 5_000
"""The most credentials, and the most locations, of a workspace: they share one record."""

# Services other than AWS have roles without an account: arn:aws:iam::role/NAME.
_ARN: Final = re.compile(r"arn:[a-z0-9-]{1,20}:iam::(?:\d{1,12}:)?role/[\w+=,.@/-]{1,512}\Z", re.ASCII)
_SCHEMES: Final = ("file", "s3", "gs", "abfs")

E = TypeVar("E", "Credential", "ExternalLocation")


class AwsIamRole(msgspec.Struct, frozen=True, omit_defaults=True):
    """A role of AWS. The server chooses the external id, against the confused deputy problem."""

    role_arn: str
    external_id: str = ""


class Credential(RegistryEntry, frozen=True, kw_only=True):
    aws_iam_role: AwsIamRole | None = None
    storage: StorageFields | None = None

    @property
    def cloud(self) -> Cloud | None:
        """The cloud that the credential is for; None if it does not say one."""
        if self.aws_iam_role:
            return "s3"
        return self.storage.cloud if self.storage else None


class ExternalLocation(RegistryEntry, frozen=True, kw_only=True):
    url: str
    credential_id: str


class StorageRegistry(Record, frozen=True, kw_only=True):
    """All credentials and locations by name, in one record: no locations overlap.

    A credential that a location uses can only be dropped by force. The location then keeps the id of a missing one.
    """

    credentials: dict[str, Credential] = msgspec.field(default_factory=dict)
    locations: dict[str, ExternalLocation] = msgspec.field(default_factory=dict)
    change: LastChange | None = None
    last_event: CatalogEvent | None = None


class CredentialUpdate(msgspec.Struct, frozen=True):
    """A request to change a credential. Absent fields, and an empty name, keep the current value.

    `storage` replaces all that the credential said about its storage, the secrets included.
    """

    comment: Comment | None = None
    owner: str | None = None
    aws_iam_role: AwsIamRole | None = None
    new_name: str | None = None
    storage: StorageRequest | None = None


class LocationUpdate(msgspec.Struct, frozen=True):
    """A request to change an external location. Absent fields, and empty names and urls, keep the current value."""

    url: str | None = None
    credential_name: str | None = None
    comment: Comment | None = None
    owner: str | None = None
    new_name: str | None = None


class CredentialInfo(EntityInfo, frozen=True, kw_only=True):
    full_name: str
    id: str
    purpose: Literal["STORAGE"]
    aws_iam_role: AwsIamRole | None = None
    storage: StorageFields | None = None


class ExternalLocationInfo(EntityInfo, frozen=True, kw_only=True):
    id: str
    url: str
    credential_name: str | None = None
    credential_id: str


def credential_info(credential: Credential) -> CredentialInfo:
    """The info of a credential, without secrets. A role stored without an external id has the id of its credential."""
    role, storage = credential.aws_iam_role, credential.storage
    return CredentialInfo(
        full_name=credential.name,
        id=credential.id,
        purpose="STORAGE",
        aws_iam_role=role and replace(role, external_id=role.external_id or credential.id),
        storage=storage and replace(storage, sealed=""),
        **entity_fields(credential.name, credential),
    )


def location_info(registry: StorageRegistry, location: ExternalLocation) -> ExternalLocationInfo:
    """The info of a location; without a `credential_name` if its credential was dropped by force."""
    names = {credential.id: credential.name for credential in registry.credentials.values()}
    return ExternalLocationInfo(
        id=location.id,
        url=location.url,
        credential_name=names.get(location.credential_id),
        credential_id=location.credential_id,
        **entity_fields(location.name, location),
    )


def checked_role(role: AwsIamRole) -> AwsIamRole:
    if not _ARN.match(role.role_arn):
        raise Invalid(f"Invalid role_arn {role.role_arn[:200]!r}: expected arn:aws:iam::<account>:role/<name>")
    return role


def checked_url(url: str) -> str:
    """The normalized url; raises Invalid for an unsupported scheme, and for a url that names a whole store."""
    check_length("url", url)
    plain = normalize_location(url)
    scheme, _, path = plain.partition("://")
    if scheme not in _SCHEMES or not path.strip("/") or not plain.isprintable():
        raise Invalid(f"Invalid url {url[:200]!r}: expected one of {', '.join(f'{known}://' for known in _SCHEMES)}")
    if any(segment in {"", ".", ".."} for segment in path.strip("/").split("/")):
        raise Invalid(f"Invalid url {url[:200]!r}: it contains an empty segment or dots")
    return plain


def with_credential(
    registry: StorageRegistry, credential: Credential, *, replaces: str | None = None
) -> StorageRegistry:
    """The registry with a new or changed credential; raises AlreadyExists if its name is taken by another one.

    Raises Invalid if it is for two clouds, or if a location that uses it is in another cloud.
    """
    if credential.aws_iam_role and credential.storage and credential.storage.cloud in {"azure", "gcs"}:
        raise Invalid(f"Credential {credential.name} is for {credential.storage.cloud}: it cannot have aws_iam_role")
    for location in registry.locations.values():
        if location.credential_id == credential.id:
            check_scheme(credential.name, credential.cloud, location.url)
    return replace(registry, credentials=_with_entry(registry.credentials, credential, "credential", replaces))


def with_location(
    registry: StorageRegistry, location: ExternalLocation, *, replaces: str | None = None
) -> StorageRegistry:
    """The registry with a new or changed location; Invalid if it overlaps another, or is in another cloud."""
    locations = _with_entry(registry.locations, location, "external location", replaces)
    if credential := credential_of(registry, location):
        check_scheme(credential.name, credential.cloud, location.url)
    for other in registry.locations.values():
        if other.id != location.id and (is_within(other.url, location.url) or is_within(location.url, other.url)):
            raise Invalid(
                f"External location {location.name}: {location.url} overlaps {other.url} of {other.name}",
                public_text=f"External location {location.name}: {location.url} overlaps another external location",
            )
    return replace(registry, locations=locations)


def credential_named(registry: StorageRegistry | None, name: str) -> Credential:
    found = registry.credentials.get(name) if registry else None
    if found is None:
        raise credential_not_found(name)
    return found


def credential_not_found(name: str) -> NotFound:
    return NotFound(f"Credential does not exist: {name}", subject="credential")


def credential_of(registry: StorageRegistry, location: ExternalLocation) -> Credential | None:
    """The credential of a location; None if it was dropped by force."""
    return next((one for one in registry.credentials.values() if one.id == location.credential_id), None)


def without_secrets(registry: StorageRegistry) -> StorageRegistry:
    """The registry as a replay needs it: answers contain no secrets, not even sealed ones."""
    return replace(
        registry,
        credentials={
            name: replace(one, storage=one.storage and replace(one.storage, sealed=""))
            for name, one in registry.credentials.items()
        },
    )


def location_named(registry: StorageRegistry | None, name: str) -> ExternalLocation:
    found = registry.locations.get(name) if registry else None
    if found is None:
        raise location_not_found(name)
    return found


def location_not_found(name: str) -> NotFound:
    return NotFound(f"External location does not exist: {name}", subject="external location")


def location_covering(registry: StorageRegistry, location: str) -> ExternalLocation | None:
    """The external location that the location is at or below; None if it is not covered. They never overlap."""
    plain = normalize_location(location)
    return next((one for one in registry.locations.values() if is_within(plain, one.url)), None)


def without_credential(registry: StorageRegistry, name: str, *, force: bool) -> StorageRegistry:
    """The registry without a credential; raises Invalid if a location uses it, unless `force` is set."""
    credential = credential_named(registry, name)
    needing = [location.name for location in registry.locations.values() if location.credential_id == credential.id]
    if needing and not force:
        raise Invalid(
            f"Credential {name} is still used by the external location {needing[0]}",
            public_text=f"Credential {name} is still used by an external location",
        )
    kept = {other: entry for other, entry in registry.credentials.items() if other != name}
    return replace(registry, credentials=kept)


def without_location(registry: StorageRegistry, name: str) -> StorageRegistry:
    location_named(registry, name)
    return replace(registry, locations={other: entry for other, entry in registry.locations.items() if other != name})


def _with_entry(entries: Mapping[str, E], entry: E, what: Subject, replaces: str | None) -> dict[str, E]:
    if entry.name != replaces:
        checked_new_name(what, entry.name)
        if entry.name in entries:
            raise AlreadyExists(f"{what.capitalize()} already exists: {entry.name}", subject=what)
        if len(entries) >= ENTRIES_MAX:
            raise Invalid(f"{what.capitalize()} {entry.name}: there are already {ENTRIES_MAX}, which is the limit")
    return {**{name: other for name, other in entries.items() if name != replaces}, entry.name: entry}
