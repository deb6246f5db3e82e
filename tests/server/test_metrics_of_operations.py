"""The metrics of a running server after requests: outcomes of commits, sign-ins, decisions, bytes, listed tables."""

import asyncio
from typing import Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sandur.errors import BadRequest
from sandur.settings import load_settings
from tests.server.conftest import Catalogs
from tests.server.requests import add_snapshot, create_table, set_properties

TABLE: Final = "/v1/namespaces/ns/tables/t"


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """The samples of a scrape by name and label values."""
    page = (await client.get("/metrics")).text
    families = text_string_to_metric_families(page)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


async def make_table(client: httpx.AsyncClient, name: str = "t") -> dict[str, object]:
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    made = await client.post("/v1/namespaces/ns/tables", json=create_table(name))
    assert made.status_code == 200, made.text
    found: dict[str, object] = made.json()["metadata"]
    return found


async def test_commits_are_counted_by_how_they_ended(catalogs: Catalogs) -> None:
    client = await catalogs.open(metrics_tables=("main.ns.t",))
    metadata = await make_table(client)
    commit = add_snapshot(metadata)

    for _ in range(2):  # The second one is a repetition without a key.
        assert (await client.post(TABLE, json=commit)).status_code == 200
    stale = {"requirements": [{"type": "assert-current-schema-id", "current-schema-id": 7}], "updates": []}
    assert (await client.post(TABLE, json=stale)).status_code == 409
    assert (await client.post("/v1/namespaces/ns/tables/none", json=set_properties(x="1"))).status_code == 404

    found = await samples(client)
    outcomes = {key[1]: value for key, value in found.items() if key[0] == "sandur_commit_outcomes_total"}
    assert outcomes == {"ok": 1, "replayed": 1, "conflict": 1, "refused": 1, "unknown": 0, "unavailable": 0}
    assert found["sandur_commit_attempts_total", "won"] == 1
    assert found["sandur_table_commits_total", "main.ns.t"] == 1


async def test_transactions_are_counted_by_how_they_ended(client: httpx.AsyncClient) -> None:
    await make_table(client, "a")
    await make_table(client, "b")
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **set_properties(x="1")} for name in "ab"]
    conflict = {**changes[0], "requirements": [{"type": "assert-current-schema-id", "current-schema-id": 7}]}

    done = await client.post("/v1/transactions/commit", json={"table-changes": changes})
    lost = await client.post("/v1/transactions/commit", json={"table-changes": [conflict, changes[1]]})

    found = await samples(client)
    assert (done.status_code, lost.status_code) == (204, 409)
    assert found["sandur_transactions_total", "ok"] == 1
    assert found["sandur_transactions_total", "conflict"] == 1


async def test_bytes_of_requests_answers_and_the_store_are_counted(client: httpx.AsyncClient) -> None:
    await make_table(client)

    answer = await client.get(TABLE)

    found = await samples(client)
    assert found["sandur_response_bytes_total", "iceberg"] > len(answer.content)
    assert found["sandur_request_bytes_total", "iceberg"] > 100
    assert found["sandur_storage_bytes_total", "written"] > 0
    assert found["sandur_cache_bytes", "tables"] > 0


async def test_sign_ins_and_decisions_are_counted(catalogs: Catalogs) -> None:
    client = await catalogs.open(authentication="on", admin_secret="a-secret-of-some-length")  # noqa: S106 - a test's
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": "a-secret-of-some-length"}
    token = (await client.post("/v1/oauth/tokens", data=form)).json()["access_token"]

    assert (await client.get("/v1/namespaces", headers={"Authorization": "Bearer wrong"})).status_code == 401
    client.headers["Authorization"] = f"Bearer {token}"
    assert (await client.get("/v1/namespaces")).status_code == 200

    found = await samples(client)
    assert found["sandur_sign_ins_total", "refused"] == 1
    assert found["sandur_sign_ins_total", "ok"] == 1
    assert found["sandur_grant_decisions_total", "allowed"] >= 1


async def test_the_loop_lag_is_measured(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while (await samples(client))["sandur_loop_lag_seconds_count",] == 0:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.05)


def test_at_most_200_tables_have_metrics_of_their_own() -> None:
    names = [f"main.ns.t{number}" for number in range(201)]

    assert len(load_settings(flags={"metrics_tables": names[:200]}).metrics_tables) == 200
    with pytest.raises(BadRequest, match="metrics_tables has 201 tables: expected at most 200"):
        load_settings(flags={"metrics_tables": names})
