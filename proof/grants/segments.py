"""The segments of the manifest: immutable objects that hold the grants, and their collection (A14)."""

from typing import Final

from proof.answers import BUSY, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.grants.manifest import RULES
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, delete, get, goto, listing, put, read
from proof.store import kept, present

ATTEMPTS_MAX: Final = 3
# Here the manifest is the name of its only segment.
SEGMENT_NAME: Final = Cell[str]("manifest")
NO_GRANTS: Final = "no grants"


def segment(name: str) -> Cell[str]:
    return Cell(f"segment:{name}")


def change(name: str) -> Step[str]:
    """Write a new segment, then the manifest that names it."""
    version, _ = yield from read(SEGMENT_NAME)
    written = yield from put(segment(name), name, ABSENT)
    if written.outcome != "ok":
        return BUSY
    swapped = yield from put(SEGMENT_NAME, name, version)
    return OK if swapped.outcome == "ok" else BUSY


def collect(rules: Rules) -> Step[str]:
    """Delete the segments that the manifest does not name."""
    keys = yield from listing("segment:")
    version, current = yield from read(SEGMENT_NAME)
    unnamed = [key for key in keys if key != segment(current).key]
    if unnamed and "A14 bump" in rules:
        bumped = yield from put(SEGMENT_NAME, current, version)
        if bumped.outcome != "ok":
            return SWEPT
    for key in unnamed:
        at, found = yield from get(Cell[str](key))
        if found is not None:
            yield from delete(Cell[str](key), at)
    return SWEPT


def use(rules: Rules, attempt: int = 0) -> Step[str]:
    if attempt == ATTEMPTS_MAX:
        return BUSY
    _, current = yield from read(SEGMENT_NAME)
    _, found = yield from get(segment(current))
    if found is not None:
        return OK
    return (yield from goto(use, rules, attempt + 1)) if "A14 again" in rules else NO_GRANTS


def collection(rules: Rules = RULES, *, losable: int = 1) -> System:
    """Two changes, one collection and one reader."""
    actors = [Actor(name, change, (name,)) for name in "AB"]
    actors += [Actor("collect", collect, (rules,)), Actor("reader", use, (rules,))]
    return System({SEGMENT_NAME.key: (1, "0"), segment("0").key: (1, "0")}, actors, judge, losable=losable)


def judge(moment: Moment) -> None:
    current = kept(moment.store, SEGMENT_NAME)
    if not present(moment.store, segment(current).key):
        raise Violation("the manifest names a segment that is gone")
    if NO_GRANTS in moment.results:
        raise Violation("a reader took a missing segment for an empty one")
