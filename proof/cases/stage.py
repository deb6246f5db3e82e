"""Cases of stage-create: finalizers of one stage and of two, its janitor, a namespace dropped in between, retries."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.names.requests import (
    Create,
    Drop,
    DropNamespace,
    ExpireStage,
    Load,
    MakeNamespace,
    Rename,
    Request,
    Stage,
    SweepPointer,
)
from proof.names.system import RULES, system
from proof.rules import without

T, U = "X.t", "X.u"
ONE = Create(T, "a", "r1", is_staged=True)
OTHER = Create(T, "a", "r2", is_staged=True)
ELSE = Create(T, "b", "r2", is_staged=True)
KEYED = Create(T, "a", "r1", key="K", is_staged=True)
OTHER_KEYED = Create(T, "a", "r2", key="L", is_staged=True)
EXPIRED: list[Request] = [Stage(T, "a"), ONE, ONE, ExpireStage("a")]
EXPIRED_KEYED: list[Request] = [Stage(T, "a"), KEYED, KEYED, ExpireStage("a")]
AFTER_STAGE = {1: (0,), 2: (0,), 3: (0,)}
MADE_AGAIN: list[Request] = [ONE, ONE, DropNamespace("X"), MakeNamespace("X")]
BOTH: list[Request] = [ONE, OTHER, Load(T)]

empty = partial(system, tables=())
CASES: Final = (
    Case("stage: finalized twice, janitor", partial(empty, EXPIRED, after=AFTER_STAGE)),
    Case("stage: finalized twice under a key, janitor", partial(empty, EXPIRED_KEYED, after=AFTER_STAGE)),
    Case("stage: two stages of one name", partial(empty, [ONE, ELSE, Load(T)])),
    Case("stage: two requests finalize one stage", partial(empty, BOTH)),
    Case("stage: two requests finalize one stage, one answer lost", partial(empty, [ONE, OTHER], losable=1)),
    Case(
        "stage: two requests finalize one stage, two answers lost",
        partial(empty, [ONE, OTHER], losable=2),
    ),
    Case("stage: finalized twice, drop namespace", partial(empty, [ONE, ONE, DropNamespace("X")])),
    Case("stage: finalized twice, drop and make namespace", partial(empty, MADE_AGAIN), is_large=True),
    Case("stage: two requests, drop namespace", partial(empty, [ONE, OTHER, DropNamespace("X")])),
    Case("stage: two requests, orphan collection", partial(empty, [ONE, OTHER, SweepPointer(T, "a")])),
    Case("stage: finalized twice, rename", partial(empty, [ONE, ONE, Rename(T, U)])),
    Case("stage: finalized twice, drop, create", partial(empty, [ONE, ONE, Drop(T), Create(T, "c")]), is_large=True),
    Case("stage: finalized twice under a key, drop", partial(empty, [KEYED, KEYED, Drop(T)])),
    Case("stage: finalized twice under a key, drop namespace", partial(empty, [KEYED, KEYED, DropNamespace("X")])),
    Case("stage: finalized twice under a key, one answer lost", partial(empty, [KEYED, KEYED], losable=1)),
    Case(
        "stage: finalized twice under a key, another request",
        partial(empty, [KEYED, KEYED, OTHER_KEYED]),
        is_large=True,
    ),
    Case(
        "stage: without S1: finalized twice, janitor",
        partial(empty, EXPIRED, without(RULES, "S1"), after=AFTER_STAGE),
        breaks="not linearizable: then loads show X.t=404 no table",
    ),
    Case(
        "stage: without S2: two requests finalize one stage",
        partial(empty, BOTH, without(RULES, "S2")),
        breaks="not linearizable",
    ),
    Case(
        "stage: without S3: two requests finalize one stage",
        partial(empty, BOTH, without(RULES, "S3")),
        breaks="not linearizable",
    ),
    Case(
        "stage: without S4: finalized twice, janitor",
        partial(empty, EXPIRED, without(RULES, "S4"), after=AFTER_STAGE),
        breaks="not linearizable",
    ),
    Case(
        "stage: without N4 name: finalized twice, drop and make namespace",
        partial(empty, MADE_AGAIN, without(RULES, "N4 name")),
        breaks="not linearizable",
    ),
)
