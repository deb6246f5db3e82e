"""Cases of undrop: against creates, renames, other undrops, purges, janitors, and retried under a key."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from proof.cases.case import Case, large
from proof.cases.events import (
    BACK,
    DROP,
    DROP_SPACE,
    DROP_U,
    ELSEWHERE,
    MOVE,
    NEW,
    RECONCILE,
    RETIRE,
    SWEEP,
    T,
    U,
)
from proof.events.system import RULES, Request, history, system
from proof.rules import without

KEYED: Final = Request("undrop", T, "u0", to=T, key="K")
PURGE: Final = Request("purge", T, "u0")
ORDERING: Final = Request("drop", T, purges=True)
TAKE_BACK: Final = Request("take back", "", "u0")
LOOK, LOOK_U = Request("look", T), Request("look", U)
CHANGE: Final = Request("change", T)
gone = partial(system, tables=(), dropped=(T,))
due = partial(gone, is_ordered=True)
After = Mapping[int, tuple[int, ...]]


def holds(title: str, *requests: Request, losable: int = 0, after: After | None = None) -> Case:
    return Case(f"undrop: {title}", partial(gone, requests, losable=losable, after=after))


def holds_due(title: str, *requests: Request, losable: int = 0) -> Case:
    """The drop ordered a purge."""
    return Case(f"undrop: {title}", partial(due, requests, losable=losable))


def breaks(rule: str, title: str, requests: Sequence[Request], violation: str, *, after: After | None = None) -> Case:
    build = partial(gone, requests, without(RULES, rule), after=after)
    return Case(f"undrop: without {rule}: {title}", build, breaks=violation)


def breaks_due(rule: str, title: str, requests: Sequence[Request], violation: str) -> Case:
    return Case(f"undrop: without {rule}: {title}", partial(due, requests, without(RULES, rule)), breaks=violation)


def linear(title: str, *requests: Request, losable: int = 0, after: After | None = None, is_due: bool = False) -> Case:
    build = partial(history, requests, tables=(), dropped=(T,), is_ordered=is_due, losable=losable, after=after)
    return Case(f"undrop, history: {title}", build)


def nonlinear(rule: str, title: str, *requests: Request, after: After | None = None) -> Case:
    build = partial(history, requests, without(RULES, rule), tables=(), dropped=(T,), after=after)
    return Case(f"undrop, history: without {rule}: {title}", build, breaks="not linearizable")


HOLDING: Final = (
    holds("reconcile", BACK, RECONCILE),
    holds("elsewhere, reconcile", ELSEWHERE, RECONCILE),
    holds("create", BACK, NEW),
    holds("create, reconcile", BACK, NEW, RECONCILE),
    holds("elsewhere, create old", ELSEWHERE, NEW),
    holds("elsewhere, create old, janitor", ELSEWHERE, NEW, SWEEP),
    holds("twice", BACK, BACK),
    holds("twice, other names", BACK, ELSEWHERE),
    holds("twice, other names, taken back", BACK, ELSEWHERE, TAKE_BACK),
    holds_due("purge", BACK, PURGE),
    holds_due("purge, taken back", BACK, PURGE, TAKE_BACK),
    holds_due("twice, purge", BACK, ELSEWHERE, PURGE),
    holds_due("purge, drop again", BACK, PURGE, DROP),
    holds_due("two purges", BACK, PURGE, PURGE),
    Case("undrop: drop with purge, purge", partial(system, [ORDERING, BACK, PURGE])),
    holds("janitors", BACK, SWEEP, RETIRE),
    holds("janitors, one answer lost", BACK, SWEEP, RETIRE, losable=1),
    holds("drop namespace", BACK, DROP_SPACE, TAKE_BACK),
    holds("rename", BACK, MOVE),
    holds("rename, drop", BACK, MOVE, DROP_U),
    holds("change, drop again", BACK, CHANGE, DROP),
    holds("drop again, undrop again", BACK, DROP, ELSEWHERE),
    holds("create, one answer lost", BACK, NEW, losable=1),
    holds_due("purge, one answer lost", BACK, PURGE, losable=1),
    holds("taken back, one answer lost", ELSEWHERE, TAKE_BACK, losable=1),
    holds("twice, one answer lost", BACK, ELSEWHERE, losable=1),
    holds("keyed twice", KEYED, KEYED),
)

BROKEN: Final = (
    breaks("U1 life", "elsewhere, create old", [ELSEWHERE, NEW], "ends the table"),
    breaks("U1 shown", "twice, other names, taken back", [BACK, ELSEWHERE, TAKE_BACK], "two names"),
    breaks("U2 first", "twice, other names", [BACK, ELSEWHERE], "no event"),
    breaks_due("U3 mark", "purge", [BACK, PURGE], "purge"),
    breaks("U4 look", "taken back", [BACK, TAKE_BACK], "no event"),
    breaks("U5 back", "taken back", [BACK, TAKE_BACK], "cannot come back"),
    breaks_due("U6 order", "purge, drop again", [BACK, PURGE, DROP], "purged"),
    breaks_due("U7 keep", "purge, taken back", [BACK, PURGE, TAKE_BACK], "never"),
    Case(
        "undrop: without U7 fence: drop with purge, purge",
        partial(system, [ORDERING, PURGE], without(RULES, "U7 fence")),
        breaks="never",
    ),
    breaks("U8 confirm", "drop namespace", [BACK, DROP_SPACE], "no event"),
)

HISTORIES: Final = (
    linear("create, look", BACK, NEW, LOOK),
    linear("two looks in a row", BACK, LOOK, LOOK, after={2: (1,)}),
    linear("create, one answer lost", BACK, NEW, losable=1),
    linear("twice, look", BACK, ELSEWHERE, LOOK),
    linear("twice, taken back", BACK, ELSEWHERE, TAKE_BACK),
    linear("purge, look", BACK, PURGE, LOOK, is_due=True),
    linear("purge, one answer lost", BACK, PURGE, losable=1, is_due=True),
    linear("drop, undrop elsewhere", BACK, DROP, ELSEWHERE),
    Case("undrop, history: drop, elsewhere, create old", partial(history, [DROP, ELSEWHERE, NEW])),
    linear("drop namespace, taken back", BACK, DROP_SPACE, TAKE_BACK),
    linear("janitors", BACK, SWEEP, RETIRE),
    linear("rename, look", BACK, MOVE, LOOK_U),
    linear("rename, create old", BACK, MOVE, NEW),
    nonlinear("U1 life", "elsewhere, create old", ELSEWHERE, NEW),
    nonlinear("U2 first", "twice", BACK, ELSEWHERE),
    nonlinear("U4 look", "taken back", BACK, TAKE_BACK),
    nonlinear("U5 back", "taken back, undrop after it", BACK, TAKE_BACK, ELSEWHERE, after={2: (1,)}),
    nonlinear("U8 confirm", "drop namespace", BACK, DROP_SPACE),
    nonlinear("U9 settle", "janitor", BACK, SWEEP),
)

LARGE: Final = large(
    breaks(
        "E7 once",
        "keyed twice, drop again, undrop by another, drop",
        [KEYED, KEYED, DROP, ELSEWHERE, DROP_U],
        "there is an event",
        after={3: (2,), 4: (3,)},
    ),
    holds("keyed twice, reconcile", KEYED, KEYED, RECONCILE),
    holds("keyed twice, create", KEYED, KEYED, NEW),
    holds("keyed twice, drop again", KEYED, KEYED, DROP),
    holds("keyed twice, drop again, undrop by another", KEYED, KEYED, DROP, ELSEWHERE, after={3: (2,)}),
    holds_due("keyed twice, purge", KEYED, KEYED, PURGE),
    holds("keyed twice, drop namespace", KEYED, KEYED, DROP_SPACE),
    holds("keyed twice, one answer lost", KEYED, KEYED, losable=1),
    holds_due("create, purge, taken back", BACK, NEW, PURGE, TAKE_BACK),
    holds_due("twice, purge, taken back", BACK, ELSEWHERE, PURGE, TAKE_BACK),
    holds("create, taken back, one answer lost", BACK, NEW, TAKE_BACK, losable=1),
    holds("elsewhere, create old, drop it, janitor", ELSEWHERE, NEW, DROP, SWEEP),
    holds("drop with purge, purge, undrop again", BACK, ORDERING, PURGE, ELSEWHERE),
    holds_due("purge, two answers lost", BACK, PURGE, losable=2),
    holds("drop namespace, create, taken back", BACK, DROP_SPACE, NEW, TAKE_BACK),
    holds("rename, create old, drop new", BACK, MOVE, NEW, DROP_U),
    holds("janitors, create", BACK, SWEEP, RETIRE, NEW),
)

CASES: Final = (*HOLDING, *BROKEN, *HISTORIES, *LARGE)
