"""The principals, groups, roles and grants of a company in the manifest of a workspace, for `bench.security`."""

import uuid
from collections.abc import Iterable
from typing import Final

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Group, ObjectGrants, Principal, SecurityManifest
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit

PRINCIPALS: Final = 1_000
GRANTS: Final = 10_000
TEAMS: Final = 40
DEPARTMENTS: Final = 8
GROUP_LEVELS: Final = 4
"""A team, its department, the role of all departments, and the role that this one is a member of."""
CALLER: Final = "p0000"
"""A principal whose rights come through all levels of groups and roles."""
STRANGER: Final = "p0001"
"""A principal in the same groups as few others: it sees only what it is granted itself."""

_SUBJECTS_PER_OBJECT: Final = 4
_REQUEST: Final = Request(hash="", source=Source(kind="admin", client="bench"))


async def populate(lake: Lake, namespace: str, *, seen_tables: Iterable[str] = ()) -> None:
    """Add everything in one change. `seen_tables` are the ids of the tables that STRANGER may read."""
    catalog, schema = await lake.catalog("main").read(), await lake.namespace(Namespace("main", (namespace,))).read()
    if catalog is None or schema is None:
        raise RuntimeError(f"main.{namespace} does not exist")
    ids = [_id(f"principal {number}") for number in range(PRINCIPALS)]
    principals = {id_: Principal(id=id_, name=f"p{number:04d}") for number, id_ in enumerate(ids)}
    groups = _groups([id_ for id_ in ids if id_ != ids[1]])
    used = ("USE CATALOG", "USE SCHEMA")
    all_of_it = (*used, "CREATE TABLE", "SELECT", "MODIFY")
    grants = {
        catalog.value.id: ObjectGrants(type="catalog", subjects={ids[1]: ("USE CATALOG",)}),
        schema.value.id: ObjectGrants(
            type="schema",
            subjects={_id("role everything"): all_of_it, ids[1]: ("USE SCHEMA",)},
            above=(catalog.value.id,),
        ),
    }
    grants[catalog.value.id].subjects[_id("role everything")] = used
    above = (catalog.value.id, schema.value.id)
    for table in seen_tables:
        grants[table] = ObjectGrants(type="table", subjects={ids[1]: ("SELECT",)}, above=above)
    others = (GRANTS - sum(len(one.subjects) for one in grants.values())) // _SUBJECTS_PER_OBJECT
    for number in range(others):
        subjects = [ids[(number * 7 + place * 13) % (PRINCIPALS - 2) + 2] for place in range(_SUBJECTS_PER_OBJECT)]
        grants[_id(f"table {number}")] = ObjectGrants(
            type="table", subjects=dict.fromkeys(subjects, ("SELECT",)), above=(catalog.value.id, _id("schema"))
        )
    edit = SecurityEdit(principals=principals, groups=groups, grants=grants)
    await SecurityChange(lake, _REQUEST, "populate", lambda _authority: edit).run()


def counted(manifest: SecurityManifest) -> dict[str, int]:
    """The sizes, for the result file."""
    return {
        "principals": PRINCIPALS,
        "grants": GRANTS,
        "groups": TEAMS + DEPARTMENTS + 2,
        "levels": GROUP_LEVELS,
        "segments": len(manifest.segments),
    }


def _groups(members: list[str]) -> dict[str, Group]:
    teams = {_id(f"team {number}"): tuple(members[number::TEAMS]) for number in range(TEAMS)}
    names = list(teams)
    departments = {_id(f"department {number}"): tuple(names[number::DEPARTMENTS]) for number in range(DEPARTMENTS)}
    roles = {_id("role staff"): tuple(departments), _id("role everything"): (_id("role staff"),)}
    made = {id_: Group(id=id_, name=f"g-{id_}", members=held) for id_, held in {**teams, **departments}.items()}
    return made | {id_: Group(id=id_, name=f"r-{id_}", kind="role", members=held) for id_, held in roles.items()}


def _id(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))
