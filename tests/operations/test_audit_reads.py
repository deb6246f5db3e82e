"""Allowed reads in the audit trail: kept together, built when they are written, and bounded like all records."""

import asyncio
import gzip
from collections.abc import Hashable
from typing import Final, Literal

import msgspec
import pytest

from sandur.catalog.audit import AuditRecord
from sandur.errors import Unavailable
from sandur.operations.audit import trail
from sandur.operations.counters import AUDIT_LOST, AUDIT_WRITTEN
from sandur.storage.layout import Layout
from tests.operations.test_audit_trail import World

OTHER: Final = Layout("acme", "prod")


class Read(msgspec.Struct):
    """A read of the table `name`, which counts how often its record is built."""

    name: str
    time_ms: int
    request_id: str = "r"
    declared_trace_id: str = ""
    tenant: str = "default"
    workspace: str = "default"
    kind: Literal["read"] = "read"

    def key(self) -> Hashable:
        return self.name

    def build(self) -> AuditRecord:
        built.append(self.name)
        return AuditRecord(
            time_ms=self.time_ms,
            kind="read",
            operation="load",
            decision="allowed",
            status=200,
            outcome="done",
            request_id=self.request_id,
            tenant=self.tenant,
            workspace=self.workspace,
            securable_name=self.name,
            declared_trace_id=self.declared_trace_id,
        )


built: Final[list[str]] = []


@pytest.fixture
def world() -> World:
    built.clear()
    return World()


def add(world: World, *names: str, **fields: str) -> None:
    for name in names:
        world.trail.add_read(Read(name, world.clock.now_ms(), **fields))  # type: ignore[arg-type] # Given by name.
        world.clock.advance(1)


async def test_reads_with_the_same_key_are_built_once_and_keep_their_own_times_and_ids(world: World) -> None:
    began_ms = world.clock.now_ms()
    add(world, "a", "a", request_id='"first"')
    add(world, "b", request_id="second", declared_trace_id="0af7651916cd43dd8448eb211c80319c")
    add(world, "a", request_id="third")

    await world.trail.flush()
    records = (await world.search()).records

    assert built == ["a", "b"]
    assert [record.securable_name for record in records] == ["a", "a", "b", "a"]
    assert [record.time_ms - began_ms for record in records] == [0, 1, 2, 3]
    assert [record.request_id for record in records] == ['"first"', '"first"', "second", "third"]
    assert [bool(record.declared_trace_id) for record in records] == [False, False, True, False]
    assert world.trail.counters.times(AUDIT_WRITTEN, "read") == 4


def test_the_line_of_a_read_is_that_of_its_record() -> None:
    read = Read("a", 17, "r", "0af7651916cd43dd8448eb211c80319c")

    lines = [gzip.decompress(trail.encode_batch("b", [one])) for one in (read, read.build())]

    assert msgspec.json.decode(lines[0]) == msgspec.json.decode(lines[1])


async def test_reads_are_written_by_themselves_and_into_their_workspaces(world: World) -> None:
    add(world, "mine")
    add(world, "theirs", tenant=OTHER.tenant, workspace=OTHER.workspace)

    async with asyncio.timeout(30):
        while not await world.objects() or not await world.objects(OTHER):
            world.store.written.clear()
            await world.store.written.wait()

    assert await world.names() == ["mine"]
    await world.trail.close()


async def test_reads_and_other_records_are_in_the_order_of_their_times(world: World) -> None:
    add(world, "1")
    world.add("denial", name="2")
    world.clock.advance(1)
    add(world, "3")

    await world.trail.flush()

    assert await world.names() == ["1", "2", "3"]


async def test_reads_are_taken_over_in_groups_and_fill_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "READS_AT_ONCE", 4)
    monkeypatch.setattr(trail, "BATCH_RECORDS_MAX", 10)

    add(world, *map(str, range(23)))
    await world.trail.close()

    assert await world.names() == [str(number) for number in range(23)]
    assert len(await world.objects()) == 3


async def test_reads_beyond_the_bound_are_lost_counted_and_give_way_to_denials(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "READS_AT_ONCE", 4)
    monkeypatch.setattr(trail, "WORKSPACE_RECORDS_MAX", 10)

    add(world, *map(str, range(40)))
    for number in range(5):
        world.add("denial", name=f"denied {number}")
    await world.trail.flush()
    kept = [name for name in await world.names() if name]

    assert [name for name in kept if name.startswith("denied")] == [f"denied {number}" for number in range(5)]
    assert len(kept) == 10
    assert world.trail.counters.times(AUDIT_LOST, "read") == 35
    assert sum(lost.get("read", 0) for lost, _ in world.reported) == 35
    await world.trail.close()


async def test_reads_that_could_not_be_written_at_the_end_are_counted_as_lost(world: World) -> None:
    world.store.error = Unavailable("the store is gone")
    add(world, "a", "b", "c")

    await world.trail.close()

    assert world.trail.counters.times(AUDIT_LOST, "read") == 3


async def test_reads_are_sampled_and_not_kept_for_a_trail_of_changes() -> None:
    sampled = World(audit_reads_sampled=0.25)
    add(sampled, *map(str, range(400)))
    await sampled.trail.close()

    assert 60 < sampled.trail.counters.times(AUDIT_WRITTEN, "read") < 140  # The chance has a fixed seed.
    assert not World(audit="changes").trail.has_reads
