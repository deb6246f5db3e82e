"""Cases of drop: against creates, other drops, and commits that resolved the name earlier."""

from functools import partial
from typing import Final

from proof import drop_and_commit
from proof.cases.case import Case
from proof.names.requests import Create, Drop, Load, Rename, Request
from proof.names.system import RULES, system
from proof.rules import without

T, U = "X.t", "X.u"
KEYED: list[Request] = [Drop(T, "K"), Drop(T, "K"), Create(T, "b")]
MOVED: list[Request] = [Rename(T, U), Drop(T), Load(U)]

CASES: Final = (
    Case("drop: create, loads", partial(system, [Drop(T), Create(T, "b"), Load(T), Load(T)], after={3: (2,)})),
    Case("drop: twice, load, one answer lost", partial(system, [Drop(T), Drop(T), Load(T)], losable=1)),
    Case("drop: twice, load, two answers lost", partial(system, [Drop(T), Drop(T), Load(T)], losable=2)),
    Case("drop: keyed twice, create", partial(system, KEYED)),
    Case("drop: keyed twice, create, one answer lost", partial(system, KEYED, losable=1), is_large=True),
    Case("drop: keyed twice, create, two answers lost", partial(system, KEYED, losable=2), is_large=True),
    Case("drop: at the name, commits, loads", drop_and_commit.system, is_large=True),
    Case(
        "drop: at the name, twice, commit, load, one answer lost",
        partial(drop_and_commit.system, commits=1, drops=2, loads=1, losable=1),
    ),
    Case(
        "drop: at the pointer, commits, loads (D3 is for renames)",
        partial(drop_and_commit.system, is_name_first=False),
        is_large=True,
    ),
    Case(
        "drop: without D2: keyed twice, create",
        partial(system, KEYED, without(RULES, "D2")),
        breaks="not linearizable",
    ),
    Case("drop: without D3: rename", partial(system, MOVED, without(RULES, "D3")), breaks="not linearizable"),
)
