"""The requests that give a place to an owner: creations, commits, transactions and catalogs (P2, P8, P9)."""

from typing import Final

from proof.answers import BUSY, CONFLICT, NO_TABLE, OK
from proof.locations.claims import take
from proof.locations.owners import fence, has_open_order
from proof.locations.records import (
    TRANSACTION,
    TRIES_MAX,
    Catalog,
    Claim,
    Options,
    Pointer,
    catalog_cell,
    claim_at,
    file_at,
    name_cell,
    pointer_of,
)
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, delete, get, put

ATTEMPTS_MAX: Final = 2


def create(address: str, claim: Claim, options: Options, writes: bool = False, old: str = "") -> Step[str]:  # noqa: FBT001, FBT002 -- actors are started by position
    """Create an owner at a named place: claim, look, pointer (N2), name (N3), pointer again (N5), then a first file.

    At a generated place, the pointer of the dropped table `old` is ended first.
    """
    refused, version = yield from call(take, address, claim, options)
    if refused:
        return refused
    if old and not (yield from call(end_generated, old, options.rules)):
        if (yield from call(fence, claim.uuid, claim.name, address, options.rules)):
            yield from delete(claim_at(address), version)
        return BUSY
    answer = yield from call(make_owner, (address,), claim, ((address, version),), options.rules)
    if answer != OK or not writes:
        return answer
    at, _ = yield from get(file_at(address))
    written = yield from put(file_at(address), claim.uuid, at)
    return OK if written.outcome == "ok" else BUSY


def create_at_all(addresses: tuple[str, ...], claim: Claim, options: Options) -> Step[str]:
    """P8: a creation with more than one place. Refused at one, it fences itself and removes all its claims."""
    claimed: list[tuple[str, int]] = []
    for address in addresses:
        refused, version = yield from call(take, address, claim, options)
        if refused:
            if (yield from call(fence, claim.uuid, claim.name, address, options.rules)):
                for other, at in claimed:
                    yield from delete(claim_at(other), at)
            return refused
        claimed.append((address, version))
    return (yield from call(make_owner, addresses, claim, tuple(claimed), options.rules))


def make_owner(places: tuple[str, ...], claim: Claim, claimed: tuple[tuple[str, int], ...], rules: Rules) -> Step[str]:
    written = yield from put(pointer_of(claim.uuid), Pointer("unbound", places), ABSENT)
    if written.outcome != "ok":
        _, pointer = yield from get(pointer_of(claim.uuid))
        if pointer is None:
            return BUSY
        if pointer.state == "killed":
            yield from remove(claimed)
            return BUSY
    written = yield from put(name_cell(claim.name), claim.uuid, ABSENT)
    if written.outcome != "ok":
        _, bound = yield from get(name_cell(claim.name))
        if bound != claim.uuid:
            return BUSY
    return (yield from confirm(claim.uuid, claimed)) if "P7 confirm" in rules else OK


def confirm(uuid: str, claimed: tuple[tuple[str, int], ...]) -> Step[str]:
    """Read the pointer after the name was written (N5), and remove a mark."""
    for _ in range(TRIES_MAX):
        version, pointer = yield from get(pointer_of(uuid))
        if pointer is None or pointer.state == "killed":
            yield from remove(claimed)
            return BUSY
        if pointer.state != "condemned":
            return OK
        written = yield from put(pointer_of(uuid), pointer._replace(state="unbound"), version)
        if written.outcome == "ok":
            return OK
    return BUSY


def remove(claimed: tuple[tuple[str, int], ...]) -> Step[None]:
    for address, version in claimed:
        yield from delete(claim_at(address), version)


def end_generated(uuid: str, rules: Rules) -> Step[bool]:
    """P2: kill the dropped owner of a generated place, so that another one can claim the place."""
    for _ in range(TRIES_MAX):
        version, pointer = yield from get(pointer_of(uuid))
        if pointer is not None and pointer.state == "killed":
            return True
        if pointer is not None and pointer.state != "dropped":
            return False
        if (yield from has_open_order(uuid, rules)):
            return False
        after = Pointer("killed", ()) if pointer is None or "P2 kill" in rules else pointer
        written = yield from put(pointer_of(uuid), after, version)
        if written.outcome == "ok":
            return True
    return False


def commit(address: str, claim: Claim, options: Options, moves: bool = False) -> Step[str]:  # noqa: FBT001, FBT002 -- actors are started by position
    """P9: a commit that adds a place: read the pointer, write or renew the claim, look, swap."""
    cell = pointer_of(claim.uuid)
    is_claimed = False
    for _ in range(ATTEMPTS_MAX):
        version, pointer = yield from get(cell)
        if pointer is None or pointer.state != "live":
            return NO_TABLE
        if not is_claimed or "P9 renew" in options.rules:
            refused, _ = yield from call(take, address, claim, options)
            if refused:
                return refused
            is_claimed = True
        forgets = moves and "P9 keep" not in options.rules
        places = (address,) if forgets else (*pointer.places, address)
        written = yield from put(cell, pointer._replace(places=places), version)
        if written.outcome == "ok":
            for old in pointer.places if forgets else ():
                at, _ = yield from get(claim_at(old))
                yield from delete(claim_at(old), at)
            return OK
        if written.outcome == "unknown":
            return BUSY
    return BUSY


def commit_elsewhere(uuid: str) -> Step[str]:
    """A commit that adds no place; others lose their swap to it."""
    version, pointer = yield from get(pointer_of(uuid))
    if pointer is None or pointer.state != "live":
        return NO_TABLE
    written = yield from put(pointer_of(uuid), pointer, version)
    return OK if written.outcome == "ok" else BUSY


def transact(address: str, claim: Claim, options: Options) -> Step[str]:
    """P9 in a transaction: the claim, then the pending change, then the record, then the fold."""
    cell = pointer_of(claim.uuid)
    at, _ = yield from get(TRANSACTION)
    version, pointer = yield from get(cell)
    if pointer is None or pointer.state != "live":
        return NO_TABLE
    refused, _ = yield from call(take, address, claim, options)
    if refused:
        return refused
    prepared = yield from put(cell, pointer._replace(pending=address), version)
    if prepared.outcome != "ok":
        return BUSY
    committed = yield from put(TRANSACTION, "committed", at)
    if committed.outcome != "ok":
        return BUSY
    yield from put(cell, Pointer("live", (*pointer.places, address)), prepared.version)
    return OK


def create_catalog(address: str, claim: Claim, options: Options) -> Step[str]:
    """P9 for a record that is found by its name: read it, write or renew the claim, look, swap."""
    for _ in range(ATTEMPTS_MAX):
        version, record = yield from get(catalog_cell(claim.name))
        if isinstance(record, Catalog):
            return OK if record.id == claim.uuid else CONFLICT
        refused, _ = yield from call(take, address, claim, options)
        if refused:
            return refused
        written = yield from put(catalog_cell(claim.name), Catalog(claim.uuid, address), version)
        if written.outcome == "ok":
            return OK
        if written.outcome == "unknown":
            return BUSY
    return BUSY
