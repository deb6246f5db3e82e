"""Cases of record versions: servers side by side, the upgrade, and minor versions."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.rules import of, without
from proof.versions import MINOR, NEW, OLD, RECONCILE, UPGRADE, Requests, system

RULES: Final = of("V")
R: Final = "r"
UP: Final = (UPGRADE, "")


def holds(title: str, *requests: tuple[str, str], losable: int = 0, is_upgraded: bool = False) -> Case:
    return Case(f"versions: {title}", partial(system, requests, RULES, losable=losable, is_upgraded=is_upgraded))


def breaks(rule: str, title: str, requests: Requests, violation: str, *, is_upgraded: bool = False) -> Case:
    build = partial(system, requests, without(RULES, rule), is_upgraded=is_upgraded)
    return Case(f"versions: without {rule}: {title}", build, breaks=violation)


CASES: Final = (
    holds("side by side", (OLD, R), (NEW, R), (OLD, R)),
    holds("upgrade, stalled old server, new server", (OLD, R), (NEW, R), UP),
    holds("upgrade, two old servers, new server", (OLD, R), (OLD, R), (NEW, R), UP),
    holds("upgrade, old and new server, one answer lost", (OLD, R), (NEW, R), UP, losable=1),
    holds("upgrade, old and new server, two answers lost", (OLD, R), (NEW, R), UP, losable=2),
    holds("upgrade twice, old and new server", UP, UP, (OLD, R), (NEW, R)),
    holds("upgrade, births by old and new servers", (OLD, "s"), (NEW, "s"), UP),
    holds(
        "upgrade, birth by an old server, two new ones, reconcile",
        (OLD, "s"),
        (NEW, "s"),
        (NEW, R),
        UP,
        (RECONCILE, ""),
    ),
    holds("minor versions side by side", (MINOR, R), (NEW, R), (NEW, R), is_upgraded=True),
    holds("minor versions, one answer lost", (MINOR, R), (NEW, R), losable=1, is_upgraded=True),
    breaks("V1", "upgrade, old server, new server", [(OLD, R), (NEW, R), UP], "fork"),
    breaks("V2", "minor versions side by side", [(MINOR, R), (NEW, R)], "field", is_upgraded=True),
    breaks("V3", "side by side", [(OLD, R), (NEW, R)], "although"),
    breaks("V3", "upgrade, old server", [(OLD, R), UP], "although"),
    breaks("V4", "upgrade, stalled old server", [(OLD, R), (NEW, R), UP], "still changes"),
    breaks("V5", "upgrade, new server", [(NEW, R), UP], "hole"),
)
