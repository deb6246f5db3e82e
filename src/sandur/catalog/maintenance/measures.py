"""Measures of a table's health that need more than a sum: snapshots that may expire, and files worth compacting."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sandur.catalog.maintenance.policies import SNAPSHOT_AGE_MIN_S, Compaction, Snapshots
from sandur.settings import seconds_of


class SnapshotAge(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: its parent and the time of its commit."""

    snapshot_id: int
    committed_ms: int
    parent_id: int | None = None


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A branch or tag. What it says about its own snapshots wins over the policy."""

    name: str
    is_branch: bool
    snapshot_id: int
    min_to_keep: int | None = None
    max_age_ms: int | None = None


def kept_snapshots(
    snapshots: Sequence[SnapshotAge], references: Sequence[Reference], policy: Snapshots, *, now_ms: int
) -> set[int]:
    """The ids that expiry keeps: tags, the newest of each branch, everything young, and what is not understood.

    A snapshot of no reference is kept as long as one of a branch would be: a reader may still use it. An old snapshot
    with a successor of the last day was current until then, so it is kept, too (O9).
    """
    by_id = {one.snapshot_id: one for one in snapshots}
    age_ms = seconds_of(policy.max_age) * 1_000
    kept = {one.snapshot_id for one in snapshots if now_ms - one.committed_ms < age_ms}
    kept |= {one.parent_id for one in snapshots if one.parent_id is not None and is_in_grace(one.committed_ms, now_ms)}
    for reference in references:
        kept.add(reference.snapshot_id)
        if reference.is_branch:
            kept |= _kept_of_branch(by_id, reference, policy, now_ms=now_ms, age_ms=age_ms)
    return kept & by_id.keys()


def is_in_grace(replaced_ms: int, now_ms: int) -> bool:
    """Whether readers may still use a snapshot that was current until `replaced_ms`."""
    return now_ms - replaced_ms < SNAPSHOT_AGE_MIN_S * 1_000


def _kept_of_branch(
    by_id: Mapping[int, SnapshotAge], branch: Reference, policy: Snapshots, *, now_ms: int, age_ms: int
) -> set[int]:
    least = policy.min_to_keep if branch.min_to_keep is None else branch.min_to_keep
    oldest_ms = now_ms - (age_ms if branch.max_age_ms is None else branch.max_age_ms)
    kept: set[int] = set()
    found = by_id.get(branch.snapshot_id)
    while found is not None and found.snapshot_id not in kept:
        if len(kept) >= least and found.committed_ms < oldest_ms:
            break
        kept.add(found.snapshot_id)
        found = by_id.get(found.parent_id) if found.parent_id is not None else None
    return kept


class Group(NamedTuple):
    """The small files of one partition: how many, and their bytes."""

    files: int
    bytes: int


class Fragments(NamedTuple):
    """What compaction would read, and how many files fewer there would be after it."""

    small_files: int
    small_bytes: int
    excess_files: int


def fragments_of(groups: Iterable[Group], policy: Compaction) -> Fragments:
    """The small files of all partitions that have enough of them to be rewritten."""
    files = size = excess = 0
    for group in groups:
        after = max(1, -(-group.bytes // policy.target_file_bytes))
        if group.files >= policy.min_input_files and group.files > after:
            files, size, excess = files + group.files, size + group.bytes, excess + group.files - after
    return Fragments(files, size, excess)


def small_file_bytes(policy: Compaction) -> int:
    """Files below this size are small."""
    return int(policy.target_file_bytes * policy.small_file_share)


class SizeHistogram(NamedTuple):
    """File sizes as Delta's checksum files have them: the lower bound, count and bytes of each bin."""

    boundaries: Sequence[int]
    counts: Sequence[int]
    bytes: Sequence[int]


def small_group(histogram: SizeHistogram, policy: Compaction) -> Group:
    """The files in bins that end below the size of a small file; partitions are not known there."""
    limit = small_file_bytes(policy)
    ends = (*histogram.boundaries[1:], None)
    small = [at for at, end in enumerate(ends) if end is not None and end <= limit]
    return Group(sum(histogram.counts[at] for at in small), sum(histogram.bytes[at] for at in small))
