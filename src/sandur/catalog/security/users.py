"""Users and groups as SCIM resources. Stored are principals and groups of the manifest."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.record_versions import Record
from sandur.catalog.records import LastChange
from sandur.catalog.security.manifest import Principal, folded
from sandur.catalog.security.principals import GroupInfo, with_tokens_revoked
from sandur.errors import Invalid, NotFound, Unsupported

_EMAIL: Final = re.compile(r"[^\s@]{1,200}@[^\s@]{1,200}\Z")
_FILTER: Final = re.compile(
    r'\s*(userName|emails\.value|displayName|externalId|id)\s+eq\s+"([^"]*)"\s*\Z', re.IGNORECASE
)

_MEMBER: Final = re.compile(r'members\[value eq "([^"]*)"\]\Z', re.IGNORECASE)


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
    """A user as releases without a manifest stored it, with an id made of its address. A drop swaps it to `dropped`."""

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
    """The address that identifies a user; raises Invalid without one."""
    emails = resource.emails or ()
    chosen = next((email for email in emails if email.primary), emails[0] if emails else None)
    if chosen is None or not _EMAIL.match(chosen.value):
        raise Invalid("Invalid user: it needs an email address")
    return chosen.value


def resource_of(user: Principal, created: str, changed: str) -> UserResource:
    return UserResource(
        id=user.id,
        display_name=user.display_name or user.name,
        external_id=user.external_id,
        emails=(Email(user.name, primary=True),),
        active=not user.disabled,
        meta=Meta(created, changed, "User"),
        photos=(Photo(user.photo),) if user.photo else None,
    )


def apply_resource(user: Principal, resource: UserResource, now_ms: int) -> Principal:
    """The user with the attributes of the resource; raises Invalid for another address, which identifies the user.

    A user who becomes inactive loses all tokens.
    """
    if resource.emails and folded(primary_email(resource)) != folded(user.name):
        raise Invalid(f"User {user.id}: its address {user.name} cannot be changed")
    is_disabled = user.disabled if resource.active is None else not resource.active
    changed = replace(
        user,
        display_name=resource.display_name if resource.display_name is not None else user.display_name,
        external_id=resource.external_id if resource.external_id is not None else user.external_id,
        disabled=is_disabled,
        photo=resource.photos[0].value if resource.photos else user.photo,
    )
    if changed == user:
        return user
    if is_disabled and not user.disabled:
        changed = with_tokens_revoked(changed, now_ms)
    return replace(changed, changed_ms=now_ms)


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    value: str
    display: str | None = None


class GroupResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A group in requests and answers. Members are ids of users, services and other groups."""

    id: str | None = None
    display_name: str | None = None
    external_id: str | None = None
    members: tuple[Member, ...] | None = None
    meta: Meta | None = None


class PatchOperation(msgspec.Struct, frozen=True):
    """One operation of a SCIM patch. `op` may be in any case, and `path` may hold a filter by the id of a member."""

    op: str
    path: str = ""
    value: object = None


def patched_user(operations: Sequence[PatchOperation]) -> UserResource:
    """The attributes that a patch of a user sets; raises Unsupported for any other change."""
    values: dict[str, object] = {}
    for operation in operations:
        given = {operation.path: operation.value} if operation.path else operation.value
        if operation.op.lower() not in {"add", "replace"} or not isinstance(given, dict):
            raise Unsupported(f"Patch operation {operation.op[:20]} {operation.path[:40]!r} of a user is not supported")
        values |= given
    if unknown := sorted(values.keys() - {"active", "displayName", "externalId"}):
        raise Unsupported(f"Patch of {unknown[0][:40]!r} of a user is not supported: use active or displayName")
    if isinstance(active := values.get("active"), str):
        values["active"] = active.lower() == "true"  # Some directories send a text.
    return _converted(values, UserResource)


def patched_members(operations: Sequence[PatchOperation], members: Sequence[str]) -> Sequence[str]:
    """The members of a group after a patch; raises Unsupported for any other change."""
    found = list(dict.fromkeys(members))
    for operation in operations:
        named = _MEMBER.match(operation.path)
        if not named and operation.path.lower() != "members":
            raise Unsupported(f"Patch of {operation.path[:40]!r} of a group is not supported: use members")
        listed = operation.value if isinstance(operation.value, list) else []
        ids = [named[1]] if named and named[1] else [_converted(one, Member).value for one in listed]
        match operation.op.lower():
            case "add":
                found = list(dict.fromkeys([*found, *ids]))
            case "remove":
                found = [one for one in found if ids and one not in ids]
            case "replace" if not named:
                found = list(dict.fromkeys(ids))
            case _:
                raise Unsupported(f"Patch operation {operation.op[:20]!r} of a group is not supported")
    return found


S = TypeVar("S", bound=msgspec.Struct)


def _converted(value: object, kind: type[S]) -> S:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid patch: {error}") from None


def filter_named(users: Sequence[Principal], condition: str | None) -> Sequence[Principal]:
    """The users that a filter selects; raises Unsupported for anything but equality."""

    def value(user: Principal, attribute: str) -> str:
        known = {"displayname": user.display_name or user.name, "externalid": user.external_id or "", "id": user.id}
        return known.get(attribute, user.name)

    return _filtered(users, condition, value)


def filter_group_infos(groups: Sequence[GroupInfo], condition: str | None) -> Sequence[GroupInfo]:
    """The groups that a filter selects, likewise."""

    def value(group: GroupInfo, attribute: str) -> str:
        return {"externalid": group.external_id or "", "id": group.id}.get(attribute, group.name)

    return _filtered(groups, condition, value)


R = TypeVar("R")


def _filtered(resources: Sequence[R], condition: str | None, value: Callable[[R, str], str]) -> Sequence[R]:
    if not condition:
        return resources
    found = _FILTER.match(condition)
    if found is None:
        raise Unsupported(f'Filter {condition[:100]!r}: only `attribute eq "value"` is supported')
    attribute, wanted = found[1].lower(), found[2].lower()
    return [one for one in resources if value(one, attribute).lower() == wanted]
