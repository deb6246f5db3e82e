"""Records of transactions are deleted when all participants are finished."""

import pytest

from sandur.catalog.records import Transaction
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import table_exists
from sandur.operations.transactions.coordinator import commit_transaction
from tests.operations.janitor_runs import HOUR_MS, Cluster
from tests.operations.requests import (
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    keyed_request,
    load,
    set_property,
)

T, U = identifier_of("t"), identifier_of("u")
UUID = "5b6b2b4e-0000-4000-8000-000000000009"


async def commit_both(server: Lake, label: str) -> None:
    """A change of `t` and the creation of `made`."""
    commits = [(T, commit(set_property("by", label))), (identifier_of("made"), create_commit(UUID))]
    await commit_transaction(server, "main", commits, keyed_request(label))


async def read_record(cluster: Cluster, label: str) -> Transaction | None:
    found = await cluster.server().transaction(key_hash_of(keyed_request(label)) or "").read()
    return found.value if found else None


async def test_a_committed_transaction_is_finished_before_its_record_is_deleted() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    await kill_when_committed(cluster)
    cluster.clock.advance(HOUR_MS)

    assert (await cluster.sweep()).get("transactions_removed") is None
    pointer = await cluster.server().pointer(made.table_uuid).read()
    name, created = (
        await cluster.server().name(identifier_of("made")).read(),
        await cluster.server().pointer(UUID).read(),
    )
    assert pointer
    assert name
    assert created
    assert (pointer.value.pending, name.value.state, created.value.state) == (None, "active", "live")

    cluster.clock.advance(25 * HOUR_MS)
    assert (await cluster.sweep())["transactions_removed"] == 1
    assert content(await load(cluster.server(), T))["properties"]["by"] == "both"
    assert await table_exists(cluster.server(), identifier_of("made"))


async def kill_when_committed(cluster: Cluster) -> None:
    async def is_committed(server: Lake) -> bool:
        record = await server.transaction(key_hash_of(keyed_request("both")) or "").read()
        return record is not None and record.value.state == "committed"

    await cluster.kill_when(lambda server: commit_both(server, "both"), is_committed)


async def test_an_abandoned_transaction_is_aborted_after_an_hour_and_then_deleted() -> None:
    cluster = await Cluster.with_catalog()
    now_ms = cluster.clock.now_ms()
    record = Transaction(state="preparing", attempt="a", request_hash="h", started_ms=now_ms, attempt_ms=now_ms)
    await cluster.server().transaction("x").create(record)
    cluster.clock.advance(HOUR_MS - 1)

    assert await cluster.sweep() == {}
    cluster.clock.advance(1)
    assert await cluster.sweep() == {"transactions_settled": 1}
    cluster.clock.advance(HOUR_MS)
    assert await cluster.sweep() == {"transactions_removed": 1}


async def test_a_refusal_is_kept_for_replays() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "made")
    await create(cluster.server(), "t")
    with pytest.raises(Exception, match="already exists"):
        await commit_both(cluster.server(), "refused")
    cluster.clock.advance(25 * HOUR_MS - 1)

    await cluster.sweep()

    assert await read_record(cluster, "refused")
    cluster.clock.advance(1)
    assert (await cluster.sweep())["transactions_removed"] == 1


async def test_a_committed_record_is_kept_for_replays() -> None:
    cluster = await Cluster.with_catalog()
    await create(cluster.server(), "t")
    await commit_both(cluster.server(), "once")
    cluster.clock.advance(25 * HOUR_MS - 2)
    await cluster.sweep()

    await commit_both(cluster.server(), "once")

    assert await read_record(cluster, "once")
