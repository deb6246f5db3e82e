"""Compares the results of two engines for one commit, value by value."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter

from tests.differential.outcomes import Commit, Json, JsonObject, Outcome, Verdict

MISSING = "(missing)"

# These lists are sets with a key: their order has no meaning.
_KEYS = {"statistics": "snapshot-id", "partition-statistics": "snapshot-id", "versions": "version-id"}


class Aspect(StrEnum):
    """The aspect in which two engines may differ."""

    VERDICT = "verdict"
    MESSAGE = "message"
    METADATA = "metadata"


@dataclass(frozen=True)
class Difference:
    """One difference between the engines; `path` is empty unless it is in the metadata."""

    aspect: Aspect
    path: tuple[str, ...]
    ours: Json
    theirs: Json


@dataclass(frozen=True)
class Comparison:
    """One commit, both outcomes, and how they differ."""

    commit: Commit
    ours: Outcome
    theirs: Outcome
    differences: tuple[Difference, ...]


def compare(commit: Commit, ours: Outcome, theirs: Outcome) -> Comparison:
    return Comparison(commit, ours, theirs, tuple(_differences(ours, theirs)))


def _differences(ours: Outcome, theirs: Outcome) -> Iterator[Difference]:
    if ours.verdict != theirs.verdict:
        yield Difference(Aspect.VERDICT, (), str(ours.verdict), str(theirs.verdict))
    elif ours.verdict is Verdict.CHANGED:
        yield from metadata_differences(canonical(ours.metadata), canonical(theirs.metadata))
    elif theirs.message and not theirs.has_crashed and theirs.message not in ours.message:
        yield Difference(Aspect.MESSAGE, (), ours.message, theirs.message)


def canonical(metadata: JsonObject | None) -> JsonObject:
    """The metadata with lists that mean sets in one order."""
    result = dict(metadata or {})
    for name, key in _KEYS.items():
        members = result.get(name)
        if isinstance(members, list):
            result[name] = sorted(members, key=itemgetter(key))
    return result


def metadata_differences(ours: Json, theirs: Json, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Every leaf at which two JSON values differ; 1 and 1.0 and true are different values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from metadata_differences(ours.get(key, MISSING), theirs.get(key, MISSING), (*path, key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from metadata_differences(mine, other, (*path, str(index)))
    elif type(ours) is not type(theirs) or ours != theirs:
        yield Difference(Aspect.METADATA, path, ours, theirs)
