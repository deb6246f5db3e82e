"""A table uuid that a client chose is used again after the old table was collected (A3)."""

from typing import Final, NamedTuple

from proof.answers import BUSY, FORBIDDEN, NO_TABLE, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.grants.manifest import MANIFEST, RULES, Grant
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, delete, get, put, read

UUID: Final = "U"


class Pointer(NamedTuple):
    object_id: str
    content: str


POINTER: Final = Cell[Pointer](f"pointer:{UUID}")


def load(rules: Rules) -> Step[str]:
    """A load by p, who has a grant on the old table."""
    _, pointer = yield from get(POINTER)
    _, manifest = yield from read(MANIFEST)
    if pointer is None:
        return NO_TABLE
    known_as = pointer.object_id if "A3 minted" in rules else UUID
    return pointer.content if Grant("p", known_as) in manifest else FORBIDDEN


def collect() -> Step[str]:
    version, _ = yield from get(POINTER)
    yield from delete(POINTER, version)
    return SWEPT


def create(object_id: str) -> Step[str]:
    written = yield from put(POINTER, Pointer(object_id, "secret"), ABSENT)
    return OK if written.outcome == "ok" else BUSY


def reused_uuid(rules: Rules = RULES) -> System:
    actors = [Actor("load", load, (rules,)), Actor("collect", collect, ()), Actor("create", create, ("new",))]
    grants = (Grant("p", "old"), Grant("p", UUID))
    return System({MANIFEST.key: (1, grants), POINTER.key: (1, Pointer("old", "open"))}, actors, judge)


def judge(moment: Moment) -> None:
    if moment.results[0] == "secret":
        raise Violation("a new table with a chosen uuid is read by a grant on the old table")
