"""Cases of the delivery of subscriptions: senders, late receipts, replays, dead letters and collectors."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from proof.cases.case import Case, large
from proof.delivery import RULES, Request, system
from proof.rules import without

DELIVER, APPEND, REPLAY = Request("deliver"), Request("append"), Request("replay")
REVIVE, COLLECT = Request("revive"), Request("collect")
ORDERED, LATE, OTHER = ("t1", "t2"), ("t2",), ("t1", "u1")


def holds(title: str, *requests: Request, feed: Sequence[str], is_dead: bool = False, losable: int = 0) -> Case:
    return Case(f"delivery: {title}", partial(system, requests, feed=feed, is_dead=is_dead, losable=losable))


def breaks(
    rule: str, title: str, requests: Sequence[Request], violation: str, *, feed: Sequence[str], is_dead: bool = False
) -> Case:
    build = partial(system, requests, without(RULES, rule), feed=feed, is_dead=is_dead)
    return Case(f"delivery: without {rule}: {title}", build, breaks=violation)


CASES: Final = (
    holds("one sender", DELIVER, feed=ORDERED),
    holds("two senders, one event", DELIVER, DELIVER, feed=("t1",)),
    holds("one sender, one answer of the store lost", DELIVER, feed=ORDERED, losable=1),
    holds("sender, late receipt, appender", DELIVER, APPEND, feed=LATE),
    holds("two tables, sender, collector", DELIVER, COLLECT, feed=OTHER),
    holds("sender, replay", DELIVER, REPLAY, feed=("t1",)),
    holds("sender, dead letter, replay of dead letters", DELIVER, REVIVE, feed=ORDERED, is_dead=True),
    holds("sender, collector", DELIVER, COLLECT, feed=ORDERED),
    breaks("W1", "sender", [DELIVER], "lost", feed=ORDERED),
    breaks("W1 parked", "sender", [DELIVER], "lost", feed=ORDERED),
    breaks("W2", "sender, replay", [DELIVER, REPLAY], "skipped", feed=ORDERED),
    breaks("W3 pending", "sender", [DELIVER], "before", feed=("t2", "t1")),
    breaks("W3 unknown", "sender, late receipt", [DELIVER], "before", feed=LATE),
    breaks("W3 read", "sender, full", [DELIVER], "before", feed=("u1", "t2", "t1")),
    breaks("W3 again", "sender, full", [DELIVER], "before", feed=("u1", "t2")),
    breaks("W4", "sender", [DELIVER], "before", feed=ORDERED),
    breaks("W5", "sender", [DELIVER], "lost", feed=ORDERED),
    breaks("W6 again", "sender, replay of dead letters", [DELIVER, REVIVE], "lost", feed=ORDERED, is_dead=True),
    breaks("W6 order", "replay of dead letters", [REVIVE], "lost", feed=ORDERED, is_dead=True),
    breaks("W7", "two senders", [DELIVER, DELIVER], "two ids", feed=ORDERED),
    breaks("W8", "sender, collector", [DELIVER, COLLECT], "lost", feed=OTHER),
    *large(
        holds("two senders", DELIVER, DELIVER, feed=ORDERED),
        holds("two senders, late receipt", DELIVER, DELIVER, feed=LATE),
        holds("sender, two events, replay", DELIVER, REPLAY, feed=ORDERED),
        holds("two senders, replay", DELIVER, DELIVER, REPLAY, feed=ORDERED),
        holds("two senders, late receipt, appender", DELIVER, DELIVER, APPEND, feed=LATE),
        holds("two senders, collector, two tables", DELIVER, DELIVER, COLLECT, feed=OTHER),
        holds("two senders, replay of dead letters", DELIVER, DELIVER, REVIVE, feed=ORDERED, is_dead=True),
        holds("two senders, one answer of the store lost", DELIVER, DELIVER, feed=ORDERED, losable=1),
        holds("sender, three events, late receipt, appender", DELIVER, APPEND, feed=("u1", "t2")),
    ),
)
