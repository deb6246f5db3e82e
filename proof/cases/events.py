"""Cases of the events of names: create, change, drop, rename, transactions, janitors, retries under a key."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from proof.cases.case import Case, large
from proof.events.system import RULES, Request, history, system
from proof.rules import without

T, U, V = "X.t", "X.u", "X.v"
NEW, OTHER, NEW_U = Request("create", T, "b"), Request("create", T, "c"), Request("create", U, "b")
KEYED_NEW = Request("create", T, "b", key="K")
CHANGE, CHANGE_U = Request("change", T), Request("change", U)
DROP, DROP_U, KEYED_DROP = Request("drop", T), Request("drop", U), Request("drop", T, key="K")
MOVE, AWAY, MOVE_BACK = Request("rename", T, to=U), Request("rename", T, to=V), Request("rename", U, to=T)
KEYED_MOVE = Request("rename", T, to=U, key="K")
TRANSACT, COLLECT = Request("transact", T, "b"), Request("collect", T, key="transact0")
SWEEP, SWEEP_U = Request("sweep name", T), Request("sweep name", U)
RETIRE = Request("sweep pointer", T, "u0")
DROP_SPACE = Request("drop namespace", "X")
RECONCILE = Request("reconcile", "")
BACK, ELSEWHERE = Request("undrop", T, "u0", to=T), Request("undrop", T, "u0", to=U)
FRESH: Final = ()
ONE: Final = (T,)


def holds(
    title: str,
    *requests: Request,
    tables: Sequence[str] = ONE,
    losable: int = 0,
) -> Case:
    return Case(f"events: {title}", partial(system, requests, tables=tables, losable=losable))


def breaks(
    rule: str,
    title: str,
    requests: Sequence[Request],
    violation: str,
    *,
    tables: Sequence[str] = ONE,
    dropped: Sequence[str] = (),
    losable: int = 0,
) -> Case:
    build = partial(system, requests, without(RULES, rule), tables=tables, dropped=dropped, losable=losable)
    return Case(f"events: without {rule}: {title}", build, breaks=violation)


def linear(
    title: str, *requests: Request, tables: Sequence[str] = ONE, after: Mapping[int, tuple[int, ...]] | None = None
) -> Case:
    return Case(f"events, history: {title}", partial(history, requests, tables=tables, after=after))


def listed(request: Request) -> Request:
    return request._replace(is_indexed=True)


DAY: Final = RULES | {"N9 day"}
KEYED_MOVED: Final = (KEYED_NEW, KEYED_NEW, MOVE, SWEEP)

NAMES: Final = (
    holds("create, reconcile", NEW, RECONCILE, tables=FRESH),
    holds("two creates, reconcile", NEW, OTHER, RECONCILE, tables=FRESH),
    holds("create, drop, reconcile", NEW, DROP, RECONCILE, tables=FRESH),
    holds("create, drop, one answer lost", NEW, DROP, tables=FRESH, losable=1),
    holds("two drops, reconcile", DROP, DROP, RECONCILE),
    holds("drop, create, reconcile", DROP, NEW, RECONCILE),
    holds("drop, create, drop", DROP, NEW, DROP),
    holds("drop, create, one answer lost", DROP, NEW, losable=1),
    holds("create, drop namespace, reconcile", NEW, DROP_SPACE, RECONCILE, tables=FRESH),
    holds("rename, reconcile", MOVE, RECONCILE),
    holds("rename, drop old, create new", MOVE, DROP, NEW_U),
    holds("rename, create old, drop new", MOVE, NEW, DROP_U),
    holds("rename, back", MOVE, MOVE_BACK, RECONCILE),
    holds("rename, create new, one answer lost", MOVE, NEW_U, losable=1),
    holds("rename, create old, one answer lost", MOVE, NEW, losable=1),
    holds("rename, drop new, janitor", MOVE, DROP_U, SWEEP),
    holds("drop, janitor, create", DROP, SWEEP, NEW),
    Case("events: keyed create twice, rename, janitor", partial(system, KEYED_MOVED, DAY, tables=FRESH)),
    holds("drop, janitor, one answer lost", DROP, SWEEP, losable=1),
    holds("drop, janitor, create, one answer lost", DROP, SWEEP, NEW, losable=1),
    holds("rename, janitor, create, one answer lost", MOVE, SWEEP, NEW, losable=1),
    holds("drop, both janitors, one answer lost", DROP, SWEEP, RETIRE, losable=1),
    holds("transaction creates, drop, collection", TRANSACT, DROP, COLLECT, tables=FRESH),
    holds("transaction creates, create, reconcile", TRANSACT, OTHER, RECONCILE, tables=FRESH),
    holds("transaction creates, drop namespace", TRANSACT, DROP_SPACE, RECONCILE, tables=FRESH),
    holds("transaction creates, collection, rename", TRANSACT, COLLECT, MOVE, tables=FRESH),
    holds("keyed drop twice, create", KEYED_DROP, KEYED_DROP, NEW),
    holds("keyed drop twice, one answer lost", KEYED_DROP, KEYED_DROP, losable=1),
    holds("keyed drop twice, undrop", KEYED_DROP, KEYED_DROP, BACK),
    holds("keyed create twice, create", KEYED_NEW, KEYED_NEW, OTHER, tables=FRESH),
    holds("keyed create twice, drop", KEYED_NEW, KEYED_NEW, DROP, tables=FRESH),
    holds("keyed create twice, drop namespace", KEYED_NEW, KEYED_NEW, DROP_SPACE, tables=FRESH),
    holds("keyed create twice, rename", KEYED_NEW, KEYED_NEW, MOVE, tables=FRESH),
    holds("keyed create twice, one answer lost", KEYED_NEW, KEYED_NEW, RECONCILE, tables=FRESH, losable=1),
)

CONTENT: Final = (
    holds("two changes of content", CHANGE, CHANGE),
    holds("two changes of content, drop", CHANGE, CHANGE, DROP),
    holds("two changes of content, rename", CHANGE, CHANGE, MOVE),
    holds("changes of content under both names, rename", CHANGE, CHANGE_U, MOVE),
    holds("change of content, drop, undrop, one answer lost", CHANGE, DROP, BACK, losable=1),
    holds("create, two changes of content", NEW, CHANGE, CHANGE, tables=FRESH),
    holds("change of content, drop, janitors", CHANGE, DROP, SWEEP, RETIRE),
    holds("change of content, drop, purge ordered", CHANGE, DROP._replace(purges=True), Request("purge", T, "u0")),
    breaks("E2 change", "two changes of content", [CHANGE, CHANGE], "hole"),
    breaks("E2 janitor", "change of content, drop, create, janitor", [CHANGE, DROP, NEW, RETIRE], "there is no event"),
    breaks("E4 activate", "create, change of content, reconcile", [NEW, CHANGE, RECONCILE], "no event", tables=FRESH),
)

LISTED: Final = (
    holds("index: create, drop", listed(NEW), listed(DROP), tables=FRESH),
    holds("index: drop, undrop", listed(DROP), listed(BACK)),
    holds("index: drop, undrop elsewhere", listed(DROP), listed(ELSEWHERE)),
    holds("index: rename, create old", listed(MOVE), listed(NEW)),
)

BROKEN: Final = (
    Case(
        "events: without N9 day: keyed create twice, rename, janitor",
        partial(system, KEYED_MOVED, tables=FRESH),
        breaks="two names",
    ),
    breaks("E1 key", "drop, reconcile", [DROP, RECONCILE], "fork"),
    breaks("E2 drop", "create, drop", [NEW, DROP], "hole", tables=FRESH),
    breaks("E2 rename", "rename, reconcile", [MOVE, RECONCILE], "hole"),
    breaks("E2 reuse", "drop, create", [DROP, NEW], "does not exist"),
    breaks("E2 janitor", "drop, janitor", [DROP, SWEEP], "does not exist"),
    breaks("E2 undrop", "undrop, reconcile", [BACK, RECONCILE], "hole", tables=FRESH, dropped=ONE),
    breaks("E2 known", "drop, one answer lost", [DROP], "hole", losable=1),
    breaks("E3 new", "create, drop namespace", [NEW, DROP_SPACE], "does not exist", tables=FRESH),
    breaks("E3 moving", "rename, drop old", [MOVE, DROP], "does not exist"),
    breaks("E3 pending", "transaction creates, create", [TRANSACT, OTHER], "does not exist", tables=FRESH),
    breaks("E4 activate", "create, reconcile, drop", [NEW, RECONCILE, DROP], "hole", tables=FRESH),
    breaks("E4 bump", "rename, create new", [MOVE, NEW_U], "hole"),
    breaks("E4 fold", "transaction creates, collection", [TRANSACT, COLLECT], "no event", tables=FRESH),
    breaks("E5 new side", "rename", [MOVE], "does not exist"),
    breaks("E6 pointer", "drop, undrop elsewhere", [DROP, ELSEWHERE], "hole"),
    breaks("E7 once", "keyed drop twice, undrop", [KEYED_DROP, KEYED_DROP, BACK], "two events"),
    breaks("E7 once", "keyed rename twice, back", [KEYED_MOVE, KEYED_MOVE, MOVE_BACK], "event"),
    breaks("E8", "drop, create", [DROP, NEW], "hole"),
)

HISTORIES: Final = (
    linear("drop, create, look", DROP, NEW, Request("look", T)),
    linear("rename, create new, drop old", MOVE, NEW_U, DROP),
    linear("rename, create old, look", MOVE, NEW, Request("look", U)),
    linear("create, drop namespace, look", NEW, DROP_SPACE, Request("look", T), tables=FRESH),
    linear("transaction creates, create, drop", TRANSACT, OTHER, DROP, tables=FRESH),
    linear("change, drop, look", CHANGE, DROP, Request("look", T)),
)

LARGE: Final = large(
    Case(
        "events: keyed create twice, rename, janitor, one answer lost",
        partial(system, KEYED_MOVED, DAY, tables=FRESH, losable=1),
    ),
    holds("rename twice elsewhere", MOVE, AWAY, RECONCILE),
    holds("keyed rename twice", KEYED_MOVE, KEYED_MOVE),
    holds("keyed rename twice, reconcile", KEYED_MOVE, KEYED_MOVE, RECONCILE),
    holds("keyed rename twice, create old", KEYED_MOVE, KEYED_MOVE, NEW),
    holds("keyed rename twice, drop new", KEYED_MOVE, KEYED_MOVE, DROP_U),
    holds("keyed rename twice, back", KEYED_MOVE, KEYED_MOVE, MOVE_BACK),
    holds("keyed rename twice, create new", KEYED_MOVE, KEYED_MOVE, NEW_U),
    holds("keyed rename twice, one answer lost", KEYED_MOVE, KEYED_MOVE, losable=1),
    holds("index: undrop, rename", listed(DROP), listed(BACK), listed(MOVE)),
    holds("rename, create new, drop, one answer lost", MOVE, NEW_U, DROP, losable=1),
    holds("rename, create old, drop new, one answer lost", MOVE, NEW, DROP_U, losable=1),
    holds("rename, drop new, janitors, reconcile", MOVE, DROP_U, SWEEP, SWEEP_U, RECONCILE),
    holds("rename, back, create, reconcile", MOVE, MOVE_BACK, NEW_U, RECONCILE),
    holds("drop, create, drop, one answer lost", DROP, NEW, DROP, losable=1),
    holds("create, drop namespace, drop, one answer lost", NEW, DROP_SPACE, DROP, tables=FRESH, losable=1),
    holds("transaction creates, create, collection, drop", TRANSACT, OTHER, COLLECT, DROP, tables=FRESH),
    holds(
        "transaction creates, rename, collection, one answer lost",
        TRANSACT,
        MOVE,
        COLLECT,
        tables=FRESH,
        losable=1,
    ),
)

CASES: Final = (*NAMES, *CONTENT, *LISTED, *BROKEN, *HISTORIES, *LARGE)
