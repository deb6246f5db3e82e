"""Records of transactions are deleted when all participants are finished."""

import pytest

from sandur.catalog.records import Transaction
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import table_exists
from sandur.operations.transactions.coordinator import commit_transaction
from tests.operations.janitor_runs import HOUR_MS, Shore
from tests.operations.requests import (
    called,
    commit,
    content,
    create,
    created_by_commit,
    keyed,
    load,
    set_property,
)

T, U = called("t"), called("u")
UUID = "5b6b2b4e-0000-4000-8000-000000000009"


async def both(server: Lake, label: str) -> None:
    """A change of `t` and the creation of `made`."""
    commits = [(T, commit(set_property("by", label))), (called("made"), created_by_commit(UUID))]
    await commit_transaction(server, "main", commits, keyed(label))


async def record(shore: Shore, label: str) -> Transaction | None:
    found = await shore.server().transaction(key_hash_of(keyed(label)) or "").read()
    return found.value if found else None


async def test_a_committed_transaction_is_finished_before_its_record_is_deleted() -> None:
    shore = await Shore.furnished()
    made = await create(shore.server(), "t")
    await dies_when_committed(shore)
    shore.clock.advance(HOUR_MS)

    assert (await shore.sweep()).get("transactions_removed") is None
    pointer = await shore.server().pointer(made.table_uuid).read()
    name, created = await shore.server().name(called("made")).read(), await shore.server().pointer(UUID).read()
    assert pointer
    assert name
    assert created
    assert (pointer.value.pending, name.value.state, created.value.state) == (None, "active", "live")

    shore.clock.advance(25 * HOUR_MS)
    assert (await shore.sweep())["transactions_removed"] == 1
    assert content(await load(shore.server(), T))["properties"]["by"] == "both"
    assert await table_exists(shore.server(), called("made"))


async def dies_when_committed(shore: Shore) -> None:
    async def is_committed(server: Lake) -> bool:
        record = await server.transaction(key_hash_of(keyed("both")) or "").read()
        return record is not None and record.value.state == "committed"

    await shore.dies_when(lambda server: both(server, "both"), is_committed)


async def test_an_abandoned_transaction_is_aborted_after_an_hour_and_then_deleted() -> None:
    shore = await Shore.furnished()
    now_ms = shore.clock.now_ms()
    record = Transaction(state="preparing", attempt="a", request_hash="h", started_ms=now_ms, attempt_ms=now_ms)
    await shore.server().transaction("x").create(record)
    shore.clock.advance(HOUR_MS - 1)

    assert await shore.sweep() == {}
    shore.clock.advance(1)
    assert await shore.sweep() == {"transactions_settled": 1}
    shore.clock.advance(HOUR_MS)
    assert await shore.sweep() == {"transactions_removed": 1}


async def test_a_refusal_is_kept_for_replays() -> None:
    shore = await Shore.furnished()
    await create(shore.server(), "made")
    await create(shore.server(), "t")
    with pytest.raises(Exception, match="already exists"):
        await both(shore.server(), "refused")
    shore.clock.advance(25 * HOUR_MS - 1)

    await shore.sweep()

    assert await record(shore, "refused")
    shore.clock.advance(1)
    assert (await shore.sweep())["transactions_removed"] == 1


async def test_a_committed_record_is_kept_for_replays() -> None:
    shore = await Shore.furnished()
    await create(shore.server(), "t")
    await both(shore.server(), "once")
    shore.clock.advance(25 * HOUR_MS - 2)
    await shore.sweep()

    await both(shore.server(), "once")

    assert await record(shore, "once")
