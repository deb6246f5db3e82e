"""Receipts: one for every file that became current, the same bytes from every writer, one chain per table."""

import contextlib
import hashlib

import pytest

from sandur.catalog.events import Source
from sandur.catalog.records import AttemptedFile, Head, Request
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipts, commit_key, receipt_key, receipt_of, tried_of
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.storage.layout import Layout
from tests.fakes.dying_store import Died, DyingStore
from tests.operations.invariants import all_receipts, check_invariants
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    identifier_of,
    load,
    request,
    set_property,
    set_up_catalog,
    table,
)

T = identifier_of("t")
HEAD = Head(metadata_location="memory://store/a.json", last_updated_ms=1_767_225_600_000, snapshot_id=7)


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def test_the_key_is_derived_from_the_file_and_the_date_of_its_metadata() -> None:
    key = receipt_key(Layout(), tried_of(HEAD))

    assert commit_key(HEAD.metadata_location) == hashlib.sha256(b"memory://store/a.json").hexdigest()
    assert key.endswith(f"_catalog/events/2026-01-01/iceberg/committed/{commit_key(HEAD.metadata_location)}.json")


def test_a_file_registered_twice_has_two_receipts() -> None:
    tried = [
        AttemptedFile(HEAD.metadata_location, HEAD.last_updated_ms, registration) for registration in ("", "1", "2")
    ]

    assert len({receipt_key(Layout(), one) for one in tried}) == 3


@pytest.mark.parametrize("time_ms", [-1, 0, 253_402_300_799_999, 2**62])
def test_a_receipt_key_exists_for_any_timestamp(time_ms: int) -> None:
    assert "/events/" in receipt_key(Layout(), AttemptedFile("x", time_ms))


def test_every_writer_of_a_receipt_writes_the_same_bytes() -> None:
    assert receipt_of("uuid", HEAD) == receipt_of("uuid", HEAD)


async def test_an_existing_receipt_is_not_written_again(lake: Lake) -> None:
    receipts = make_lake(lake.store).feature(Receipts)
    await receipts.ensure("uuid", HEAD)
    (listed,) = await lake.store.list(lake.layout.events_folder())

    await make_lake(lake.store).feature(Receipts).ensure("uuid", HEAD)

    assert [one.version for one in await lake.store.list(lake.layout.events_folder())] == [listed.version]
    assert await receipts.exists(tried_of(HEAD))
    assert not await make_lake(lake.store).feature(Receipts).exists(AttemptedFile("another", HEAD.last_updated_ms))


async def test_every_commit_has_a_receipt_with_its_source(lake: Lake) -> None:
    source = Source(kind="rest", principal="me", client="engine")
    await create_table(lake, NAMESPACE, table("t"), Request(request("create").hash, None, source))
    await commit_table(lake, T, append(1), Request(request("commit").hash, None, source))
    await lake.background.drain()

    first, second = sorted((await all_receipts(lake)).values(), key=lambda one: one.metadata_version)

    assert (first.operation, second.operation) == ("create", "append")
    assert second.snapshot_id == 1
    assert first.source == second.source == source
    assert second.previous_commit_key == first.commit_key
    assert second.metadata_location == (await load(lake, T)).metadata_location


async def test_the_next_server_writes_the_receipts_that_a_dead_server_did_not_write(lake: Lake) -> None:
    await create_table(lake, NAMESPACE, table("t"), request("create"))
    await lake.background.drain()
    for number in range(3):  # Each server dies right after its swap, without its background work.
        before = len((await check_invariants(make_lake(lake.store, lake.clock)))[await uuid(lake)].locations)
        for dies_at in range(1, 12):
            server = make_lake(DyingStore(lake.store, dies_at=dies_at, after=True), lake.clock)
            sent = request(f"commit {number} {dies_at}")
            with contextlib.suppress(Died):
                await commit_table(server, T, commit(set_property(f"p{number}", str(dies_at))), sent)
            await server.background.drain()
            whole = await check_invariants(make_lake(lake.store, lake.clock))
            if len(whole[await uuid(lake)].locations) > before:
                break

    whole = await check_invariants(make_lake(lake.store, lake.clock))
    assert len(whole[await uuid(lake)].locations) == 4


async def uuid(lake: Lake) -> str:
    return (await load(lake, T)).table_uuid


async def test_a_transaction_has_a_receipt_for_each_of_its_tables(lake: Lake) -> None:
    for name in ("t", "u"):
        await create_table(lake, NAMESPACE, table(name), request(f"create {name}"))

    await commit_transaction(lake, "main", [(T, append(1)), (identifier_of("u"), append(1))], request("both"))
    await lake.background.drain()

    operations = [one.operation for one in (await all_receipts(lake)).values()]
    assert sorted(operations) == ["append", "append", "create", "create"]
    await check_invariants(make_lake(lake.store, lake.clock))
