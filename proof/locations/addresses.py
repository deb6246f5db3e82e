"""The two layouts of places: no generated place overlaps another place, so it needs no claim (P1, P2).

All pairs of places over a few words, two roots and two uuids are compared. The keys of claims are compared too: one
listing of an address gives its own claim first, and then all claims below it.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias
from urllib.parse import quote

Address: TypeAlias = tuple[str, ...]
Layout: TypeAlias = Callable[[Address, Address, str, str], Address]

MARKER: Final = "__unitystorage"
UUIDS: Final = ("00000000-0000-0000-0000-000000000000", "11111111-1111-1111-1111-111111111111")
WORDS: Final = ("a", MARKER, f"a-{UUIDS[0]}", "a.a")
# The root of a schema in the root of its catalog.
ROOTS: Final = (("s3", "b", "r"), ("s3", "b", "r", "a"))
LEVELS_MAX: Final = 3


def generated(root: Address, levels: Address, name: str, uuid: str) -> Address:
    """P1: exactly three segments below a root, at any depth of the namespace."""
    return (*root, MARKER, ".".join(levels), f"{name}-{uuid}")


def generated_by_folders(root: Address, levels: Address, name: str, uuid: str) -> Address:
    """Without P1: one segment for every level, and no marker."""
    return (*root, *levels, f"{name}-{uuid}")


def is_within(inner: Address, outer: Address) -> bool:
    return inner[: len(outer)] == outer


def overlap(one: Address, other: Address) -> bool:
    return is_within(one, other) or is_within(other, one)


def may_be_named(place: Address, *, has_marker_rule: bool = True) -> bool:
    """P1: a named place contains no marker, and no root is at or below it, because roots have claims."""
    has_root = any(is_within(root, place) for root in ROOTS)
    return not has_root and not (has_marker_rule and MARKER in place)


def generated_places(layout: Layout) -> dict[Address, set[str]]:
    """The uuids that the layout puts at each place."""
    places: dict[Address, set[str]] = {}
    paths = [path for depth in range(1, LEVELS_MAX + 1) for path in itertools.product(WORDS, repeat=depth)]
    for root, levels, name, uuid in itertools.product(ROOTS, paths, ("a", MARKER), UUIDS):
        places.setdefault(layout(root, levels, name, uuid), set()).add(uuid)
    return places


def named_places() -> list[Address]:
    paths = [path for depth in range(LEVELS_MAX + 1) for path in itertools.product(("r", *WORDS), repeat=depth)]
    return [("s3", "b", *path) for path in paths]


def compare(layout: Layout, *, has_marker_rule: bool = True) -> Iterator[tuple[Address, Address, bool]]:
    """Every pair of places of different owners, and whether they overlap.

    Two places of one uuid are not a pair: the pointer of a uuid is created once.
    """
    generated_at = generated_places(layout)
    for one, other in itertools.combinations(sorted(generated_at), 2):
        yield one, other, overlap(one, other) and generated_at[one] != generated_at[other]
    for named in named_places():
        if may_be_named(named, has_marker_rule=has_marker_rule):
            for place in generated_at:
                yield named, place, overlap(named, place)


def claim_key(place: Address) -> str:
    """`!` sorts before every character of an encoded segment."""
    return "/".join(encode(segment) for segment in place) + "/!"


def encode(segment: str) -> str:
    return quote(segment, safe="").replace("~", "%7E").replace(".", "%2E", 1)
