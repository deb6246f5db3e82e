"""Location claims: who holds an address, and who may hold an address within another's (P5)."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import Address
from sandur.catalog.record_versions import Record

HolderKind = Literal["place", "root", "external"]
"""The place of a table, view, volume or model; the root of a catalog or of its namespaces; an external location."""

OwnerRecord = Literal["iceberg", "delta", "unity", "catalog", "external"]
"""Which record decides whether the owner lives: the formats of names, a catalog, or the storage registry."""


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The owner of a claim: its record, and the name that it was made for."""

    tenant: str
    workspace: str
    record: OwnerRecord
    uuid: str
    identifier: Identifier | None = None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.identifier.catalog}.{self.identifier}" if self.identifier else self.name


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One owner of an address.

    `home` is the id of the catalog that a place or root belongs to. `made_by` is the hash of the request, by which an
    attempt recognises an earlier one. `what` says in errors what kind of thing the owner is.
    """

    kind: HolderKind
    owner: Owner
    began_ms: int
    home: str = ""
    made_by: str = ""
    what: str = ""

    @property
    def rank(self) -> tuple[int, str]:
        """P8: of two creations that are both still open, the one with the smaller rank is stronger."""
        return self.began_ms, self.owner.uuid

    def is_of(self, other: "Holder") -> bool:
        """Whether both are the same owner's, in the same role."""
        return (self.kind, self.owner_key) == (other.kind, other.owner_key)

    @property
    def owner_key(self) -> tuple[str, str, str, str]:
        return self.owner.tenant, self.owner.workspace, self.owner.record, self.owner.uuid

    @property
    def workspace(self) -> tuple[str, str]:
        return self.owner.tenant, self.owner.workspace


class LocationClaim(Record, frozen=True, kw_only=True):
    """The holders of one address. Two hold it if one may contain the other, or if both are older than claims (P13)."""

    holders: tuple[Holder, ...] = ()


class LocationsComplete(Record, frozen=True, kw_only=True):
    """P13: every table, volume and root that is older than claims has its claims; from now on they are complete."""

    completed_ms: int


class Seen(NamedTuple):
    """A holder that is in the way of another one: the address that it holds, and the holder."""

    address: Address
    holder: Holder


def may_contain(outer: Holder, inner: Holder) -> bool:
    """P5: whether the inner holder may lie within the address of the outer one.

    An external location contains roots and places of its workspace. A root contains roots and places of its catalog.
    A place contains nothing.
    """
    if outer.workspace != inner.workspace:
        return False
    match outer.kind:
        case "external":
            return inner.kind != "external"
        case "root":
            return inner.kind != "external" and inner.home == outer.home
        case "place":
            return False


def may_share(one: Holder, other: Holder) -> bool:
    """Whether two holders may have the same address: an external location, and what lies exactly there."""
    return (
        {one.kind, other.kind} != {"external"}
        and "external" in {one.kind, other.kind}
        and (may_contain(one, other) or may_contain(other, one))
    )


def in_the_way(own: Address, me: Holder, found: Iterable[tuple[Address, LocationClaim]]) -> Sequence[Seen]:
    """P4, P5: the holders that overlap an address and may neither contain it nor lie within it."""
    seen = []
    for address, claim in found:
        for holder in claim.holders:
            if holder.owner_key == me.owner_key:
                continue
            if address == own:
                is_fine = may_share(holder, me)
            elif own.is_within(address):
                is_fine = may_contain(holder, me)
            else:
                is_fine = may_contain(me, holder)
            if not is_fine:
                seen.append(Seen(address, holder))
    return seen


def is_own_attempt(one: Holder, me: Holder) -> bool:
    """P8: whether an earlier attempt of the same request made the claim."""
    return bool(me.made_by) and (one.workspace, one.made_by) == (me.workspace, me.made_by)
