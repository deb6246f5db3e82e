"""Cases of shared reads: readers of one process beside writers elsewhere."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.rules import without
from proof.shared_reads import ALL, Plan, shared

CASES: Final = (
    Case("shared: three readers, writer", partial(shared, Plan())),
    Case("shared: three readers, two writers", partial(shared, Plan(writers=2)), is_large=True),
    Case("shared: four readers, writer", partial(shared, Plan(readers=4)), is_large=True),
    Case("shared: two readers, two writers", partial(shared, Plan(readers=2, writers=2))),
    Case("shared: two readers, writer, reads that overlap", partial(shared, Plan(readers=2, tasks=2))),
    Case("shared: three readers, writer, reads that overlap", partial(shared, Plan(tasks=2)), is_large=True),
    Case("shared: two readers, writer, reader elsewhere", partial(shared, Plan(readers=2, others=1))),
    Case("shared: three readers, writer, cancelled", partial(shared, Plan(cancels=True)), is_large=True),
    Case("shared: two readers, writer, failing", partial(shared, Plan(readers=2, fails=True, tasks=2))),
    Case("shared: two readers, writer, unshared read", partial(shared, Plan(readers=2, directs=1))),
    Case("shared: two readers, writer, cancelled, failing", partial(shared, Plan(readers=2, cancels=True, fails=True))),
    Case(
        "shared: without SR1: joins a read that has begun",
        partial(shared, Plan(readers=2), without(ALL, "SR1")),
        "not linearizable",
    ),
    Case(
        "shared: without SR3: the first request is cancelled",
        partial(shared, Plan(tasks=0), without(ALL, "SR3")),
        "no task carries out",
    ),
    Case(
        "shared: without SR4: a read fails",
        partial(shared, Plan(readers=2, fails=True), without(ALL, "SR4")),
        "not linearizable",
    ),
    Case(
        "shared: without SR5: another read ends before",
        partial(shared, Plan(readers=2, directs=1), without(ALL, "SR5")),
        "not linearizable",
    ),
    Case(
        "shared: without SR6: an answer comes late",
        partial(shared, Plan(readers=2, fails=True, tasks=2), without(ALL, "SR6")),
        "not linearizable",
    ),
    Case(
        "shared: without SR7: a read answers those of a later one",
        partial(shared, Plan(readers=2, tasks=2), without(ALL, "SR7")),
        "not linearizable",
    ),
)
