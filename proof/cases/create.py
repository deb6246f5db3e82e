"""Cases of create: against each other, drops, renames, namespaces and the collection of orphans."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.names.requests import (
    Create,
    Drop,
    DropNamespace,
    Load,
    MakeNamespace,
    Rename,
    Request,
    SweepPointer,
)
from proof.names.system import RULES, system
from proof.rules import without

T, U = "X.t", "X.u"
A, B, KEYED = Create(T, "a"), Create(T, "b"), Create(T, "a", key="K")
AHEAD, B_AHEAD = Create(T, "a", is_ahead=True), Create(T, "b", is_ahead=True)
AGAINST_NAMESPACE: list[Request] = [A, DropNamespace("X"), Load(T)]
ORPHAN: list[Request] = [A, SweepPointer(T, "a"), Load(T)]
FREED: list[Request] = [KEYED, KEYED, B, Drop(T)]
RENAMED: list[Request] = [KEYED, KEYED, Rename(T, U)]
KEYED_ORPHAN: list[Request] = [KEYED, KEYED, SweepPointer(T, "a")]
RENAMED_LOST: list[Request] = [A, Rename(T, U), B]
TWO_DROPS: list[Request] = [A, DropNamespace("X"), DropNamespace("X")]
EARLIER: list[Request] = [A, DropNamespace("X"), MakeNamespace("X"), DropNamespace("X")]

empty = partial(system, tables=())
CASES: Final = (
    Case("create: twice, loads", partial(empty, [A, B, Load(T), Load(T)], after={3: (2,)})),
    Case("create: orphan collection", partial(empty, ORPHAN)),
    Case("create: twice, drop, one answer lost", partial(empty, [A, B, Drop(T)], losable=1)),
    Case("create: once, drop, two answers lost", partial(empty, [A, Drop(T)], losable=2)),
    Case("create: twice, two answers lost", partial(empty, [A, B], losable=2), is_large=True),
    Case("create: twice, drop, two answers lost", partial(empty, [A, B, Drop(T)], losable=2), is_large=True),
    Case("create: drop namespace", partial(empty, AGAINST_NAMESPACE)),
    Case("create: two drops of the namespace", partial(empty, TWO_DROPS)),
    Case("create: drop and make namespace", partial(empty, [A, DropNamespace("X"), MakeNamespace("X"), Load(T)])),
    Case("create: drop, make and drop namespace", partial(empty, EARLIER, after={3: (2,)}), is_large=True),
    Case(
        "create: keyed twice, drop and make namespace",
        partial(empty, [KEYED, KEYED, DropNamespace("X"), MakeNamespace("X")]),
        is_large=True,
    ),
    Case("create: keyed twice, create, drop", partial(empty, FREED, after={3: (2,)}), is_large=True),
    Case("create: keyed twice, rename", partial(empty, RENAMED)),
    Case("create: keyed twice, orphan collection", partial(empty, KEYED_ORPHAN)),
    Case("create: keyed twice, one answer lost", partial(empty, [KEYED, KEYED], losable=1)),
    Case("create: keyed twice, two answers lost", partial(empty, [KEYED, KEYED], losable=2), is_large=True),
    Case("create: rename, create, one answer lost", partial(empty, RENAMED_LOST, losable=1), is_large=True),
    Case("create: rename, create, two answers lost", partial(empty, RENAMED_LOST, losable=2), is_large=True),
    Case("create: rename, orphan collection", partial(empty, [A, Rename(T, U), SweepPointer(T, "a")])),
    Case("create: ahead, twice, loads", partial(empty, [AHEAD, B_AHEAD, Load(T), Load(T)], after={3: (2,)})),
    Case("create: ahead, orphan collection", partial(empty, [AHEAD, SweepPointer(T, "a"), Load(T)])),
    Case("create: ahead, create, drop, one answer lost", partial(empty, [AHEAD, B, Drop(T)], losable=1)),
    Case("create: ahead, drop, two answers lost", partial(empty, [AHEAD, Drop(T)], losable=2)),
    Case("create: ahead, drop namespace", partial(empty, [AHEAD, DropNamespace("X"), Load(T)])),
    Case(
        "create: ahead, drop and make namespace",
        partial(empty, [AHEAD, DropNamespace("X"), MakeNamespace("X"), Load(T)]),
    ),
    Case("create: ahead, rename, orphan collection", partial(empty, [AHEAD, Rename(T, U), SweepPointer(T, "a")])),
    Case(
        "create: without N4: drop namespace",
        partial(empty, AGAINST_NAMESPACE, without(RULES, "N4")),
        breaks="not linearizable: then loads show X.t=a",
    ),
    Case("create: without N5: orphan collection", partial(empty, ORPHAN, without(RULES, "N5")), breaks="X.t=404"),
    Case("create: without GC2: orphan collection", partial(empty, ORPHAN, without(RULES, "GC2")), breaks="X.t=404"),
    Case(
        "create: without N6: drop namespace",
        partial(empty, AGAINST_NAMESPACE, without(RULES, "N6")),
        breaks="name stuck",
    ),
    Case(
        "create: without N6 back: two drops of the namespace",
        partial(empty, TWO_DROPS, without(RULES, "N6 back")),
        breaks="not linearizable",
    ),
    Case(
        "create: without N6 id: drop, make and drop namespace",
        partial(empty, EARLIER, without(RULES, "N6 id"), after={3: (2,)}),
        breaks="namespace stuck: it is empty, dropping it says 409",
    ),
    Case(
        "create: without N7: keyed twice, rename",
        partial(empty, RENAMED, without(RULES, "N7")),
        breaks="one table under two names",
    ),
    Case(
        "create: without N8: keyed twice, create, drop",
        partial(empty, FREED, without(RULES, "N8"), after={3: (2,)}),
        breaks="a replay answers ok after ['409 conflict']",
    ),
    Case(
        "create: without N9: rename, create, one answer lost",
        partial(empty, RENAMED_LOST, without(RULES, "N9"), losable=1),
        breaks="one table under two names",
    ),
    Case(
        "create: without N10: keyed twice, orphan collection",
        partial(empty, KEYED_ORPHAN, without(RULES, "N10")),
        breaks="a retry of create is stuck",
    ),
)
