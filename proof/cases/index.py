"""Cases of the list index: its updates against each other and against a rebuild."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.checker import Actor, System
from proof.index import create, drop, rebuild, system
from proof.rules import Rules, of, without

RULES: Final = of("I")


def build(rules: Rules, *kinds: str) -> System:
    actors = {
        "create": Actor("create", create, ("create", "t", "u1", rules)),
        "drop": Actor("drop", drop, ("drop", "t", "u1", rules)),
        "create again": Actor("again", create, ("again", "t", "u2", rules)),
        "create another": Actor("another", create, ("another", "s", "u3", rules)),
        "rebuild": Actor("rebuild", rebuild, (rules,)),
    }
    return system([actors[kind] for kind in kinds])


CASES: Final = (
    Case("index: create, drop, create again", partial(build, RULES, "create", "drop", "create again")),
    Case("index: create, drop, rebuild", partial(build, RULES, "create", "drop", "rebuild")),
    Case(
        "index: two names, rebuild, drop",
        partial(build, RULES, "create", "create another", "rebuild", "drop"),
        is_large=True,
    ),
    Case("index: without I1: create", partial(build, without(RULES, "I1"), "create"), breaks="stays wrong"),
    Case(
        "index: without I2: create, drop, create again",
        partial(build, without(RULES, "I2"), "create", "drop", "create again"),
        breaks="stays wrong",
    ),
    Case(
        "index: without I3: create, drop, create again",
        partial(build, without(RULES, "I3"), "create", "drop", "create again"),
        breaks="stays wrong",
    ),
    Case(
        "index: without I4: create, rebuild",
        partial(build, without(RULES, "I4"), "create", "rebuild"),
        breaks="stays wrong",
    ),
)
