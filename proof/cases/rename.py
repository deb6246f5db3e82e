"""Cases of rename: without a key, and retried under one."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.names.requests import Create, Drop, DropNamespace, Load, Rename, Request
from proof.names.system import RULES, system
from proof.rules import without

T, U, V, Y = "X.t", "X.u", "X.v", "Y.t"
MOVE, KEYED, ACROSS = Rename(T, U), Rename(T, U, "K"), Rename(T, Y, "K")
OLD, NEW = Create(T, "b"), Create(U, "b")
SWAPPED: list[Request] = [MOVE, Drop(T), NEW]
TWICE_SAME: list[Request] = [KEYED, KEYED, MOVE]
TWICE_OLD: list[Request] = [KEYED, KEYED, OLD]
TWICE_DROP: list[Request] = [KEYED, KEYED, Drop(U)]
OLD_DROP: list[Request] = [KEYED, KEYED, OLD, Drop(U)]
NEW_DROP: list[Request] = [KEYED, KEYED, NEW, Drop(U)]

two = partial(system, spaces=("X", "Y"))
CASES: Final = (
    Case("rename: loads", partial(system, [MOVE, Load(U), Load(U), Load(T)], after={2: (1,)})),
    Case("rename: loads, create old", partial(system, [MOVE, Load(U), Load(U), OLD], after={2: (1,)})),
    Case("rename: drop old", partial(system, [MOVE, Drop(T), Load(U)])),
    Case("rename: drop new", partial(system, [MOVE, Drop(U), Load(U)])),
    Case("rename: create old", partial(system, [MOVE, OLD, Load(U)])),
    Case("rename: create new", partial(system, [MOVE, NEW, Load(U)])),
    Case("rename: drop old, create new", partial(system, SWAPPED)),
    Case("rename: same twice", partial(system, [MOVE, MOVE])),
    Case("rename: same twice, load", partial(system, [MOVE, MOVE, Load(U)]), is_large=True),
    Case("rename: elsewhere", partial(system, [MOVE, Rename(T, V), Load(U)])),
    Case("rename: back", partial(system, [MOVE, Rename(U, T), Load(U)])),
    Case("rename: across, drop target namespace", partial(two, [Rename(T, Y), DropNamespace("Y")])),
    Case("rename: create old, one answer lost", partial(system, [MOVE, Load(U), OLD], losable=1)),
    Case("rename: create old, two answers lost", partial(system, [MOVE, Load(U), OLD], losable=2)),
    Case("rename: create new, two answers lost", partial(system, [MOVE, NEW], losable=2), is_large=True),
    Case("rename: drop old, one answer lost", partial(system, [MOVE, Drop(T), Load(U)], losable=1)),
    Case("rename: drop old, two answers lost", partial(system, [MOVE, Drop(T), Load(U)], losable=2)),
    Case("rename: keyed twice", partial(system, [KEYED, KEYED])),
    Case("rename: keyed twice, one answer lost", partial(system, [KEYED, KEYED], losable=1), is_large=True),
    Case("rename: keyed twice, two answers lost", partial(system, [KEYED, KEYED], losable=2), is_large=True),
    Case("rename: keyed once, create old, two answers lost", partial(system, [KEYED, OLD], losable=2)),
    Case("rename: keyed once, drop new, two answers lost", partial(system, [KEYED, Drop(U)], losable=2)),
    Case("rename: keyed twice, create old", partial(system, TWICE_OLD), is_large=True),
    Case("rename: keyed twice, create old, one answer lost", partial(system, TWICE_OLD, losable=1), is_large=True),
    Case("rename: keyed twice, create new", partial(system, [KEYED, KEYED, NEW]), is_large=True),
    Case("rename: keyed twice, drop old", partial(system, [KEYED, KEYED, Drop(T)]), is_large=True),
    Case("rename: keyed twice, drop new", partial(system, TWICE_DROP), is_large=True),
    Case("rename: keyed twice, create old, drop new", partial(system, OLD_DROP), is_large=True),
    Case("rename: keyed twice, create new, drop new", partial(system, NEW_DROP, after={3: (2,)}), is_large=True),
    Case("rename: keyed twice, same by a stranger", partial(system, TWICE_SAME), is_large=True),
    Case("rename: keyed twice, elsewhere", partial(system, [KEYED, KEYED, Rename(T, V)]), is_large=True),
    Case("rename: keyed twice, back", partial(system, [KEYED, KEYED, Rename(U, T)]), is_large=True),
    Case(
        "rename: keyed twice across, drop target namespace",
        partial(two, [ACROSS, ACROSS, DropNamespace("Y")]),
        is_large=True,
    ),
    Case(
        "rename: without R1: drop old, create new", partial(system, SWAPPED, without(RULES, "R1")), breaks="not linear"
    ),
    Case(
        "rename: without R6 settle: create old",
        partial(system, [MOVE, OLD, Load(U)], without(RULES, "R6 settle")),
        breaks="creating one name changed another",
    ),
    Case(
        "rename: without R6 fence: create new",
        partial(system, [MOVE, NEW, Load(U)], without(RULES, "R6 fence")),
        breaks="not linearizable",
    ),
    Case(
        "rename: without R7: loads, create old",
        partial(system, [MOVE, Load(U), Load(U), OLD], without(RULES, "R7"), after={2: (1,)}),
        breaks="not linearizable",
    ),
    Case(
        "rename: without R8 fence: keyed twice, create new, drop new",
        partial(system, NEW_DROP, without(RULES, "R8 fence"), after={3: (2,)}),
        breaks="not linearizable",
        is_large=True,
    ),
    Case(
        "rename: without R8 pin and R9: keyed twice, create old, drop new",
        partial(system, OLD_DROP, without(RULES, "R8 pin", "R9")),
        breaks="a replay answers 409 conflict after ['ok']",
        is_large=True,
    ),
    Case(
        "rename: without R8 pin, given R9: keyed twice, create old",
        partial(system, TWICE_OLD, without(RULES, "R8 pin")),
        is_large=True,
    ),
    Case(
        "rename: without R8 all, given R9: keyed twice, create old",
        partial(system, TWICE_OLD, without(RULES, "R8 all")),
        is_large=True,
    ),
    Case(
        "rename: without R8 order: keyed twice, drop new",
        partial(system, TWICE_DROP, without(RULES, "R8 order")),
        breaks="not linearizable: then loads show X.t=404 no table, X.u=404 no table",
    ),
    Case(
        "rename: without R8 proof: keyed twice, same by a stranger",
        partial(system, TWICE_SAME, without(RULES, "R8 proof")),
        breaks="not linearizable: then loads show X.t=404 no table, X.u=u0",
    ),
    Case(
        "rename: without R9: keyed twice, create old",
        partial(system, TWICE_OLD, without(RULES, "R9")),
        breaks="a replay answers 409 conflict after ['ok']",
    ),
)
