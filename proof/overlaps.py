"""A table and a volume at one place: their creations, and the purge of a dropped table (O1, O3).

Names, namespaces and keys are modelled elsewhere. Here, a table or volume exists if it has a name and its record is not
dropped or killed. There is one file, which belongs to the table first. The name of a volume records whether the file
was there when the volume was created.
"""

from typing import Final, Literal, TypeAlias

from proof.answers import BUSY, INVALID, NO_TABLE, OK, SWEPT, UNKNOWN
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules, of
from proof.steps import ABSENT, Cell, Step, delete, get, goto, put, read
from proof.store import Store, held

RULES: Final = of("O")

Kind: TypeAlias = Literal["table", "volume"]
State: TypeAlias = Literal["unbound", "live", "dropped", "killed"]

ORDER: Final = Cell[Literal["open"]]("order")
FILE: Final = Cell[Literal["data"]]("file")
OTHER: Final[dict[Kind, Kind]] = {"table": "volume", "volume": "table"}


def record_of(kind: Kind) -> Cell[State]:
    return Cell(f"record:{kind}")


def name_of(kind: Kind) -> Cell[str]:
    return Cell(f"name:{kind}")


TABLE_ONLY: Final[Store] = {
    record_of("table").key: (1, "live"),
    name_of("table").key: (1, "active"),
    FILE.key: (1, "data"),
}


def is_alive(state: State | None) -> bool:
    return state in {"unbound", "live"}


def create(kind: Kind, rules: Rules) -> Step[str]:
    """O1: look, write the record, look again, write the name."""
    _, other = yield from get(record_of(OTHER[kind]))
    if is_alive(other):
        return INVALID
    written = yield from put(record_of(kind), "unbound", ABSENT)
    if written.outcome != "ok":
        return BUSY
    if "O1" in rules:
        _, other = yield from get(record_of(OTHER[kind]))
        if is_alive(other):
            return (yield from goto(withdraw, kind, written.version, INVALID))
    if kind == "volume" and "O3 order" in rules:
        _, order = yield from get(ORDER)
        if order:
            return (yield from goto(withdraw, kind, written.version, BUSY))
    _, file = yield from get(FILE)
    named = yield from put(name_of(kind), f"with {file}", ABSENT)  # The creation happens here.
    if named.outcome != "ok":
        return UNKNOWN
    yield from put(record_of(kind), "live", written.version)
    return OK


def withdraw(kind: Kind, version: int, answer: str) -> Step[str]:
    """Kill the own record before the refusal is answered (N8)."""
    killed = yield from put(record_of(kind), "killed", version)
    return answer if killed.outcome == "ok" else BUSY


def drop() -> Step[str]:
    """Drop the table with a purge: the order, the name (D3), the pointer (D4)."""
    ordered = yield from put(ORDER, "open", ABSENT)
    if ordered.outcome != "ok":
        return BUSY
    version, _ = yield from get(name_of("table"))
    dropped = yield from delete(name_of("table"), version)
    if dropped.outcome != "ok":
        return BUSY
    at, state = yield from read(record_of("table"))
    if not is_alive(state):
        return NO_TABLE
    ended = yield from put(record_of("table"), "dropped", at)
    return OK if ended.outcome == "ok" else BUSY


def purge(rules: Rules) -> Step[str]:
    """Carry out the order, unless a volume may need the file."""
    version, order = yield from get(ORDER)
    _, table = yield from get(record_of("table"))
    if order is None or table != "dropped":
        return SWEPT
    if "O3 look" in rules:
        _, volume = yield from get(record_of("volume"))
        if is_alive(volume):
            return SWEPT
    at, file = yield from get(FILE)
    if file:
        deleted = yield from delete(FILE, at)
        if deleted.outcome != "ok":
            return SWEPT
    yield from delete(ORDER, version)
    return SWEPT


def creations(rules: Rules = RULES, *, losable: int = 0) -> System:
    """A table and a volume, created at the same moment."""
    actors = [Actor(kind, create, (kind, rules)) for kind in OTHER]
    return System({}, actors, judge, losable=losable)


def purges(rules: Rules = RULES, *, losable: int = 0) -> System:
    """The drop of a table with a purge, two runs of the janitor, and the creation of a volume."""
    actors = [
        Actor("drop", drop, ()),
        Actor("purge", purge, (rules,)),
        Actor("volume", create, ("volume", rules)),
        Actor("again", purge, (rules,), after=(1,)),
    ]
    return System(TABLE_ONLY, actors, judge, losable=losable)


def older_volume(rules: Rules = RULES, *, losable: int = 0) -> System:
    """A volume that the creations missed (O2), or an earlier version did not refuse; then the drop and two purges."""
    actors = [Actor("drop", drop, ()), Actor("purge", purge, (rules,)), Actor("again", purge, (rules,), after=(1,))]
    volume = {record_of("volume").key: (1, "live"), name_of("volume").key: (1, "with data")}
    return System({**TABLE_ONLY, **volume}, actors, judge_file, losable=losable)


def exists(store: Store, kind: Kind) -> bool:
    return held(store, name_of(kind)) is not None and is_alive(held(store, record_of(kind)))


def judge(moment: Moment) -> None:
    if exists(moment.store, "table") and exists(moment.store, "volume"):
        raise Violation("a table and a volume share a place")
    judge_file(moment)


def judge_file(moment: Moment) -> None:
    store = moment.store
    if exists(store, "volume") and held(store, name_of("volume")) == "with data" and held(store, FILE) is None:
        raise Violation("a purge deleted a file of a volume")
