"""Requests for maintenance in the store: made once, taken up by the plan, kept while they wait, removed when over."""

from collections.abc import Mapping

import msgspec
import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.maintenance.plan import Plan
from sandur.catalog.maintenance.policies import FieldOrigin, PolicyRecord
from sandur.catalog.maintenance.requests import MaintenanceRequest, ended_request, waiting_request
from sandur.catalog.records import NamespaceRecord
from sandur.errors import Invalid, NotFound
from sandur.operations.janitors.sweep import DAY_MS
from sandur.operations.lake import Lake
from sandur.operations.maintenance.planning import plan_run
from sandur.operations.maintenance.requests import change_requests, list_requests, request_cell, request_maintenance
from sandur.operations.tables.names import resolve_name
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import create, identifier_of, keyed_request, request
from tests.ui.published import publish

ORDERS = identifier_of("orders")
MEASURED: Mapping[str, object] = {
    "catalog": "main",
    "namespace": "a",
    "format": "iceberg",
    "policy_json": "[]",
    "needs_json": "[]",
    "last_commit_ms": 1,
    "small_files": 100,
    "small_bytes": 1_000,
    "excess_files": 99,
}
SYSTEM = Namespace("main", ("system",))


@pytest.fixture
async def cluster() -> Cluster:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "orders")
    return cluster


async def state_of(lake: Lake) -> MaintenanceRequest:
    (found,) = await list_requests(lake)
    return found


async def test_an_open_request_stays_and_one_that_is_over_is_replaced(cluster: Cluster) -> None:
    lake = cluster.server()
    first = await request_maintenance(lake, ORDERS, request("first"))
    cluster.clock.advance(1_000)
    again = await request_maintenance(lake, ORDERS, request("again"))
    await change_requests(lake, [first], _done)
    over = await state_of(lake)
    cluster.clock.advance(1_000)
    new = await request_maintenance(lake, ORDERS, request("new"))

    assert (first.state, again.requested_ms) == ("requested", first.requested_ms)
    assert over.state == "done"
    assert (new.state, new.requested_ms) == ("requested", first.requested_ms + 2_000)


def _done(one: MaintenanceRequest) -> MaintenanceRequest:
    return ended_request(one, Plan([], []), (), now_ms=one.requested_ms + 1)


async def test_a_repeated_request_acts_once_also_after_a_run_took_it(cluster: Cluster) -> None:
    lake = cluster.server()
    first = await request_maintenance(lake, ORDERS, keyed_request("one"))
    await change_requests(lake, [first], _done)

    replayed = await request_maintenance(cluster.server(), ORDERS, keyed_request("one"))

    assert replayed.requested_ms == first.requested_ms
    assert (await state_of(lake)).state == "done"


async def test_requests_beyond_the_limit_of_a_run_are_taken_up_by_later_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are over stay in the store for a time, and take no place of those that wait."""
    monkeypatch.setattr("sandur.operations.maintenance.requests.REQUESTS_MAX", 3)
    cluster = await Cluster.with_catalog()
    lake = cluster.server()
    asked = []
    for number in range(8):
        await create(lake, f"t{number}")
        cluster.clock.advance(1)
        asked.append(await request_maintenance(lake, identifier_of(f"t{number}"), request(f"request {number}")))

    taken = []
    for _ in range(3):
        opened = [one for one in await list_requests(lake) if one.is_open]
        await change_requests(lake, opened, _done)
        taken.append([one.name for one in opened])

    assert taken == [["t2", "t1", "t0"], ["t5", "t4", "t3"], ["t7", "t6"]]
    left = [await request_cell(lake, one.uuid).read() for one in asked]
    assert {held.value.state for held in left if held} == {"done"}
    assert len(await list_requests(lake)) == 3


async def test_what_is_no_table_of_users_cannot_be_requested(cluster: Cluster) -> None:
    lake = cluster.server()

    await lake.namespace(SYSTEM).create(NamespaceRecord(state="active", id="system", parent_id="catalog"))
    await create(lake, "tables", SYSTEM)

    with pytest.raises(NotFound):
        await request_maintenance(lake, identifier_of("none"), request("a"))
    with pytest.raises(Invalid, match="system table"):
        await request_maintenance(lake, identifier_of("tables", SYSTEM), request("b"))
    assert await list_requests(lake) == []


async def test_a_run_changes_only_the_request_that_it_read(cluster: Cluster) -> None:
    lake = cluster.server()
    old = await request_maintenance(lake, ORDERS, request("old"))
    await change_requests(lake, [old], _done)
    cluster.clock.advance(1_000)
    await request_maintenance(lake, ORDERS, request("new"))

    await change_requests(lake, [old], lambda one: waiting_request(one, "late"))

    assert (await state_of(lake)).reason == ""


async def test_the_janitor_removes_what_is_over_and_what_belongs_to_no_table(cluster: Cluster) -> None:
    lake = cluster.server()
    await create(lake, "waits")
    over = await request_maintenance(lake, ORDERS, request("over"))
    await change_requests(lake, [over], _done)
    waits = await request_maintenance(lake, identifier_of("waits"), request("waits"))
    await request_cell(lake, "gone").create(replace(waits, uuid="gone"))

    cluster.clock.advance(40 * DAY_MS)
    await cluster.sweep()

    assert [one.uuid for one in await list_requests(lake)] == [waits.uuid]


async def test_the_plan_takes_requests_up_and_assumes_one_for_a_dry_run(cluster: Cluster) -> None:
    lake = cluster.server()
    await create(lake, "other")
    found = await resolve_name(lake, identifier_of("other"))
    assert found is not None
    asked = await request_maintenance(lake, ORDERS, request("one"))
    rows = [{**MEASURED, "name": "orders", "uuid": asked.uuid}, {**MEASURED, "name": "other", "uuid": found.uuid}]
    await publish(cluster.store, {"table_health": rows}, published_ms=1)

    planned = await plan_run(lake)
    assumed = await plan_run(lake, within="main.a.other", is_requested=True)

    assert {one.health.name for one in planned.plan.work} == {"orders"}
    assert list(planned.requests) == [asked.uuid]
    assert {one.health.name for one in assumed.plan.work} == {"other"}
    assert assumed.requests == {}
    assert planned.tables == {asked.uuid: True, found.uuid: True}
    assert assumed.tables == {asked.uuid: False, found.uuid: True}


async def test_the_plan_obeys_the_policies_of_now_and_the_properties_that_were_measured(cluster: Cluster) -> None:
    lake = cluster.server()
    before = [
        FieldOrigin("mode", "run", "catalog main"),
        FieldOrigin("priority", 90, "property maintenance.priority"),
        FieldOrigin("compaction.min_input_files", 3, "property maintenance.compaction.min_input_files"),
    ]
    row = {**MEASURED, "name": "orders", "uuid": "u", "policy_json": msgspec.json.encode(before).decode()}
    named = {
        "catalogs": [{"name": "main", "id": "c"}],
        "namespaces": [{"catalog": "main", "namespace": "a", "id": "n"}],
    }
    await publish(cluster.store, {"table_health": [row], **named}, published_ms=1)

    stopped = await plan_run(lake)
    for id_, values, locked in (("c", {"mode": "run"}, ()), ("n", {"priority": 7}, ("priority",))):
        record = PolicyRecord(scope_id=id_, values=values, locked=locked)
        await lake.uncached(lake.layout.policy(id_), PolicyRecord).create(record)
    running = await plan_run(lake)

    assert stopped.plan.work == []
    assert {one.operation for one in running.plan.work} == {"compaction", "orphans"}
    policy = running.states["u"].merged.policy
    assert (policy.mode, policy.priority, policy.compaction.min_input_files) == ("run", 7, 3)
