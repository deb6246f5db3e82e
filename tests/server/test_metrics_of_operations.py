"""The metrics of a running server after requests: outcomes of commits, sign-ins, decisions, bytes, listed tables."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from uuid import UUID

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sandur.catalog.maintenance.records import RunEnd
from sandur.clock import SystemClock
from sandur.errors import BadRequest, Unavailable
from sandur.operations.backlog import note_success, read_backlog
from sandur.operations.maintenance.runs import RunRecords
from sandur.setting_sources import load_settings
from sandur.settings import RetrySettings
from sandur.storage.memory import MemoryStore
from sandur.storage.pace import PacedStore
from sandur.storage.retry import RetryingStore
from tests.fakes.openlineage import run_event
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake
from tests.server.conftest import Catalogs
from tests.server.requests import add_snapshot, create_table, set_properties
from tests.server.unity.client import Unity
from tests.server.unity.delta_requests import T, add_commit, created, update

TABLE: Final = "/v1/namespaces/ns/tables/t"
R = TypeVar("R")


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
    assert found["sandur_commits_total", "append"] == 1
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


async def test_commits_of_delta_tables_are_counted_by_how_they_ended(catalogs: Catalogs) -> None:
    client = await catalogs.open(delta_unpublished_max=2)
    unity = Unity(client)
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    uuid = (await created(unity))["metadata"]["table-uuid"]

    wanted = [add_commit(1), add_commit(1), add_commit(1, "other.json"), add_commit(2), add_commit(3)]
    statuses = [(await unity.post(T, update(uuid, one))).status_code for one in wanted]
    statuses.append((await unity.post(T, update(str(UUID(int=7)), add_commit(9)))).status_code)

    found = await samples(client)
    outcomes = {key[1]: value for key, value in found.items() if key[0] == "sandur_delta_commits_total"}
    assert statuses == [200, 200, 409, 200, 429, 409]
    assert outcomes == {"ok": 2, "replayed": 1, "conflict": 2, "full": 1, "unknown": 0, "unavailable": 0, "refused": 0}


async def test_lineage_events_and_streams_are_counted(catalogs: Catalogs) -> None:
    client = await catalogs.open(event_streams_max=0)

    kept = await client.post("/api/v1/lineage", json=run_event(1, "START", 1))
    refused = await client.get("/api/sandur/v1/events/stream")

    found = await samples(client)
    assert (kept.status_code, refused.status_code) == (201, 503)
    assert found["sandur_lineage_events_total", "kept"] == 1
    assert found["sandur_event_streams_total", "refused"] == 1


async def test_plans_are_timed(client: httpx.AsyncClient) -> None:
    await make_table(client)

    assert (await client.post(f"{TABLE}/plan", json={})).status_code == 200

    assert (await samples(client))["sandur_planning_seconds_count",] == 1


async def test_requests_that_are_refused_early_are_counted_by_their_reason(catalogs: Catalogs) -> None:
    client = await catalogs.open(request_bytes_max=1_000)

    answer = await client.post("/v1/namespaces", json={"namespace": ["x" * 2_000]})

    assert answer.status_code == 413
    assert (await samples(client))["sandur_requests_refused_total", "413"] == 1


class SlowStore(WrappingStore):
    """A store that throttles the next read of a table."""

    is_slow = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[R]]) -> R:
        if self.is_slow and "/names/" in call.key:
            self.is_slow = False
            raise Unavailable(f"object {call.key}: SlowDown", is_throttled=True)
        return await perform()


async def test_calls_that_a_bucket_throttled_and_that_were_repeated_are_counted(catalogs: Catalogs) -> None:
    store, retry = SlowStore(MemoryStore()), RetrySettings(second_reads_share=0)
    client = await catalogs.open(RetryingStore(PacedStore(store, retry), SystemClock(), retry))
    await make_table(client)
    store.is_slow = True

    assert (await client.get(TABLE)).status_code == 200

    found = await samples(client)
    paced = {key[1]: value for key, value in found.items() if key[0] == "sandur_storage_pace_total"}
    assert paced == {"throttled": 1, "slowed": 1, "retried": 1}


async def test_what_waits_in_the_store_is_read_when_a_server_starts(catalogs: Catalogs) -> None:
    store = MemoryStore()
    lake = make_lake(store, SystemClock())
    await note_success(lake, "sync")
    await RunRecords(lake, "1").write_end(RunEnd(run="1", ended_ms=5_000, saved_bytes=7))
    client = await catalogs.open(store)
    name = "sandur_last_success_timestamp_seconds"

    async with asyncio.timeout(60):
        while (name, "sync") not in (found := await samples(client)):  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.05)

    backlog = await read_backlog(lake)
    assert found[name, "sync"] == backlog.last_success_ms["sync"] / 1_000
    assert found["sandur_maintenance_saved_bytes",] == 7
    assert found["sandur_maintenance_last_run_seconds",] == 5


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
    assert found["sandur_requests_refused_total", "401"] == 1
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
