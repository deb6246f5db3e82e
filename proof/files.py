"""Metadata files: which parts their names need (C3), and when a file may be deleted, also of a batch (GC1, B9)."""

from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, OK, SWEPT
from proof.batches import RECEIPT, receipt_of
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, call, delete, get, listing, put, put_call, read, together
from proof.store import held, kept, present

POINTER: Final = Cell[str]("pointer")
CLAIM: Final = Cell[str]("claim")
FIRST: Final = "0-init"


def file_at(location: str) -> Cell[str]:
    return Cell(f"file:{location}")


def write_file(actor: str, rules: Rules, adopts: bool) -> Step[str]:  # noqa: FBT001 -- jumps pass by position
    """Write the claim and the file in one round; an attempt that loses the claim deletes the file that it created."""
    location = f"1-K-{actor}" if "C3" in rules else "1-K"
    claimed, filed = yield from together(put_call(CLAIM, actor, ABSENT), put_call(file_at(location), actor, ABSENT))
    if claimed.outcome != "ok":
        if filed.outcome == "ok":
            yield from delete(file_at(location), filed.version)
        return BUSY
    if filed.outcome != "ok" and not adopts:
        location += "-again"  # A fresh name, but the claim already names the old one.
        yield from put(file_at(location), actor, ABSENT)
    answer = yield from put(POINTER, location, 1)
    return OK if answer.outcome == "ok" else CONFLICT


def two_attempts(rules: Rules, *, adopts: bool = False) -> System:
    """Two attempts under one key. Without C3 the name consists of the version and the key only."""

    def judge(moment: Moment) -> None:
        location = kept(moment.store, POINTER)
        if held(moment.store, file_at(location)) is None:
            raise Violation("the pointer names a metadata file that was deleted")
        if location.endswith("-again"):
            raise Violation("the committed file is not the one the claim names")

    actors = [Actor(name, write_file, (name, rules, adopts)) for name in "AB"]
    return System({POINTER.key: (1, FIRST), file_at(FIRST).key: (1, "x")}, actors, judge)


def stalled_commit(actor: str) -> Step[str]:
    """It may stall between its file and its swap for longer than the minimum age of garbage."""
    version, head = yield from read(POINTER)
    location = f"{number_of(head) + 1}-{actor}"
    filed = yield from put(file_at(location), actor, ABSENT)
    if filed.outcome != "ok":
        return BUSY  # G2: no swap to a file that may be missing.
    answer = yield from put(POINTER, location, version)
    return OK if answer.outcome == "ok" else CONFLICT


def sweep_files(rules: Rules) -> Step[str]:
    """Delete the files that are not the head."""
    keys = yield from listing("file:")
    version, head = yield from read(POINTER)
    for location in (key.removeprefix("file:") for key in keys):
        if location == head:
            continue
        if "GC1" in rules and number_of(location) > number_of(head):
            bump = yield from put(POINTER, head, version)  # GC1: a swap to that file now loses.
            if bump.outcome != "ok":
                return SWEPT
            version = bump.version
        at, _ = yield from get(file_at(location))
        if at:
            yield from delete(file_at(location), at)
    return SWEPT


def number_of(location: str) -> int:
    return int(location.split("-", maxsplit=1)[0])


def sweep(rules: Rules) -> System:
    """Two commits that stall, and the janitor of files, with one lost answer."""

    def judge(moment: Moment) -> None:
        if held(moment.store, file_at(kept(moment.store, POINTER))) is None:
            raise Violation("the pointer names a metadata file that was collected")

    actors = [Actor(name, stalled_commit, (name,)) for name in "AB"]
    actors.append(Actor("gc", sweep_files, (rules,)))
    return System({POINTER.key: (1, FIRST), file_at(FIRST).key: (1, "x")}, actors, judge, losable=1)


# B9: files of a batch and their collector.


class Heads(NamedTuple):
    head: str
    passed: tuple[str, ...]


HEADS: Final = Cell[Heads]("heads")


def stalled_batch(actor: str) -> Step[str]:
    version, heads = yield from read(HEADS)
    number = int(heads.head.split("-")[0])
    files = tuple(f"{number + step}-{actor}" for step in (1, 2))
    calls = [put_call(file_at(one), actor, ABSENT) for one in files]
    calls += [put_call(receipt_of(one), RECEIPT, ABSENT) for one in (*heads.passed, heads.head)]
    answers = yield from together(*calls)
    if any(answer.outcome == "unknown" for answer in answers) or "lost" in {one.outcome for one in answers[:2]}:
        return BUSY
    answer = yield from put(HEADS, Heads(files[1], files[:1]), version)
    return OK if answer.outcome == "ok" else CONFLICT


def sweep_batches(rules: Rules) -> Step[str]:
    """List, then the pointer, then receipts; bump before anything ahead of the head goes."""
    keys = yield from call(list_files)
    version, heads = yield from read(HEADS)
    named = {heads.head, *(heads.passed if "B9" in rules else ())}
    for location in (key.removeprefix("file:") for key in keys):
        if location in named:
            continue
        _, receipt = yield from get(receipt_of(location))
        if receipt:
            continue
        if int(location.split("-")[0]) > int(heads.head.split("-")[0]):
            bump = yield from put(HEADS, heads, version)
            if bump.outcome != "ok":
                return "swept"
            version = bump.version
        at, _ = yield from get(file_at(location))
        if at:
            yield from delete(file_at(location), at)
    return "swept"


def list_files() -> Step[tuple[str, ...]]:
    return (yield from listing("file:"))


def stalled_batches(rules: Rules, *, losable: int = 1) -> System:
    """Two batches that stall, and the janitor of files."""

    def judge(moment: Moment) -> None:
        heads = kept(moment.store, HEADS)
        made = {heads.head, *heads.passed, *(key.removeprefix("receipt:") for key in present(moment.store, "receipt:"))}
        if any(not present(moment.store, f"file:{one}") for one in made):
            raise Violation("the file of a commit that was made is gone")

    actors = [Actor(name, stalled_batch, (name,)) for name in "AB"] + [Actor("gc", sweep_batches, (rules,))]
    store = {HEADS.key: (1, Heads("0-init", ())), "file:0-init": (1, "x")}
    return System(store, actors, judge, losable=losable)
