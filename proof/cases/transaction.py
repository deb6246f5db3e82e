"""Cases of transactions: readers, commits, collection, retries, and creates inside against drop namespace."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.names import requests as names
from proof.names import system as named
from proof.rules import without
from proof.transaction import RULES, Collect, Commit, Create, Drop, Load, Request, Transact, system

AB, BA, AC = ("A", "B"), ("B", "A"), ("A", "c")
ONE, TWO = Transact("1", AB), Transact("2", BA)
KNOWN, KNOWN_TOO = Transact("1", AB, remembers=True), Transact("2", BA, remembers=True)
RETRIED: list[Request] = [ONE, ONE, Commit("A")]
COLLECTED: list[Request] = [ONE, Collect("1"), Load(("A",)), Load(("B",))]
COLLECTED_COMMIT: list[Request] = [ONE, Collect("1"), Commit("A")]
COLLECTED_COMMITS: list[Request] = [ONE, Commit("A"), Collect("1"), Commit("B")]

T, U, Y = "X.t", "X.u", "Y.t"
MAKE = names.Transact("1", ((T, "a"),))
MAKE_BOTH = names.Transact("1", ((T, "a"), (Y, "b")))
IN_SPACE: list[names.Request] = [MAKE, names.DropNamespace("X"), names.Load(T)]
BOTH_SPACES: list[names.Request] = [MAKE_BOTH, names.DropNamespace("Y"), names.Load(T)]
TWICE: list[names.Request] = [MAKE, MAKE, names.DropNamespace("X")]
TWICE_REMADE: list[names.Request] = [*TWICE, names.MakeNamespace("X")]
ORPHAN: list[names.Request] = [MAKE, names.SweepPointer(T, "a"), names.Load(T)]
MOVED_ORPHAN: list[names.Request] = [MAKE, names.Rename(T, U), names.SweepPointer(T, "a")]
RECORD: list[names.Request] = [MAKE, names.CollectRecord("1"), names.Load(T)]
MADE_AGAIN: list[names.Request] = [MAKE, names.DropNamespace("X"), names.MakeNamespace("X"), names.Load(T)]
DROPPED: list[names.Request] = [MAKE, names.Create(T, "b"), names.Drop(T)]

empty = partial(named.system, tables=())
two = partial(empty, spaces=("X", "Y"))
CASES: Final = (
    Case("transaction: readers", partial(system, [ONE, Load(AB), Load(BA)])),
    Case("transaction: commits", partial(system, [ONE, Commit("B"), Commit("A")])),
    Case("transaction: collection, readers", partial(system, COLLECTED)),
    Case("transaction: collection, commit", partial(system, COLLECTED_COMMIT)),
    Case("transaction: collection, commits", partial(system, COLLECTED_COMMITS), is_large=True),
    Case("transaction: opposite order, reader", partial(system, [ONE, TWO, Load(AB)])),
    Case("transaction: opposite order, commit", partial(system, [ONE, TWO, Commit("A")]), is_large=True),
    Case("transaction: retry, commit", partial(system, RETRIED)),
    Case("transaction: retry, commit, one answer lost", partial(system, RETRIED, losable=1), is_large=True),
    Case("transaction: retry, two answers lost", partial(system, [ONE, ONE], losable=2), is_large=True),
    Case("transaction: retry, commit, two answers lost", partial(system, RETRIED, losable=2), is_large=True),
    Case("transaction: retry, collection", partial(system, [ONE, ONE, Collect("1")])),
    Case("transaction: remembered, commit, reader", partial(system, [KNOWN, Commit("A"), Load(AB)])),
    Case("transaction: remembered, drop, reader", partial(system, [KNOWN, Drop("A"), Load(AB)])),
    Case("transaction: remembered, opposite order", partial(system, [KNOWN, KNOWN_TOO])),
    Case("transaction: remembered, opposite order, reader", partial(system, [KNOWN, KNOWN_TOO, Load(AB)])),
    Case("transaction: remembered, retry, one answer lost", partial(system, [KNOWN, KNOWN], losable=1)),
    Case("transaction: remembered, collection, reader", partial(system, [KNOWN, Collect("1"), Load(AB)])),
    Case("transaction: drop, reader", partial(system, [ONE, Drop("A"), Load(AB)])),
    Case("transaction: commit, reader, one answer lost", partial(system, [ONE, Commit("A"), Load(AB)], losable=1)),
    Case("transaction: commit, two answers lost", partial(system, [ONE, Commit("A")], losable=2)),
    Case(
        "transaction: commit, collection, one answer lost", partial(system, [ONE, Commit("A"), Collect("1")], losable=1)
    ),
    Case(
        "transaction: creates, create", partial(system, [Transact("1", AC), Create("c"), Load(("c", "A"))], tables=AC)
    ),
    Case(
        "transaction: creates, another creates",
        partial(system, [Transact("1", AC), Transact("2", ("c", "A")), Load(("c",))], tables=AC),
    ),
    Case(
        "transaction: creates, create, collection",
        partial(system, [Transact("1", AC), Create("c"), Collect("1")], tables=AC),
    ),
    Case(
        "transaction: without T1: retry, commit",
        partial(system, RETRIED, without(RULES, "T1")),
        breaks="not linearizable",
    ),
    Case(
        "transaction: without T2: collection of aborted records, commits",
        partial(system, COLLECTED_COMMITS, without(RULES, "T2"), is_retried=False),
        breaks="not linearizable",
    ),
    Case(
        "transaction: without T2, aborted records kept for ever",
        partial(system, COLLECTED_COMMITS, without(RULES, "T2") | {"T2 keep"}, is_retried=False),
        is_large=True,
    ),
    Case(
        "transaction: without T6: collection, readers",
        partial(system, COLLECTED, without(RULES, "T6")),
        breaks="not linearizable",
    ),
    Case(
        "transaction: without T9: collection, commit",
        partial(system, COLLECTED_COMMIT, without(RULES, "T9")),
        breaks="not linearizable",
    ),
    Case("transaction creates: drop namespace", partial(empty, IN_SPACE)),
    Case("transaction creates: in two namespaces, drop one", partial(two, BOTH_SPACES)),
    Case("transaction creates: drop and make namespace", partial(empty, MADE_AGAIN), is_large=True),
    Case("transaction creates: retry, drop namespace", partial(empty, TWICE), is_large=True),
    Case("transaction creates: retry, drop and make namespace", partial(empty, TWICE_REMADE), is_large=True),
    Case("transaction creates: drop namespace, one answer lost", partial(empty, IN_SPACE[:2], losable=1)),
    Case("transaction creates: drop namespace, two answers lost", partial(empty, IN_SPACE[:2], losable=2)),
    Case(
        "transaction creates: retry, drop namespace, one answer lost", partial(empty, TWICE, losable=1), is_large=True
    ),
    Case(
        "transaction creates: retry, drop namespace, two answers lost", partial(empty, TWICE, losable=2), is_large=True
    ),
    Case("transaction creates: orphan collection", partial(empty, ORPHAN)),
    Case("transaction creates: rename, orphan collection", partial(empty, MOVED_ORPHAN)),
    Case("transaction creates: record collection", partial(empty, RECORD)),
    Case("transaction creates: create, drop", partial(empty, DROPPED)),
    Case(
        "transaction creates: without T3 namespace: drop namespace",
        partial(empty, IN_SPACE, without(named.RULES, "T3 namespace")),
        breaks="not linearizable: then loads show X.t=a",
    ),
    Case(
        "transaction creates: without T3 pointer: orphan collection",
        partial(empty, ORPHAN, without(named.RULES, "T3 pointer")),
        breaks="not linearizable: then loads show X.t=404 no table",
    ),
    Case(
        "transaction creates: without T5: drop namespace",
        partial(empty, IN_SPACE, without(named.RULES, "T5")),
        breaks="name stuck: a load says 404 no table, a create says 409",
    ),
    Case(
        "transaction creates: without N7 pending: rename, orphan collection",
        partial(empty, MOVED_ORPHAN, without(named.RULES, "N7 pending")),
        breaks="not linearizable: then loads show X.t=404 no table, X.u=404 no table",
    ),
    Case(
        "transaction creates: without T9: record collection",
        partial(empty, RECORD, without(named.RULES, "T9")),
        breaks="not linearizable: then loads show X.t=404 no table",
    ),
    Case(
        "transaction creates: without N6: drop namespace",
        partial(empty, IN_SPACE, without(named.RULES, "N6")),
        breaks="name stuck",
    ),
    Case(
        "transaction creates: without T1: retry, drop and make namespace",
        partial(empty, TWICE_REMADE, without(named.RULES, "T1")),
        breaks="a retry of transact is stuck",
    ),
)
