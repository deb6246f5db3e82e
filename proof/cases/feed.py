"""Cases of the feed: appenders, readers and trimmers beside each other."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from proof.cases.case import Case, large
from proof.feed import RULES, Request, system
from proof.rules import without

WRITE, APPEND, TRIM = Request("write", "r"), Request("append"), Request("trim")
READ, REGISTER = Request("read", "a"), Request("register", "b")


def holds(title: str, *requests: Request, is_damaged: bool = False, losable: int = 0) -> Case:
    return Case(f"feed: {title}", partial(system, requests, is_damaged=is_damaged, losable=losable))


def breaks(rule: str, title: str, requests: Sequence[Request], violation: str, *, is_damaged: bool = False) -> Case:
    build = partial(system, requests, without(RULES, rule), is_damaged=is_damaged)
    return Case(f"feed: without {rule}: {title}", build, breaks=violation)


CASES: Final = (
    holds("late receipt, two appenders, reader", WRITE, APPEND, APPEND, READ),
    holds("late receipt, appender, reader, one answer lost", WRITE, APPEND, READ, losable=1),
    holds("trimmer, appender, late receipt", TRIM, APPEND, WRITE),
    holds("trimmer, reader, reader registers", TRIM, READ, REGISTER),
    holds("two trimmers, appender", TRIM, TRIM, APPEND),
    holds("trimmer, appender, one answer lost", TRIM, APPEND, losable=1),
    holds("damaged entry, appender, reader", APPEND, READ, APPEND, is_damaged=True),
    holds("damaged entry, trimmer, appender, reader", TRIM, APPEND, READ, is_damaged=True),
    breaks("F1", "late receipt, two appenders", [WRITE, APPEND, APPEND, READ], "never gets", is_damaged=True),
    breaks("F2", "trimmer, appender", [TRIM, APPEND], "no position", is_damaged=True),
    breaks("F3", "trimmer", [TRIM], "twice"),
    breaks("F4 reader", "trimmer, reader, reader registers", [TRIM, READ, REGISTER], "needs"),
    breaks("F4 trimmer", "trimmer, reader registers", [TRIM, REGISTER], "needs"),
    breaks("F5", "trimmer, appender", [TRIM, APPEND], "never gets", is_damaged=True),
    breaks("F6", "appender, reader", [APPEND, READ], "never gets", is_damaged=True),
    *large(
        holds("two trimmers, appender, late receipt, reader", TRIM, TRIM, APPEND, WRITE, READ),
        holds("trimmer, reader registers, appender, reader", TRIM, REGISTER, APPEND, READ),
    ),
)
