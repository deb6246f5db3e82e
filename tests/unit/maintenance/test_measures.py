"""Measures of health: what expiry keeps, and what compaction would save."""

from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.maintenance.measures import (
    Fragments,
    Group,
    Reference,
    SizeHistogram,
    SnapshotAge,
    fragments_of,
    kept_snapshots,
    small_group,
)
from sandur.catalog.maintenance.policies import Compaction, Snapshots

_DAY_MS = 86_400_000
_NOW_MS = 1_000 * _DAY_MS
_MIB = 1 << 20
_POLICY = Snapshots(max_age="P5D", min_to_keep=2)


def _line(count: int) -> list[SnapshotAge]:
    """Snapshots 1 to count, each the parent of the next, one a day; the newest is an hour old."""
    return [
        SnapshotAge(
            snapshot_id=number,
            parent_id=number - 1 or None,
            committed_ms=_NOW_MS - (count - number) * _DAY_MS - 3_600_000,
        )
        for number in range(1, count + 1)
    ]


def test_young_snapshots_and_the_newest_of_each_branch_are_kept() -> None:
    main = Reference(name="main", is_branch=True, snapshot_id=10)

    assert kept_snapshots(_line(10), [main], _POLICY, now_ms=_NOW_MS) == {6, 7, 8, 9, 10}


def test_an_old_branch_keeps_its_newest_snapshots() -> None:
    later = _NOW_MS + 100 * _DAY_MS
    references = [
        Reference(name="main", is_branch=True, snapshot_id=10),
        Reference(name="audit", is_branch=True, snapshot_id=5, min_to_keep=3),
    ]

    assert kept_snapshots(_line(10), references, _POLICY, now_ms=later) == {9, 10, 3, 4, 5}


def test_a_tag_keeps_one_snapshot_for_ever() -> None:
    later = _NOW_MS + 1_000 * _DAY_MS
    references = [
        Reference(name="main", is_branch=True, snapshot_id=10),
        Reference(name="release", is_branch=False, snapshot_id=2),
    ]

    assert kept_snapshots(_line(10), references, _POLICY, now_ms=later) == {2, 9, 10}


def test_a_branch_decides_the_age_of_its_own_snapshots() -> None:
    later = _NOW_MS + 100 * _DAY_MS
    references = [Reference(name="main", is_branch=True, snapshot_id=10, max_age_ms=105 * _DAY_MS)]

    assert kept_snapshots(_line(10), references, _POLICY, now_ms=later) == {6, 7, 8, 9, 10}


def test_an_old_snapshot_that_was_replaced_within_a_day_is_kept() -> None:
    """A reader that began before, for example before a compaction, may still read its files."""
    line = [
        SnapshotAge(snapshot_id=number, parent_id=number - 1 or None, committed_ms=committed_ms)
        for number, committed_ms in enumerate(
            (_NOW_MS - 90 * _DAY_MS, _NOW_MS - 60 * _DAY_MS, _NOW_MS - 60_000), start=1
        )
    ]
    main = Reference(name="main", is_branch=True, snapshot_id=3)
    policy = Snapshots(max_age="P5D", min_to_keep=1)

    assert kept_snapshots(line, [main], policy, now_ms=_NOW_MS) == {2, 3}
    assert kept_snapshots(line, [main], policy, now_ms=_NOW_MS + _DAY_MS) == {3}


def test_a_history_with_a_missing_or_circular_parent_ends() -> None:
    odd = [SnapshotAge(snapshot_id=one, parent_id=parent, committed_ms=0) for one, parent in ((1, 2), (2, 1), (3, 99))]
    references = [
        Reference(name="main", is_branch=True, snapshot_id=1, min_to_keep=10),
        Reference(name="other", is_branch=True, snapshot_id=3, min_to_keep=10),
        Reference(name="gone", is_branch=True, snapshot_id=77),
    ]

    assert kept_snapshots(odd, references, _POLICY, now_ms=_NOW_MS) == {1, 2, 3}


@given(
    parents=st.lists(st.one_of(st.none(), st.integers(1, 20)), min_size=1, max_size=20),
    heads=st.lists(st.integers(1, 25), max_size=4),
    ages=st.lists(st.integers(0, 20), min_size=20, max_size=20),
)
def test_no_reference_and_no_young_snapshot_is_ever_expired(
    parents: list[int | None], heads: list[int], ages: list[int]
) -> None:
    snapshots = [
        SnapshotAge(snapshot_id=number, parent_id=parent, committed_ms=_NOW_MS - ages[number - 1] * _DAY_MS)
        for number, parent in enumerate(parents, start=1)
    ]
    references = [Reference(name=f"r{at}", is_branch=at % 2 == 0, snapshot_id=head) for at, head in enumerate(heads)]

    kept = kept_snapshots(snapshots, references, _POLICY, now_ms=_NOW_MS)

    ids = {one.snapshot_id for one in snapshots}
    assert {one.snapshot_id for one in references} & ids <= kept
    assert {one.snapshot_id for one in snapshots if _NOW_MS - one.committed_ms < 5 * _DAY_MS} <= kept
    assert {one.parent_id for one in snapshots if one.committed_ms == _NOW_MS} & ids <= kept


def test_only_partitions_with_enough_small_files_are_worth_compacting() -> None:
    policy = Compaction(target_file_bytes=128 * _MIB, min_input_files=5)
    groups = [Group(4, 4 * _MIB), Group(10, 10 * _MIB), Group(6, 6 * 90 * _MIB)]

    assert fragments_of(groups, policy) == Fragments(16, (10 + 540) * _MIB, 9 + 1)
    assert fragments_of([], policy) == Fragments(0, 0, 0)


def test_the_bins_of_a_histogram_that_end_below_a_small_file_count() -> None:
    policy = Compaction(target_file_bytes=128 * _MIB, small_file_share=0.75)
    histogram = SizeHistogram((0, 8 * _MIB, 64 * _MIB, 128 * _MIB), (10, 5, 3, 1), (_MIB, 100 * _MIB, 300 * _MIB, 1))

    assert small_group(histogram, policy) == Group(15, 101 * _MIB)
