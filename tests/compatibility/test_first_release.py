"""A store that the first release wrote, before records had versions, opens with this one and goes on."""

import json

import httpx
import pytest

from sandur.catalog.record_versions import NEWEST
from sandur.clock import SystemClock
from sandur.operations.lake import Lakes
from sandur.operations.upgrade import upgrade
from sandur.settings import Settings
from sandur.storage.layout import STORE_FORMAT
from tests.compatibility.tour import KEY, KEYED_COMMIT, NAMESPACES, KeptStore, ask, load, texts
from tests.server.conftest import Catalogs
from tests.server.requests import SCHEMA, create_table, create_view, set_properties
from tests.server.unity.client import UNITY, Unity
from tests.server.unity.delta_requests import T, add_commit, update

SETTINGS = Settings(store="memory:", log_level="error", janitors=False)
I_TABLE = f"{NAMESPACES}/s/tables/i"


@pytest.fixture
async def store() -> KeptStore:
    return await load().restore()


def versions(objects: dict[str, str], *, part: str = "/_catalog/") -> dict[str, int]:
    """The major version of each record of the catalog; derived objects have none of their own."""
    derived = ("/index/", "/events/", "/segments/", "/operational/janitors")
    return {
        key: json.loads(text).get("v", 1)
        for key, text in objects.items()
        if part in key and not any(one in key for one in derived)
    }


async def run_upgrade(store: KeptStore, *, is_dry: bool = False) -> dict[str, object]:
    lakes = Lakes(SETTINGS, SystemClock(), store)
    report = await upgrade(lakes, SETTINGS, is_dry=is_dry, on_progress=lambda *_: None)
    assert report.failures == []
    return report._asdict()


async def test_everything_loads_and_lists_as_before(catalogs: Catalogs, store: KeptStore) -> None:
    before = await texts(store)

    client = await catalogs.open_with(SETTINGS, store)
    answers = await ask(client)

    assert answers == load().answers
    assert STORE_FORMAT not in await texts(store)
    assert await texts(store) == before, "reading writes nothing"


async def commits(client: httpx.AsyncClient) -> dict[str, int]:
    """The statuses of one change of every kind."""
    unity = Unity(client)
    tables, views = f"{NAMESPACES}/s/tables", f"{NAMESPACES}/s/views"
    delta = (await unity.get(T)).json()["metadata"]["table-uuid"]
    version = (await client.get(f"{views}/v")).json()["metadata"]
    stage = (await _stage(client))["metadata"]
    staged = [
        {"action": "assign-uuid", "uuid": stage["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": stage["location"]},
    ]
    requests = {
        "commit": client.post(I_TABLE, json=set_properties(third="3")),
        "finalize": client.post(
            f"{tables}/other", json={"requirements": [{"type": "assert-create"}], "updates": staged}
        ),
        "view": client.post(
            f"{views}/v",
            json={
                "requirements": [{"type": "assert-view-uuid", "uuid": version["view-uuid"]}],
                "updates": [{"action": "set-properties", "updates": {"a": "b"}}],
            },
        ),
        "delta": unity.post(T, update(delta, add_commit(2))),
        "namespace": client.post(f"{NAMESPACES}/s/properties", json={"updates": {"more": "1"}, "removals": []}),
        "rename": client.post(
            "/v1/main/tables/rename",
            json={
                "source": {"namespace": ["s"], "name": "after"},
                "destination": {"namespace": ["s", "below"], "name": "before"},
            },
        ),
        "create": client.post(tables, json=create_table("dropped")),
        "create view": client.post(views, json=create_view("w")),
        "volume": unity.patch("/volumes/main.s.vol", {"comment": "words"}),
        "model": unity.patch("/models/main.s.m", {"comment": "words"}),
        "model version": unity.patch("/models/main.s.m/versions/1", {"comment": "words"}),
        "catalog": unity.patch("/catalogs/other", {"comment": "other"}),
        "grant": unity.patch(
            "/permissions/schema/main.s", {"changes": [{"principal": "me@x.org", "add": ["SELECT"], "remove": []}]}
        ),
        "credential": unity.patch("/credentials/k", {"comment": "words"}),
        "drop function": unity.delete("/functions/main.s.f"),
        "drop namespace": client.delete(f"{NAMESPACES}/empty"),
    }
    return {name: (await request).status_code for name, request in requests.items()}


async def _stage(client: httpx.AsyncClient) -> dict[str, dict[str, str]]:
    answer = await client.post(f"{NAMESPACES}/s/tables", json={**create_table("other"), "stage-create": True})
    staged: dict[str, dict[str, str]] = answer.json()
    return staged


async def test_everything_changes_in_the_old_form_until_the_upgrade(catalogs: Catalogs, store: KeptStore) -> None:
    client = await catalogs.open_with(SETTINGS, store)

    statuses = await commits(client)

    assert {name: status for name, status in statuses.items() if status not in {200, 204}} == {}
    assert set(versions(await texts(store)).values()) == {1}
    assert all('"v":' not in text for key, text in (await texts(store)).items() if "/_catalog/" in key)


async def test_a_commit_of_the_first_release_is_replayed(catalogs: Catalogs, store: KeptStore) -> None:
    client = await catalogs.open_with(SETTINGS, store)

    answer = await client.post(I_TABLE, json=KEYED_COMMIT, headers={"Idempotency-Key": KEY})

    assert answer.status_code == 200
    assert answer.json()["metadata-location"] == load().answers[I_TABLE][1]["metadata-location"]


async def test_a_dry_run_counts_and_changes_nothing(store: KeptStore) -> None:
    before = await texts(store)

    report = await run_upgrade(store, is_dry=True)

    assert await texts(store) == before
    assert report["before"] == (1, 0)
    assert report["old"] == {
        "catalogs": 2,
        "names": 9,
        "pointers": 4,
        "delta_tables": 1,
        "securables": 3,
        "namespaces": 3,
        "model_versions": 1,
        "commit_claims": 1,
        "stages": 1,
        "delta_stages": 2,
        "purge_orders": 1,
        "grants": 1,
        "storage": 1,
        "location_claims": 1,
    }


async def test_the_upgrade_rewrites_every_record_and_keeps_every_answer(catalogs: Catalogs, store: KeptStore) -> None:
    report = await run_upgrade(store)
    upgraded = await texts(store)
    client = await catalogs.open_with(SETTINGS, store)
    answers = await ask(client)
    statuses = await commits(client)

    assert report["state"] == "steady"
    assert set(versions(upgraded).values()) == {NEWEST.major}
    assert json.loads(upgraded[STORE_FORMAT])["major"] == NEWEST.major
    assert answers == load().answers
    assert {name: status for name, status in statuses.items() if status not in {200, 204}} == {}
    assert set(versions(await texts(store)).values()) == {NEWEST.major}


async def test_a_running_server_goes_on_through_an_upgrade(catalogs: Catalogs, store: KeptStore) -> None:
    """It writes the new form as soon as it sees a record of it, before it reads the format again."""
    client = await catalogs.open_with(SETTINGS, store)
    assert await ask(client) == load().answers

    await run_upgrade(store)
    statuses = await commits(client)

    assert {name: status for name, status in statuses.items() if status not in {200, 204}} == {}
    assert set(versions(await texts(store)).values()) == {NEWEST.major}


async def test_an_upgrade_that_was_interrupted_is_run_again(catalogs: Catalogs, store: KeptStore) -> None:
    key = next(key for key in await texts(store) if "/names/" in key)
    stored = await store.get(key)
    assert stored
    damaged = await store.put(key, b"{broken", expected=stored.version)
    lakes = Lakes(SETTINGS, SystemClock(), store)

    first = await upgrade(lakes, SETTINGS, is_dry=False, on_progress=lambda *_: None)
    await store.put(key, stored.data, expected=damaged)
    second = await upgrade(lakes, SETTINGS, is_dry=False, on_progress=lambda *_: None)
    third = await upgrade(lakes, SETTINGS, is_dry=False, on_progress=lambda *_: None)

    assert (first.state, first.failed) == ("raising", 1)
    assert key in first.failures[0]
    assert (second.state, second.failed, sum(second.old.values())) == ("steady", 0, 1)
    assert (third.state, sum(third.old.values())) == ("steady", 0)
    assert await ask(await catalogs.open_with(SETTINGS, store)) == load().answers


async def test_the_fixture_has_one_object_of_every_kind() -> None:
    answers = load().answers

    assert answers[f"{UNITY}/metastore_summary"][0] == 200
    assert [status for status, _ in answers.values()].count(404) == 3
