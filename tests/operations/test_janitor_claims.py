"""Claims are deleted when their keys have expired; open ones are decided first."""

import pytest
from msgspec.structs import replace

from sandur.catalog.records import AttemptedFile, Claim, Pointer
from sandur.errors import AlreadyExists
from sandur.operations.receipts import tried_of
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from tests.operations.janitor_runs import HOUR_MS, Shore
from tests.operations.requests import (
    NAMESPACE,
    called,
    commit,
    create,
    keyed,
    request,
    set_property,
    table,
)

T, U = called("t"), called("u")
UUID = "5b6b2b4e-0000-4000-8000-000000000009"


async def test_a_finished_claim_is_kept_for_replays_and_then_deleted() -> None:
    shore = await Shore.furnished(idempotency_key_lifetime="PT2H")
    sent = keyed("create")
    server = shore.server()
    made = await create_table(server, NAMESPACE, table("t"), sent)
    await server.background.drain()
    shore.clock.advance(26 * HOUR_MS - 1)
    await shore.sweep()

    again = await create_table(shore.server(), NAMESPACE, table("t"), sent)

    assert again.table_uuid == made.table_uuid
    shore.clock.advance(1)
    assert (await shore.sweep())["claims_removed"] == 1
    with pytest.raises(AlreadyExists):
        await create_table(shore.server(), NAMESPACE, table("t"), sent)


async def open_claim(shore: Shore, uuid: str, *tried: AttemptedFile) -> str:
    claim = Claim(
        state="open",
        request_hash="h",
        operation="commit",
        owner="o",
        started_ms=shore.clock.now_ms(),
        uuid=uuid,
        locations=tried,
    )
    await shore.server().commit_claim(uuid, "abcd").create(claim)
    shore.clock.advance(24 * HOUR_MS + shore.server().settings.claim_timeout_ms)
    return shore.server().layout.commit_claim(uuid, "abcd")


async def test_an_open_claim_whose_file_was_committed_is_marked_done() -> None:
    """C5, as head and as a receipt."""
    shore = await Shore.furnished()
    made = await create(shore.server(), "t")
    pointer = await shore.server().pointer(made.table_uuid).read()
    assert pointer
    assert pointer.value.head
    never = AttemptedFile("memory://store/never", 1)
    await open_claim(shore, made.table_uuid, never, tried_of(pointer.value.head))
    server = shore.server()
    await commit_table(server, T, commit(set_property("a", "b")), request("on top"))
    await server.background.drain()

    assert (await shore.sweep())["commit_claims_settled"] == 1
    claim = await shore.server().commit_claim(made.table_uuid, "abcd").read()
    assert claim
    assert claim.value.state == "done"
    assert claim.value.location == pointer.value.head.metadata_location


async def test_an_open_claim_is_decided_by_its_receipt_when_no_log_has_its_file() -> None:
    shore = await Shore.furnished()
    made = await create(shore.server(), "t", properties={"write.metadata.previous-versions-max": "1"})
    pointer = await shore.server().pointer(made.table_uuid).read()
    assert pointer
    assert pointer.value.head
    await open_claim(shore, made.table_uuid, tried_of(pointer.value.head))
    server = shore.server()
    for number in range(3):
        await commit_table(server, T, commit(set_property("a", str(number))), request(f"on top {number}"))
    await server.background.drain()

    assert (await shore.sweep())["commit_claims_settled"] == 1


async def test_an_open_claim_without_a_commit_is_deleted() -> None:
    shore = await Shore.furnished()
    made = await create(shore.server(), "t")
    key = await open_claim(shore, made.table_uuid, AttemptedFile("memory://store/never", 1))
    shore.clock.advance(-1)
    await shore.sweep()
    assert key in await shore.keys()

    shore.clock.advance(1)

    assert (await shore.sweep())["commit_claims_removed"] == 1
    assert key not in await shore.keys()


async def test_the_head_of_an_unbound_pointer_does_not_prove_a_commit() -> None:
    """N7: the creation has not happened."""
    shore = await Shore.furnished(orphan_retention="P30D")
    made = await create(shore.server(), "t")
    head = (await shore.server().pointer(made.table_uuid).read()).value.head  # type: ignore[union-attr] # It is there.
    assert head
    never = replace(head, metadata_location="memory://store/never")
    pointer = Pointer(uuid=UUID, table_uuid=UUID, state="unbound", made_for=U, head=never)
    await shore.server().pointer(UUID).create(pointer)
    await open_claim(shore, UUID, tried_of(never))

    assert (await shore.sweep())["commit_claims_removed"] == 1
