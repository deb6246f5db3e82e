"""Cases of the events of catalogs, namespaces and other records that one swap changes."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from proof.cases.case import Case, large
from proof.events.containers import RULES, Request, system
from proof.rules import without

C, N, M = "c", "c.n", "c.n.m"
MAKE, CHANGE, DROP, SWEEP = Request("make", N), Request("change", N), Request("drop", N), Request("sweep", N)
MAKE_PARENT, CHANGE_PARENT, DROP_PARENT = Request("make", C), Request("change", C), Request("drop", C)
MAKE_CHILD, DROP_CHILD = Request("make", M), Request("drop", M)
KEYED_MAKE, KEYED_CHANGE, KEYED_DROP = Request("make", N, "K"), Request("change", N, "K"), Request("drop", N, "K")
KEYED_DROP_PARENT, KEYED_CHILD = Request("drop", C, "K"), Request("make", M, "K")
RECONCILE = Request("reconcile", "")
PARENT, BOTH = (C,), (C, N)


def holds(title: str, *requests: Request, existing: Sequence[str] = BOTH, losable: int = 0) -> Case:
    return Case(f"event records: {title}", partial(system, requests, existing=existing, losable=losable))


def breaks(
    rule: str,
    title: str,
    requests: Sequence[Request],
    violation: str,
    *,
    existing: Sequence[str] = BOTH,
    losable: int = 0,
) -> Case:
    build = partial(system, requests, without(RULES, rule), existing=existing, losable=losable)
    return Case(f"event records: without {rule}: {title}", build, breaks=violation)


CASES: Final = (
    holds("make, reconcile", MAKE, RECONCILE, existing=PARENT),
    holds("two makes, reconcile", MAKE, MAKE, RECONCILE, existing=PARENT),
    holds("make, change, drop", MAKE, CHANGE, DROP, existing=PARENT),
    holds("make, drop parent, reconcile", MAKE, DROP_PARENT, RECONCILE, existing=PARENT),
    holds("make, drop and make parent", MAKE, DROP_PARENT, MAKE_PARENT, existing=PARENT),
    holds("two changes, reconcile", CHANGE, CHANGE, RECONCILE),
    holds("drop, make, reconcile", DROP, MAKE, RECONCILE),
    holds("drop, make, change", DROP, MAKE, CHANGE),
    holds("drop of a parent with a child, change", DROP_PARENT, CHANGE_PARENT, RECONCILE),
    holds("change, drop, one answer lost", CHANGE, DROP, losable=1),
    holds("make, drop, two answers lost", MAKE, DROP, existing=PARENT, losable=2),
    holds("make, drop parent, one answer lost", MAKE, DROP_PARENT, existing=PARENT, losable=1),
    holds("drop, janitor, one answer lost", DROP, SWEEP, losable=1),
    holds("drop, janitor, make, one answer lost", DROP, SWEEP, MAKE, losable=1),
    holds("new parent: make, make child, drop grandparent", MAKE, MAKE_CHILD, DROP_PARENT, existing=PARENT),
    holds("new parent: make, make child, drop", MAKE, MAKE_CHILD, DROP, existing=PARENT),
    holds("new parent: make, make child, one answer lost", MAKE, MAKE_CHILD, existing=PARENT, losable=1),
    holds("keyed make twice", KEYED_MAKE, KEYED_MAKE, existing=PARENT),
    holds("keyed make twice, make", KEYED_MAKE, KEYED_MAKE, MAKE, existing=PARENT),
    holds("keyed make twice, drop", KEYED_MAKE, KEYED_MAKE, DROP, existing=PARENT),
    holds("keyed make twice, drop parent", KEYED_MAKE, KEYED_MAKE, DROP_PARENT, existing=PARENT),
    holds("keyed make twice, one answer lost", KEYED_MAKE, KEYED_MAKE, existing=PARENT, losable=1),
    holds("keyed drop twice", KEYED_DROP, KEYED_DROP),
    holds("keyed drop twice, make", KEYED_DROP, KEYED_DROP, MAKE),
    holds("keyed drop twice, one answer lost", KEYED_DROP, KEYED_DROP, losable=1),
    holds("keyed change twice, change", KEYED_CHANGE, KEYED_CHANGE, CHANGE),
    holds("keyed change twice, drop", KEYED_CHANGE, KEYED_CHANGE, DROP),
    breaks("E1 key", "change, reconcile", [CHANGE, RECONCILE], "fork"),
    breaks("E2 change", "two changes", [CHANGE, CHANGE], "hole"),
    breaks("E2 drop", "drop", [DROP], "hole"),
    breaks("E2 known", "drop, one answer lost", [DROP], "hole", losable=1),
    breaks("E2 reuse", "drop, make", [DROP, MAKE], "two objects"),
    breaks("E2 janitor", "drop, janitor", [DROP, SWEEP], "the events show"),
    breaks("E3 new", "make, drop parent", [MAKE, DROP_PARENT], "the events show", existing=PARENT),
    breaks(
        "E3 replace",
        "make, drop and make parent, make",
        [MAKE, DROP_PARENT, MAKE_PARENT, MAKE],
        "event",
        existing=PARENT,
    ),
    breaks("E4 mark", "drop of a parent with a child", [DROP_PARENT, RECONCILE], "hole"),
    breaks("E4 called off", "drop of a parent with a child", [DROP_PARENT, RECONCILE], "the events show"),
    breaks("E7 once", "keyed change twice, change", [KEYED_CHANGE, KEYED_CHANGE, CHANGE], "two events"),
    breaks("E7 once", "keyed make twice, drop", [KEYED_MAKE, KEYED_MAKE, DROP], "two events", existing=PARENT),
    breaks("E7 all", "keyed change twice, change", [KEYED_CHANGE, KEYED_CHANGE, CHANGE], "two events"),
    breaks("E8", "drop, make", [DROP, MAKE], "hole"),
    *large(
        holds("keyed drop twice, change", KEYED_DROP, KEYED_DROP, CHANGE),
        holds("keyed drop of a parent twice, drop of the child", KEYED_DROP_PARENT, KEYED_DROP_PARENT, DROP),
        holds("make, change, drop, janitor", MAKE, CHANGE, DROP, SWEEP, existing=PARENT),
        holds("make, drop parent, drop, reconcile", MAKE, DROP_PARENT, DROP, RECONCILE, existing=PARENT),
        holds("two drops, janitor, make", DROP, DROP, SWEEP, MAKE),
        holds("keyed change twice, change, one answer lost", KEYED_CHANGE, KEYED_CHANGE, CHANGE, losable=1),
        holds("keyed make twice, drop, one answer lost", KEYED_MAKE, KEYED_MAKE, DROP, existing=PARENT, losable=1),
        holds("keyed drop twice, make, one answer lost", KEYED_DROP, KEYED_DROP, MAKE, losable=1),
        holds("keyed drop twice, drop, make", KEYED_DROP, KEYED_DROP, DROP, MAKE),
        holds(
            "new parent: make, keyed child twice, drop grandparent",
            MAKE,
            KEYED_CHILD,
            KEYED_CHILD,
            DROP_PARENT,
            existing=PARENT,
        ),
        holds("new parent: make, make child, drop child, drop", MAKE, MAKE_CHILD, DROP_CHILD, DROP, existing=PARENT),
        holds(
            "new parent: make, make child, drop grandparent, one answer lost",
            MAKE,
            MAKE_CHILD,
            DROP_PARENT,
            existing=PARENT,
            losable=1,
        ),
    ),
)
