"""A table, principals without rights, and lakes that act for them, for the tests of authorization."""

from collections.abc import Awaitable, Mapping
from typing import Final

import pytest

from sandur.catalog.security.privileges import Needs
from sandur.errors import NotFound
from sandur.operations.lake import Lake
from sandur.server.iceberg_rest.routes import ROUTES
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake
from tests.operations.principals import acting, add_principals, grant
from tests.operations.requests import (
    create,
    identifier_of,
    set_up_catalog,
)

T, ABSENT = identifier_of("t"), identifier_of("absent")
NEEDS: Final[Mapping[str, Needs]] = {route.operation: route.needs for route in ROUTES}


async def lake_of_principals() -> Lake:
    """A table `main.a.t` without an owner, and principals without rights."""
    clock = FixedClock()
    lake = make_lake(HookedStore(MemoryStore(clock=clock)), clock, allowed_locations=["s3://bucket/allowed"])
    await set_up_catalog(lake)
    await create(lake, "t")
    await add_principals(lake, "ann", "bob")
    return lake


def by(lake: Lake, name: str, operation: str) -> Lake:
    return acting(lake, name, NEEDS[operation])


async def enter(lake: Lake, name: str) -> None:
    await grant(lake, name, "catalog", "main", "USE CATALOG", "USE SCHEMA")


async def text_of(operation: Awaitable[object]) -> str:
    with pytest.raises(NotFound) as raised:
        await operation
    return str(raised.value)
