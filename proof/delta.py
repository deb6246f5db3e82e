"""Coordination of Delta commits by one record per table that changes by swap (L1 to L5).

The backfill that a client reports with a commit is checked beside the swap and remembered; a later swap trims the
record by it (`recall`).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, INVALID, NO_TABLE, OK, SWEPT, THROTTLED, UNKNOWN, UNSURE
from proof.checker import Actor, Moment, Results, System, Violation
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Result, Step, delete, get, goto, listing, put, read
from proof.store import Store, held, kept, run

TRIES_MAX: Final = 3
UNBACKFILLED_MAX: Final = 2


class Coordination(NamedTuple):
    """The tracked commits, the newest version, the last version known to be published, and the version at the drop.

    `dropped_at` is None while the table exists.
    """

    commits: tuple[tuple[int, str], ...]
    newest: int
    backfilled: int
    dropped_at: int | None = None


class Commit(NamedTuple):
    version: int
    file: str


RECORD: Final = Cell[Coordination]("record")


def staged(file: str) -> Cell[str]:
    return Cell(f"staged:{file}")


def published(version: int) -> Cell[str]:
    return Cell(f"log:{version}")


def commit(request: Commit, rules: Rules) -> Step[str]:
    yield from put(staged(request.file), request.file, ABSENT)
    return (yield from goto(propose, request, rules, 0))


def propose(request: Commit, rules: Rules, tries: int) -> Step[str]:
    """L1: read, check, append by swap."""
    at, record = yield from read(RECORD)
    if record.dropped_at is not None and "L5" in rules:
        return NO_TABLE
    refused = yield from tracked_answer(request, record, rules)
    if refused:
        return refused
    commits = (*record.commits, (request.version, request.file))
    answer = yield from put(RECORD, record._replace(commits=commits, newest=request.version), at)
    if answer.outcome == "ok":
        return OK
    if tries == TRIES_MAX:
        return BUSY
    return (yield from goto(propose, request, rules, tries + 1))


def tracked_answer(request: Commit, record: Coordination, rules: Rules) -> Step[str | None]:
    """L2, L3: the answer if the version is known already; None if the version is free."""
    tracked = dict(record.commits)
    if request.version in tracked:
        return OK if tracked[request.version] == request.file else CONFLICT
    if request.version <= record.newest:
        if "L3" not in rules:
            return CONFLICT
        _, file = yield from get(published(request.version))
        if file is None:
            return UNKNOWN
        return OK if file == request.file else CONFLICT
    if request.version > record.newest + 1:
        return INVALID
    return THROTTLED if request.version - record.backfilled > UNBACKFILLED_MAX else None


def recall(is_honest: bool, rules: Rules) -> Step[str]:  # noqa: FBT001 -- actors are started by position
    """A server checks the reported versions, and trims the record by its result at any later time."""
    _, record = yield from read(RECORD)
    for version, file in record.commits if is_honest else ():
        _, content = yield from get(staged(file))
        if content:
            yield from put(published(version), content, ABSENT)
    seen = record.backfilled
    for version, _ in record.commits:
        _, there = yield from get(published(version))
        if there is None and "L4" in rules:
            break
        seen = version
    return (yield from goto(trim_by, seen, 0))


def trim_by(seen: int, tries: int) -> Step[str]:
    at, record = yield from read(RECORD)
    left = tuple(row for row in record.commits if row[0] > seen or row[0] == record.newest)
    answer = yield from put(RECORD, record._replace(commits=left, backfilled=max(record.backfilled, seen)), at)
    if answer.outcome != "ok" and tries < TRIES_MAX:
        return (yield from goto(trim_by, seen, tries + 1))
    return SWEPT


def drop(is_asked: bool, rules: Rules) -> Step[str]:  # noqa: FBT001 -- actors are started by position
    """D4: the record says that the table is dropped; from then on it accepts no commit (L5)."""
    del is_asked, rules
    at, record = yield from read(RECORD)
    if record.dropped_at is None:
        yield from put(RECORD, record._replace(dropped_at=record.newest), at)
    return SWEPT


def backfill(is_honest: bool, rules: Rules) -> Step[str]:  # noqa: FBT001 -- actors are started by position
    """A client publishes the tracked commits and reports that; a dishonest client only reports."""
    _, record = yield from read(RECORD)
    for version, file in record.commits if is_honest else ():
        _, content = yield from get(staged(file))
        if content:
            yield from put(published(version), content, ABSENT)
    return (yield from goto(trim, record.newest, rules, 0))


def trim(upto: int, rules: Rules, tries: int) -> Step[str]:
    """L4: trim only up to a version whose published file exists; the newest commit stays."""
    at, record = yield from read(RECORD)
    if "L4" in rules:
        for version, _ in record.commits:
            if version <= upto:
                _, file = yield from get(published(version))
                if file is None:
                    upto = version - 1
                    break
    left = tuple(row for row in record.commits if row[0] > upto or row[0] == record.newest)
    backfilled = max(record.backfilled, upto)
    answer = yield from put(RECORD, record._replace(commits=left, backfilled=backfilled), at)
    if answer.outcome != "ok" and tries < TRIES_MAX:
        return (yield from goto(trim, upto, rules, tries + 1))
    return SWEPT


def clean() -> Step[str]:
    """A client deletes staged files that were published."""
    for key in (yield from listing("staged:")):
        _, file = yield from get(published(1))
        at, content = yield from get(staged(key.removeprefix("staged:")))
        if content and file == content:
            yield from delete(staged(content), at)
    return SWEPT


def system(
    commits: list[Commit],
    rules: Rules,
    others: list[tuple[Callable[..., Step[Result]], tuple[bool, ...]]],
    *,
    losable: int = 0,
) -> System:
    """Actors that commit, and other actors such as (backfill, (is_honest,)) or (clean, ())."""
    actors = [Actor(f"commit{number}", commit, (request, rules)) for number, request in enumerate(commits)]
    actors += [Actor(start.__name__, start, (*arguments, rules) if arguments else ()) for start, arguments in others]

    def judge(moment: Moment) -> None:
        judge_versions(moment.store)
        judge_answers(moment.store, commits, moment.results)
        for request in commits:
            _, answer = run(moment.store, commit(request, rules))
            if answer in UNSURE:
                raise Violation(f"a retry is stuck at {answer}")

    return System({RECORD.key: (1, Coordination((), 0, 0))}, actors, judge, losable=losable)


def judge_versions(store: Store) -> None:
    record = kept(store, RECORD)
    if record.dropped_at not in {None, record.newest}:
        raise Violation("a commit came after the drop")
    tracked = dict(record.commits)
    for version in range(1, record.newest + 1):
        file = held(store, published(version))
        if version not in tracked and file is None:
            raise Violation(f"version {version} is neither tracked nor published")
        if version in tracked and file and file != tracked[version]:
            raise Violation("the published file is not the tracked one")


def judge_answers(store: Store, commits: list[Commit], results: Results) -> None:
    tracked = dict(kept(store, RECORD).commits)
    for request, result in zip(commits, results, strict=False):
        there = tracked.get(request.version) or held(store, published(request.version))
        if result == OK and there != request.file:
            raise Violation("acknowledged and not there")
        if result == CONFLICT and there == request.file:
            raise Violation(f"answered {CONFLICT} and applied")
