"""The history of a table: when each snapshot was committed, and with which schema and partition spec."""

import pytest

from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.history import Row, partition_spec_history, schema_history, snapshot_history
from sandur.storage.contract import list_all
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    TIMESTAMP_MS,
    commit,
    create,
    identifier_of,
    request,
    set_property,
    set_up_catalog,
    snapshot,
)

T = identifier_of("t")
BY_FIELD = {"source-id": 1, "field-id": 1000, "name": "x", "transform": "identity"}
BY_X = {"spec-id": 1, "fields": [BY_FIELD]}
LATER = {"id": 2, "name": "later", "type": "string", "required": False}


class Table:
    """A table to which each commit is made a second after the previous one."""

    def __init__(self, lake: Lake, clock: FixedClock) -> None:
        self.lake = lake
        self._clock = clock
        self._number = 0

    async def commit(self, *updates: dict[str, object]) -> int:
        """The time of the commit."""
        self._clock.advance(1_000)
        self._number += 1
        await commit_table(self.lake, T, commit(*updates), request(f"commit {self._number}"))
        await self.lake.background.drain()
        return self._clock.now_ms()

    async def append(self, snapshot_id: int, parent: int | None = None, *, ref: str = "main") -> int:
        """The time of a commit that adds a snapshot to a branch."""
        added: dict[str, object] = {**snapshot(snapshot_id, parent), "schema-id": 0}
        branch = {"action": "set-snapshot-ref", "ref-name": ref, "type": "branch", "snapshot-id": snapshot_id}
        return await self.commit({"action": "add-snapshot", "snapshot": added}, branch)


@pytest.fixture
async def table() -> Table:
    clock = FixedClock()
    lake = make_lake(clock=clock)
    await set_up_catalog(lake)
    await create(lake, "t")
    await lake.background.drain()
    return Table(lake, clock)


async def test_a_table_without_snapshots_shows_its_current_schema_and_spec(table: Table) -> None:
    (schema,), (spec,) = await schema_history(table.lake, T), await partition_spec_history(table.lake, T)

    assert (schema["snapshot-id"], schema["schema-id"]) == (None, 0)
    assert (spec["snapshot-id"], spec["spec-id"], spec["is-default"]) == (None, 0, True)
    assert await snapshot_history(table.lake, T) == []


async def test_every_snapshot_has_the_spec_and_the_time_of_its_commit(table: Table) -> None:
    first = await table.append(1)
    await table.commit({"action": "add-spec", "spec": BY_X}, {"action": "set-default-spec", "spec-id": -1})
    third = await table.append(3, 1)

    specs = await partition_spec_history(table.lake, T)
    snapshots = await snapshot_history(table.lake, T)

    found = [(row["snapshot-id"], row["timestamp-ms"], row["ingested-at-ms"], row["spec-id"]) for row in specs]
    assert found == [(1, TIMESTAMP_MS + 1, first, 0), (3, TIMESTAMP_MS + 3, third, 1)]
    assert [str(row["fields"]) for row in specs] == ["()", str((BY_FIELD,))]
    assert [spec_of(row)["spec-name"] for row in snapshots] == ["spec-0", "spec-1"]


def spec_of(row: Row) -> Row:
    spec = row["partition-spec"]
    assert isinstance(spec, dict)
    return spec


async def test_a_spec_without_a_snapshot_is_listed_last(table: Table) -> None:
    await table.append(1)
    await table.commit({"action": "add-spec", "spec": BY_X})

    specs = await partition_spec_history(table.lake, T)

    assert [(row["snapshot-id"], row["spec-id"]) for row in specs] == [(1, 0), (None, 1)]
    assert [row["is-default"] for row in specs] == [True, False]


async def test_a_snapshot_on_a_branch_has_the_time_of_its_commit(table: Table) -> None:
    await table.append(1)
    time_ms = await table.append(9, 1, ref="dev")

    (_, on_branch) = await snapshot_history(table.lake, T)

    assert (on_branch["refs"], on_branch["is-current"]) == (["dev"], False)
    assert (on_branch["parent-snapshot-id"], on_branch["ingested-at-ms"]) == (1, time_ms)


async def test_a_schema_is_that_of_its_snapshot(table: Table) -> None:
    await table.append(1)
    fields = [{"id": 1, "name": "x", "type": "long", "required": True}, LATER]
    added: dict[str, object] = {"action": "add-schema", "schema": {"type": "struct", "fields": fields}}
    await table.commit(added, {"action": "set-current-schema", "schema-id": -1})

    (row,) = await schema_history(table.lake, T)

    assert row["schema-id"] == 0
    assert "'name': 'x'" in str(row["schema"])
    assert "later" not in str(row["schema"])


async def test_the_time_of_a_snapshot_is_unknown_without_the_receipt_of_its_commit(table: Table) -> None:
    """A later commit shows the snapshot, too, but not when it came."""
    await table.append(1)
    await table.commit(set_property("a", "b"))
    for one in await list_all(table.lake.store, table.lake.layout.events_folder()):
        found = await table.lake.store.get(one.key)
        if found and b'"operation":"append"' in found.data:
            await table.lake.store.delete(one.key, expected=one.version)

    (row,) = await snapshot_history(table.lake, T)

    assert (row["snapshot-id"], row["ingested-at-ms"]) == (1, None)
