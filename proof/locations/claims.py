"""How a request gets an address: it writes its claim, then looks above and below, then refuses or fences (P3–P8)."""

from typing import Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, CONFLICT
from proof.locations.owners import fence, standing
from proof.locations.records import TRIES_MAX, Claim, Options, addresses_above, claim_at, may_contain
from proof.steps import ABSENT, Step, call, delete, get, listing, passed, put

# The reason why an address cannot be claimed; "" if it can.
Refusal: TypeAlias = Literal["", "409 conflict", "503 busy"]


class Found(NamedTuple):
    """A claim of another owner, and the version at which it was read."""

    address: str
    version: int
    claim: Claim


def overlapping(address: str, claim: Claim, options: Options) -> Step[tuple[Found, ...]]:
    """P4: the claims above, by one get each, and the claims below, by one listing. P5: without those that may stay."""
    found = []
    if "P4 above" in options.rules:
        for above in addresses_above(address):
            version, other = yield from get(claim_at(above))
            if other and other.uuid != claim.uuid and not ("P5" in options.rules and may_contain(other, claim)):
                found.append(Found(above, version, other))
    if "P4 below" in options.rules:
        for key in (yield from listing(f"claim:{address}/")):
            below = key.removeprefix("claim:").removesuffix("/!")
            if below == address:
                continue
            version, other = yield from get(claim_at(below))
            if other and other.uuid != claim.uuid and not ("P5" in options.rules and may_contain(claim, other)):
                found.append(Found(below, version, other))
    return tuple(found)


def refusal(found: tuple[Found, ...], claim: Claim, options: Options) -> Step[Refusal]:
    """P8: whether one of the found claims refuses this one."""
    for one in found:
        state = yield from call(standing, one.claim.uuid, one.claim.name, one.address, options.rules)
        if state == "lives":
            return CONFLICT
        if state == "purging":
            return BUSY
        if state == "open" and "P8 rank" in options.rules and one.claim.rank < claim.rank:
            is_stale = options.expires and (yield from passed())
            if not is_stale:
                return BUSY
    return ""


def clear(found: tuple[Found, ...], claim: Claim, options: Options) -> Step[Refusal | Literal["again"]]:
    """P7, P8: refuse, or fence each owner and remove its claim; "again" if one of them lives by now."""
    if "P8 all" in options.rules:
        refused = yield from call(refusal, found, claim, options)
        if refused:
            return refused
    for one in found:
        if "P8 all" not in options.rules:
            refused = yield from call(refusal, (one,), claim, options)
            if refused:
                return refused
        if not (yield from call(fence, one.claim.uuid, one.claim.name, one.address, options.rules)):
            return "again"
        # A lost delete means that the claim was renewed: its owner looks after that, and finds this claim.
        yield from delete(claim_at(one.address), one.version)
    return ""


def write_claim(address: str, claim: Claim, options: Options) -> Step[tuple[Refusal, int]]:
    """P3: create the claim, renew it, or take it from an owner that is over. The version is that of the claim."""
    cell = claim_at(address)
    for _ in range(TRIES_MAX):
        written = yield from put(cell, claim, ABSENT)
        if written.outcome == "ok":
            return "", written.version
        version, other = yield from get(cell)
        if other is None:
            continue
        if other.uuid != claim.uuid:
            around = yield from call(overlapping, address, claim, options)
            refused = yield from call(refusal, (Found(address, version, other), *around), claim, options)
            if refused:
                return refused, ABSENT
            if not (yield from call(fence, other.uuid, other.name, address, options.rules)):
                continue
        elif other == claim and written.outcome == "unknown":
            return "", version
        written = yield from put(cell, claim, version)
        if written.outcome == "ok":
            return "", written.version
    return BUSY, ABSENT


def take(address: str, claim: Claim, options: Options) -> Step[tuple[Refusal, int]]:
    """P3, P4: write the claim, then look. A refused request removes its claim again."""
    if "P3" not in options.rules:
        return (yield from look_first(address, claim, options))
    refused, version = yield from call(write_claim, address, claim, options)
    if refused:
        return refused, ABSENT
    result: Refusal | Literal["again"] = "again"
    for _ in range(TRIES_MAX):
        found = yield from call(overlapping, address, claim, options)
        result = yield from call(clear, found, claim, options)
        if not result:
            return "", version
        if result != "again":
            break
    # P8: another attempt of this request may continue under the same uuid.
    is_over = "P8 itself" not in options.rules or (
        yield from call(fence, claim.uuid, claim.name, address, options.rules)
    )
    if is_over:
        yield from delete(claim_at(address), version)
    return BUSY if result == "again" else result, ABSENT


def look_first(address: str, claim: Claim, options: Options) -> Step[tuple[Refusal, int]]:
    """What P3 forbids."""
    found = yield from call(overlapping, address, claim, options)
    result = yield from call(clear, found, claim, options)
    if result:
        return BUSY if result == "again" else result, ABSENT
    return (yield from call(write_claim, address, claim, options))
