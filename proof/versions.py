"""Versions of records: older and newer servers side by side, the upgrade, and an older server that was stalled by it.

Version 1 is a record without events, version 2 one with them. An older server knows version 1 only. `value` is the
list of changes applied. `extra` is a field that a later minor version added.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from proof.answers import BUSY, OK, UNKNOWN
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, call, get, goto, listing, put
from proof.store import Store, kept, present, run

TRIES_MAX: Final = 2
NEWER: Final = "503 upgrade this server"
UPGRADE: Final = "upgrade"
RECONCILE: Final = "reconcile"
OLD: Final = "old"
NEW: Final = "new"
MINOR: Final = "minor"


class Event(NamedTuple):
    """A change of a record, and the event before it."""

    id: str
    key: str
    value: tuple[str, ...]
    previous: str


class Record(NamedTuple):
    version: int
    value: tuple[str, ...]
    event: Event | None = None
    extra: str = ""


class Format(NamedTuple):
    """The version in which records are written: steady, or raising while older ones may be left."""

    major: int
    state: str


FORMAT: Final = Cell[Format]("format")
FIRST: Final = Format(1, "steady")
UPGRADED: Final = Format(2, "steady")


def record_of(key: str) -> Cell[Record]:
    return Cell(f"record:{key}")


def receipt_of(event_id: str) -> Cell[Event]:
    return Cell(f"receipt:{event_id}")


def ensure(event: Event | None) -> Step[bool]:
    """Whether the receipt of an event is known to exist. A lost answer is not known."""
    if event is None:
        return True
    for _ in range(TRIES_MAX):
        answer = yield from put(receipt_of(event.id), event, ABSENT)
        if answer.outcome != "unknown":
            return True
    return False


def old_change(actor: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A server of version 1, which reads no format. It creates the record if it is absent."""
    version, record = yield from get(record_of(key))
    if record and record.version > 1 and "V1" in rules:
        return NEWER
    value = record.value if record else ()
    answer = yield from call(write, actor, key, Record(1, (*value, actor)), version)
    if answer is None and tries < TRIES_MAX:
        return (yield from goto(old_change, actor, key, rules, tries + 1))
    return answer or BUSY


def write(actor: str, key: str, wanted: Record, version: int) -> Step[str | None]:
    """The answer to a change; None if another writer was faster."""
    answer = yield from put(record_of(key), wanted, version)
    if answer.outcome == "lost":
        return None
    if answer.outcome == "unknown":
        _, found = yield from get(record_of(key))
        return OK if found and actor in found.value else UNKNOWN
    return OK


def new_change(actor: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A server of version 2. It reads the format and the record in one round, at worst in this order."""
    _, found = yield from get(FORMAT)
    form = found or FIRST
    version, record = yield from get(record_of(key))
    is_old = record is None or record.version == 1
    if is_old and form.major == 1 and "V3" in rules:
        wanted = Record(1, (*(record.value if record else ()), actor))
    elif record and is_old and "V5" in rules:
        yield from call(adopt, actor, key)
        return BUSY if tries > TRIES_MAX else (yield from goto(new_change, actor, key, rules, tries + 1))
    else:
        if record and not (yield from call(ensure, record.event)):
            return BUSY
        wanted = with_event(f"{actor}.{tries}", key, record, actor)
        if "V2" not in rules:
            wanted = wanted._replace(extra="")
    answer = yield from call(write, actor, key, wanted, version)
    if answer is None and tries < TRIES_MAX:
        return (yield from goto(new_change, actor, key, rules, tries + 1))
    return answer or BUSY


def with_event(event_id: str, key: str, record: Record | None, change: str) -> Record:
    """The record after a change, with its event. An event whose predecessor is not known says "?"."""
    if record is None:
        return Record(2, (change,), Event(event_id, key, (change,), ""))
    value = (*record.value, change)
    previous = record.event.id if record.event else "?"
    return Record(2, value, Event(event_id, key, value, previous), record.extra)


def minor_change(actor: str, key: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A server of a later minor version, which adds a field to a record of version 2."""
    version, record = yield from get(record_of(key))
    if record is None or record.version == 1:
        return (yield from goto(new_change, actor, key, rules, tries))
    if not (yield from call(ensure, record.event)):
        return BUSY
    wanted = with_event(f"{actor}.{tries}", key, record, actor)._replace(extra="x")
    answer = yield from call(write, actor, key, wanted, version)
    if answer is None and tries < TRIES_MAX:
        return (yield from goto(minor_change, actor, key, rules, tries + 1))
    return answer or BUSY


def adopt(actor: str, key: str) -> Step[bool]:
    """Swap a record of version 1 to version 2. Its events begin with what was found."""
    version, record = yield from get(record_of(key))
    if record is None or record.version > 1:
        return False
    event = Event(f"{actor}/{key}@{version}", key, record.value, "")
    answer = yield from put(record_of(key), Record(2, record.value, event), version)
    return answer.outcome == "ok"


def upgrade(actor: str, rules: Rules) -> Step[str]:
    """`sandur upgrade`: raise the format, visit every record, finish. If it is killed, it is run again."""
    version, found = yield from get(FORMAT)
    if found == UPGRADED:
        return OK
    if (found or FIRST).major == 1 and "V3" in rules:
        raised = yield from put(FORMAT, Format(2, "raising"), version)
        if raised.outcome != "ok":
            return BUSY
        version = raised.version
    if "V4" in rules and not (yield from call(adopt_all, actor)):
        return BUSY
    done = yield from put(FORMAT, UPGRADED, version)
    return OK if done.outcome == "ok" else BUSY


def adopt_all(actor: str) -> Step[bool]:
    """Whether every record that was listed has version 2 now."""
    for name in (yield from listing("record:")):
        key = name.removeprefix("record:")
        for _ in range(TRIES_MAX + 1):
            _, record = yield from get(record_of(key))
            if record is None or record.version > 1:
                break
            yield from call(adopt, actor, key)
        else:
            return False
    return True


def reconcile() -> Step[str]:
    """After the upgrade: adopt what older servers made since, and write the receipt of every event."""
    _, found = yield from get(FORMAT)
    if found != UPGRADED:
        return OK
    for name in (yield from listing("record:")):
        key = name.removeprefix("record:")
        yield from call(adopt, "r", key)
        _, record = yield from get(record_of(key))
        if record:
            yield from call(ensure, record.event)
    return OK


CHANGES: Final[Mapping[str, Callable[[str, str, Rules], Step[str]]]] = {
    OLD: old_change,
    NEW: new_change,
    MINOR: minor_change,
}


def begin(actor: str, kind: str, key: str, rules: Rules) -> Step[str]:
    if kind == UPGRADE:
        return upgrade(actor, rules)
    return reconcile() if kind == RECONCILE else CHANGES[kind](actor, key, rules)


Requests = Sequence[tuple[str, str]]
"""The kind of each request, and the key of the record that it changes."""


def system(requests: Requests, rules: Rules, *, losable: int = 0, is_upgraded: bool = False) -> System:
    """Servers beside each other on a store of version 1, or of version 2."""
    store: Store = {FORMAT.key: (1, FIRST), "record:r": (1, Record(1, ()))}
    if is_upgraded:
        store = {FORMAT.key: (1, UPGRADED), "record:r": (1, Record(2, (), Event("0", "r", (), "")))}
    labels = [f"{kind}{index}" for index, (kind, _) in enumerate(requests)]
    actors = [
        Actor(label, begin, (label, kind, key, rules)) for label, (kind, key) in zip(labels, requests, strict=True)
    ]

    def judge(moment: Moment) -> None:
        form = kept(moment.store, FORMAT)
        for label, (kind, key), result in zip(labels, requests, moment.results, strict=True):
            if result == NEWER and form.major == 1:
                raise Violation("an older server is refused although the format admits it")
            if result == OK and kind in CHANGES:
                judge_change(kept(moment.store, record_of(key)), label, kind)
        if form == UPGRADED:
            if "V1" in rules and run(moment.store, old_change("z", "r", rules))[1] != NEWER:
                raise Violation("after the upgrade, an older server still changes what existed before it")
            later, _ = run(moment.store, reconcile())
            judge_events(later)

    return System(store, actors, judge, losable=losable)


def judge_change(record: Record, label: str, kind: str) -> None:
    if label not in record.value:
        raise Violation("an acknowledged change is lost")
    if kind == MINOR and record.version > 1 and not record.extra:
        raise Violation("a field of a later minor version is lost")


def judge_events(store: Store) -> None:
    """Once the upgrade is done: the events of each record lead, in one chain, to what the record says."""
    events = [event for event in present(store, "receipt:").values() if isinstance(event, Event)]
    for name, record in present(store, "record:").items():
        if isinstance(record, Record):
            key = name.removeprefix("record:")
            judge_chain(record, [event for event in events if event.key == key])


def judge_chain(record: Record, events: Sequence[Event]) -> None:
    following = {event.previous: event for event in events}
    if len(following) < len(events):
        raise Violation("fork: a record was brought back to the old form, and its events begin twice")
    at, value, length = "", None, 0
    while at in following:
        event = following[at]
        at, value, length = event.id, event.value, length + 1
    if length < len(events):
        raise Violation("hole: no event leads to a later one")
    if value != record.value:
        raise Violation("a change after the upgrade has no event")
