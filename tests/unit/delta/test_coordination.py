"""The rules of commits."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.delta.coordination import (
    LogTail,
    Verdict,
    check_room,
    checked_commit,
    decide_commit,
    newly_published,
    unpublished,
    without_published,
)
from sandur.delta.requests import CommitFile
from sandur.errors import Exhausted, Invalid, VersionTaken


class Row(NamedTuple):
    version: int
    file_name: str


def rows(*versions: int) -> tuple[Row, ...]:
    return tuple(Row(version, f"{version}.json") for version in versions)


FRESH = LogTail(0, 0, ())
BUSY = LogTail(5, 3, rows(4, 5))


def test_the_first_commit_is_version_1() -> None:
    assert decide_commit(FRESH, 1, "a") is Verdict.APPEND
    with pytest.raises(Invalid):
        decide_commit(FRESH, 2, "a")


def test_a_taken_version_is_a_replay_only_with_the_same_file() -> None:
    assert decide_commit(BUSY, 6, "a") is Verdict.APPEND
    assert decide_commit(BUSY, 4, "4.json") is Verdict.REPLAY
    assert decide_commit(BUSY, 3, "3.json") is Verdict.COMPARE
    with pytest.raises(VersionTaken):
        decide_commit(BUSY, 5, "other.json")
    with pytest.raises(Invalid):
        decide_commit(BUSY, 7, "a")


def test_a_report_of_a_published_version_is_new_or_ignored() -> None:
    assert newly_published(BUSY, 5, commits=True) == 5
    assert newly_published(BUSY, 3, commits=True) is None
    assert newly_published(FRESH, 0, commits=True) is None
    with pytest.raises(Invalid):
        newly_published(BUSY, 6, commits=True)
    with pytest.raises(Invalid):
        newly_published(FRESH, 0, commits=False)


def test_the_bound_counts_unpublished_commits() -> None:
    log = LogTail(13, 3, rows(*range(4, 14)))

    with pytest.raises(Exhausted):
        check_room(log, 14, 3, 10)
    check_room(log, 14, 4, 10)
    check_room(FRESH, 1, 0, 1)


@given(first=st.integers(1, 20), count=st.integers(1, 15), published=st.integers(0, 40))
def test_trimming_keeps_the_newest_and_everything_that_readers_need(first: int, count: int, published: int) -> None:
    before = rows(*range(first, first + count))

    after = without_published(before, published)

    assert after[-1] == before[-1]
    assert unpublished(after, published) == unpublished(before, published)
    assert [row.version for row in after] == list(range(after[0].version, before[-1].version + 1))
    assert without_published(after, published) == after


GOOD = {"version": 1, "timestamp": 1, "file_name": "a.json", "file_size": 1, "file_modification_timestamp": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"timestamp": 0},
        {"file_size": 0},
        {"file_modification_timestamp": -1},
        *({name: 2**63} for name in ("version", "timestamp", "file_size", "file_modification_timestamp")),
        {"timestamp": 10**5_000},
        *({"file_name": name} for name in ("", ".", "..", "a/b", "a\\b", "a\nb", "x" * 600)),
    ],
)
def test_an_invalid_commit_is_refused(change: dict[str, object]) -> None:
    checked_commit(CommitFile(**GOOD))  # type: ignore[arg-type] # Given by name.
    with pytest.raises(Invalid):
        checked_commit(CommitFile(**{**GOOD, **change}))  # type: ignore[arg-type] # Given by name.
