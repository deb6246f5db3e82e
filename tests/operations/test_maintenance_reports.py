"""Reports of maintenance for a caller who may see few tables of a large workspace."""

from collections.abc import Mapping

import msgspec
import pytest

from sandur.catalog.maintenance.policies import FieldOrigin, merged_again, policy_hash
from sandur.catalog.maintenance.records import PastRecord, RunEnd
from sandur.catalog.security.privileges import Needs
from sandur.operations import table_health
from sandur.operations.lake import Lake
from sandur.operations.maintenance.planning import plan_run
from sandur.operations.maintenance.reports import load_plan
from sandur.operations.maintenance.runs import RunRecords
from sandur.operations.table_health import load_table_health
from sandur.operations.tables.names import resolve_name
from tests.operations.authorized_lakes import T, enter, lake_of_principals
from tests.operations.principals import acting, grant
from tests.ui.published import publish

INVISIBLE = 1_050
MEASURED: Mapping[str, object] = {
    "catalog": "main",
    "namespace": "a",
    "format": "iceberg",
    "policy_json": "[]",
    "needs_json": '["compaction"]',
    "last_commit_ms": 1,
    "small_files": 100,
    "small_bytes": 1_000,
    "excess_files": 99,
}


async def lake_of_bob() -> Lake:
    """Bob may see one table, which needs less than all others."""
    lake = await lake_of_principals()
    await enter(lake, "bob")
    await grant(lake, "bob", "table", "main.a.t", "SELECT")
    found = await resolve_name(lake, T)
    assert found
    others = [
        {**MEASURED, "name": f"n{number:04}", "uuid": f"{number:04}", "benefit": 2.0} for number in range(INVISIBLE)
    ]
    rows = [*others, {**MEASURED, "name": "t", "uuid": found.uuid, "benefit": 1.0}]
    await publish(lake.store, {"table_health": rows}, published_ms=1)
    return acting(lake, "bob", Needs("metastore"), on="metastore")


async def test_a_caller_who_sees_few_tables_finds_them_behind_all_others() -> None:
    lake = await lake_of_bob()

    plan = await load_plan(lake, limit=20)
    health = await load_table_health(lake, worst=20)

    assert ([row["name"] for row in plan.rows], plan.is_cut) == (["t"], False)
    assert ([row.name for row in health.rows], health.is_cut) == (["main.a.t"], False)


async def test_an_answer_says_that_not_all_tables_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_health, "LOOKED_AT_MAX", 100)
    lake = await lake_of_bob()

    plan = await load_plan(lake, limit=20)
    health = await load_table_health(lake, worst=20)

    assert (plan.rows, plan.is_cut) == ([], True)
    assert (health.rows, health.is_cut) == ([], True)


async def test_the_plan_names_work_that_would_find_nothing_and_does_not_count_it_as_waiting() -> None:
    lake = await lake_of_principals()
    decided = msgspec.json.encode([FieldOrigin("mode", "run", "property maintenance.mode")]).decode()
    row = {**MEASURED, "name": "t", "uuid": "u", "policy_json": decided}
    await publish(lake.store, {"table_health": [row]}, published_ms=1)
    hash_ = policy_hash(merged_again([], decided))
    past = PastRecord(uuid="u", operation="compaction", nothing_ms=lake.clock.now_ms(), nothing_policy=hash_)
    await RunRecords(lake, "1").write_end(RunEnd(run="1", ended_ms=1, pasts=(past,)))

    plan = await load_plan(lake)

    assert [(row["operation"], row.get("skipped", "")) for row in plan.rows] == [
        ("orphans", ""),
        ("compaction", "it found nothing to do, and nothing has changed since"),
    ]
    assert "compaction" not in [one.operation for one in (await plan_run(lake)).plan.skipped]
