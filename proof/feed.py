"""The feed: entries that give receipts positions, readers that register, trimmers that remove entries (F1 to F6).

An appender, a reader and a trimmer may each be killed at any step. The receipts of a damaged entry are found again.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from proof.answers import BUSY, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules, of
from proof.steps import ABSENT, Cell, Step, call, delete, get, goto, listing, put
from proof.store import Store, held, present, run

TRIES_MAX: Final = 3
RULES: Final = of("F")
TRIMMED: Final = "410 trimmed"


class Entry(NamedTuple):
    """`carried_upto`: the receipts have positions in entries up to that one, which are removed."""

    receipts: tuple[str, ...]
    carried_upto: int = 0
    is_damaged: bool = False


class Mark(NamedTuple):
    """Entries up to `trimmed` are no longer part of the feed; those up to `planned` may be removed next."""

    trimmed: int = 0
    planned: int = 0


class Reader(NamedTuple):
    """A registered reader: how far it has read, and what it got (at least once)."""

    position: int
    got: tuple[str, ...] = ()


class Request(NamedTuple):
    verb: Literal["write", "append", "register", "read", "trim"]
    name: str = ""


MARK: Final = Cell[Mark]("mark")


def entry_cell(number: int) -> Cell[Entry]:
    return Cell(f"entry:{number}")


def receipt_cell(name: str) -> Cell[str]:
    return Cell(f"receipt:{name}")


def reader_cell(name: str) -> Cell[Reader]:
    return Cell(f"reader:{name}")


def current_mark() -> Step[tuple[int, Mark]]:
    version, mark = yield from get(MARK)
    return version, mark or Mark()


def entries_after(position: int, rules: Rules) -> Step[tuple[Entry, ...]]:
    """The entries behind a position, up to the first free number. A damaged one counts as empty (F6)."""
    found: tuple[Entry, ...] = ()
    while True:
        _, entry = yield from get(entry_cell(position + len(found) + 1))
        if entry is None or (entry.is_damaged and "F6" not in rules):
            return found
        found += (Entry(()) if entry.is_damaged else entry,)


def append(rules: Rules, tries: int = 0) -> Step[str]:
    """Give every receipt that exists a position. It counts only if the log was not trimmed meanwhile (F2)."""
    _, mark = yield from call(current_mark)
    entries = yield from call(entries_after, mark.trimmed, rules)
    known = {receipt for entry in entries for receipt in entry.receipts}
    found = [key.removeprefix("receipt:") for key in (yield from listing("receipt:"))]
    new = tuple(receipt for receipt in found if receipt not in known)
    if new and not (yield from call(write_entry, mark.trimmed + len(entries) + 1, Entry(new), rules)):
        return BUSY if tries == TRIES_MAX else (yield from goto(append, rules, tries + 1))
    _, again = yield from call(current_mark)
    if again.trimmed != mark.trimmed and "F2" in rules:
        return BUSY if tries == TRIES_MAX else (yield from goto(append, rules, tries + 1))
    return OK


def write_entry(number: int, entry: Entry, rules: Rules) -> Step[bool]:
    """F1: only under a free number."""
    expected = ABSENT
    if "F1" not in rules:
        expected, _ = yield from get(entry_cell(number))
    answer = yield from put(entry_cell(number), entry, expected)
    return answer.outcome == "ok"


def register(name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A new reader of everything that is kept. It looks at the mark after it has registered (F4)."""
    _, mark = yield from call(current_mark)
    position = max(mark.trimmed, mark.planned)
    written = yield from put(reader_cell(name), Reader(position), ABSENT)
    if written.outcome != "ok":
        return BUSY
    _, again = yield from call(current_mark)
    if position >= max(again.trimmed, again.planned) or "F4 reader" not in rules:
        return OK
    yield from delete(reader_cell(name), written.version)
    return BUSY if tries == TRIES_MAX else (yield from goto(register, name, rules, tries + 1))


def read(name: str, rules: Rules) -> Step[str]:
    """Read what comes after the reader's position, and say how far it is."""
    version, reader = yield from get(reader_cell(name))
    if reader is None:
        return BUSY
    entries = yield from call(entries_after, reader.position, rules)
    _, mark = yield from call(current_mark)
    if reader.position < mark.trimmed:
        return TRIMMED
    news = tuple(receipt for entry in entries if not entry.carried_upto for receipt in entry.receipts)
    seen = Reader(reader.position + len(entries), (*reader.got, *news))
    answer = yield from put(reader_cell(name), seen, version)
    return OK if answer.outcome == "ok" else BUSY


def trim(rules: Rules) -> Step[str]:
    """Mark, look at the readers, act (F4, F5). Receipts that still exist are carried on (F3)."""
    version, mark = yield from call(current_mark)
    yield from call(remove_entries, mark.trimmed)  # What a trimmer that was killed left.
    upto = mark.trimmed + 1
    _, entry = yield from get(entry_cell(upto))
    if entry is None:
        return SWEPT
    if "F4 trimmer" not in rules and not (yield from call(is_read, upto)):
        return SWEPT
    marked = yield from put(MARK, mark._replace(planned=upto), version)
    if marked.outcome != "ok":
        return SWEPT
    if "F4 trimmer" in rules and not (yield from call(is_read, upto)):
        yield from put(MARK, mark._replace(planned=mark.trimmed), marked.version)
        return SWEPT
    if "F3" in rules and not (yield from call(carry, mark.trimmed, entry, rules)):
        return SWEPT
    if "F5" not in rules:
        yield from call(remove_entries, upto)
    answer = yield from put(MARK, Mark(upto, upto), marked.version)
    if answer.outcome == "ok":
        yield from call(remove_entries, upto)
    return SWEPT


def is_read(upto: int) -> Step[bool]:
    for key in (yield from listing("reader:")):
        _, reader = yield from get(Cell[Reader](key))
        if reader and reader.position < upto:
            return False
    return True


def carry(trimmed: int, entry: Entry, rules: Rules) -> Step[bool]:
    """Name the receipts of an entry again, for appenders only. A damaged one has none: they are found again."""
    if entry.is_damaged or not entry.receipts:
        return True
    carried = Entry(entry.receipts, carried_upto=trimmed + 1)
    for _ in range(TRIES_MAX):
        entries = yield from call(entries_after, trimmed, rules)
        if carried in entries:
            return True
        if (yield from call(write_entry, trimmed + len(entries) + 1, carried, rules)):
            return True
    return False


def remove_entries(upto: int) -> Step[bool]:
    for number in range(1, upto + 1):
        version, entry = yield from get(entry_cell(number))
        if entry is not None:
            yield from delete(entry_cell(number), version)
    return True


def write(name: str) -> Step[str]:
    """A receipt, however late."""
    answer = yield from put(receipt_cell(name), "receipt", ABSENT)
    return OK if answer.outcome == "ok" else BUSY


def begin(request: Request, rules: Rules) -> Step[str]:
    match request.verb:
        case "write":
            return write(request.name)
        case "append":
            return append(rules)
        case "register":
            return register(request.name, rules)
        case "read":
            return read(request.name, rules)
        case "trim":
            return trim(rules)


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    is_damaged: bool = False,
    losable: int = 0,
) -> System:
    """Two entries with a receipt each; the reader `a` has read the first one."""
    store: dict[str, tuple[int, Entry | Mark | Reader | str]] = {
        MARK.key: (1, Mark()),
        entry_cell(1).key: (1, Entry(("p",))),
        entry_cell(2).key: (1, Entry(("q",), is_damaged=is_damaged)),
        receipt_cell("p").key: (1, "receipt"),
        receipt_cell("q").key: (1, "receipt"),
        reader_cell("a").key: (1, Reader(1, ("p",))),
    }
    actors = [Actor(f"{one.verb}{index}", begin, (one, rules)) for index, one in enumerate(requests)]

    def judge(moment: Moment) -> None:
        receipts = {key.removeprefix("receipt:") for key in present(moment.store, "receipt:")}
        later, _ = run(moment.store, append(rules))
        for key in present(moment.store, "reader:"):
            judge_reader(later, key.removeprefix("reader:"), receipts, rules)
        for one, result in zip(requests, moment.results, strict=True):
            if one.verb == "register" and result == OK and run(moment.store, read(one.name, rules))[1] == TRIMMED:
                raise Violation("entries were removed that a registered reader needs")
            if one.verb == "append" and result == OK:
                judge_appended(moment.store, rules)

    return System(store, actors, judge, losable=losable)


def judge_reader(store: Store, name: str, receipts: set[str], rules: Rules) -> None:
    """A reader gets every receipt, and each one once."""
    store, answer = run(store, read(name, rules))
    reader = held(store, reader_cell(name))
    if answer == TRIMMED or reader is None:
        if name == "a":
            raise Violation("entries were removed that a registered reader needs")
        return  # Its registration was not answered yet: it learns that it is late.
    if name == "a" and receipts - set(reader.got):
        raise Violation(f"a reader never gets {sorted(receipts - set(reader.got))}")
    if len(set(reader.got)) < len(reader.got):
        raise Violation("a reader gets a receipt twice")


def judge_appended(store: Store, rules: Rules) -> None:
    """What existed before an append has a position that is part of the feed, or that the reader has read."""
    mark = held(store, MARK) or Mark()
    _, entries = run(store, entries_after(mark.trimmed, rules))
    reader = held(store, reader_cell("a"))
    placed = {receipt for entry in entries for receipt in entry.receipts} | set(reader.got if reader else ())
    if not {"p", "q"} <= placed:
        raise Violation("a receipt that was appended has no position")
