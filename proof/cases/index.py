"""Cases of the list index: its updates against each other, against commits, renames and a rebuild."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.checker import Actor, System
from proof.index import commit, create, drop, rebuild, rename, system
from proof.rules import Rules, of, without

RULES: Final = of("I")


def build(rules: Rules, *kinds: str) -> System:
    actors = {
        "create": Actor("create", create, ("create", "t", "u1", rules)),
        "drop": Actor("drop", drop, ("drop", "t", "u1", rules)),
        "create again": Actor("again", create, ("again", "t", "u2", rules)),
        "create another": Actor("another", create, ("another", "s", "u3", rules)),
        "rebuild": Actor("rebuild", rebuild, (rules,)),
        "commit": Actor("commit", commit, ("commit", "t", "u1", rules)),
        "rename": Actor("rename", rename, ("rename", "t", "s", rules)),
        "rename on": Actor("rename on", rename, ("rename on", "s", "r", rules)),
    }
    created = "u1" if "created" in kinds else ""
    return system([actors[kind] for kind in kinds if kind != "created"], rules, created)


CASES: Final = (
    Case("index: create, drop, create again", partial(build, RULES, "create", "drop", "create again")),
    Case("index: create, drop, rebuild", partial(build, RULES, "create", "drop", "rebuild")),
    Case(
        "index: two names, rebuild, drop",
        partial(build, RULES, "create", "create another", "rebuild", "drop"),
        is_large=True,
    ),
    Case("index: commit, rename", partial(build, RULES, "created", "commit", "rename")),
    Case("index: commit, rename, create again", partial(build, RULES, "created", "commit", "rename", "create again")),
    Case(
        "index: commit, rename twice", partial(build, RULES, "created", "commit", "rename", "rename on"), is_large=True
    ),
    Case(
        "index: commit, rename, rebuild", partial(build, RULES, "created", "commit", "rename", "rebuild"), is_large=True
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
    Case(
        "index: without I5: commit, rename",
        partial(build, without(RULES, "I5"), "created", "commit", "rename"),
        breaks="stays wrong",
    ),
    Case(
        "index: without I5 list: commit, rename, create again",
        partial(build, without(RULES, "I5 list"), "created", "commit", "rename", "create again"),
        breaks="stays wrong",
    ),
)
