"""Cases of batched commits: two batching servers, retries, foreign commits, lost answers; renames and collection."""

from functools import partial
from typing import Final

from proof.batches import ALL, START, Request, late_join, system
from proof.cases.case import Case
from proof.files import stalled_batches
from proof.rules import without

K1, K2, K3 = Request("r1", None, "K1"), Request("r2", None, "K2"), Request("r3", None, "K3")
G1, G2 = Request("r1", START, "K1"), Request("r2", START, "K2")
DEPENDS = Request("r2", "r1", "K2")
PLAIN, KEEP = Request("r1", None, None), Request("keep1", None, "K1")
U1, U2 = Request("keepu1", START, None), Request("u2", START, None)
SAME = Request("same", None, "K2")
F, FKEEP = ("F", Request("f", None, None)), ("F", Request("keepf", None, None))

CASES: Final = (
    Case("batch: two keyed, foreign commit", partial(system, batched=[K1, K2], singles=[F])),
    Case("batch: two keyed, retry of the second", partial(system, batched=[K1, K2], singles=[("R", K2)])),
    Case("batch: two keyed, retry of the first", partial(system, batched=[K1, K2], singles=[("R", K1)])),
    Case(
        "batch: two keyed, retry, foreign, no log", partial(system, batched=[K1, K2], singles=[("R", K2), F], log_max=0)
    ),
    Case("batch: two keyed, one answer lost, no log", partial(system, batched=[K1, K2], losable=1, log_max=0)),
    Case(
        "batch: two keyed, foreign, one answer lost",
        partial(system, batched=[K1, K2], singles=[F], losable=1, log_max=0),
    ),
    Case(
        "batch: two keyed, retry, one answer lost",
        partial(system, batched=[K1, K2], singles=[("R", K1)], losable=1),
        is_large=True,
    ),
    Case("batch: three keyed, foreign commit", partial(system, batched=[K1, K2, K3], singles=[F])),
    Case("batch: two guarded alike, foreign", partial(system, batched=[G1, G2], singles=[FKEEP])),
    Case("batch: two guarded alike, retry of the second", partial(system, batched=[G1, G2], singles=[("R", G2)])),
    Case("batch: one depends on the other, retry", partial(system, batched=[K1, DEPENDS], singles=[("R", DEPENDS)])),
    Case(
        "batch: one depends on the other, retry, foreign",
        partial(system, batched=[K1, DEPENDS], singles=[("R", DEPENDS), FKEEP]),
        is_large=True,
    ),
    Case("batch: one would change nothing alone, retry", partial(system, batched=[K1, SAME], singles=[("R", SAME)])),
    Case(
        "batch: without B5: retry of one that would change nothing alone",
        partial(system, batched=[K1, SAME], singles=[("R", SAME)], rules=without(ALL, "B5")),
        "unchanged for an applied",
    ),
    Case(
        "batch: two keyed, retry, foreign, one answer lost",
        partial(system, batched=[K1, K2], singles=[("R", K2), F], losable=1),
        is_large=True,
    ),
    Case("batch: two keyed, two answers lost, no log", partial(system, batched=[K1, K2], losable=2, log_max=0)),
    Case(
        "batch: the same two on two servers, foreign", partial(system, batched=[K1, K2], second=[K2, K1], singles=[F])
    ),
    Case(
        "batch: three keyed, retry of the second, foreign",
        partial(system, batched=[K1, K2, K3], singles=[("R", K2), F]),
        is_large=True,
    ),
    Case(
        "batch: the same two on two servers, one answer lost",
        partial(system, batched=[K1, K2], second=[K2, K1], losable=1),
        is_large=True,
    ),
    Case("batch: guarded without key, sent again", partial(system, batched=[U1, U2], singles=[("R", U2)], log_max=2)),
    Case(
        "batch: two servers with batches",
        partial(system, batched=[K1, K2], second=[K3, Request("r4", None, "K4")]),
        is_large=True,
    ),
    Case("batch: the same two on two servers", partial(system, batched=[K1, K2], second=[K2, K1]), is_large=True),
    Case(
        "batch: without B2: one file for all, no keys",
        partial(system, batched=[U1, U2], rules=without(ALL, "B2"), log_max=2),
        "409 conflict for an applied",
    ),
    Case(
        "batch: without B3: it breaks",
        partial(system, batched=[G1, K2], rules=without(ALL, "B3"), log_max=0),
        "409 conflict for an applied",
    ),
    Case(
        "batch: without B4: it breaks", partial(system, batched=[K1, K2], singles=[F], rules=without(ALL, "B4")), "hole"
    ),
    Case(
        "batch: without B4 after: receipts before the swap",
        partial(system, batched=[K1, K2], rules=without(ALL, "B4 after")),
        "not made",
    ),
    Case(
        "batch: without B5: retry of one that depends",
        partial(system, batched=[K1, DEPENDS], singles=[("R", DEPENDS)], rules=without(ALL, "B5")),
        "409 conflict for an applied",
    ),
    Case(
        "batch: without B6: it breaks",
        partial(system, batched=[PLAIN, U2], singles=[FKEEP], rules=without(ALL, "B6")),
        "never was",
    ),
    Case(
        "batch: without B7: it breaks",
        partial(system, batched=[K1, K2], singles=[("R", K2)], rules=without(ALL, "B7")),
        "twice",
    ),
    Case(
        "batch: without B8: it breaks",
        partial(system, batched=[K1, K2], singles=[F], rules=without(ALL, "B8")),
        "acknowledged and not applied",
    ),
    Case("batch: a request that comes late, rename", partial(late_join)),
    Case(
        "batch: without B1: a request that comes late, rename",
        partial(late_join, rules=without(ALL, "B1")),
        "under the old name",
    ),
    Case("batch: files of stalled batches, collection, one answer lost", partial(stalled_batches, ALL), is_large=True),
    Case("batch: without B9: collection", partial(stalled_batches, rules=without(ALL, "B9")), "is gone"),
)
