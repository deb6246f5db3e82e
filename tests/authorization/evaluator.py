"""Who may do what, decided slowly and plainly from the table of privileges. It shares no code with the server.

A world is a tree of objects with owners, grants and memberships. `decide` answers for a principal and one or more
checks: allowed, forbidden (the object is visible: 403) or hidden (404).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

METASTORE: Final = "metastore"
EVERYONE: Final = "everyone"


class Kind(StrEnum):
    METASTORE = "metastore"
    CATALOG = "catalog"
    NAMESPACE = "namespace"
    TABLE = "table"
    VIEW = "view"
    VOLUME = "volume"
    FUNCTION = "function"
    MODEL = "model"
    EXTERNAL_LOCATION = "external location"
    CREDENTIAL = "credential"


class Decision(StrEnum):
    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    HIDDEN = "hidden"


@dataclass(frozen=True)
class Securable:
    """An object of the tree. The owner is a principal, a group or a role; None if it has no owner."""

    id: str
    kind: Kind
    parent: str | None
    owner: str | None = None


@dataclass(frozen=True)
class Grant:
    subject: str
    privilege: str
    object_id: str


@dataclass(frozen=True)
class World:
    """`memberships` contains pairs of a member and a group or role. A role may be a member of a role."""

    objects: tuple[Securable, ...]
    grants: frozenset[Grant] = frozenset()
    memberships: frozenset[tuple[str, str]] = frozenset()
    by_id: dict[str, Securable] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {one.id: one for one in self.objects})

    def chain(self, object_id: str) -> list[Securable]:
        """The object and its ancestors, the metastore last."""
        found = [self.by_id[object_id]]
        while (parent := found[-1].parent) is not None:
            found.append(self.by_id[parent])
        return found

    def children(self, object_id: str) -> list[Securable]:
        return [one for one in self.objects if one.parent == object_id]

    def below(self, object_id: str) -> list[Securable]:
        direct = self.children(object_id)
        return [*direct, *(deeper for one in direct for deeper in self.below(one.id))]

    def subjects(self, principal: str) -> set[str]:
        """The principal, everyone, and every group and role that contains one of them, at any depth."""
        found = {principal, EVERYONE}
        while more := {group for member, group in self.memberships if member in found} - found:
            found |= more
        return found


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    `any_of`: one of these sets of privileges is sufficient. `manages`: so is ownership of the object or of an ancestor,
    or MANAGE. `owns`: so is ownership of the object itself. `is_container`: the operation is inside the object, so the
    object too must be usable. `needs_use`: every container above must be usable.
    """

    kinds: frozenset[Kind]
    any_of: tuple[frozenset[str], ...] = ()
    manages: bool = True
    owns: bool = True
    is_container: bool = False
    needs_use: bool = True


@dataclass(frozen=True)
class Check:
    """An operation on one object. A creation is an operation on the container."""

    operation: str
    object_id: str


def rule(*kinds: Kind, any_of: Iterable[str | tuple[str, ...]] = (), is_data: bool = False) -> Rule:
    """A row. Data needs a privilege, or ownership of the object itself."""
    sets = tuple(frozenset((one,) if isinstance(one, str) else one) for one in any_of)
    return Rule(frozenset(kinds), sets, manages=not is_data)


def creation(kinds: tuple[Kind, ...], *any_of: str) -> Rule:
    return Rule(frozenset(kinds), tuple(frozenset((one,)) for one in any_of), is_container=True)


def visibility(*kinds: Kind) -> Rule:
    """It is sufficient that the object is visible; nothing above it must be usable."""
    return Rule(frozenset(kinds), (frozenset(),), needs_use=False)


LEAVES: Final = (Kind.TABLE, Kind.VIEW, Kind.VOLUME, Kind.FUNCTION, Kind.MODEL)
STORAGE: Final = (Kind.EXTERNAL_LOCATION, Kind.CREDENTIAL)

RULES: Final[dict[str, Rule]] = {
    # Metastore, catalogs, namespaces.
    "config": visibility(Kind.CATALOG),
    "list": visibility(Kind.METASTORE, Kind.CATALOG, Kind.NAMESPACE),
    "load catalog": visibility(Kind.CATALOG),
    "load namespace": visibility(Kind.NAMESPACE),
    "create catalog": creation((Kind.METASTORE,), "CREATE CATALOG"),
    "create namespace": creation((Kind.CATALOG, Kind.NAMESPACE), "CREATE SCHEMA"),
    "update catalog": rule(Kind.CATALOG),
    "update namespace": rule(Kind.NAMESPACE),
    "drop catalog": rule(Kind.CATALOG),
    "drop namespace": rule(Kind.NAMESPACE),
    # Tables.
    "create table": creation((Kind.NAMESPACE,), "CREATE TABLE"),
    "load table": rule(Kind.TABLE, any_of=("SELECT", "MODIFY")),
    "plan scan": rule(Kind.TABLE, any_of=("SELECT", "MODIFY"), is_data=True),
    "read table": rule(Kind.TABLE, any_of=("SELECT",), is_data=True),
    "write table": rule(Kind.TABLE, any_of=(("SELECT", "MODIFY"),), is_data=True),
    "report metrics": rule(Kind.TABLE, any_of=("SELECT", "MODIFY")),
    # A commit can change data, so that a manager needs MODIFY, too.
    "update table": rule(Kind.TABLE, any_of=("MODIFY",), is_data=True),
    "move table": rule(Kind.TABLE),
    "overwrite table": rule(Kind.TABLE),
    "drop table": rule(Kind.TABLE),
    "delete files": rule(Kind.TABLE, any_of=("MODIFY",), is_data=True),
    # Views, functions, volumes, models.
    # Unity Catalog has no privilege for views: it lets those create views who may create tables.
    "create view": creation((Kind.NAMESPACE,), "CREATE VIEW", "CREATE TABLE"),
    "load view": rule(Kind.VIEW, any_of=("SELECT",)),
    "replace view": rule(Kind.VIEW),
    "drop view": rule(Kind.VIEW),
    "create function": creation((Kind.NAMESPACE,), "CREATE FUNCTION"),
    "load function": rule(Kind.FUNCTION, any_of=("EXECUTE",)),
    "drop function": rule(Kind.FUNCTION),
    "create volume": creation((Kind.NAMESPACE,), "CREATE VOLUME"),
    "load volume": rule(Kind.VOLUME, any_of=("READ VOLUME", "WRITE VOLUME")),
    "read volume": rule(Kind.VOLUME, any_of=("READ VOLUME",), is_data=True),
    "write volume": rule(Kind.VOLUME, any_of=(("READ VOLUME", "WRITE VOLUME"),), is_data=True),
    "update volume": rule(Kind.VOLUME),
    "drop volume": rule(Kind.VOLUME),
    "create model": creation((Kind.NAMESPACE,), "CREATE MODEL"),
    "load model": rule(Kind.MODEL, any_of=("EXECUTE",)),
    "read model": rule(Kind.MODEL, any_of=("EXECUTE",), is_data=True),
    "write model": rule(Kind.MODEL, is_data=True),
    "update model": rule(Kind.MODEL),
    "drop model": rule(Kind.MODEL),
    # Storage credentials. The reference has no row for them: Unity Catalog's rules apply.
    "create credential": creation((Kind.METASTORE,), "CREATE STORAGE CREDENTIAL"),
    "load credential": visibility(Kind.CREDENTIAL),
    "use credential": rule(Kind.CREDENTIAL, any_of=("CREATE EXTERNAL LOCATION",)),
    "update credential": rule(Kind.CREDENTIAL),
    "drop credential": rule(Kind.CREDENTIAL),
    # External locations.
    "create external location": creation((Kind.METASTORE,), "CREATE EXTERNAL LOCATION"),
    "load external location": visibility(Kind.EXTERNAL_LOCATION),
    "read files": rule(Kind.EXTERNAL_LOCATION, any_of=("READ FILES",), is_data=True),
    "write files": rule(Kind.EXTERNAL_LOCATION, any_of=(("READ FILES", "WRITE FILES"),), is_data=True),
    "use location for a table": rule(Kind.EXTERNAL_LOCATION, any_of=("CREATE EXTERNAL TABLE",)),
    "use location for a volume": rule(Kind.EXTERNAL_LOCATION, any_of=("CREATE EXTERNAL VOLUME",)),
    "use location for a namespace": rule(Kind.EXTERNAL_LOCATION, any_of=("CREATE MANAGED STORAGE",)),
    "update external location": rule(Kind.EXTERNAL_LOCATION),
    "drop external location": rule(Kind.EXTERNAL_LOCATION),
    # Grants and principals.
    "manage principals": rule(Kind.METASTORE),
    "read grants": rule(Kind.METASTORE, Kind.CATALOG, Kind.NAMESPACE, *LEAVES, *STORAGE),
    "change grants": rule(Kind.METASTORE, Kind.CATALOG, Kind.NAMESPACE, *LEAVES, *STORAGE),
}

# The privileges that make an object visible, on the object itself or on an ancestor.
ANY_KIND: Final = frozenset(("BROWSE", "MANAGE"))
APPLIES: Final[dict[Kind, frozenset[str]]] = {
    Kind.TABLE: ANY_KIND | {"SELECT", "MODIFY"},
    Kind.VIEW: ANY_KIND | {"SELECT", "MODIFY"},  # For grants, a view is a table.
    Kind.VOLUME: ANY_KIND | {"READ VOLUME", "WRITE VOLUME"},
    Kind.FUNCTION: ANY_KIND | {"EXECUTE"},
    Kind.MODEL: ANY_KIND | {"EXECUTE"},
    Kind.EXTERNAL_LOCATION: ANY_KIND
    | {"READ FILES", "WRITE FILES", "CREATE EXTERNAL TABLE", "CREATE EXTERNAL VOLUME", "CREATE MANAGED STORAGE"},
    # The right to create credentials says nothing about those that exist.
    Kind.CREDENTIAL: ANY_KIND | {"CREATE EXTERNAL LOCATION"},
}
USE: Final = {Kind.CATALOG: "USE CATALOG", Kind.NAMESPACE: "USE SCHEMA"}


# Requests that need more than one check.


def create_table_at(namespace: str, location: str) -> tuple[Check, ...]:
    return (Check("create table", namespace), Check("use location for a table", location))


def create_namespace_at(parent: str, location: str) -> tuple[Check, ...]:
    return (Check("create namespace", parent), Check("use location for a namespace", location))


def register_table(namespace: str, location: str) -> tuple[Check, ...]:
    return (*create_table_at(namespace, location), Check("read files", location))


def create_location_with(credential: str) -> tuple[Check, ...]:
    return (Check("create external location", METASTORE), Check("use credential", credential))


def purge_table(table: str) -> tuple[Check, ...]:
    return (Check("drop table", table), Check("delete files", table))


def rename_table(table: str, target_namespace: str) -> tuple[Check, ...]:
    return (Check("drop table", table), Check("create table", target_namespace))


def rename_view(view: str, target_namespace: str) -> tuple[Check, ...]:
    return (Check("drop view", view), Check("create view", target_namespace))


def transaction(updated: Iterable[str], created_in: Iterable[str] = ()) -> tuple[Check, ...]:
    updates = tuple(Check("update table", table) for table in updated)
    return (*updates, *(Check("create table", namespace) for namespace in created_in))


# The decision.


def owns(world: World, principal: str, object_id: str) -> bool:
    """What has no owner belongs to the owner of the metastore (the issue: the administrator owns what has none)."""
    owner = world.by_id[object_id].owner or world.by_id[METASTORE].owner
    return owner is not None and owner in world.subjects(principal)


def owns_or_owns_above(world: World, principal: str, object_id: str) -> bool:
    return any(owns(world, principal, one.id) for one in world.chain(object_id))


def privileges_on(world: World, principal: str, object_id: str) -> set[str]:
    """The privileges on the object, granted on it or on an ancestor. Ownership is not a privilege."""
    subjects = world.subjects(principal)
    ids = {one.id for one in world.chain(object_id)}
    return {grant.privilege for grant in world.grants if grant.subject in subjects and grant.object_id in ids}


def manages(world: World, principal: str, object_id: str) -> bool:
    return owns_or_owns_above(world, principal, object_id) or "MANAGE" in privileges_on(world, principal, object_id)


def is_visible(world: World, principal: str, object_id: str) -> bool:
    """Ownership, a privilege that applies, and for a catalog or namespace also a grant on something inside it.

    Ownership of something inside does not count.
    """
    kind = world.by_id[object_id].kind
    if kind is Kind.METASTORE or owns_or_owns_above(world, principal, object_id):
        return True
    held = privileges_on(world, principal, object_id)
    if kind in APPLIES:
        return bool(held & APPLIES[kind])
    return bool(held) or any(has_grant_on(world, principal, one.id) for one in world.below(object_id))


def has_grant_on(world: World, principal: str, object_id: str) -> bool:
    """Whether a grant names the object itself."""
    subjects = world.subjects(principal)
    return any(grant.subject in subjects and grant.object_id == object_id for grant in world.grants)


def visible_children(world: World, principal: str, object_id: str) -> set[str]:
    """What a list of the container contains."""
    return {one.id for one in world.children(object_id) if is_visible(world, principal, one.id)}


def is_usable(world: World, principal: str, container_id: str) -> bool:
    """USE CATALOG or USE SCHEMA, or the container is managed by the principal."""
    privilege = USE.get(world.by_id[container_id].kind)
    if privilege is None or manages(world, principal, container_id):
        return True
    return privilege in privileges_on(world, principal, container_id)


def decide_one(world: World, principal: str, check: Check) -> Decision:
    row = RULES[check.operation]
    if check.object_id not in world.by_id or not is_visible(world, principal, check.object_id):
        return Decision.HIDDEN
    if world.by_id[check.object_id].kind not in row.kinds:
        return Decision.HIDDEN  # There is no object of that kind under the name.
    if row.needs_use:
        containers = world.chain(check.object_id)[0 if row.is_container else 1 :]
        if not all(is_usable(world, principal, one.id) for one in containers):
            return Decision.FORBIDDEN
    held = privileges_on(world, principal, check.object_id)
    is_allowed = (
        any(needed <= held for needed in row.any_of)
        or (row.manages and manages(world, principal, check.object_id))
        or (row.owns and owns(world, principal, check.object_id))
    )
    return Decision.ALLOWED if is_allowed else Decision.FORBIDDEN


def decide(world: World, principal: str, *checks: Check) -> Decision:
    """Every check must be allowed. If one object is hidden, so is the result."""
    decisions = {decide_one(world, principal, check) for check in checks}
    for worst in (Decision.HIDDEN, Decision.FORBIDDEN):
        if worst in decisions:
            return worst
    return Decision.ALLOWED
