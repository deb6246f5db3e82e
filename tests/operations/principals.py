"""Principals and grants for tests of authorization: who acts on a lake, and what it may do."""

from typing import Final

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request
from sandur.catalog.security.grants import GrantChange
from sandur.catalog.security.manifest import Access, Caller, Group, Principal
from sandur.catalog.security.privileges import MANAGED, Needs, Privilege, Rule, SecurableType
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.unity.grants import update_grants
from tests.operations.requests import request

ADMIN: Final = "admin"
GRANT: Final = Needs("metastore", MANAGED)
SHOW: Final = Needs("metastore", further={"all": MANAGED})


def id_of(name: str) -> str:
    return f"id-{name}"


async def add_principals(lake: Lake, *names: str, **groups: tuple[str, ...]) -> None:
    """Register principals, groups with their members, and the administrator, who owns the metastore."""

    def decide(_authority: object) -> SecurityEdit:
        return SecurityEdit(
            principals={id_of(name): Principal(id=id_of(name), name=name) for name in (ADMIN, *names)},
            groups={
                id_of(name): Group(id=id_of(name), name=name, members=tuple(map(id_of, members)))
                for name, members in groups.items()
            },
            owner=id_of(ADMIN),
        )

    await SecurityChange(lake, request("principals"), "add-principals", decide).run()


def acting(lake: Lake, name: str, needs: Needs | Rule, on: SecurableType = "table") -> Lake:
    """The lake for a request of that principal, through a route with these needs."""
    declared = needs if isinstance(needs, Needs) else Needs(on, needs)
    return lake.acting_for(Access(Caller(id_of(name), name), declared))


def request_of(name: str, text: str, key: str | None = None) -> Request:
    return request(text, key=key)._replace(source=Source(principal=name, principal_id=id_of(name)))


async def grant(lake: Lake, name: str, type_: SecurableType, full_name: str, *privileges: Privilege) -> None:
    """Grant privileges as the program itself."""
    change = GrantChange(name, privileges)
    await update_grants(lake, type_, full_name, (change,), request(f"grant {lake.clock.new_id()}"))


async def revoke(lake: Lake, name: str, type_: SecurableType, full_name: str, *privileges: Privilege) -> None:
    change = GrantChange(name, remove=privileges)
    await update_grants(lake, type_, full_name, (change,), request(f"revoke {lake.clock.new_id()}"))


def full_name(identifier: Identifier) -> str:
    return f"{identifier.catalog}.{identifier}"
