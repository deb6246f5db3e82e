"""Stores of releases without a manifest: their users and grants are seen before, and kept by, the first manifest."""

import pytest

from sandur.catalog.records import Request
from sandur.catalog.security.users import Email, User, UserResource, user_id
from sandur.operations.access import Security
from sandur.operations.identity.bootstrap import bootstrap
from sandur.operations.lake import Lake
from sandur.operations.unity import access
from sandur.operations.unity.grants import load_grants
from sandur.storage.cell import Cell
from sandur.storage.contract import ABSENT
from tests.operations.lakes import make_lake
from tests.operations.requests import request, set_up_catalog


@pytest.fixture
async def lake() -> Lake:
    """A lake with two users, one of them dropped, and grants on its catalog."""
    lake = make_lake()
    await set_up_catalog(lake)
    for email, state in (("ann@x.org", "live"), ("gone@x.org", "dropped")):
        user = User(id=user_id(email), email=email, state=state, display_name="A", active=True, created_ms=7)  # type: ignore[arg-type] # One of two.
        await Cell(lake.store, lake.layout.user(user.id), User, lake.clock).create(user)
    catalog = await lake.catalog("main").read()
    assert catalog
    grants = (
        b'{"event_id":"1","assignments":{"ann@x.org":["SELECT"],"old-service":["MODIFY"],"anonymous":["USE CATALOG"]}}'
    )
    await lake.store.put(f"{lake.layout.grants_folder()}catalog/{catalog.value.id}.json", grants, expected=ABSENT)
    return lake


EXPECTED = {"ann@x.org": ("SELECT",), "anonymous": ("USE CATALOG",), "old-service": ("MODIFY",)}


async def test_users_and_grants_of_an_older_release_are_seen_without_a_write(lake: Lake) -> None:
    users = await access.list_users(lake)

    assert [(user.name, user.id, user.created_ms) for user in users] == [
        ("ann@x.org", user_id("ann@x.org"), 7),
        ("old-service", user_id("old-service"), 0),
    ]
    assert await load_grants(lake, "catalog", "main") == EXPECTED
    assert not (await lake.feature(Security).read()).version


async def test_the_first_manifest_takes_them_over(lake: Lake) -> None:
    await bootstrap(lake, "a secret for the test")

    authority = await lake.feature(Security).read()
    assert [one.name for one in authority.principals()] == ["admin", "ann@x.org", "old-service"]
    assert await load_grants(lake, "catalog", "main") == EXPECTED


async def test_a_user_that_is_dropped_and_made_again_inherits_nothing(lake: Lake) -> None:
    await access.drop_user(lake, user_id("ann@x.org"), request("drop"))

    made = await access.create_user(lake, UserResource(emails=(Email("ann@x.org"),)), Request("again"))

    assert made.id != user_id("ann@x.org")
    assert "ann@x.org" not in await load_grants(lake, "catalog", "main")
