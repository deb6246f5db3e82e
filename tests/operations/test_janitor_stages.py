"""Stages that were never committed are deleted when they expire, and nothing else."""

from sandur.catalog.records import Stage
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from tests.operations.janitor_runs import HOUR_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    create_commit,
    identifier_of,
    load,
    request,
    table,
)

T, U = identifier_of("t"), identifier_of("u")


async def test_a_stage_is_deleted_when_it_expires() -> None:
    cluster = await Cluster.with_catalog(stage_ttl="PT72H")
    staged = await create_table(cluster.server(), NAMESPACE, table("t", stage_create=True), request("stage"))
    cell = cluster.server().stage(T, staged.table_uuid)
    cluster.clock.advance(72 * HOUR_MS - 1)

    assert await cluster.sweep() == {}
    assert await cell.read()
    cluster.clock.advance(1)
    assert await cluster.sweep() == {"stages_removed": 1}
    assert await cell.read() is None


async def test_only_the_stage_is_deleted() -> None:
    """S4: a late commit still succeeds, and a committed table stays."""
    cluster = await Cluster.with_catalog()
    staged = await create_table(cluster.server(), NAMESPACE, table("t", stage_create=True), request("stage"))
    made = create_commit(staged.table_uuid)
    server = cluster.server()
    await commit_table(server, T, made, request("commit"))
    await server.background.drain()
    stage = Stage(table_uuid=staged.table_uuid, identifier=T, location="memory://store/x", created_ms=0, expires_ms=1)
    await cluster.server().stage(T, staged.table_uuid).create(stage)
    before = await cluster.keys()
    cluster.clock.advance(100 * HOUR_MS)

    swept = await cluster.sweep()

    assert swept == {"stages_removed": 1}
    assert set(before) - set(await cluster.keys()) == {cluster.server().layout.stage(T, staged.table_uuid)}
    assert (await load(cluster.server(), T)).table_uuid == staged.table_uuid


async def test_the_record_decides_and_not_the_current_setting() -> None:
    cluster = await Cluster.with_catalog(stage_ttl="PT1H")
    stage = Stage(
        table_uuid="u",
        identifier=T,
        location="memory://store/x",
        created_ms=0,
        expires_ms=cluster.clock.now_ms() + 9 * HOUR_MS,
    )
    await cluster.server().stage(T, "u").create(stage)
    cluster.clock.advance(8 * HOUR_MS)

    assert await cluster.sweep() == {}
