"""Cases of owners that change their places: drop, purge, undrop, commits, transactions, and tables without claims."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.cases.locations import AT_LOWER, LOWER, LOWEST, NO_TIMEOUT, UPPER, WEAK_UPPER, leaving_out
from proof.locations.migration import older
from proof.locations.records import RULES
from proof.locations.scenarios import changed, dropped, generated, moved
from proof.locations.system import Owner
from proof.rules import without

AT_TABLE: Final = Owner("S", "a", 2)

below = partial(dropped, LOWER)
at_the_place = partial(dropped, AT_TABLE)
transaction = partial(changed, is_transaction=True)

DROP: Final = (
    Case("location drop: create below", below),
    Case("location drop: create at the place, one answer lost", partial(at_the_place, losable=1)),
    Case("location drop: create below, undrop", partial(below, undrops=1), is_large=True),
    Case("location drop: create at the place, undrop", partial(at_the_place, undrops=1), is_large=True),
    Case(
        "location drop: create below, undrop, janitor, no timeout",
        partial(below, NO_TIMEOUT, undrops=1, janitors=1, probes=()),
        is_large=True,
    ),
    Case("location drop: purge, create below", partial(below, purges=1)),
    Case("location drop: two purges, create below", partial(below, purges=2)),
    Case("location drop: two purges, create at the place", partial(at_the_place, purges=2)),
    Case(
        "location drop: two purges, create at the place, one answer lost",
        partial(at_the_place, purges=2, losable=1),
        is_large=True,
    ),
    Case(
        "location drop: two purges, create below, undrop, no timeout",
        partial(below, NO_TIMEOUT, purges=2, undrops=1),
        is_large=True,
    ),
    Case(
        "location drop: without P11 look: two purges, create below",
        partial(below, leaving_out("P11 look"), purges=2),
        "was deleted",
    ),
    Case(
        "location drop: without P11 list: two purges, create below",
        partial(below, leaving_out("P11 list"), purges=2),
        "was deleted",
    ),
    Case(
        "location drop: without P11 version: two purges, create below",
        partial(below, leaving_out("P11 version"), purges=2),
        "was deleted",
    ),
    Case(
        "location drop: without P11 kill: two purges, create below, undrop",
        partial(below, leaving_out("P11 kill", expires=False), purges=2, undrops=1),
        "overlap",
    ),
    Case(
        "location drop: without P6 order: purge, create below",
        partial(below, leaving_out("P6 order"), purges=1),
        "was deleted",
    ),
    Case(
        "location drop: without P10: create below, undrop",
        partial(below, leaving_out("P10"), undrops=1),
        "overlap",
    ),
    Case(
        "location drop: without P7 dropped: create below, undrop",
        partial(below, leaving_out("P7 dropped"), undrops=1),
        "overlap",
    ),
)

CHANGE: Final = (
    Case("location commit: create above", partial(changed, UPPER)),
    Case("location commit: create above, the weaker", partial(changed, WEAK_UPPER)),
    Case("location commit: create above, another commit", partial(changed, UPPER, commits=1)),
    Case("location commit: create at the place, another commit", partial(changed, AT_LOWER, commits=1)),
    Case(
        "location commit: create above, another commit, one answer lost",
        partial(changed, UPPER, commits=1, losable=1, probes=()),
        is_large=True,
    ),
    Case(
        "location commit: another commit, janitor, one answer lost",
        partial(changed, commits=1, janitors=("a/b",), losable=1),
    ),
    Case(
        "location commit: create above, another commit, janitor",
        partial(changed, UPPER, commits=1, janitors=("a/b",), probes=()),
        is_large=True,
    ),
    Case(
        "location commit: create above, drop, no timeout",
        partial(changed, UPPER, options=NO_TIMEOUT, drops=True),
        is_large=True,
    ),
    Case("location commit: moved, another one created at the old place, dropped and purged", moved),
    Case("location commit: transaction, create above", partial(transaction, UPPER)),
    Case("location commit: transaction, create above, another commit", partial(transaction, UPPER, commits=1)),
    Case(
        "location commit: transaction, create above, janitor",
        partial(transaction, UPPER, janitors=("a/b",)),
        is_large=True,
    ),
    Case(
        "location commit: transaction, create at the place, one answer lost",
        partial(transaction, AT_LOWER, losable=1),
        is_large=True,
    ),
    Case(
        "location commit: without P9 renew: create above, another commit",
        partial(changed, UPPER, commits=1, options=leaving_out("P9 renew")),
        "overlap",
    ),
    Case(
        "location commit: without P7 live: create above",
        partial(changed, UPPER, options=leaving_out("P7 live")),
        "overlap",
    ),
    Case(
        "location commit: without P7 abort: transaction, create above",
        partial(transaction, UPPER, options=leaving_out("P7 abort")),
        "overlap",
    ),
    Case(
        "location commit: without P9 keep: moved, another one created at the old place, dropped and purged",
        partial(moved, without(RULES, "P9 keep")),
        "was deleted",
    ),
)

GENERATED: Final = (
    Case("location generated: register, undrop, one answer lost", partial(generated, losable=1)),
    Case("location generated: two registrations, undrop", partial(generated, registrants=2)),
    Case("location generated: two purges, register, one answer lost", partial(generated, purges=2, losable=1)),
    Case(
        "location generated: without P6 order: two purges, register",
        partial(generated, without(RULES, "P6 order"), purges=2),
        "forgotten",
    ),
    Case(
        "location generated: without P2 kill: register, undrop",
        partial(generated, without(RULES, "P2 kill")),
        "overlap",
    ),
)

OLDER: Final = (
    Case("location older: claims, drop, two purges, one answer lost", partial(older, losable=1)),
    Case("location older: claims, create below, one answer lost", partial(older, creator=LOWEST, losable=1)),
    Case(
        "location older: without P13 purge: claims, drop, two purges",
        partial(older, without(RULES, "P13 purge")),
        "was deleted",
    ),
    Case(
        "location older: without P13 block: claims, drop, two purges",
        partial(older, without(RULES, "P13 block")),
        "was deleted",
    ),
    Case(
        "location older: without P13 create: claims, create below",
        partial(older, without(RULES, "P13 create"), creator=LOWEST),
        "overlap",
    ),
)

CASES: Final = (*DROP, *CHANGE, *GENERATED, *OLDER)
