"""The objects of the location protocol: claims, owners, names, purge orders, files and the record of a transaction.

An address is a path such as `a/b`. The key of its claim ends in `/!`, so that one listing finds every claim below it.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from proof.rules import Rules, of
from proof.steps import Cell
from proof.store import Store, held, present

RULES: Final = of("P")
TRIES_MAX: Final = 3

State: TypeAlias = Literal["unbound", "condemned", "live", "dropped", "killed"]


class Claim(NamedTuple):
    """The owner of an address. Of two claims, the one with the smaller rank is stronger.

    The root of a catalog may contain places of that catalog, which is named by `catalog`.
    """

    uuid: str
    name: str
    rank: int
    kind: Literal["place", "root"] = "place"
    catalog: str = ""


class Pointer(NamedTuple):
    """The record of an owner: its places now, and the one that a transaction adds."""

    state: State
    places: tuple[str, ...]
    pending: str = ""


class Catalog(NamedTuple):
    """The record of a catalog, found by its name; a fence writes "dropped" in place of an absent one."""

    id: str
    root: str


class Options(NamedTuple):
    """The rules of a run, and whether a stronger claim of an unfinished request can become stale (P8)."""

    rules: Rules = RULES
    expires: bool = True


TRANSACTION: Final = Cell[Literal["preparing", "committed", "aborted"]]("transaction")


def claim_at(address: str) -> Cell[Claim]:
    return Cell(f"claim:{address}/!")


def pointer_of(uuid: str) -> Cell[Pointer]:
    return Cell(f"pointer:{uuid}")


def name_cell(name: str) -> Cell[str]:
    """The uuid of the owner, or "dropped"."""
    return Cell(f"name:{name}")


def order_of(uuid: str) -> Cell[Literal["open", "blocked"]]:
    return Cell(f"order:{uuid}")


def file_at(address: str) -> Cell[str]:
    """The uuid of the owner that wrote the file."""
    return Cell(f"file:{address}/f")


def catalog_cell(name: str) -> Cell[Catalog | Literal["dropped"]]:
    return Cell(f"catalog:{name}")


def is_catalog(uuid: str) -> bool:
    """The ids of catalogs begin with `@`."""
    return uuid.startswith("@")


def addresses_above(address: str) -> list[str]:
    parts = address.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_below(inner: str, outer: str) -> bool:
    return inner.startswith(f"{outer}/")


def overlap(one: str, other: str) -> bool:
    return one == other or is_below(one, other) or is_below(other, one)


def may_contain(outer: Claim, inner: Claim) -> bool:
    """P5: a root contains places of its own catalog, and nothing else."""
    return outer.kind == "root" and inner.kind == "place" and outer.catalog == inner.catalog


def living(store: Store) -> dict[str, tuple[str, ...]]:
    """The places of every owner that a reader finds, by uuid."""
    catalogs = [record for record in present(store, "catalog:").values() if isinstance(record, Catalog)]
    found: dict[str, tuple[str, ...]] = {catalog.id: (catalog.root,) for catalog in catalogs}
    names = set(present(store, "name:").values())
    for key, pointer in present(store, "pointer:").items():
        uuid = key.removeprefix("pointer:")
        if not isinstance(pointer, Pointer):
            continue
        is_bound = pointer.state in {"unbound", "condemned"} and uuid in names
        if pointer.state == "live" or is_bound:
            is_committed = pointer.pending and held(store, TRANSACTION) == "committed"
            found[uuid] = tuple(dict.fromkeys((*pointer.places, *((pointer.pending,) if is_committed else ()))))
    return found
