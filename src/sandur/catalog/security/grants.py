"""Changes of the grants on one securable, and what a caller sees of them: names in requests, ids in the manifest."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from sandur.catalog.security.manifest import EVERYONE, Authority, ObjectGrants
from sandur.catalog.security.privileges import (
    PRIVILEGES,
    UNITY_PRIVILEGES,
    Chain,
    Privilege,
    SecurableType,
    UnityPrivilege,
)
from sandur.catalog.security.users import user_not_found
from sandur.errors import Invalid

SUBJECTS_MAX: Final = 10_000
"""The most subjects with privileges on one securable: they share one segment."""

OWNER: Final = "OWNER"

_CATALOG_PLACE: Final = 1
_NAME_CHARS_MAX: Final = 255
_ORDER: Final[Mapping[str, int]] = {privilege: place for place, privilege in enumerate(PRIVILEGES)}

Assignments = Mapping[str, Sequence[str]]
"""The privileges on one securable by the name of the subject, sorted by name."""


class GrantChange(msgspec.Struct, frozen=True):
    """What one principal, group or role gets and loses. `principal` is its name."""

    principal: str
    add: tuple[Privilege, ...] | None = None
    remove: tuple[Privilege, ...] | None = None


class PermissionsChange(GrantChange, frozen=True):
    """A change in Unity Catalog's API, which knows fewer privileges."""

    principal: str
    add: tuple[UnityPrivilege, ...] | None = None
    remove: tuple[UnityPrivilege, ...] | None = None


def subject_id(authority: Authority, name: str) -> str | None:
    """The id under which grants name a principal, a group, a role or everyone; None if the name is not registered."""
    if name == EVERYONE:
        return EVERYONE
    found = authority.principal_named(name) or authority.group_named(name)
    return found.id if found else None


def subject_name(authority: Authority, id_: str) -> str:
    """The name of a subject. One that is not registered is known by its id alone."""
    found = authority.principal(id_) or authority.groups.get(id_)
    return found.name if found else id_


def check_changes(changes: Sequence[GrantChange]) -> None:
    """Raise Invalid for a change that contradicts itself, or that names no principal."""
    for change in changes:
        if not change.principal or len(change.principal) > _NAME_CHARS_MAX:
            raise Invalid(f"Invalid principal {change.principal[:_NAME_CHARS_MAX]!r}: expected 1 to 255 characters")
        if both := sorted(set(change.add or ()) & set(change.remove or ())):
            raise Invalid(f"Principal {change.principal}: {', '.join(both)} cannot be both added and removed")


def apply_changes(
    granted: ObjectGrants | None,
    chain: Chain,
    changes: Sequence[GrantChange],
    ids: Mapping[str, str | None],
    *,
    record: str,
) -> ObjectGrants | None:
    """The grants on the last link of the chain after the changes, in their order; None if nothing is left.

    `ids` are the ids of the subjects that the changes name, and `record` is the key of the securable's record. Raises
    NotFound for a name that has no id.
    """
    subjects = dict(granted.subjects) if granted else {}
    for change in changes:
        id_ = ids[change.principal]
        if id_ is None:
            raise user_not_found(change.principal)
        left = (set(subjects.get(id_, ())) | set(change.add or ())) - set(change.remove or ())
        if left:
            subjects[id_] = tuple(sorted(left, key=lambda privilege: _ORDER.get(privilege, len(_ORDER))))
        else:
            subjects.pop(id_, None)
    if len(subjects) > SUBJECTS_MAX:
        raise Invalid(f"Too many principals: {len(subjects)}, at most {SUBJECTS_MAX} are allowed")
    if not subjects:
        return None
    # A right inside a container makes that container visible. Every caller sees the metastore.
    above = tuple(link.id for link in chain[1:-1])
    return ObjectGrants(type=chain[-1].type, subjects=subjects, above=above, record=record)


def assignments_of(
    authority: Authority, granted: ObjectGrants | None, only: Collection[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """The privileges by the name of the subject; with `only`, of these subject ids alone."""
    named = {
        subject_name(authority, id_): privileges
        for id_, privileges in (granted.subjects.items() if granted else ())
        if only is None or id_ in only
    }
    return dict(sorted(named.items()))


class EffectivePrivilege(msgspec.Struct, frozen=True):
    """A privilege, with the securable that it was granted on and the principal, group or role that it was granted to.

    Ownership counts as the privilege OWNER.
    """

    privilege: str
    securable_type: SecurableType
    full_name: str
    granted_to: str


def effective_privileges(authority: Authority, chain: Chain, subjects: Collection[str]) -> Sequence[EffectivePrivilege]:
    """What the subjects hold on the last link of the chain, with the origin of each privilege, from the top down."""
    found = []
    for place, link in enumerate(chain):
        full_name = _full_name(chain[: place + 1])
        held = authority.granted(link.id)
        granted = [(subject, one) for subject, ones in (held.subjects.items() if held else ()) for one in ones]
        owned = [(link.owner or chain[0].owner, OWNER)]  # The owner of the metastore owns what has no other owner.
        found += [
            EffectivePrivilege(privilege, link.type, full_name, subject_name(authority, subject))
            for subject, privilege in (*owned, *granted)
            if subject in subjects
        ]
    return found


def _full_name(chain: Chain) -> str:
    """The full name of the last link: that of a catalog stands before the names of what is inside it."""
    last = chain[-1]
    is_inside = len(chain) > _CATALOG_PLACE + 1 and chain[_CATALOG_PLACE].type == "catalog"
    return f"{chain[_CATALOG_PLACE].name}.{last.name}" if is_inside else last.name


def permissions_list(assignments: Assignments, principal: str | None = None) -> Mapping[str, object]:
    """The assignments in the form of Unity Catalog's API, whose clients reject a privilege that they do not know."""
    known = {name: [one for one in held if one in UNITY_PRIVILEGES] for name, held in assignments.items()}
    listed = [(name, held) for name, held in known.items() if held and principal in {None, "", name}]
    return {"privilege_assignments": [{"principal": name, "privileges": held} for name, held in listed]}
