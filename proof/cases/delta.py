"""Cases of Delta commit coordination: races, retries, backfill, honest and not."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.delta import Commit, backfill, clean, drop, recall, system
from proof.rules import of, without

RULES: Final = of("L")
A, B, SECOND = Commit(1, "a"), Commit(1, "b"), Commit(2, "b")
HONEST, LYING = (backfill, (True,)), (backfill, (False,))
RECALLED, LIE_RECALLED, DROP = (recall, (True,)), (recall, (False,)), (drop, (True,))

CASES: Final = (
    Case(
        "delta: race for a version, retry, backfill, clean-up, one answer lost",
        partial(system, [A, A, B], RULES, [HONEST, (clean, ())], losable=1),
        is_large=True,
    ),
    Case(
        "delta: race for a version, retry, backfill, clean-up",
        partial(system, [A, A, B], RULES, [HONEST, (clean, ())]),
        is_large=True,
    ),
    Case(
        "delta: two versions, retry, backfill, one answer lost",
        partial(system, [A, SECOND, A], RULES, [HONEST], losable=1),
        is_large=True,
    ),
    Case("delta: two versions, retry, backfill", partial(system, [A, SECOND, A], RULES, [HONEST])),
    Case("delta: backfill reported and not done", partial(system, [A, SECOND], RULES, [LYING])),
    Case("delta: a report remembered and trimmed by later", partial(system, [A, SECOND], RULES, [RECALLED])),
    Case(
        "delta: a report remembered, another believed at once, a retry",
        partial(system, [A, SECOND, A], RULES, [RECALLED, HONEST]),
        is_large=True,
    ),
    Case("delta: a report remembered that is not true", partial(system, [A, SECOND], RULES, [LIE_RECALLED])),
    Case("delta: drop against a race for a version", partial(system, [A, B], RULES, [DROP])),
    Case(
        "delta: drop against commits and backfill, one answer lost",
        partial(system, [A, SECOND], RULES, [HONEST, DROP], losable=1),
        is_large=True,
    ),
    Case(
        "delta: without L5: drop against a race for a version",
        partial(system, [A, B], without(RULES, "L5"), [DROP]),
        breaks="a commit came after the drop",
    ),
    Case(
        "delta: without L4: a report remembered that is not true",
        partial(system, [A, SECOND], without(RULES, "L4"), [LIE_RECALLED]),
        breaks="neither tracked nor published",
    ),
    Case(
        "delta: without L3: two versions, retry, backfill",
        partial(system, [A, SECOND, A], without(RULES, "L3"), [HONEST]),
        breaks="answered 409 conflict and applied",
    ),
    Case(
        "delta: without L4: backfill reported and not done",
        partial(system, [A, SECOND], without(RULES, "L4"), [LYING]),
        breaks="neither tracked nor published",
    ),
)
