"""Cases of places that owners get: tables beside tables, and the roots of catalogs beside both."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.locations.records import RULES, Options
from proof.locations.roots import remembered_root
from proof.locations.scenarios import NESTED, both, catalogs, crossed, janitor, twice
from proof.locations.system import Expected, Owner, store_with, system
from proof.rules import without

LIMIT_STATES: Final = 1_500_000
UPPER: Final = Owner("A", "a", 1)
LOWER: Final = Owner("B", "a/b", 2)
LOWEST: Final = Owner("C", "a/b/c", 3)
WEAK_UPPER: Final = UPPER._replace(rank=3)
STRONG_LOWER: Final = LOWER._replace(rank=1)
AT_LOWER: Final = Owner("E", "a/b", 4)
BESIDE: Final = Owner("D", "a/d", 0)
ROOT: Final = Owner("R", "a", 1, "root", "X")
OWN_TABLE: Final = Owner("M", "a/b", 2, "place", "X")
FOREIGN_TABLE: Final = Owner("F", "a/b", 2, "place", "Y")
FOREIGN_ROOT: Final = Owner("I", "a/b", 2, "root", "Y")
OUTER_CATALOG: Final = Owner("@1", "a", 1, "root", "X")
INNER_CATALOG: Final = Owner("@2", "a/b", 2, "root", "Y")
DEEP: Final = Expected(probes=("a", "a/b", "a/b/c"))
SHALLOW: Final = Expected(probes=NESTED)
NO_TIMEOUT: Final = Options(expires=False)


def leaving_out(*rules: str, expires: bool = True) -> Options:
    return Options(without(RULES, *rules), expires)


two = partial(system, UPPER, LOWER)
three = partial(system, UPPER, LOWER, LOWEST)
beside_living = partial(
    system, WEAK_UPPER, STRONG_LOWER, start=store_with(BESIDE), known=(BESIDE,), expected=Expected(wins="B")
)

CREATE: Final = (
    Case("location create: two places each, crossed", partial(crossed, expires=True)),
    Case("location create: two places each, crossed, no timeout", partial(crossed, expires=False)),
    Case(
        "location create: two places each, crossed, one answer lost",
        partial(crossed, expires=True, losable=1),
        is_large=True,
    ),
    Case(
        "location create: one request twice, another above, no timeout",
        partial(twice, LOWER, UPPER, options=NO_TIMEOUT),
        is_large=True,
    ),
    Case(
        "location create: one request twice, a weaker one above, no timeout",
        partial(twice, LOWER, WEAK_UPPER, options=NO_TIMEOUT),
        is_large=True,
    ),
    Case("location create: one request twice, another above", partial(twice, LOWER, UPPER), is_large=True),
    Case("location create: above and below", partial(two, expected=DEEP)),
    Case("location create: below, the stronger", partial(system, WEAK_UPPER, STRONG_LOWER, expected=DEEP)),
    Case("location create: the same place", partial(system, LOWER, AT_LOWER, expected=SHALLOW)),
    Case(
        "location create: above and below, no timeout",
        partial(two, options=NO_TIMEOUT, expected=SHALLOW._replace(wins="A")),
    ),
    Case(
        "location create: below, the stronger, no timeout",
        partial(system, WEAK_UPPER, STRONG_LOWER, options=NO_TIMEOUT, expected=SHALLOW._replace(wins="B")),
    ),
    Case(
        "location create: the same place, no timeout",
        partial(system, LOWER, AT_LOWER, options=NO_TIMEOUT, expected=SHALLOW._replace(wins="B")),
    ),
    Case("location create: above and below, one answer lost", partial(two, expected=SHALLOW, losable=1)),
    Case(
        "location create: below, the stronger, one answer lost",
        partial(system, WEAK_UPPER, STRONG_LOWER, expected=SHALLOW, losable=1),
        is_large=True,
    ),
    Case(
        "location create: the same place, one answer lost",
        partial(system, LOWER, AT_LOWER, expected=SHALLOW, losable=1),
    ),
    Case(
        "location create: above and below, two answers lost",
        partial(two, expected=SHALLOW, losable=2),
        is_large=True,
    ),
    Case(
        "location create: above and below, janitor",
        partial(two, others=(janitor("a"),), expected=SHALLOW),
        is_large=True,
    ),
    Case(
        "location create: above and below, janitor, one answer lost",
        partial(two, others=(janitor("a/b"),), losable=1),
        is_large=True,
    ),
    Case(
        "location create: three, nested, no timeout",
        partial(three, options=NO_TIMEOUT, expected=Expected(wins="A")),
        is_large=True,
    ),
    Case(
        "location create: three, nested, the lowest strongest, no timeout",
        partial(system, WEAK_UPPER, LOWER, LOWEST._replace(rank=1), options=NO_TIMEOUT, expected=Expected(wins="C")),
        is_large=True,
    ),
    Case("location create: three, nested", three, is_large=True, limit_states=LIMIT_STATES),
    Case(
        "location create: two at one place, one above, no timeout",
        partial(two, AT_LOWER, options=NO_TIMEOUT, expected=Expected(wins="A")),
        is_large=True,
    ),
    Case(
        "location create: two side by side, one above, no timeout",
        partial(system, WEAK_UPPER, LOWER, BESIDE._replace(rank=1), options=NO_TIMEOUT, expected=Expected(wins="D")),
        is_large=True,
    ),
    Case("location create: above a living one, beside another", beside_living),
)

CREATE_BREAKS: Final = (
    Case("location create: without P3: above and below", partial(two, options=leaving_out("P3")), "overlap"),
    Case(
        "location create: without P4 above: above and below",
        partial(two, options=leaving_out("P4 above")),
        "overlap",
    ),
    Case(
        "location create: without P4 below: above and below",
        partial(two, options=leaving_out("P4 below")),
        "overlap",
    ),
    Case("location create: without P7: above and below", partial(two, options=leaving_out("P7")), "overlap"),
    Case(
        "location create: without P7 condemn: above and below",
        partial(two, options=leaving_out("P7 condemn")),
        "acknowledged and is gone",
    ),
    Case(
        "location create: without P7 confirm: above and below",
        partial(two, options=leaving_out("P7 confirm")),
        "acknowledged and is gone",
    ),
    Case(
        "location create: without P6 bind: above and below, one answer lost",
        partial(two, options=leaving_out("P6 bind"), losable=1),
        "refused for good",
    ),
    Case(
        "location create: without P8 rank: above and below",
        partial(two, options=leaving_out("P8 rank", expires=False), expected=Expected(wins="A")),
        "refused for nothing",
    ),
    Case(
        "location create: without P8 all: above a living one, beside another",
        partial(beside_living, options=leaving_out("P8 all")),
        "refused for nothing",
    ),
    Case(
        "location create: without P8 itself: one request twice, another above",
        partial(twice, LOWER, UPPER, options=leaving_out("P8 itself")),
        "overlap",
    ),
)

CATALOGS: Final = (
    Case(
        "location catalog: a root above a foreign table, one answer lost",
        partial(catalogs, FOREIGN_TABLE, roots=(OUTER_CATALOG,), losable=1),
        is_large=True,
    ),
    Case(
        "location catalog: a root above a table of it, one answer lost",
        partial(catalogs, OWN_TABLE, roots=(OUTER_CATALOG,), losable=1, probes=()),
    ),
    Case(
        "location catalog: two roots, one in the other, one answer lost",
        partial(catalogs, roots=(OUTER_CATALOG, INNER_CATALOG), losable=1),
        is_large=True,
    ),
    Case(
        "location catalog: two of one name, one root in the other, one answer lost",
        partial(catalogs, roots=(OUTER_CATALOG, INNER_CATALOG), name="c", losable=1),
        is_large=True,
    ),
    Case(
        "location catalog: a root below a foreign table, janitor",
        partial(catalogs, WEAK_UPPER, roots=(INNER_CATALOG,), janitors=("a/b",)),
    ),
    Case("location catalog: a root and a table of its catalog", partial(both, ROOT, OWN_TABLE)),
    Case(
        "location catalog: a root and a foreign table, one answer lost",
        partial(system, ROOT, FOREIGN_TABLE, expected=SHALLOW, losable=1),
    ),
    Case(
        "location catalog: a root in a foreign root, no timeout",
        partial(system, ROOT, FOREIGN_ROOT, options=NO_TIMEOUT, expected=SHALLOW._replace(wins="R")),
    ),
    Case(
        "location catalog: a root, its table, a foreign table below",
        partial(system, ROOT, OWN_TABLE, LOWEST._replace(uuid="F", catalog="Y")),
        is_large=True,
        limit_states=LIMIT_STATES,
    ),
    Case("location catalog: a remembered root that a stranger has now", remembered_root),
    Case(
        "location catalog: without P7 catalog: a root above a foreign table",
        partial(catalogs, FOREIGN_TABLE, roots=(OUTER_CATALOG,), rules=without(RULES, "P7 catalog")),
        "overlap",
    ),
    Case(
        "location catalog: without P5: a root and a table of its catalog",
        partial(both, ROOT, OWN_TABLE, options=leaving_out("P5", expires=False)),
        "refused for nothing",
    ),
    Case(
        "location catalog: without P2 root: a remembered root that a stranger has now",
        partial(remembered_root, without(RULES, "P2 root")),
        "overlap",
    ),
)

CASES: Final = (*CREATE, *CREATE_BREAKS, *CATALOGS)
