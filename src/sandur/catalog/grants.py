"""Grants: which principal has which privileges on a securable."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from sandur.catalog.privileges import UNITY_PRIVILEGES, UnityPrivilege
from sandur.catalog.records import LastChange, Record
from sandur.catalog.users import user_not_found
from sandur.errors import Invalid

PRINCIPALS_MAX: Final = 10_000
"""The most principals with privileges on one securable: they share one record."""

_NAME_CHARS_MAX: Final = 255
_ORDER: Final = {privilege: place for place, privilege in enumerate(UNITY_PRIVILEGES)}


class Grants(Record, frozen=True, kw_only=True):
    """The privileges on one securable by principal. They belong to its id: a later securable of that name has none."""

    assignments: dict[str, tuple[UnityPrivilege, ...]] = msgspec.field(default_factory=dict)
    change: LastChange | None = None


class PermissionsChange(msgspec.Struct, frozen=True):
    principal: str
    add: tuple[UnityPrivilege, ...] | None = None
    remove: tuple[UnityPrivilege, ...] | None = None


def apply_permission_changes(
    grants: Grants | None, changes: Sequence[PermissionsChange], known: Collection[str]
) -> Grants:
    """The grants after the changes, in their order; raises Invalid for a change that contradicts itself.

    Raises NotFound for a principal that is not known, unless it only loses privileges that it has.
    """
    before = grants or Grants()
    assignments = dict(before.assignments)
    for change in changes:
        added, removed = set(change.add or ()), set(change.remove or ())
        if not change.principal or len(change.principal) > _NAME_CHARS_MAX:
            raise Invalid(f"Invalid principal {change.principal[:_NAME_CHARS_MAX]!r}: expected 1 to 255 characters")
        if both := sorted(added & removed):
            raise Invalid(f"Principal {change.principal}: {', '.join(both)} cannot be both added and removed")
        if change.principal not in known and (added or change.principal not in assignments):
            raise user_not_found(change.principal)
        left = (set(assignments.get(change.principal, ())) | added) - removed
        if left:
            assignments[change.principal] = tuple(sorted(left, key=lambda privilege: _ORDER[privilege]))
        else:
            assignments.pop(change.principal, None)
    if len(assignments) > PRINCIPALS_MAX:
        raise Invalid(f"Too many principals: {len(assignments)}, at most {PRINCIPALS_MAX} are allowed")
    if assignments == before.assignments:
        return before
    return msgspec.structs.replace(before, assignments=assignments)


def permissions_list(grants: Grants | None, principal: str | None = None) -> Mapping[str, object]:
    """The grants of one principal, or of all, sorted by principal."""
    assignments = sorted(grants.assignments.items()) if grants else ()
    listed = [(name, privileges) for name, privileges in assignments if principal in {None, "", name}]
    return {"privilege_assignments": [{"principal": name, "privileges": held} for name, held in listed]}
