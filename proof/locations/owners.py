"""The owner of a claim: whether it lives (P6), and how to prevent that an unfinished request makes it live (P7)."""

from typing import Literal, TypeAlias

from proof.locations.records import (
    TRANSACTION,
    TRIES_MAX,
    Catalog,
    Pointer,
    catalog_cell,
    is_catalog,
    name_cell,
    order_of,
    pointer_of,
)
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, get, put

# "open": an unfinished request may still make it live. "over": no request can, unless it claims the place first.
Standing: TypeAlias = Literal["lives", "purging", "open", "over"]
# "again": another writer changed the record first.
Fence: TypeAlias = Literal["fenced", "lives", "again"]


def standing(uuid: str, name: str, address: str, rules: Rules) -> Step[Standing]:
    """P6: the state of an owner at an address, by its record and never by the claim."""
    if is_catalog(uuid):
        _, record = yield from get(catalog_cell(name))
        return "lives" if isinstance(record, Catalog) and record.id == uuid else "open"
    for _ in range(TRIES_MAX):
        version, pointer = yield from get(pointer_of(uuid))
        if pointer is None:
            return "open"
        if pointer.state == "killed":
            return "over"
        if pointer.state == "dropped":
            return "purging" if (yield from has_open_order(uuid, rules)) else "over"
        if pointer.state == "live":
            return (yield from standing_of_live(pointer, address, rules))
        _, bound = yield from get(name_cell(name))
        if bound != uuid:
            return "open"
        if "P6 bind" not in rules:
            return "lives"
        written = yield from put(pointer_of(uuid), pointer._replace(state="live"), version)
        if written.outcome == "ok":
            return "lives"
    return "open"


def standing_of_live(pointer: Pointer, address: str, rules: Rules) -> Step[Standing]:
    if pointer.pending == address and "P7 abort" in rules:
        _, record = yield from get(TRANSACTION)
        return "lives" if record == "committed" else "open"
    return "lives" if address in pointer.places else "open"


def has_open_order(uuid: str, rules: Rules) -> Step[bool]:
    _, order = yield from get(order_of(uuid))
    return order is not None and "P6 order" in rules


def fence(uuid: str, name: str, address: str, rules: Rules) -> Step[bool]:
    """P7: True once the owner does not have the place and no attempt in progress can add it; False if it has it."""
    if "P7" not in rules:
        return True
    if is_catalog(uuid):
        return (yield from call(fence_catalog, uuid, name, rules))
    for _ in range(TRIES_MAX):
        result = yield from call(fence_once, uuid, name, address, rules)
        if result != "again":
            return result == "fenced"
    return False


def fence_catalog(uuid: str, name: str, rules: Rules) -> Step[bool]:
    for _ in range(TRIES_MAX):
        version, record = yield from get(catalog_cell(name))
        if isinstance(record, Catalog):
            return record.id != uuid
        if "P7 catalog" not in rules:
            return True
        written = yield from put(catalog_cell(name), "dropped", version)
        if written.outcome == "ok":
            return True
    return False


def fence_once(uuid: str, name: str, address: str, rules: Rules) -> Step[Fence]:
    version, pointer = yield from get(pointer_of(uuid))
    if pointer is None:
        written = yield from put(pointer_of(uuid), Pointer("killed", ()), ABSENT)
        return "fenced" if written.outcome == "ok" else "again"
    if pointer.state == "killed":
        return "fenced"
    if pointer.state == "dropped":
        if (yield from has_open_order(uuid, rules)):
            return "lives"
        return (yield from bump(uuid, pointer, version)) if "P7 dropped" in rules else "fenced"
    if pointer.state == "live":
        if address in pointer.places:
            return "lives"
        if pointer.pending == address and "P7 abort" in rules:
            return (yield from abort())
        return (yield from bump(uuid, pointer, version)) if "P7 live" in rules else "fenced"
    return (yield from kill(uuid, name, pointer, version, rules))


def bump(uuid: str, pointer: Pointer, version: int) -> Step[Fence]:
    written = yield from put(pointer_of(uuid), pointer, version)
    return "fenced" if written.outcome == "ok" else "again"


def abort() -> Step[Fence]:
    """Abort the transaction that adds the place (T5)."""
    version, record = yield from get(TRANSACTION)
    if record == "committed":
        return "lives"
    if record == "preparing":
        aborted = yield from put(TRANSACTION, "aborted", version)
        return "fenced" if aborted.outcome == "ok" else "again"
    return "fenced"


def kill(uuid: str, name: str, pointer: Pointer, version: int, rules: Rules) -> Step[Fence]:
    """Condemn the pointer, read its name, then kill it (GC2); the mark of another request is sufficient."""
    _, bound = yield from get(name_cell(name))
    if bound == uuid:
        return "lives"
    if "P7 condemn" in rules and pointer.state != "condemned":
        marked = yield from put(pointer_of(uuid), pointer._replace(state="condemned"), version)
        if marked.outcome != "ok":
            return "again"
        version = marked.version
        _, bound = yield from get(name_cell(name))
        if bound == uuid:
            yield from put(pointer_of(uuid), pointer._replace(state="unbound"), version)
            return "lives"
    written = yield from put(pointer_of(uuid), Pointer("killed", ()), version)
    return "fenced" if written.outcome == "ok" else "again"
