"""Cases of a table and a volume at one place: created at the same moment, and created beside a purge."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.overlaps import RULES, creations, older_volume, purges
from proof.rules import without

CASES: Final = (
    Case("overlaps: table and volume", creations),
    Case("overlaps: table and volume, two answers lost", partial(creations, losable=2)),
    Case("overlaps: drop with purge, two purges, volume", purges),
    Case("overlaps: drop with purge, two purges, volume, one answer lost", partial(purges, losable=1)),
    Case("overlaps: drop with purge, two purges, volume, two answers lost", partial(purges, losable=2)),
    Case("overlaps: older volume, drop with purge, two purges, two answers lost", partial(older_volume, losable=2)),
    Case(
        "overlaps: without O1: table and volume",
        partial(creations, without(RULES, "O1")),
        breaks="a table and a volume share a place",
    ),
    Case(
        "overlaps: without O3 order: drop with purge, two purges, volume",
        partial(purges, without(RULES, "O3 order")),
        breaks="a purge deleted a file of a volume",
    ),
    Case(
        "overlaps: without O3 look: older volume, drop with purge, two purges",
        partial(older_volume, without(RULES, "O3 look")),
        breaks="a purge deleted a file of a volume",
    ),
)
