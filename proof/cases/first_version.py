"""Cases of names as the first version of the protocol had them, without any of the rules: some held, most broke."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.names.requests import Create, Drop, DropNamespace, Load, Rename, SweepPointer
from proof.names.system import system
from proof.rules import Rules

T, U, V, Y = "X.t", "X.u", "X.v", "Y.t"
A, B, MOVE = Create(T, "a"), Create(T, "b"), Rename(T, U)
NONE: Final[Rules] = frozenset()

empty = partial(system, rules=NONE, tables=())
full = partial(system, rules=NONE)
across = partial(system, rules=NONE, spaces=("X", "Y"))
CASES: Final = (
    Case("first version: create twice, loads", partial(empty, [A, B, Load(T), Load(T)], after={3: (2,)})),
    Case(
        "first version: create twice, drop, one answer lost", partial(empty, [A, B, Drop(T)], losable=1), breaks="X.t=a"
    ),
    Case("first version: drop, create, loads", partial(full, [Drop(T), B, Load(T), Load(T)], after={3: (2,)})),
    Case("first version: drop twice, one answer lost", partial(full, [Drop(T), Drop(T), Load(T)], losable=1)),
    Case("first version: create, drop namespace", partial(empty, [A, DropNamespace("X"), Load(T)]), breaks="stuck"),
    Case(
        "first version: create, orphan collection",
        partial(empty, [A, SweepPointer(T, "a"), Load(T)]),
        breaks="not linearizable",
    ),
    Case(
        "first version: rename, loads",
        partial(full, [MOVE, Load(U), Load(U), Load(T)], after={2: (1,)}),
        breaks="creating one name changed another",
    ),
    Case(
        "first version: rename, drop old",
        partial(full, [MOVE, Drop(T), Load(U)]),
        breaks="creating one name changed another",
    ),
    Case(
        "first version: rename, drop new",
        partial(full, [MOVE, Drop(U), Load(U)]),
        breaks="creating one name changed another",
    ),
    Case(
        "first version: rename, create old",
        partial(full, [MOVE, B, Load(U)]),
        breaks="creating one name changed another",
    ),
    Case(
        "first version: rename, create new",
        partial(full, [MOVE, Create(U, "b"), Load(U)]),
        breaks="creating one name changed another",
    ),
    Case(
        "first version: rename, rename elsewhere",
        partial(full, [MOVE, Rename(T, V), Load(U)]),
        breaks="creating one name changed another",
    ),
    Case(
        "first version: rename across, drop namespace",
        partial(across, [Rename(T, Y), DropNamespace("Y")]),
        breaks="name stuck",
    ),
)
