"""Claims are deleted when their keys have expired; open ones are decided first."""

import pytest
from msgspec.structs import replace

from sandur.catalog.records import AttemptedFile, Claim, Pointer
from sandur.errors import AlreadyExists
from sandur.operations.receipts import tried_of
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from tests.operations.janitor_runs import HOUR_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    create,
    identifier_of,
    keyed_request,
    request,
    set_property,
    table,
)

T, U = identifier_of("t"), identifier_of("u")
UUID = "5b6b2b4e-0000-4000-8000-000000000009"


async def test_a_finished_claim_is_kept_for_replays_and_then_deleted() -> None:
    cluster = await Cluster.with_catalog(idempotency_key_lifetime="PT2H")
    sent = keyed_request("create")
    server = cluster.server()
    made = await create_table(server, NAMESPACE, table("t"), sent)
    await server.background.drain()
    cluster.clock.advance(26 * HOUR_MS - 1)
    await cluster.sweep()

    again = await create_table(cluster.server(), NAMESPACE, table("t"), sent)

    assert again.table_uuid == made.table_uuid
    cluster.clock.advance(1)
    assert (await cluster.sweep())["claims_removed"] == 1
    with pytest.raises(AlreadyExists):
        await create_table(cluster.server(), NAMESPACE, table("t"), sent)


async def open_claim(cluster: Cluster, uuid: str, *tried: AttemptedFile) -> str:
    claim = Claim(
        state="open",
        request_hash="h",
        operation="commit",
        owner="o",
        started_ms=cluster.clock.now_ms(),
        uuid=uuid,
        locations=tried,
    )
    await cluster.server().commit_claim(uuid, "abcd").create(claim)
    cluster.clock.advance(24 * HOUR_MS + cluster.server().settings.claim_timeout_ms)
    return cluster.server().layout.commit_claim(uuid, "abcd")


async def test_an_open_claim_whose_file_was_committed_is_kept_for_replays_and_then_deleted() -> None:
    """C5, as head and as a receipt: the proof needs no write, and no takeover."""
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    pointer = await cluster.server().pointer(made.table_uuid).read()
    assert pointer
    assert pointer.value.head
    never = AttemptedFile("memory://store/never", 1)
    await open_claim(cluster, made.table_uuid, never, tried_of(pointer.value.head))
    server = cluster.server()
    await commit_table(server, T, commit(set_property("a", "b")), request("on top"))
    await server.background.drain()
    before = await cluster.server().commit_claim(made.table_uuid, "abcd").read()

    swept = await cluster.sweep()

    assert not {"commit_claims_settled", "commit_claims_removed"} & swept.keys()
    assert await cluster.server().commit_claim(made.table_uuid, "abcd").read() == before
    cluster.clock.advance(2 * HOUR_MS)
    assert (await cluster.sweep())["commit_claims_removed"] == 1


async def test_an_open_claim_is_decided_by_its_receipt_when_no_log_has_its_file() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t", properties={"write.metadata.previous-versions-max": "1"})
    pointer = await cluster.server().pointer(made.table_uuid).read()
    assert pointer
    assert pointer.value.head
    key = await open_claim(cluster, made.table_uuid, tried_of(pointer.value.head))
    server = cluster.server()
    for number in range(3):
        await commit_table(server, T, commit(set_property("a", str(number))), request(f"on top {number}"))
    await server.background.drain()

    assert "commit_claims_removed" not in await cluster.sweep()
    assert key in await cluster.keys()


async def test_an_open_claim_without_a_commit_is_deleted() -> None:
    cluster = await Cluster.with_catalog()
    made = await create(cluster.server(), "t")
    key = await open_claim(cluster, made.table_uuid, AttemptedFile("memory://store/never", 1))
    cluster.clock.advance(-1)
    await cluster.sweep()
    assert key in await cluster.keys()

    cluster.clock.advance(1)

    assert (await cluster.sweep())["commit_claims_removed"] == 1
    assert key not in await cluster.keys()


async def test_the_head_of_an_unbound_pointer_does_not_prove_a_commit() -> None:
    """N7: the creation has not happened."""
    cluster = await Cluster.with_catalog(orphan_retention="P30D")
    made = await create(cluster.server(), "t")
    head = (await cluster.server().pointer(made.table_uuid).read()).value.head  # type: ignore[union-attr] # It is there.
    assert head
    never = replace(head, metadata_location="memory://store/never")
    pointer = Pointer(uuid=UUID, table_uuid=UUID, state="unbound", made_for=U, head=never)
    await cluster.server().pointer(UUID).create(pointer)
    await open_claim(cluster, UUID, tried_of(never))

    assert (await cluster.sweep())["commit_claims_removed"] == 1
