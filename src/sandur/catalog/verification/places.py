"""Overlaps of location claims (P5), found in one pass in the order of their keys."""

from collections.abc import Iterator
from typing import NamedTuple

from sandur.catalog.location_claims import Holder, LocationClaim, may_contain, may_share
from sandur.catalog.locations import Address


class Overlap(NamedTuple):
    """Two holders of which neither may contain the other, and the addresses that they hold."""

    outer: Holder
    outer_address: Address
    inner: Holder
    inner_address: Address


class Overlaps:
    """Compares each claim with those above it. A claim is listed before all below it, so the open ones suffice."""

    def __init__(self) -> None:
        self._above: list[tuple[Address, LocationClaim]] = []

    def add(self, address: Address, claim: LocationClaim) -> Iterator[Overlap]:
        """The overlaps of the next claim, in the order of keys, with earlier ones and within itself."""
        while self._above and not address.is_within(self._above[-1][0]):
            self._above.pop()
        for outer_address, above in self._above:
            for outer in above.holders:
                for inner in claim.holders:
                    if outer.owner_key != inner.owner_key and not may_contain(outer, inner):
                        yield Overlap(outer, outer_address, inner, address)
        for position, one in enumerate(claim.holders):
            for other in claim.holders[position + 1 :]:
                if one.owner_key != other.owner_key and not may_share(one, other):
                    yield Overlap(one, address, other, address)
        self._above.append((address, claim))
