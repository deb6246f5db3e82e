"""Cases of renames of catalogs and schemas; decision 23 compares the layers."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from proof.aliases import DIRECTORY, EXCHANGE, RULES, SPARSE, Request, system
from proof.cases.case import Case, large

T, S, MT = "n.t", "n.s", "m.t"
LOAD, LOAD_M = Request("load", T), Request("load", MT)
CREATE, CREATE_M, DROP, DROP_M = (
    Request("create", S, uuid="b"),
    Request("create", MT, uuid="b"),
    Request("drop", T),
    Request("drop", MT),
)
MAKE_N, MAKE_M, REMOVE, REMOVE_M = (
    Request("make", "n"),
    Request("make", "m"),
    Request("remove", "n"),
    Request("remove", "m"),
)
RENAME, BACK, OTHER = Request("rename", "n", "m"), Request("rename", "m", "n"), Request("rename", "n", "o")
NEW_T: Final = Request("create", T, uuid="b")
COLD: Final = Request("load", T, is_cold=True)
REPLACED: Final = (RENAME, DROP_M, CREATE_M, COLD)
RECYCLED: Final = (RENAME, MAKE_N, REMOVE, MAKE_M)
After = Mapping[int, tuple[int, ...]]


def holds(title: str, *requests: Request, losable: int = 0, after: After | None = None) -> tuple[Case, ...]:
    """In every layout."""
    return tuple(
        Case(f"aliases: {layout}: {title}", partial(system, requests, layout=layout, losable=losable, after=after))
        for layout in (DIRECTORY, SPARSE, EXCHANGE)
    )


def breaks(rule: str, title: str, layout: str, *requests: Request, after: After | None = None) -> Case:
    build = partial(system, requests, RULES - {rule}, layout=layout, after=after)
    return Case(f"aliases: {layout}: without the {rule}: {title}", build, breaks="not linearizable")


def open_case(title: str, *requests: Request, after: After | None = None) -> Case:
    build = partial(system, requests, is_strict=True, after=after)
    return Case(f"aliases: {title} (not promised)", build, breaks="not linearizable")


CASES: Final = (
    *holds("rename, loads", RENAME, LOAD, LOAD_M),
    *holds("rename, replaced by another table, cold load", *REPLACED, after={1: (0,), 2: (1,)}),
    *holds("rename, two loads in a row", RENAME, LOAD_M, LOAD, after={2: (1,)}),
    *holds("rename, create, load", RENAME, CREATE, LOAD_M),
    *holds("rename, drop, load", RENAME, DROP, LOAD_M),
    *holds("rename twice elsewhere", RENAME, OTHER, LOAD),
    *holds("rename, back, load", RENAME, BACK, LOAD),
    *holds("rename, make old, load", RENAME, MAKE_N, LOAD),
    *holds("rename, make new", RENAME, MAKE_M, LOAD_M),
    *holds("rename, make old, create in it", RENAME, MAKE_N, NEW_T, after={1: (0,)}),
    *holds("rename, drop table, remove", RENAME, DROP, REMOVE),
    *holds("rename, remove new, make new", RENAME, DROP_M, REMOVE_M, MAKE_M, after={2: (1,)}),
    *holds("drop table, remove, make, load", DROP, REMOVE, MAKE_N, LOAD, after={1: (0,)}),
    *holds("create, drop table, remove", CREATE, DROP, REMOVE, after={2: (1,)}),
    *holds("rename, make old, one answer lost", RENAME, MAKE_N, losable=1),
    *holds("rename, make new, one answer lost", RENAME, MAKE_M, losable=1),
    breaks("verify", "rename, load", EXCHANGE, RENAME, LOAD, after={1: (0,)}),
    breaks("guard", "rename, replaced by another table, cold load", DIRECTORY, *REPLACED, after={1: (0,), 2: (1,)}),
    breaks("guard", "rename, replaced by another table, cold load", EXCHANGE, *REPLACED, after={1: (0,), 2: (1,)}),
    breaks("fence", "rename, make new", SPARSE, RENAME, MAKE_M, LOAD_M),
    breaks("fence", "rename, make new", EXCHANGE, RENAME, MAKE_M, LOAD_M),
    breaks("bump", "rename, make new", EXCHANGE, RENAME, MAKE_M, LOAD_M),
    breaks("look", "rename, make old, remove it, make new", EXCHANGE, *RECYCLED, after={1: (0,), 2: (1,)}),
    open_case("create beside a rename of its schema", RENAME, CREATE, Request("load", "m.s"), after={2: (0,)}),
    open_case("drop beside a rename of its schema", RENAME, DROP, LOAD_M, after={2: (0,)}),
    *holds("rename, make old, remove it, make new", *RECYCLED, after={1: (0,), 2: (1,)}),
    *large(*holds("rename, make old, create, drop", RENAME, MAKE_N, NEW_T, DROP)),
)
