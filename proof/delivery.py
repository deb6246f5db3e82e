"""The delivery of one subscription: senders that share a cursor, a receiver that fails, replays, dead letters (W1–W8).

A table `t` has the events `t1` and `t2`, a table `u` has `u1`. A sender may be killed, or stall, at any step. The
receiver may refuse an event, or accept it while its answer is lost. A lease may end at any moment, so two senders may
be at work.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from proof.answers import BUSY, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules, of
from proof.steps import (
    ABSENT,
    Cell,
    Memory,
    Step,
    Together,
    call,
    choose,
    delete,
    get,
    goto,
    in_memory,
    passed,
    put,
    read,
)
from proof.store import Store, held, kept, run

RULES: Final = of("W")
ATTEMPTS_MAX: Final = 2
"""Failures after which an event becomes a dead letter."""
PENDING_MAX: Final = 2
TRIES_MAX: Final = 2
PREVIOUS: Final = {"t1": "", "t2": "t1", "u1": ""}


class Pending(NamedTuple):
    """An event that was read and is not settled. `position` is behind it."""

    event: str
    position: int
    attempts: int = 0


class Cursor(NamedTuple):
    """Everything before `position` is settled, except for what is parked."""

    position: int = 0
    parked: tuple[Pending, ...] = ()
    holder: str = ""


class Got(NamedTuple):
    """What happened at the receiver, for the judgement: an event arrived, was given up, or a replay was asked for."""

    what: Literal["arrived", "dead", "replay"]
    event: str = ""
    id: str = ""
    is_gap: bool = False


class Sender(NamedTuple):
    """What a sender remembers; `version` is that of the cursor as it took or saved it."""

    name: str
    version: int
    position: int
    pending: tuple[Pending, ...] = ()
    settled: frozenset[str] = frozenset()
    waits: int = 0

    @property
    def events(self) -> frozenset[str]:
        return frozenset(one.event for one in self.pending)

    def without(self, event: str) -> "Sender":
        """The same, with an event that is settled."""
        left = tuple(one for one in self.pending if one.event != event)
        return self._replace(pending=left, settled=self.settled | {event})


class Request(NamedTuple):
    verb: Literal["deliver", "append", "replay", "revive", "collect"]


CURSOR: Final = Cell[Cursor]("cursor")
FEED: Final = Cell[tuple[str, ...]]("feed")
READER: Final = Cell[int]("reader")
RECEIVER: Final = Cell[tuple[Got, ...]]("receiver")


def receipt_cell(event: str) -> Cell[str]:
    return Cell(f"receipt:{event}")


def letter_cell(event: str) -> Cell[int]:
    return Cell(f"letter:{event}")


def note(seen: tuple[Got, ...], got: Got) -> tuple[bool, tuple[Got, ...]]:
    return True, (*seen, got)


def deliver(name: str, rules: Rules) -> Step[str]:
    """Take the cursor, and read what was parked."""
    version, cursor = yield from read(CURSOR)
    if cursor.holder not in {"", name} and not (yield from passed()):
        return BUSY
    taken = yield from put(CURSOR, cursor._replace(holder=name), version)
    if taken.outcome != "ok":
        return BUSY
    pending: tuple[Pending, ...] = ()
    for one in cursor.parked:
        _, receipt = yield from get(receipt_cell(one.event))
        pending += (one,) if receipt else ()
    return (yield from goto(step, Sender(name, taken.version, cursor.position, pending), rules))


def step(sender: Sender, rules: Rules) -> Step[str]:
    """Read on while there is room, and send the next event that is ready; without one, give up the cursor."""
    _, feed = yield from read(FEED)
    for number, event in enumerate(feed[sender.position :], sender.position + 1):
        if len(sender.pending) >= PENDING_MAX:
            break
        _, receipt = yield from get(receipt_cell(event))
        is_known = event in sender.settled | sender.events
        added = () if is_known or not receipt else (Pending(event, number),)
        sender = sender._replace(position=number, pending=(*sender.pending, *added))
    for one in sender.pending:
        if one.attempts and not (yield from passed()):
            continue  # Its retry is not due yet.
        is_ready_now = yield from call(is_ready, sender, one.event, rules)
        is_gap_again = one.attempts > 0 and PREVIOUS[one.event] not in sender.events
        if is_ready_now or is_gap_again:
            is_gap = not is_ready_now and "W3 again" in rules
            return (yield from goto(send, sender, one, is_gap, rules))
    if not sender.pending:
        return (yield from goto(save, sender, True, rules))  # noqa: FBT003 - as above
    if sender.waits < TRIES_MAX:
        return (yield from goto(step, sender._replace(waits=sender.waits + 1), rules))
    held = [one for one in sender.pending if not one.attempts and PREVIOUS[one.event] not in sender.events]
    if held and (yield from passed()):
        return (yield from goto(send, sender, held[0], True, rules))  # noqa: FBT003 - as above
    return (yield from goto(save, sender, True, rules))  # noqa: FBT003 - as above


def is_ready(sender: Sender, event: str, rules: Rules) -> Step[bool]:
    """Whether the event before this one was settled; the store says so for one that the sender does not know."""
    previous = PREVIOUS[event]
    if not previous or previous in sender.settled:
        return True
    if previous in sender.events:
        return "W3 pending" not in rules
    _, receipt = yield from get(receipt_cell(previous))
    if receipt is None or "W3 unknown" not in rules:
        return True  # Too old to be found: it was settled long ago.
    _, feed = yield from read(FEED)
    if previous in feed:
        return sender.position >= len(feed) or "W3 read" not in rules
    yield from call(append)
    return False


def send(sender: Sender, one: Pending, is_gap: bool, rules: Rules) -> Step[str]:  # noqa: FBT001 - arguments are hashed
    """Send an event, and settle it behind the 2xx. What was sent with it, without W4, is settled by the same answer."""
    if "W1" not in rules:
        saved = yield from call(write_cursor, sender.without(one.event), sender.name, rules)
        if not saved:
            return BUSY
        sender = sender._replace(version=saved)
    sent = [one.event, *(() if "W4" in rules else (two.event for two in sender.pending if two != one))]
    outcome = yield from choose(3)  # 0: refused; 1: accepted, and the answer is lost; 2: accepted.
    if outcome:
        yield Together(tuple(Memory(RECEIVER.key, note, (_got(sender, event, is_gap, rules),)) for event in sent))
    if outcome == 2:  # noqa: PLR2004 - see above
        for event in sent:
            sender = sender.without(event)
    elif one.attempts + 1 == ATTEMPTS_MAX:
        return (yield from goto(bury, sender, one.event, rules))
    else:
        tried = one._replace(attempts=one.attempts + 1)
        sender = sender._replace(pending=tuple(tried if two == one else two for two in sender.pending))
    if (yield from choose(2)):
        return (yield from goto(save, sender, False, rules))  # noqa: FBT003 - as above
    return (yield from goto(step, sender, rules))  # A busy cursor is saved later.


def _got(sender: Sender, event: str, is_gap: bool, rules: Rules) -> Got:  # noqa: FBT001 - as above
    return Got("arrived", event, event if "W7" in rules else f"{event} by {sender.name}", is_gap)


def bury(sender: Sender, event: str, rules: Rules) -> Step[str]:
    """Write the dead letter, then move the cursor past the event. A letter that is there is written again (W6)."""
    if "W5" not in rules:
        saved = yield from call(write_cursor, sender.without(event), sender.name, rules)
        sender = sender._replace(version=saved)
    for _ in range(TRIES_MAX):
        version, letter = yield from get(letter_cell(event))
        if letter is not None and "W6 again" not in rules:
            break
        if (yield from put(letter_cell(event), 1, version)).outcome == "ok":
            break
    else:
        return BUSY
    yield from in_memory(RECEIVER.key, note, Got("dead", event))
    return (yield from goto(save, sender.without(event), False, rules))  # noqa: FBT003 - as above


def save(sender: Sender, is_last: bool, rules: Rules) -> Step[str]:  # noqa: FBT001 - as above
    """Move the cursor behind what is settled, then tell the feed what is not needed any more."""
    saved = yield from call(write_cursor, sender, "" if is_last else sender.name, rules)
    if not saved:
        return BUSY
    needed = min([sender.position, *(one.position - 1 for one in sender.pending if "W8" in rules)])
    version, _ = yield from read(READER)
    yield from put(READER, needed, version)
    return OK if is_last else (yield from goto(step, sender._replace(version=saved), rules))


def write_cursor(sender: Sender, holder: str, rules: Rules) -> Step[int]:
    """Swap the cursor against the version that this sender wrote last (W2); 0 if another one has it."""
    parked = tuple(sorted(sender.pending, key=lambda one: one.position)) if "W1 parked" in rules else ()
    version = sender.version
    if "W2" not in rules:
        version, _ = yield from read(CURSOR)
    answer = yield from put(CURSOR, Cursor(sender.position, parked, holder), version)
    return answer.version if answer.outcome == "ok" else ABSENT


def append() -> Step[str]:
    """Give every receipt a position; the model of the feed has the details."""
    version, feed = yield from read(FEED)
    for event in PREVIOUS:
        _, receipt = yield from get(receipt_cell(event))
        if receipt and event not in feed:
            answer = yield from put(FEED, (*feed, event), version)
            return OK if answer.outcome == "ok" else BUSY
    return OK


def replay() -> Step[str]:
    """Deliver everything again."""
    yield from in_memory(RECEIVER.key, note, Got("replay"))
    version, _ = yield from read(READER)
    yield from put(READER, 0, version)
    version, _ = yield from read(CURSOR)
    answer = yield from put(CURSOR, Cursor(), version)
    return OK if answer.outcome == "ok" else BUSY


def revive(rules: Rules) -> Step[str]:
    """Park the dead letter of `t1` again, then delete the letter as it was read."""
    version, letter = yield from get(letter_cell("t1"))
    if letter is None:
        return SWEPT
    if "W6 order" not in rules:
        yield from delete(letter_cell("t1"), version)
    current, cursor = yield from read(CURSOR)
    kept_ones = tuple(one for one in cursor.parked if one.event != "t1")
    answer = yield from put(CURSOR, Cursor(cursor.position, (Pending("t1", 1), *kept_ones)), current)
    if answer.outcome != "ok":
        return BUSY
    yield from delete(letter_cell("t1"), version)
    return OK


def collect() -> Step[str]:
    """Remove the receipts that the subscription does not need any more: their retention is over."""
    _, needed = yield from read(READER)
    _, feed = yield from read(FEED)
    for event in feed[:needed]:
        version, receipt = yield from get(receipt_cell(event))
        if receipt:
            yield from delete(receipt_cell(event), version)
    return SWEPT


def begin(request: Request, name: str, rules: Rules) -> Step[str]:
    match request.verb:
        case "deliver":
            return deliver(name, rules)
        case "append":
            return append()
        case "replay":
            return replay()
        case "revive":
            return revive(rules)
        case "collect":
            return collect()


def system(
    requests: Sequence[Request], rules: Rules = RULES, *, feed: Sequence[str], is_dead: bool = False, losable: int = 0
) -> System:
    """Receipts of all events of the feed, and of those before them. `is_dead`: `t1` is a dead letter."""
    events = {*feed, *(PREVIOUS[event] for event in feed)} - {""}
    start = (Got("dead", "t1"),) if is_dead else ()
    store: dict[str, tuple[int, Cursor | tuple[str, ...] | tuple[Got, ...] | int | str]] = {
        CURSOR.key: (1, Cursor(1 if is_dead else 0)),
        FEED.key: (1, tuple(feed)),
        READER.key: (1, 1 if is_dead else 0),
        RECEIVER.key: (1, start),
        **{receipt_cell(event).key: (1, "receipt") for event in events},
        **({letter_cell("t1").key: (1, 1)} if is_dead else {}),
    }
    names = [f"{one.verb}{index}" for index, one in enumerate(requests)]
    actors = [Actor(name, begin, (one, name, rules)) for name, one in zip(names, requests, strict=True)]

    def judge(moment: Moment) -> None:
        received: tuple[Got, ...] = kept(moment.store, RECEIVER)
        judge_order(received)
        judge_loss(moment.store, events, rules)
        is_replayed = any(
            one.verb == "replay" and result == OK for one, result in zip(requests, moment.results, strict=True)
        )
        if is_replayed:
            judge_replay(moment.store, events, rules)

    return System(store, actors, judge, losable=losable)


def judge_order(seen: Sequence[Got]) -> None:
    """The first arrivals of a table are in the order of its events, and a repeat has the id of the first."""
    over: dict[str, str] = {}
    for got in seen:
        if (
            got.what == "arrived"
            and not got.is_gap
            and got.event not in over
            and PREVIOUS[got.event] not in {"", *over}
        ):
            raise Violation(f"{got.event} arrived before {PREVIOUS[got.event]}")
        if got.what == "arrived" and over.get(got.event, got.id) not in {got.id, ""}:
            raise Violation(f"{got.event} arrived under two ids")
        if got.event and not over.get(got.event):
            over[got.event] = got.id


def finish(store: Store, rules: Rules) -> Store:
    """The store after a fresh appender and a fresh sender that nothing disturbs."""
    for _ in PREVIOUS:
        store, _ = run(store, append())
    store, answer = run(store, deliver("fresh", rules))
    if answer != OK:
        raise Violation("a sender that nothing disturbs does not come to its end")
    return store


def judge_loss(store: Store, events: set[str], rules: Rules) -> None:
    """Every event arrives in the end, or is a dead letter."""
    after = finish(store, rules)
    arrived = {got.event for got in kept(after, RECEIVER) if got.what == "arrived"}
    for event in sorted(events - arrived):
        if held(after, letter_cell(event)) is None:
            raise Violation(f"{event} is lost")


def judge_replay(store: Store, events: set[str], rules: Rules) -> None:
    """After a replay that was acknowledged, every event arrives again."""
    seen = kept(finish(store, rules), RECEIVER)
    since = max(number for number, got in enumerate(seen) if got.what == "replay")
    again = {got.event for got in seen[since:] if got.what in {"arrived", "dead"}}
    if events - again:
        raise Violation(f"a replay skipped {sorted(events - again)}")
