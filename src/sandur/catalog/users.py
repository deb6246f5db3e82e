"""Users and their SCIM resources."""

import hashlib
import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.records import LastChange, Record
from sandur.errors import Invalid, NotFound, Unsupported

_EMAIL: Final = re.compile(r"[^\s@]{1,200}@[^\s@]{1,200}\Z")
_FILTER: Final = re.compile(
    r'\s*(userName|emails\.value|displayName|externalId|id)\s+eq\s+"([^"]*)"\s*\Z', re.IGNORECASE
)


class Email(msgspec.Struct, frozen=True, omit_defaults=True):
    value: str
    primary: bool | None = None


class Photo(msgspec.Struct, frozen=True, omit_defaults=True):
    value: str


class Meta(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    created: str | None = None
    last_modified: str | None = None
    resource_type: str | None = None


class User(Record, frozen=True, kw_only=True):
    """A user. The id is derived from the address, so that an address has one user. A drop swaps it to `dropped`."""

    id: str
    email: str
    state: Literal["live", "dropped"] = "live"
    display_name: str = ""
    external_id: str | None = None
    active: bool = True
    photo: str | None = None
    change: LastChange | None = None
    created_ms: int = 0
    changed_ms: int = 0


class UserResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A user in requests and answers; clients send any part of it."""

    id: str | None = None
    display_name: str | None = None
    external_id: str | None = None
    emails: tuple[Email, ...] | None = None
    active: bool | None = None
    meta: Meta | None = None
    photos: tuple[Photo, ...] | None = None


def user_id(email: str) -> str:
    """The id of the user with that address, in any case."""
    text = hashlib.sha256(email.strip().lower().encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def user_not_found(name: str) -> NotFound:
    return NotFound(f"User does not exist: {name}", subject="user")


def primary_email(resource: UserResource) -> str:
    """The address that identifies a user; raises Invalid if there is none."""
    emails = resource.emails or ()
    chosen = next((email for email in emails if email.primary), emails[0] if emails else None)
    if chosen is None or not _EMAIL.match(chosen.value):
        raise Invalid("Invalid user: it needs an email address")
    return chosen.value


def resource_of(user: User, created: str, changed: str) -> UserResource:
    return UserResource(
        id=user.id,
        display_name=user.display_name,
        external_id=user.external_id,
        emails=(Email(user.email, primary=True),),
        active=user.active,
        meta=Meta(created, changed, "User"),
        photos=(Photo(user.photo),) if user.photo else None,
    )


def apply_resource(user: User, resource: UserResource) -> User:
    """The user with the attributes of the resource; raises Invalid for another address, which identifies the user."""
    if resource.emails and user_id(primary_email(resource)) != user.id:
        raise Invalid(f"User {user.id}: its address {user.email} cannot be changed")
    return msgspec.structs.replace(
        user,
        display_name=resource.display_name if resource.display_name is not None else user.display_name,
        external_id=resource.external_id if resource.external_id is not None else user.external_id,
        active=resource.active if resource.active is not None else user.active,
        photo=resource.photos[0].value if resource.photos else user.photo,
    )


def filter_users(users: Sequence[User], condition: str | None) -> Sequence[User]:
    """The users that a filter selects; raises Unsupported for anything but equality."""
    if not condition:
        return users
    found = _FILTER.match(condition)
    if found is None:
        raise Unsupported(f'Filter {condition[:100]!r}: only `attribute eq "value"` is supported')
    attribute, value = found[1].lower(), found[2]
    return [user for user in users if _value(user, attribute).lower() == value.lower()]


def _value(user: User, attribute: str) -> str:
    known = {"displayname": user.display_name, "externalid": user.external_id or "", "id": user.id}
    return known.get(attribute, user.email)
