"""The list index beside requests with events: a mark before the names change, the entries after it (I1 to I3)."""

from typing import Final, TypeAlias

from proof.answers import NO_TABLE
from proof.checker import Violation
from proof.events.judgement import Views
from proof.events.records import TRIES_MAX
from proof.events.resolution import look
from proof.rules import Rules
from proof.steps import Cell, Step, call, put, read
from proof.store import Store, kept, present, run

Entries: TypeAlias = tuple[tuple[str, str], ...]
INDEX: Final = Cell[Entries]("index")


def mark_cell(actor: str) -> Cell[tuple[str, ...]]:
    return Cell(f"mark:{actor}")


def update_entry(name: str, rules: Rules) -> Step[bool]:
    """I2, I3: the index, then the name as a load resolves it, then the swap, also if nothing changes."""
    for _ in range(TRIES_MAX + 1):
        version, entries = yield from read(INDEX)
        uuid = yield from call(look, name, rules)
        index = {one: other for one, other in entries if one != name}
        if uuid != NO_TABLE:
            index[name] = uuid
        answer = yield from put(INDEX, tuple(sorted(index.items())), version)
        if answer.outcome == "ok":
            return True
    return False


def judge_index(store: Store, views: Views, rules: Rules) -> None:
    """Once every mark is handled, the index lists what loads show."""
    for names in present(store, "mark:").values():
        for name in names if isinstance(names, tuple) else ():
            store, _ = run(store, update_entry(name, rules))
    listed, shown = kept(store, INDEX), tuple(sorted((name, uuid) for name, uuid in views.items() if uuid != NO_TABLE))
    if listed != shown:
        raise Violation(f"index {listed} stays wrong, loads show {shown}")
