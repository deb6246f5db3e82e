"""Cases of catalogs and namespaces: made and dropped against each other, on two and on three levels."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.containers import RULES, Request, system
from proof.rules import without

CHILD: Final = Request("make", "c.n")
GRANDCHILD: Final = Request("make", "c.n.m")
LOAD: Final = Request("load", "c.n")
DROP: Final = Request("drop", "c")
MAKE: Final = Request("make", "c")
AGAINST: Final = [CHILD, DROP, LOAD]
TWO_DROPS: Final = [CHILD, DROP, DROP]
SEEN: Final = [CHILD, Request("drop", "c.n"), DROP]
EARLIER: Final = [CHILD, DROP, MAKE, DROP]

CASES: Final = (
    Case("containers: make a namespace, drop catalog, load", partial(system, AGAINST)),
    Case("containers: make a namespace, two drops of the catalog", partial(system, TWO_DROPS)),
    Case("containers: make a namespace, drop and make catalog, load", partial(system, [CHILD, DROP, MAKE, LOAD])),
    Case(
        "containers: make a namespace, drop, make and drop catalog",
        partial(system, EARLIER, after={3: (2,)}),
        is_large=True,
    ),
    Case("containers: make a namespace, drop catalog, one answer lost", partial(system, AGAINST, losable=1)),
    Case("containers: make a namespace, drop it, drop catalog", partial(system, SEEN)),
    Case(
        "containers: make a namespace and one in it, drop catalog",
        partial(system, [CHILD, GRANDCHILD, DROP, Request("load", "c.n.m")]),
        is_large=True,
    ),
    Case(
        "containers: make a namespace in a namespace, drop that, drop catalog",
        partial(system, [GRANDCHILD, Request("drop", "c.n"), DROP], existing=("c", "c.n")),
    ),
    Case(
        "containers: without N4: make a namespace, drop catalog, load",
        partial(system, AGAINST, without(RULES, "N4")),
        breaks="not linearizable",
    ),
    Case(
        "containers: without N4 seen: make a namespace, drop it, drop catalog",
        partial(system, SEEN, without(RULES, "N4 seen")),
        breaks="not linearizable: then there are []",
    ),
    Case(
        "containers: without N6: make a namespace, drop catalog, load",
        partial(system, AGAINST, without(RULES, "N6")),
        breaks="c.n is stuck: to make it says 404 no namespace",
    ),
    Case(
        "containers: without N6 back: make a namespace, two drops of the catalog",
        partial(system, TWO_DROPS, without(RULES, "N6 back")),
        breaks="not linearizable: then there are []",
    ),
    Case(
        "containers: without N6 id: make a namespace, drop, make and drop catalog",
        partial(system, EARLIER, without(RULES, "N6 id"), after={3: (2,)}),
        breaks="c is stuck: to drop it says 409 not empty",
    ),
)
