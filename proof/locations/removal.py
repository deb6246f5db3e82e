"""The end of an owner and of its claims: drop, purge, undrop and the janitor of claims (P10–P12)."""

from typing import Final

from proof.answers import BUSY, CONFLICT, NO_TABLE, OK, SWEPT
from proof.locations.claims import take
from proof.locations.owners import fence, standing
from proof.locations.records import (
    TRIES_MAX,
    Claim,
    Options,
    Pointer,
    claim_at,
    name_cell,
    order_of,
    pointer_of,
)
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, call, delete, get, listing, passed, put

UNDROPS_MAX: Final = 2


def drop(address: str, claim: Claim, rules: Rules, purges: bool) -> Step[str]:  # noqa: FBT001 -- actors are started by position
    """P10: the order, then the name and the pointer. Without an order, the claim is removed after the answer."""
    at, bound = yield from get(name_cell(claim.name))
    if bound != claim.uuid:
        return NO_TABLE
    if purges:
        yield from put(order_of(claim.uuid), "open", ABSENT)
        _, order = yield from get(order_of(claim.uuid))
        if order is None:
            return BUSY
    written = yield from put(name_cell(claim.name), "dropped", at)
    if written.outcome != "ok":
        return BUSY
    for _ in range(TRIES_MAX):
        version, pointer = yield from get(pointer_of(claim.uuid))
        if pointer is None or pointer.state in {"dropped", "killed"}:
            break
        written = yield from put(pointer_of(claim.uuid), Pointer("dropped", pointer.places), version)
        if written.outcome == "ok":
            break
    else:
        return BUSY
    if not purges:
        yield from call(sweep, address, rules)
    return OK


def sweep(address: str, rules: Rules) -> Step[str]:
    """P12: the janitor fences the owner of a claim that is over, and removes the claim."""
    version, claim = yield from get(claim_at(address))
    if claim is None:
        return SWEPT
    if "P7" in rules:
        state = yield from call(standing, claim.uuid, claim.name, address, rules)
        if state in {"lives", "purging"} or (state == "open" and not (yield from passed())):
            return SWEPT
        if not (yield from call(fence, claim.uuid, claim.name, address, rules)):
            return SWEPT
    yield from delete(claim_at(address), version)
    return SWEPT


def purge(address: str, uuid: str, rules: Rules) -> Step[str]:
    """P11: delete the files of a dropped owner, then kill its pointer, then remove its claim and the order."""
    at, order = yield from get(order_of(uuid))
    head, pointer = yield from get(pointer_of(uuid))
    if order is None or pointer is None or pointer.state not in {"dropped", "killed"}:
        return SWEPT
    if pointer.state == "dropped":
        if not (yield from call(delete_files, address, uuid, head, rules)):
            return SWEPT
        if "P11 kill" in rules:
            killed = yield from put(pointer_of(uuid), Pointer("killed", pointer.places), head)
            if killed.outcome != "ok":
                return SWEPT
    version, claim = yield from get(claim_at(address))
    if claim is not None and claim.uuid == uuid:
        removed = yield from delete(claim_at(address), version)
        if removed.outcome == "unknown":
            return SWEPT
    yield from delete(order_of(uuid), at)
    return SWEPT


def delete_files(address: str, uuid: str, head: int, rules: Rules) -> Step[bool]:
    """P11: list with versions, read the pointer again, delete at those versions. False: the next run continues."""
    is_unchanged = True
    if "P11 list" not in rules:
        is_unchanged = yield from has_version(uuid, head)
    files = []
    for key in (yield from listing(f"file:{address}/")):
        cell = Cell[str](key)
        version, _ = yield from get(cell)
        files.append((cell, version))
    if "P11 look" in rules and "P11 list" in rules:
        is_unchanged = yield from has_version(uuid, head)
    if not is_unchanged:
        return False
    for cell, listed in files:
        version = listed
        if "P11 version" not in rules:
            version, _ = yield from get(cell)
        if version and (yield from delete(cell, version)).outcome != "ok":
            return False
    return True


def has_version(uuid: str, version: int) -> Step[bool]:
    now, _ = yield from get(pointer_of(uuid))
    return now == version


def undrop(address: str, claim: Claim, options: Options) -> Step[str]:
    """P10: a dropped table is restored only after its claim was written again, at the version that was read before."""
    version, pointer = yield from get(pointer_of(claim.uuid))
    if pointer is None or pointer.state != "dropped":
        return NO_TABLE
    _, order = yield from get(order_of(claim.uuid))
    if order:
        return CONFLICT
    if "P10" in options.rules:
        refused, _ = yield from call(take, address, claim, options)
        if refused:
            return refused
    written = yield from put(pointer_of(claim.uuid), pointer._replace(state="live"), version)
    return OK if written.outcome == "ok" else BUSY


def undrop_generated(uuid: str) -> Step[str]:
    """A generated place has no claim: the pointer alone decides (P2)."""
    for _ in range(UNDROPS_MAX):
        version, pointer = yield from get(pointer_of(uuid))
        if pointer is None or pointer.state != "dropped":
            return NO_TABLE
        written = yield from put(pointer_of(uuid), pointer._replace(state="live"), version)
        if written.outcome == "ok":
            return OK
    return BUSY
