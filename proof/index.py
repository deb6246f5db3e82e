"""The list index of one namespace, which is derived from the names (I1 to I4)."""

from typing import Final, TypeAlias

from proof.answers import CONFLICT, NO_TABLE, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, delete, get, listing, put, read
from proof.store import kept, present, run

TRIES_MAX: Final = 3
Entries: TypeAlias = tuple[tuple[str, str], ...]
INDEX: Final = Cell[Entries]("index")


def name_of(name: str) -> Cell[str]:
    """The truth: the uuid of the table that has the name."""
    return Cell(f"name:{name}")


def mark_of(actor: str) -> Cell[str]:
    return Cell(f"mark:{actor}")


def update_entry(name: str, uuid: str, rules: Rules, *, is_there: bool) -> Step[bool]:
    """I2: update one entry from the name. Without I2, write the effect of the operation: `uuid` exists, or does not."""
    for _ in range(TRIES_MAX):
        version, entries = yield from read(INDEX)
        index = dict(entries)
        if "I2" in rules:
            _, truth = yield from get(name_of(name))
        elif is_there:
            truth = uuid
        else:
            truth = None if index.get(name) == uuid else index.get(name)
        if index.get(name) == truth and "I3" not in rules:
            return True
        index.pop(name, None)
        if truth:
            index[name] = truth
        answer = yield from put(INDEX, tuple(sorted(index.items())), version)  # I3: also if nothing changes.
        if answer.outcome == "ok":
            return True
    return False


def create(actor: str, name: str, uuid: str, rules: Rules) -> Step[str]:
    yield from set_mark(actor, name, rules)
    _, found = yield from get(name_of(name))
    if found:
        return CONFLICT
    answer = yield from put(name_of(name), uuid, ABSENT)
    if answer.outcome != "ok":
        return CONFLICT
    is_right = yield from update_entry(name, uuid, rules, is_there=True)
    yield from clear_mark(actor, rules, is_right=is_right)
    return OK


def drop(actor: str, name: str, uuid: str, rules: Rules) -> Step[str]:
    yield from set_mark(actor, name, rules)
    version, found = yield from get(name_of(name))
    if found != uuid:
        return NO_TABLE
    answer = yield from delete(name_of(name), version)
    if answer.outcome != "ok":
        return NO_TABLE
    is_right = yield from update_entry(name, uuid, rules, is_there=False)
    yield from clear_mark(actor, rules, is_right=is_right)
    return OK


def set_mark(actor: str, name: str, rules: Rules) -> Step[None]:
    """I1: written in parallel with earlier writes, before the name changes."""
    if "I1" in rules:
        yield from put(mark_of(actor), name, ABSENT)


def clear_mark(actor: str, rules: Rules, *, is_right: bool) -> Step[None]:
    if "I1" in rules and is_right:
        yield from delete(mark_of(actor), 1)


def rebuild(rules: Rules) -> Step[str]:
    """I4: the rebuild of a missing or damaged index, and of the periodic job."""
    early = (yield from read(INDEX)) if "I4" in rules else None
    keys = yield from listing("name:")
    entries: Entries = ()
    for key in keys:
        name = key.removeprefix("name:")
        _, uuid = yield from get(name_of(name))
        if uuid:
            entries += ((name, uuid),)
    version, _ = early or (yield from read(INDEX))
    yield from put(INDEX, entries, version)
    return SWEPT


def system(actors: list[Actor]) -> System:
    def judge(moment: Moment) -> None:
        store = moment.store
        for name in present(store, "mark:").values():  # The janitor handles every mark (I1).
            store, _ = run(store, update_entry(str(name), "", frozenset(("I2", "I3")), is_there=False))
        truth = tuple(sorted((key.removeprefix("name:"), uuid) for key, uuid in present(store, "name:").items()))
        if kept(store, INDEX) != truth:
            raise Violation(f"index {kept(store, INDEX)} stays wrong, names are {truth}")

    return System({INDEX.key: (1, ())}, actors, judge)
