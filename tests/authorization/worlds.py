"""Random worlds and questions for the tests of authorization."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from tests.authorization.evaluator import (
    EVERYONE,
    METASTORE,
    RULES,
    Check,
    Grant,
    Kind,
    Securable,
    World,
    create_location_with,
    create_namespace_at,
    create_table_at,
    purge_table,
    register_table,
    rename_table,
    rename_view,
    transaction,
)

PRINCIPALS: Final = ("ann", "ben", "cid")
GROUPS: Final = ("analysts", "engineers")
ROLES: Final = ("reader", "writer")
SUBJECTS: Final = (*PRINCIPALS, *GROUPS, *ROLES, EVERYONE)
# A member, and what it may be a member of. Roles contain roles; the order prevents cycles.
MEMBERSHIPS: Final = (
    *((principal, group) for principal in PRINCIPALS for group in GROUPS),
    *((member, role) for member in (*PRINCIPALS, *GROUPS) for role in ROLES),
    ("reader", "writer"),
)
ON_LEAVES: Final = ("BROWSE", "MANAGE", "SELECT", "MODIFY", "READ VOLUME", "WRITE VOLUME", "EXECUTE")
ON_NAMESPACES: Final = (
    *ON_LEAVES, "USE SCHEMA", "CREATE TABLE", "CREATE VIEW", "CREATE VOLUME", "CREATE FUNCTION", "CREATE MODEL",
)  # fmt: skip
ON_CATALOGS: Final = (*ON_NAMESPACES, "USE CATALOG", "CREATE SCHEMA")
ON_METASTORE: Final = (*ON_CATALOGS, "CREATE CATALOG", "CREATE EXTERNAL LOCATION", "CREATE STORAGE CREDENTIAL")
ON_LOCATIONS: Final = (
    "BROWSE", "MANAGE", "READ FILES", "WRITE FILES", "CREATE EXTERNAL TABLE", "CREATE MANAGED STORAGE",
)  # fmt: skip
GRANTABLE: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.METASTORE: ON_METASTORE,
    Kind.CATALOG: ON_CATALOGS,
    Kind.NAMESPACE: ON_NAMESPACES,
    Kind.TABLE: ("BROWSE", "MANAGE", "SELECT", "MODIFY"),
    Kind.VIEW: ("BROWSE", "MANAGE", "SELECT"),
    Kind.VOLUME: ("BROWSE", "MANAGE", "READ VOLUME", "WRITE VOLUME"),
    Kind.FUNCTION: ("BROWSE", "MANAGE", "EXECUTE"),
    Kind.MODEL: ("BROWSE", "MANAGE", "EXECUTE"),
    Kind.EXTERNAL_LOCATION: ON_LOCATIONS,
    Kind.CREDENTIAL: ("BROWSE", "MANAGE", "CREATE EXTERNAL LOCATION"),
}
TREE: Final = (
    ("main", Kind.CATALOG, METASTORE),
    ("main.sales", Kind.NAMESPACE, "main"),
    ("main.sales.eu", Kind.NAMESPACE, "main.sales"),
    ("main.sales.orders", Kind.TABLE, "main.sales"),
    ("main.sales.recent", Kind.VIEW, "main.sales"),
    ("main.sales.eu.orders", Kind.TABLE, "main.sales.eu"),
    ("main.sales.events", Kind.TABLE, "main.sales"),
    ("main.sales.files", Kind.VOLUME, "main.sales"),
    ("main.sales.score", Kind.FUNCTION, "main.sales"),
    ("main.sales.churn", Kind.MODEL, "main.sales"),
    ("main.hr", Kind.NAMESPACE, "main"),
    ("main.hr.people", Kind.TABLE, "main.hr"),
    ("other", Kind.CATALOG, METASTORE),
    ("other.logs", Kind.NAMESPACE, "other"),
    ("other.logs.clicks", Kind.TABLE, "other.logs"),
    ("cloud", Kind.CREDENTIAL, METASTORE),
    ("landing", Kind.EXTERNAL_LOCATION, METASTORE),
)
GRANTS_MAX: Final = 12


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """The tree is always the same; owners, grants and memberships differ."""
    # Most objects belong to a principal that asks nothing, as in a real workspace.
    owners = st.sampled_from((None, "root", "root", "root", "root", *SUBJECTS))
    metastore = Securable(METASTORE, Kind.METASTORE, None, draw(st.sampled_from(("root", "root", "ann", "engineers"))))
    objects = (metastore, *(Securable(one, kind, parent, draw(owners)) for one, kind, parent in TREE))
    memberships = frozenset(draw(st.lists(st.sampled_from(MEMBERSHIPS), max_size=4)))
    grants = draw(st.lists(st.one_of(single_grants(objects), use_grants()), max_size=GRANTS_MAX))
    return World(objects, frozenset(grant for drawn in grants for grant in drawn), memberships)


def world_owned_by(owner: str, owners: Mapping[str, str] = MappingProxyType({})) -> World:
    """The tree without grants. `owners` names other owners, by object."""
    metastore = Securable(METASTORE, Kind.METASTORE, None, owners.get(METASTORE, owner))
    return World((metastore, *(Securable(one, kind, parent, owners.get(one, owner)) for one, kind, parent in TREE)))


def single_grants(objects: tuple[Securable, ...]) -> st.SearchStrategy[tuple[Grant, ...]]:
    possible = [(one.id, privilege) for one in objects for privilege in GRANTABLE[one.kind]]
    return st.builds(
        lambda subject, granted: (Grant(subject, granted[1], granted[0]),),
        st.sampled_from(SUBJECTS),
        st.sampled_from(possible),
    )


def use_grants() -> st.SearchStrategy[tuple[Grant, ...]]:
    """What most operations need first: the right to use a catalog and its namespaces."""
    return st.builds(
        lambda subject, catalog: (Grant(subject, "USE CATALOG", catalog), Grant(subject, "USE SCHEMA", catalog)),
        st.sampled_from(SUBJECTS),
        st.sampled_from((METASTORE, "main", "other")),
    )


def ids_of(*kinds: Kind) -> tuple[str, ...]:
    found = tuple(one for one, kind, _ in TREE if kind in kinds)
    return (METASTORE, *found) if Kind.METASTORE in kinds else found


SINGLE: Final = tuple((Check(name, one),) for name, row in RULES.items() for one in ids_of(*row.kinds))
TABLES: Final = ids_of(Kind.TABLE)
NAMESPACES: Final = ids_of(Kind.NAMESPACE)
COMPOSITE: Final = (
    *(purge_table(table) for table in TABLES),
    *(rename_table(table, target) for table in TABLES for target in NAMESPACES),
    *(rename_view("main.sales.recent", target) for target in NAMESPACES),
    create_location_with("cloud"),
    *(create_table_at(namespace, "landing") for namespace in NAMESPACES),
    *(register_table(namespace, "landing") for namespace in NAMESPACES),
    *(create_namespace_at(parent, "landing") for parent in ("main", "main.sales", "other")),
    *(transaction((one, other)) for one in TABLES for other in TABLES if one < other),
    *(transaction((table,), (namespace,)) for table in TABLES for namespace in NAMESPACES),
)


def questions() -> st.SearchStrategy[tuple[str, tuple[Check, ...]]]:
    """A principal and the checks of one request."""
    return st.tuples(st.sampled_from(PRINCIPALS), st.sampled_from((*SINGLE, *COMPOSITE)))
