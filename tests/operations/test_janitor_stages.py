"""Stages that were never committed are deleted when they expire, and nothing else."""

from sandur.catalog.records import Stage
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from tests.operations.janitor_runs import HOUR_MS, Shore
from tests.operations.requests import (
    NAMESPACE,
    called,
    created_by_commit,
    load,
    request,
    table,
)

T, U = called("t"), called("u")


async def test_a_stage_is_deleted_when_it_expires() -> None:
    shore = await Shore.furnished(stage_ttl="PT72H")
    staged = await create_table(shore.server(), NAMESPACE, table("t", stage_create=True), request("stage"))
    cell = shore.server().stage(T, staged.table_uuid)
    shore.clock.advance(72 * HOUR_MS - 1)

    assert await shore.sweep() == {}
    assert await cell.read()
    shore.clock.advance(1)
    assert await shore.sweep() == {"stages_removed": 1}
    assert await cell.read() is None


async def test_only_the_stage_is_deleted() -> None:
    """S4: a late commit still succeeds, and a committed table stays."""
    shore = await Shore.furnished()
    staged = await create_table(shore.server(), NAMESPACE, table("t", stage_create=True), request("stage"))
    made = created_by_commit(staged.table_uuid)
    server = shore.server()
    await commit_table(server, T, made, request("commit"))
    await server.background.drain()
    stage = Stage(table_uuid=staged.table_uuid, identifier=T, location="memory://store/x", created_ms=0, expires_ms=1)
    await shore.server().stage(T, staged.table_uuid).create(stage)
    before = await shore.keys()
    shore.clock.advance(100 * HOUR_MS)

    swept = await shore.sweep()

    assert swept == {"stages_removed": 1}
    assert set(before) - set(await shore.keys()) == {shore.server().layout.stage(T, staged.table_uuid)}
    assert (await load(shore.server(), T)).table_uuid == staged.table_uuid


async def test_the_record_decides_and_not_the_current_setting() -> None:
    shore = await Shore.furnished(stage_ttl="PT1H")
    stage = Stage(
        table_uuid="u",
        identifier=T,
        location="memory://store/x",
        created_ms=0,
        expires_ms=shore.clock.now_ms() + 9 * HOUR_MS,
    )
    await shore.server().stage(T, "u").create(stage)
    shore.clock.advance(8 * HOUR_MS)

    assert await shore.sweep() == {}
