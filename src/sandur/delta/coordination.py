"""The rules by which commits of a Delta table are accepted (L1–L4): which version is next, what is a replay."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar

from sandur.delta.requests import CommitFile
from sandur.errors import Exhausted, Invalid, VersionTaken

FILE_NAME_MAX: Final = 512


class Tracked(Protocol):
    """A commit that the catalog keeps."""

    @property
    def version(self) -> int: ...

    @property
    def file_name(self) -> str: ...


R = TypeVar("R", bound=Tracked)


class Log(NamedTuple):
    """The tail of a table's log: the newest version, up to where all are published, and what is kept, oldest first."""

    last_version: int
    published: int
    tracked: Sequence[Tracked]


class Verdict(Enum):
    """What becomes of a commit."""

    APPEND = "append"
    REPLAY = "replay"
    """It was accepted before: nothing is done, and that is a success."""
    COMPARE = "compare"
    """It was accepted or not, and nobody remembers: only the bytes of the published file can tell (L3)."""


def checked_commit(commit: CommitFile) -> CommitFile:
    """The commit itself; Invalid when it cannot be one."""
    for what, value in (
        ("version", commit.version),
        ("timestamp", commit.timestamp),
        ("file-size", commit.file_size),
        ("file-modification-timestamp", commit.file_modification_timestamp),
    ):
        if value <= 0:
            raise Invalid(f"commit: {what} must be greater than 0, found {value}")
    name = commit.file_name
    if not name or name in {".", ".."} or "/" in name or "\\" in name or len(name) > FILE_NAME_MAX:
        raise Invalid(f"commit: file-name {name[:100]!r} must be the name of one file in _staged_commits")
    if not name.isprintable():
        raise Invalid("commit: file-name holds a character that cannot be printed")
    return commit


def verdict(log: Log, version: int, file_name: str) -> Verdict:
    """What becomes of a commit with that version and file; VersionTaken or Invalid when it cannot be.

    Nothing is tracked while there is only version 0: then 1 is next.
    """
    last = log.last_version
    if version == last + 1:
        return Verdict.APPEND
    if version > last:
        raise Invalid(f"commit version {version}: the latest version is {last}, so that {last + 1} is next")
    found = next((row for row in log.tracked if row.version == version), None)
    if found is None:
        return Verdict.COMPARE
    if found.file_name == file_name:
        return Verdict.REPLAY
    raise VersionTaken(
        f"commit version {version} was accepted before, with the file {found.file_name}; this one is {file_name}"
    )


def checked_report(log: Log, reported: int, *, commits: bool) -> int | None:
    """Up to where the client says that everything is published, as far as it says something new; None otherwise.

    What is said together with the first commit is not looked at: clients send 0. Invalid for what cannot be.
    """
    if reported > log.last_version:
        raise Invalid(f"latest-published-version {reported}: the latest version is {log.last_version}")
    if not log.tracked:
        if commits:
            return None
        raise Invalid(f"latest-published-version {reported}: the table has no commits yet")
    return reported if reported > log.published else None


def check_room(log: Log, version: int, published: int, unpublished_max: int) -> None:
    """Exhausted when too many commits would wait to be published."""
    # Everything before what is tracked was published, or it would be tracked.
    before = min((row.version for row in log.tracked), default=version) - 1
    waiting = version - max(published, before)
    if waiting > unpublished_max:
        raise Exhausted(
            f"{waiting} commits would not be published, at most {unpublished_max} may be: publish them, and say so"
        )


def trimmed(rows: Sequence[R], published: int) -> tuple[R, ...]:
    """What is kept of the commits once all up to `published` are: the others, and the newest in any case."""
    newest = rows[-1].version if rows else 0
    return tuple(row for row in rows if row.version > published or row.version == newest)


def unpublished(rows: Sequence[R], published: int) -> tuple[R, ...]:
    """What readers have to be told of, newest first."""
    return tuple(row for row in reversed(rows) if row.version > published)


def published_name(version: int) -> str:
    """The file of a published commit, below `_delta_log`."""
    return f"{version:020d}.json"
