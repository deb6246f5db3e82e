"""Grants that change while principals use them: an answered grant or revocation holds at every server at once."""

import asyncio
from typing import Final

from sandur.catalog.security.grants import GrantChange
from sandur.catalog.security.privileges import Privilege, SecurableType
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.tables.create import create_table
from sandur.operations.unity.grants import update_grants
from sandur.server.iceberg_rest.routes import ROUTES
from tests.operations.principals import acting, full_name
from tests.operations.requests import load, request, table
from tests.simulation.fleet import Fleet
from tests.simulation.tables import PATIENT_SENDS_MAX, TableClients
from tests.statemachine.specification import OK

PRINCIPALS_MAX: Final = 4
_REFUSED: Final = frozenset({"Forbidden", "Hidden", "NotFound"})
_LOAD: Final = next(route.needs for route in ROUTES if route.operation == "loadTable")


def principal_names(groups: int) -> list[str]:
    return [f"p{group}-{number}" for group in range(groups) for number in range(PRINCIPALS_MAX)]


class Grants(TableClients):
    """Each principal has one client, which grants, loads, revokes and loads again; all change one manifest."""

    kind = "grants"

    def __init__(self, fleet: Fleet, number: int) -> None:
        super().__init__(fleet, number)
        self._names = principal_names(fleet.plan.groups)[number * PRINCIPALS_MAX :][:PRINCIPALS_MAX]

    async def begin(self) -> None:
        await self.insist("create", lambda lake, sent: create_table(lake, self.namespace, table("events"), sent))

    async def run(self) -> None:
        await self.insist("namespace", lambda lake, sent: create_namespace(lake, self.namespace, {}, sent))
        await self.begin()
        await asyncio.gather(*(self._principal(name) for name in self._names))

    async def _principal(self, name: str) -> None:
        may = False
        if not await self._change(name, "main", ("USE CATALOG", "USE SCHEMA"), type_="catalog", grants=True):
            return
        for _ in range(self.fleet.plan.epochs):
            await asyncio.sleep(self._chance.random() * self._chance.choice((0.1, 5, 60)))
            if self._chance.random() < 0.5:
                wanted = self._chance.random() < 0.5
                full = full_name(self.identifier)
                if not await self._change(name, full, ("SELECT",), type_="table", grants=wanted):
                    return
                may = wanted
            answer = await self.repeat(
                f"load by {name}",
                PATIENT_SENDS_MAX,
                lambda lake: load(acting(lake, name, _LOAD), self.identifier),
            )
            if may is not (answer.result == OK) or answer.result not in {OK, *_REFUSED}:
                self.fleet.problem(f"{name} {'may' if may else 'must not'} load {self.identifier}: {answer.result}")

    async def _change(
        self, name: str, on: str, privileges: tuple[Privilege, ...], *, type_: SecurableType, grants: bool
    ) -> bool:
        """Grant or revoke, until it is answered. A repetition of the same change changes nothing."""
        number = self.number()
        change = GrantChange(name, privileges, ()) if grants else GrantChange(name, (), privileges)
        sent = request(f"{self.namespace} grant {number}", key=f"{self.namespace} grant {number}")
        answer = await self.repeat(
            f"{'grant' if grants else 'revoke'} {number}",
            PATIENT_SENDS_MAX,
            lambda lake: update_grants(lake, type_, on, (change,), sent),
        )
        if answer.result != OK:
            self.fleet.problem(f"{name}: a change of grants was answered with {answer.result}")
        return answer.result == OK
