"""The health of a table: what was measured, and which maintenance it needs according to its policy.

A number that is not known is None, and nothing is due because of it: a table is never changed by a guess.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.identifiers import Format
from sandur.catalog.maintenance.policies import Policy
from sandur.settings import seconds_of

Operation = Literal[
    "compaction", "deletes", "manifests", "snapshots", "statistics", "publish", "checkpoint", "vacuum", "orphans"
]
ORDER: Final[tuple[Operation, ...]] = (
    "compaction",
    "deletes",
    "manifests",
    "snapshots",
    "statistics",
    "publish",
    "checkpoint",
    "vacuum",
    "orphans",
)
"""The order of the operations on one table: what rewrites files comes before what removes them."""

OPEN_COST_BYTES: Final = 4 << 20
"""To open a file costs a reader as much as to read this many bytes."""

_MANIFEST_ENTRY_BYTES: Final = 256


class TableHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measured state of one table. Sizes are in bytes; `scans_per_day` is what engines reported.

    `excess_files` is the number of files that compaction would save, `small_files` and `small_bytes` are what it would
    read for that; only candidates are measured so closely. `expirable_snapshots` are older than the policy keeps and
    belong to no branch or tag. `blocked` says why nothing may be deleted or changed; empty if all is well.
    """

    uuid: str
    catalog: str
    namespace: str
    name: str
    format: Format
    last_commit_ms: int | None = None
    data_files: int | None = None
    data_bytes: int | None = None
    small_files: int | None = None
    small_bytes: int | None = None
    excess_files: int | None = None
    files_with_deletes: int | None = None
    bytes_with_deletes: int | None = None
    delete_files: int | None = None
    delete_bytes: int | None = None
    manifests: int | None = None
    manifest_bytes: int | None = None
    snapshots: int | None = None
    expirable_snapshots: int | None = None
    expirable_bytes: int | None = None
    unpublished_commits: int | None = None
    commits_since_checkpoint: int | None = None
    scans_per_day: float | None = None
    blocked: str = ""


class Need(NamedTuple):
    """An operation that a table needs: why, what it gains a reader or the store, and what it reads and writes."""

    operation: Operation
    reason: str
    benefit_bytes: float
    cost_bytes: float


def needs_of(health: TableHealth, policy: Policy) -> Iterator[Need]:
    """What the table needs, in the order in which it is done. Work at an interval is not decided here."""
    if health.format == "iceberg":
        yield from _compaction(health, policy)
        yield from _iceberg_metadata(health, policy)
    elif health.format == "delta":
        yield from _compaction(health, policy)
        yield from _delta_log(health, policy)


def _compaction(health: TableHealth, policy: Policy) -> Iterator[Need]:
    section = policy.compaction
    excess = health.excess_files or 0
    deleted_from = health.files_with_deletes or 0
    if not section.enabled or (excess + 1 < section.min_input_files and not deleted_from):
        return
    reasons = []
    if excess:
        reasons.append(f"{health.small_files:,} small files, {excess:,} of them can be saved")
    if deleted_from:
        reasons.append(f"{deleted_from:,} files with many deleted rows")
    read = (health.small_bytes or 0) + (health.bytes_with_deletes or 0)
    files = (health.small_files or 0) + deleted_from
    benefit = _scans(health) * (excess * OPEN_COST_BYTES + (health.delete_bytes or 0))
    yield Need("compaction", ", ".join(reasons), benefit, 2 * read + files * OPEN_COST_BYTES)


def _iceberg_metadata(health: TableHealth, policy: Policy) -> Iterator[Need]:
    delete_files, delete_bytes = health.delete_files or 0, health.delete_bytes or 0
    if policy.deletes.enabled and delete_files >= policy.deletes.min_files:
        benefit = _scans(health) * delete_files * OPEN_COST_BYTES
        cost = 2 * delete_bytes + delete_files * OPEN_COST_BYTES
        yield Need("deletes", f"{delete_files:,} delete files", benefit, cost)
    manifests, manifest_bytes = health.manifests or 0, health.manifest_bytes or 0
    useful = -(-manifest_bytes // policy.manifests.target_bytes)
    if policy.manifests.enabled and manifests >= policy.manifests.min_manifests and manifests > 2 * useful:
        benefit = _scans(health) * (manifests - useful) * OPEN_COST_BYTES
        cost = 2 * manifest_bytes + manifests * OPEN_COST_BYTES
        yield Need("manifests", f"{manifests:,} manifests, {useful:,} would do", benefit, cost)
    expirable = health.expirable_snapshots or 0
    if policy.snapshots.enabled and expirable >= policy.snapshots.min_expired:
        reason = f"{expirable:,} snapshots are older than {policy.snapshots.max_age}"
        cost = expirable * OPEN_COST_BYTES + (health.data_files or 0) * _MANIFEST_ENTRY_BYTES
        yield Need("snapshots", reason, (health.expirable_bytes or 0) + expirable * OPEN_COST_BYTES, cost)


def _delta_log(health: TableHealth, policy: Policy) -> Iterator[Need]:
    section = policy.delta
    unpublished, commits = health.unpublished_commits or 0, health.commits_since_checkpoint or 0
    if section.enabled and section.publishes and unpublished:
        reason = f"{unpublished:,} commits are not published"
        yield Need("publish", reason, unpublished * OPEN_COST_BYTES, unpublished * OPEN_COST_BYTES)
    if section.enabled and commits >= section.checkpoint_interval:
        benefit = (1 + _scans(health)) * commits * OPEN_COST_BYTES
        cost = OPEN_COST_BYTES + (health.data_files or 0) * _MANIFEST_ENTRY_BYTES
        yield Need("checkpoint", f"{commits:,} commits since the last checkpoint", benefit, cost)


def _scans(health: TableHealth) -> float:
    """Scans a day; one a day for a table whose engines report none, so that its files count at all."""
    return max(health.scans_per_day or 0.0, 1.0)


def is_enabled(operation: Operation, policy: Policy) -> bool:
    """Whether the policy allows an operation at all."""
    match operation:
        case "publish":
            return policy.delta.enabled and policy.delta.publishes
        case "checkpoint":
            return policy.delta.enabled
        case "vacuum":
            return policy.delta.enabled and policy.delta.vacuum
        case _:
            return bool(getattr(policy, operation).enabled)


def interval_seconds(operation: Operation, policy: Policy) -> int | None:
    """The time between two runs of an operation that is due by time alone; None if the policy turns it off, and for
    operations that are due by need.
    """
    if not is_enabled(operation, policy):
        return None
    match operation:
        case "orphans":
            return seconds_of(policy.orphans.interval)
        case "statistics":
            return seconds_of(policy.statistics.interval)
        case "vacuum":
            return seconds_of(policy.delta.deleted_file_retention)
        case _:
            return None
