"""The location claims of one request: write them, look for others, give way (P3, P4, P8)."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from sandur.catalog.location_claims import (
    Holder,
    LocationClaim,
    LocationsComplete,
    Seen,
    in_the_way,
    is_own_attempt,
    may_share,
)
from sandur.catalog.locations import Address, canonical_address
from sandur.catalog.record_versions import in_place_of
from sandur.errors import Busy, Invalid, SwapLost
from sandur.operations.lake import Lake
from sandur.operations.locations.owners import Standing, fence, standing_of
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT, ObjectStore, get_many, list_all
from sandur.storage.layout import LOCATIONS_COMPLETE, location_claim, location_claims_below, parse_location_claim
from sandur.storage.record_form import decode_record

Found = tuple[Address, Versioned[LocationClaim]]
Places = Mapping[Address, str]
"""Addresses, each with the text that the client used for it."""


class Completeness:
    """Whether everything that is older than location claims has its claims (P13). It stays so, once it is so."""

    def __init__(self, lake: Lake) -> None:
        self._cell = lake.uncached(LOCATIONS_COMPLETE, LocationsComplete)
        self._is_known = False

    async def is_complete(self) -> bool:
        self._is_known = self._is_known or await self._cell.read() is not None
        return self._is_known

    async def complete(self, now_ms: int) -> None:
        await self._cell.try_swap(LocationsComplete(completed_ms=now_ms), expected=ABSENT)


class Refusal(NamedTuple):
    """Why a request may not have a place. It is a value, and not raised, because rounds of calls return it."""

    error: Invalid | Busy


def incomplete() -> Refusal:
    """P13: the answer to a request that names a place, before all older tables have their claims."""
    text = (
        "the catalog is still recording the locations of its older tables, and accepts no new named location until "
        "then; the janitors of a server do this: see docs/operating.md"
    )
    return Refusal(Busy(text, retry_after_seconds=5))


@dataclass
class LocationClaims:
    """The claims that one request writes. The request needs no claim as long as it names no place."""

    lake: Lake
    _me: Holder | None = None
    _places: dict[Address, str] = field(default_factory=dict)
    _held: dict[Address, Versioned[LocationClaim]] = field(default_factory=dict)

    async def write(self, me: Holder, places: Places) -> Refusal | None:
        """P3: write or renew the claims, all in one round unless others hold the addresses; the error if they do."""
        if not places:
            return None
        before, self._me = self._me, me
        self._places.update(places)
        is_complete, *refusals = await gather_all(
            [self.lake.feature(Completeness).is_complete(), *(self._write(address, me, before) for address in places)]
        )
        if not is_complete:
            return incomplete()
        return _worst([one for one in refusals if isinstance(one, Refusal)])

    def is_unused_by(self, uuid: str) -> bool:
        """Whether claims are held for another owner than the one that was created."""
        return bool(self._held) and self._me is not None and self._me.owner.uuid != uuid

    def needs(self, me: Holder, places: Places) -> Places:
        """The places that are not claimed for this holder yet."""
        return {
            address: text
            for address, text in places.items()
            if address not in self._held or me not in self._held[address].value.holders
        }

    async def look(self) -> Refusal | None:
        """P4, P8: None once nothing is in the way of any claim; otherwise why this request must give way."""
        me = self._me
        if me is None or not self._held:
            return None
        async for _ in Attempts(self.lake.clock):
            found = await gather_all(overlapping(self.lake.store, address) for address in self._held)
            claims = [claim for around in found for claim in around]
            seen = [
                one
                for own, around in zip(self._held, found, strict=True)
                for one in in_the_way(own, me, _values(around))
            ]
            if not seen:
                return None
            if refusal := await self._judge(seen, me):
                return refusal
            if await self._clear(seen, claims):
                return None
        return Refusal(Busy(f"{me.owner}: other requests keep changing the locations around its own"))

    async def find_overlap(self, me: Holder, address: Address, text: str, *, with_below: bool = True) -> Refusal | None:
        """Why a place that is not claimed may not be used: another owner has it or lies around it, or below it."""
        self._places[address] = text
        found = await overlapping(self.lake.store, address, with_own=True)
        around = [one for one in found if with_below or address.is_within(one[0])]
        return await self._judge(in_the_way(address, me, _values(around)), me)

    async def withdraw(self) -> None:
        """P8: who gives way fences itself first, because another attempt may go on under its uuid."""
        me, held, self._held = self._me, self._held, {}
        for address, claim in held.items():
            if me and await fence(self.lake, Seen(address, me)):
                await remove_holders(self.lake, address, claim, [me])

    async def _write(self, address: Address, me: Holder, before: Holder | None) -> Refusal | None:
        """Write the claim of one address. `before` is the holder under which this request wrote it earlier, if any."""
        cell = self.lake.location_claim(address)
        held = self._held.get(address)
        others = [one for one in held.value.holders if one != before and not one.is_of(me)] if held else []
        written = in_place_of(held.value if held else None, LocationClaim(holders=(*others, me)))
        if done := await cell.try_swap(written, expected=held.version if held else ABSENT):
            self._held[address] = done
            return None
        self._held.pop(address, None)
        async for _ in Attempts(self.lake.clock):
            if refusal := await self._write_beside(address, me, cell):
                return refusal
            if address in self._held:
                return None
        return Refusal(Busy(f"{me.owner}: other requests keep changing the claim of its location"))

    async def _write_beside(self, address: Address, me: Holder, cell: Cell[LocationClaim]) -> Refusal | None:
        """Add this holder to the claim of an address, in place of those that give way, unless a swap is lost."""
        found = await cell.read()
        others = [one for one in found.value.holders if not one.is_of(me)] if found else []
        blocking = [one for one in others if not may_share(one, me)]
        if blocking:
            here = [Seen(address, one) for one in blocking]
            around = in_the_way(address, me, _values(await overlapping(self.lake.store, address)))
            if refusal := await self._judge([*here, *around], me):
                return refusal
            if not await self._fence_all(here):
                return None
        kept = (one for one in others if one not in blocking)
        written = in_place_of(found.value if found else None, LocationClaim(holders=(*kept, me)))
        if done := await cell.try_swap(written, expected=found.version if found else ABSENT):
            self._held[address] = done
        return None

    async def _fence_all(self, seen: Sequence[Seen]) -> bool:
        """Fence these owners; False if one has got its place in the meantime."""
        for one in seen:
            if not await fence(self.lake, one):
                return False
        return True

    async def _judge(self, seen: Sequence[Seen], me: Holder) -> Refusal | None:
        """P8: all in the way are judged before any of them is fenced."""
        standings = await gather_all(standing_of(self.lake, one) for one in seen)
        return _worst([self._refusal(one, how, me) for one, how in zip(seen, standings, strict=True)])

    def _refusal(self, one: Seen, how: Standing, me: Holder) -> Refusal | None:
        """Why this request must give way to a holder; None if that one is fenced instead."""
        text = next((text for own, text in self._places.items() if own.overlaps(one.address)), str(one.address))
        match how:
            case "lives":
                return _overlap(text, one, me)
            case "purging":
                dropped = f"table {one.holder.owner.identifier or one.holder.owner}" if _is_named(one, me) else "table"
                return Refusal(Busy(f"Location {text}: the files of the dropped {dropped} are being purged there"))
            case "staged":
                is_ours = is_own_attempt(one.holder, me) or _has_same_name(one, me)
                return None if is_ours else Refusal(Busy(f"Location {text}: a staged table reserves it"))
            case "open":
                if is_own_attempt(one.holder, me) or one.holder.rank > me.rank or not self._is_young(one.holder):
                    return None
                return Refusal(Busy(f"Location {text}: another request is creating {_who(one, me)} there"))
            case "over":
                return None

    def _is_young(self, holder: Holder) -> bool:
        return holder.began_ms + self.lake.settings.transaction_timeout_ms > self.lake.clock.now_ms()

    async def _clear(self, seen: Sequence[Seen], claims: Sequence[Found]) -> bool:
        """P7: fence every owner in the way and remove its claim; False if one has got its place in the meantime."""
        at = dict(claims)
        for address in dict.fromkeys(one.address for one in seen):
            here = [one for one in seen if one.address == address]
            if not await self._fence_all(here):
                return False
            # If this is lost, the claim was renewed, and the request that renewed it looks after this one.
            await remove_holders(self.lake, address, at[address], [one.holder for one in here])
        return True


async def overlapping(store: ObjectStore, address: Address, *, with_own: bool = False) -> Sequence[Found]:
    """P4: the claims above an address, by one get each, and below it, by one list; in one round if nothing is below."""
    above = [*address.above, *([address] if with_own else [])]
    own = location_claim(address)
    stored, listed = await gather_all(
        (get_many(store, [location_claim(one) for one in above]), list_all(store, location_claims_below(address)))
    )
    below = [one.key for one in listed if one.key != own]
    keys = [*map(location_claim, above), *below]
    found = zip(keys, [*stored, *(await get_many(store, below) if below else ())], strict=True)
    return [
        (parse_location_claim(key), Versioned(decode_record(key, one.data, LocationClaim), one.version))
        for key, one in found
        if one
    ]


async def remove_holders(lake: Lake, address: Address, claim: Versioned[LocationClaim], gone: Sequence[Holder]) -> None:
    """Remove fenced holders from a claim, at the version that was read before they were fenced (P7)."""
    cell = lake.location_claim(address)
    left = tuple(holder for holder in claim.value.holders if holder not in gone)
    with contextlib.suppress(SwapLost):
        if left:
            await cell.swap(replace(claim.value, holders=left), expected=claim.version)
        else:
            await cell.empty(expected=claim.version)


async def find_living(lake: Lake, me: Holder, address: Address) -> Holder | None:
    """P11: another owner that lives at, above or below an address and may not share it; None if the address is free."""
    found = await overlapping(lake.store, address, with_own=True)
    for seen in in_the_way(address, me, _values(found)):
        if await standing_of(lake, seen) == "lives":
            return seen.holder
    return None


async def is_anothers(lake: Lake, address: Address) -> bool:
    """Whether something of another workspace lives at, above or below an address."""
    own = (lake.layout.tenant, lake.layout.workspace)
    found = await overlapping(lake.store, address, with_own=True)
    seen = [Seen(at, holder) for at, claim in found for holder in claim.value.holders if holder.workspace != own]
    return "lives" in await gather_all(standing_of(lake, one) for one in seen)


async def release_places(lake: Lake, owner_uuid: str, places: Iterable[str]) -> None:
    """P10: remove the claims of an owner that has just been dropped; one whose files wait for deletion keeps them."""
    for address in map(canonical_address, places):
        found = await lake.location_claim(address).read()
        if found:
            own = [holder for holder in found.value.holders if holder.owner.uuid == owner_uuid]
            await tidy_claim(lake, address, found, own)


async def tidy_claim(
    lake: Lake, address: Address, found: Versioned[LocationClaim], holders: Sequence[Holder]
) -> Sequence[Holder]:
    """P12: fence and remove those holders that neither live nor wait for their purge; returns those that went."""
    gone = []
    for holder in holders:
        seen = Seen(address, holder)
        if await standing_of(lake, seen) in {"open", "over"} and await fence(lake, seen):
            gone.append(holder)
    if gone:
        await remove_holders(lake, address, found, gone)
    return gone


def _overlap(text: str, one: Seen, me: Holder) -> Refusal:
    at = f" at {one.address}" if _is_named(one, me) else ""
    public = f"Invalid location {text}: it overlaps a location in use"
    return Refusal(Invalid(f"Invalid location {text}: it overlaps {_who(one, me)}{at}", public_text=public))


def _who(one: Seen, me: Holder) -> str:
    return f"{one.holder.what} {one.holder.owner}" if _is_named(one, me) else "a location in use"


def _is_named(one: Seen, me: Holder) -> bool:
    """Whether errors name the holder: those of other workspaces are not named."""
    return one.holder.workspace == me.workspace


def _has_same_name(one: Seen, me: Holder) -> bool:
    return _is_named(one, me) and one.holder.owner.identifier == me.owner.identifier


def _values(found: Sequence[Found]) -> Sequence[tuple[Address, LocationClaim]]:
    return [(address, claim.value) for address, claim in found]


def _worst(refusals: Sequence[Refusal | None]) -> Refusal | None:
    """A final refusal before one that asks to wait; None if there is no refusal."""
    found = [one for one in refusals if one]
    return next((one for one in found if isinstance(one.error, Invalid)), found[0] if found else None)
