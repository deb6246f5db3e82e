"""The list index of one namespace, which is derived from the names and from the records of tables (I1 to I5)."""

from typing import Final, TypeAlias

from proof.answers import CONFLICT, NO_TABLE, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, delete, get, listing, put, read
from proof.store import kept, present, run

TRIES_MAX: Final = 3
MOVED: Final = ">"
"""A name that a rename left: this, and the name that the table has now."""
CHANGED: Final = "+"
"""What an entry shows of a table whose record was changed, after its uuid."""
Entries: TypeAlias = tuple[tuple[str, str], ...]
INDEX: Final = Cell[Entries]("index")


def name_of(name: str) -> Cell[str]:
    """The truth: the uuid of the table that has the name."""
    return Cell(f"name:{name}")


def mark_of(actor: str) -> Cell[str]:
    """The name whose entry may be wrong, with the uuid of the table if its record changes (I5)."""
    return Cell(f"mark:{actor}")


def record_of(uuid: str) -> Cell[str]:
    """The record of a table: `+` once it was changed."""
    return Cell(f"record:{uuid}")


def read_truth(name: str) -> Step[str | None]:
    """What the entry of a name should be; None if the name leads to nothing, or was left by a rename."""
    _, uuid = yield from get(name_of(name))
    if not uuid or uuid.startswith(MOVED):
        return None
    _, change = yield from get(record_of(uuid))
    return f"{uuid}{change or ''}"


def update_entry(name: str, uuid: str, rules: Rules, *, is_there: bool) -> Step[bool]:
    """I2: update one entry from the name. Without I2, write the effect of the operation: `uuid` exists, or does not."""
    for _ in range(TRIES_MAX):
        version, entries = yield from read(INDEX)
        index = dict(entries)
        if "I2" in rules:
            truth = yield from read_truth(name)
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
    version, found = yield from get(name_of(name))
    if found and not found.startswith(MOVED):
        return CONFLICT
    answer = yield from put(name_of(name), uuid, version)
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


def rename(actor: str, name: str, to: str, rules: Rules) -> Step[str]:
    """Both names change at once here; what lies between is the subject of other models."""
    for one in (name, to):
        yield from set_mark(f"{actor} {one}", one, rules)
    version, uuid = yield from get(name_of(name))
    if not uuid or uuid.startswith(MOVED):
        return NO_TABLE
    answer = yield from put(name_of(name), f"{MOVED}{to}", version)
    if answer.outcome != "ok":
        return NO_TABLE
    yield from put(name_of(to), uuid, ABSENT)
    for one in (name, to):
        is_right = yield from update_entry(one, uuid, rules, is_there=one == to)
        yield from clear_mark(f"{actor} {one}", rules, is_right=is_right)
    return OK


def commit(actor: str, name: str, uuid: str, rules: Rules) -> Step[str]:
    """A commit that changes the entry of a table. It confirms the name before it swaps the record, not with it."""
    yield from set_mark(actor, name, rules, uuid)
    _, found = yield from get(name_of(name))
    if found != uuid:
        return NO_TABLE
    yield from put(record_of(uuid), CHANGED, ABSENT)
    is_right = yield from update_marked(name, uuid, rules)
    yield from clear_mark(actor, rules, is_right=is_right)
    return OK


def update_marked(name: str, uuid: str, rules: Rules) -> Step[bool]:
    """I2, and with I5 also the entry of the name that the table has by now."""
    is_right = yield from update_entry(name, uuid, rules, is_there=True)
    if "I5" not in rules:
        return is_right
    now, found = name, (yield from get(name_of(name)))[1]
    while found and found.startswith(MOVED):
        now = found.removeprefix(MOVED)
        _, found = yield from get(name_of(now))
    if found == uuid:
        return is_right and (now == name or (yield from update_entry(now, uuid, rules, is_there=True)))
    if "I5 list" not in rules:
        return is_right
    _, entries = yield from read(INDEX)  # A name on the way was reused: only the list still has the uuid.
    for listed, entry in entries:
        if entry.removesuffix(CHANGED) == uuid:
            is_right = (yield from update_entry(listed, uuid, rules, is_there=True)) and is_right
    return is_right


def set_mark(actor: str, name: str, rules: Rules, uuid: str = "") -> Step[None]:
    """I1: written in parallel with earlier writes, before the name or the record changes."""
    if "I1" in rules:
        yield from put(mark_of(actor), f"{name} {uuid}", ABSENT)


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
        if entry := (yield from read_truth(name)):
            entries += ((name, entry),)
    version, _ = early or (yield from read(INDEX))
    yield from put(INDEX, entries, version)
    return SWEPT


def system(actors: list[Actor], rules: Rules, created: str = "") -> System:
    """With `created`, a table of that uuid has the name `t` from the beginning."""

    def judge(moment: Moment) -> None:
        store = moment.store
        for mark in present(store, "mark:").values():  # The janitor handles every mark (I1).
            name, _, uuid = str(mark).partition(" ")
            followed = {"I5", "I5 list"} & rules if uuid else frozenset[str]()
            store, _ = run(store, update_marked(name, uuid, frozenset(("I2", "I3")) | followed))
        truth: Entries = ()
        for key in sorted(present(store, "name:")):
            _, entry = run(store, read_truth(key.removeprefix("name:")))
            truth += ((key.removeprefix("name:"), entry),) if entry else ()
        if kept(store, INDEX) != truth:
            raise Violation(f"index {kept(store, INDEX)} stays wrong, names are {truth}")

    before: Entries = (("t", created),) if created else ()
    names = {name_of(name).key: (1, uuid) for name, uuid in before}
    return System({INDEX.key: (1, before), **names}, actors, judge)
