"""A store of version 2, whose servers know no renames of catalogs and namespaces, opens with this release."""

import json
from pathlib import Path
from typing import Final

import pytest

from sandur.catalog.record_versions import NEWEST
from tests.compatibility.test_first_release import SETTINGS, run_upgrade, versions
from tests.compatibility.tour import NAMESPACES, KeptStore, ask, load, texts
from tests.server.conftest import Catalogs
from tests.server.requests import create_table
from tests.server.unity.client import Unity

SECOND: Final = Path(__file__).with_name("store-2.0.json")
"""Written by `python -m tests.compatibility.tour` with the source of the last release of version 2."""


@pytest.fixture
async def store() -> KeptStore:
    return await load(SECOND).restore()


async def test_everything_loads_and_lists_as_before(catalogs: Catalogs, store: KeptStore) -> None:
    before = await texts(store)

    answers = await ask(await catalogs.open_with(SETTINGS, store))

    assert answers == load(SECOND).answers
    assert await texts(store) == before, "reading writes nothing"


async def test_a_new_server_writes_the_old_version_until_the_upgrade(catalogs: Catalogs, store: KeptStore) -> None:
    client = await catalogs.open_with(SETTINGS, store)

    made = await client.post(f"{NAMESPACES}/s/tables", json=create_table("new"))
    refused = await Unity(client).patch("/schemas/main.s", {"new_name": "renamed"})

    assert made.status_code == 200, made.text
    assert (refused.status_code, "sandur upgrade" in refused.text) == (503, True)
    assert set(versions(await texts(store)).values()) == {2}


async def test_after_the_upgrade_schemas_are_renamed(catalogs: Catalogs, store: KeptStore) -> None:
    running = await catalogs.open_with(SETTINGS, store)
    await run_upgrade(store)
    client = await catalogs.open_with(SETTINGS, store)

    renamed = await Unity(client).patch("/schemas/main.s", {"new_name": "renamed"})

    assert renamed.status_code == 200, renamed.text
    for server in (running, client):
        assert (await server.get(f"{NAMESPACES}/renamed/tables/i")).status_code == 200
        assert (await server.get(f"{NAMESPACES}/s/tables/i")).status_code == 404
    after = await texts(store)
    assert set(versions(after).values()) == {NEWEST.major}, "a server of version 2 can read none of them (V1)"
    assert json.loads(after["_shared/format.json"])["major"] == NEWEST.major
