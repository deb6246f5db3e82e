"""A generated place below the root of a catalog, as a server remembers it (P2).

A catalog is dropped and created again with another root. A stranger gets the old root. A server that saw the old
catalog creates a table.
"""

from typing import Final, Literal, NamedTuple

from proof.answers import BUSY, NO_NAMESPACE, NOT_EMPTY, OK
from proof.checker import Actor, Moment, System, Violation
from proof.locations.records import RULES, Claim, Options, Pointer, claim_at, name_cell, overlap, pointer_of
from proof.locations.requests import create
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, delete, get, put
from proof.store import Store, held

TRIES_MAX: Final = 3


class Root(NamedTuple):
    """The catalog as its record says."""

    id: int
    address: str


class Namespace(NamedTuple):
    id: str
    catalog_id: int
    state: Literal["active", "dropping"] = "active"


CATALOG: Final = Cell[Root]("catalog record")
NAMESPACE: Final = Cell[Namespace]("namespace")
NAME: Final = Cell[tuple[str, str]]("name:generated")
OLD, NEW = Root(1, "r"), Root(2, "q")
STRANGER: Final = Claim("X", "name X", 1, "place", "other")


def create_generated(remembered: Root, rules: Rules) -> Step[str]:
    """Create M at a generated place. The catalog is read only if the remembered one is not the namespace's."""
    _, namespace = yield from get(NAMESPACE)
    if namespace is None:
        return NO_NAMESPACE
    catalog = remembered
    if "P2 root" in rules and namespace.catalog_id != catalog.id:
        _, found = yield from get(CATALOG)
        if found is None or found.id != namespace.catalog_id:
            return BUSY
        catalog = found
    written = yield from put(pointer_of("M"), Pointer("unbound", (f"{catalog.address}/u",)), ABSENT)
    yield from put(NAME, ("M", namespace.id), ABSENT)
    for _ in range(TRIES_MAX):
        at, again = yield from get(NAMESPACE)
        if again is None or again.id != namespace.id:
            yield from put(pointer_of("M"), Pointer("killed", ()), written.version)
            return NO_NAMESPACE
        if again.state == "active":
            return OK
        cancelled = yield from put(NAMESPACE, again._replace(state="active"), at)
        if cancelled.outcome == "ok":
            return OK
    return BUSY


def recreate() -> Step[str]:
    """Drop the namespace unless it has a child, then the catalog and the claim of its root; create both elsewhere."""
    at, namespace = yield from get(NAMESPACE)
    if namespace is None:
        return NO_NAMESPACE
    marked = yield from put(NAMESPACE, namespace._replace(state="dropping"), at)
    _, child = yield from get(NAME)
    if child is not None:
        yield from put(NAMESPACE, namespace, marked.version)
        return NOT_EMPTY
    dropped = yield from delete(NAMESPACE, marked.version)
    if dropped.outcome != "ok":
        return BUSY
    yield from delete(CATALOG, 1)
    yield from delete(claim_at(OLD.address), 1)
    at, _ = yield from get(CATALOG)
    yield from put(CATALOG, NEW, at)
    yield from put(NAMESPACE, Namespace("n2", NEW.id), ABSENT)
    return OK


def remembered_root(rules: Rules = RULES) -> System:
    actors = [
        Actor("create M", create_generated, (OLD, rules)),
        Actor("recreate", recreate, ()),
        Actor("create X", create, (OLD.address, STRANGER, Options(expires=False))),
    ]
    # The catalog owns the claim of its root; here it has a live pointer.
    root = Claim("R", "name R", 0, "root", "mine")
    store: Store = {
        CATALOG.key: (1, OLD),
        NAMESPACE.key: (1, Namespace("n1", OLD.id)),
        claim_at(OLD.address).key: (1, root),
        pointer_of(root.uuid).key: (1, Pointer("live", (OLD.address,))),
    }
    return System(store, actors, judge)


def judge(moment: Moment) -> None:
    place = place_of_generated(moment.store)
    if moment.results[0] == OK and place is None:
        raise Violation("the creation of M was acknowledged and is gone")
    stranger = held(moment.store, pointer_of(STRANGER.uuid))
    is_named = held(moment.store, name_cell(STRANGER.name)) == STRANGER.uuid
    stranger_lives = is_named and stranger is not None and stranger.state != "killed"
    if place is not None and stranger_lives and overlap(place, OLD.address):
        raise Violation(f"M at {place} and X at {OLD.address} overlap")


def place_of_generated(store: Store) -> str | None:
    """The place of M; None if M does not live."""
    pointer, name, namespace = held(store, pointer_of("M")), held(store, NAME), held(store, NAMESPACE)
    if pointer is None or pointer.state == "killed" or name is None or namespace is None:
        return None
    return pointer.places[0] if namespace.id == name[1] else None
