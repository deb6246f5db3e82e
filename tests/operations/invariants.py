"""The invariants of the protocols: what must be true of a store at rest, after any crash."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Head, Pointer
from sandur.operations.lake import Lake
from sandur.operations.receipts import Receipt, receipt_of
from sandur.operations.tables.documents import request_part, request_part_of
from sandur.operations.tables.names import resolve_name
from sandur.operations.transactions import resolution
from sandur.storage.cell import Versioned
from sandur.storage.contract import list_all
from tests.operations.event_chains import check_events


class Chain(NamedTuple):
    """The metadata files that were ever the head of a table, newest first, and its pointer as readers see it."""

    pointer: Pointer
    locations: Sequence[str]

    def times(self, request_hash: str) -> int:
        """How often a request was applied: every file carries the hash of its request (C3)."""
        return sum(request_part_of(location) == request_part(request_hash) for location in self.locations)


async def all_pointers(lake: Lake) -> Mapping[str, Versioned[Pointer]]:
    found = {}
    for listed in await list_all(lake.store, lake.layout.pointers_folder()):
        uuid = lake.layout.parse_pointer(listed.key)
        pointer = await lake.pointer(uuid).read()
        assert pointer is not None
        found[uuid] = await resolution.effective_pointer(lake, pointer)
    return found


async def all_receipts(lake: Lake) -> Mapping[str, Receipt]:
    """Every receipt by its commit key."""
    receipts: dict[str, Receipt] = {}
    for listed in await list_all(lake.store, lake.layout.events_folder()):
        if lake.layout.parse_receipt(listed.key).family != "iceberg":
            continue
        found = await lake.store.get(listed.key)
        assert found is not None
        receipt = msgspec.json.decode(found.data, type=Receipt)
        receipts[receipt.commit_key] = receipt
    return receipts


async def visible_names(lake: Lake) -> Mapping[Identifier, str]:
    """What readers see: every name that exists, with the uuid it refers to."""
    visible = {}
    for listed in await list_all(lake.store, f"{lake.layout.root}names/"):
        identifier = lake.layout.parse_name(listed.key)
        if found := await resolve_name(lake, identifier):
            visible[identifier] = found.uuid
    return visible


async def chains(lake: Lake, *, pointers_may_be_gone: bool = False) -> Mapping[str, Chain]:
    """The chain of every table that was created, by the uuid of its name; asserts that each chain is complete.

    One unbroken chain per table: only the head, and what its swap passed (B3), may still lack receipts, each receipt
    names its predecessor, and no receipt of a table is outside its chain. Janitors delete the pointers of dropped
    tables in the end.
    """
    receipts = dict(await all_receipts(lake))
    found: dict[str, Chain] = {}
    used: Counter[str] = Counter()
    visible = await visible_names(lake)
    for uuid, pointer in (await all_pointers(lake)).items():
        record = pointer.value
        has_happened = record.state in {"live", "dropped", "purging"} or record.life or uuid in visible.values()
        if not has_happened or pointer.value.head is None:
            continue
        chain = _chain_of(pointer.value, receipts)
        used.update(receipt.commit_key for receipt in chain)
        found[uuid] = Chain(pointer.value, [receipt.metadata_location for receipt in chain])
    beside = [receipt.metadata_location for key, receipt in receipts.items() if key not in used]
    assert not beside or pointers_may_be_gone, f"receipts of files that were never a head: {beside}"
    return found


def _chain_of(pointer: Pointer, receipts: Mapping[str, Receipt]) -> Sequence[Receipt]:
    chain: list[Receipt] = []
    for head in reversed((*pointer.passed, *([pointer.head] if pointer.head else []))):
        chain.append(_derived(head, receipts))
        assert len(chain) < 2 or chain[-2].previous_commit_key == chain[-1].commit_key, "passed is not a chain"
    while (previous := chain[-1].previous_commit_key) is not None:
        assert previous in receipts, f"the chain has a hole: no receipt of {chain[-1].previous_metadata_location}"
        assert receipts[previous].metadata_location == chain[-1].previous_metadata_location
        chain.append(receipts[previous])
    return chain


def _derived(head: Head, receipts: Mapping[str, Receipt]) -> Receipt:
    """The receipt that a head stands for, equal to the written one if there is one."""
    own = receipt_of("", head)
    if written := receipts.get(own.commit_key):
        assert msgspec.structs.replace(written, table_uuid="") == own, f"the receipt of {head} is another one"
    return own


async def check_invariants(
    lake: Lake, *, files_may_be_gone: bool = False, pointers_may_be_gone: bool = False
) -> Mapping[str, Chain]:
    """Assert all invariants of a store at rest; returns the chains."""
    whole = await chains(lake, pointers_may_be_gone=pointers_may_be_gone)
    for uuid, chain in whole.items():
        kept = chain.locations[:1] if files_may_be_gone else chain.locations
        for location in kept if chain.pointer.state == "live" else ():
            assert await lake.locations.exists(location), f"table {uuid}: {location} was deleted"
    doubled = [uuid for uuid, times in Counter((await visible_names(lake)).values()).items() if times > 1]
    assert not doubled, f"tables under two names: {doubled}"
    await check_events(lake)
    return whole


def times_applied(whole: Mapping[str, Chain], request_hash: str) -> int:
    """How often a request was applied, under any current name of its tables."""
    return sum(chain.times(request_hash) for chain in whole.values())
