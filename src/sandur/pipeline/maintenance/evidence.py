"""What an operation did to a table, as the table itself shows it: totals, new snapshots and commits, and equal rows.

The answer of a procedure is not enough: batches that lose their commit are only logged, and an answer can be lost.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.records import Measure, OperationResult
from sandur.catalog.records import DeltaTable, Request
from sandur.errors import NotFound, SandurError
from sandur.iceberg.requests import AssertRefSnapshotId, TableCommit
from sandur.iceberg.snapshots import BRANCH, MAIN_BRANCH, Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import SetSnapshotRef
from sandur.operations.delta.tables import find_by_id
from sandur.operations.delta.versions import LogFile, read_logs
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_table
from sandur.pipeline.maintenance.engine import SparkTable
from sandur.splicing import count_in

APPLICATION: Final = "app-id"
"""The entry of a snapshot's summary that names the Spark application."""

_REWRITES: Final = "replace"
_VERSIONS_MAX: Final = 200
"""The newest versions of a Delta table that are searched for commits of a run."""
_WRITER_FOLLOWED: Final = "a writer has committed since: roll back by hand"


class RowsDiffer(SandurError):
    """A rewrite changed the number of rows (rule 7)."""


class Unsettled(SandurError):
    """Nothing is known yet about the rows of a rewrite: its record stays open, and the next run settles it."""


def identifier_of(health: TableHealth) -> Identifier:
    return Identifier(health.catalog, tuple(health.namespace.split(".")), health.name)


async def load_metadata(lake: Lake, health: TableHealth) -> TableMetadata:
    """The current metadata; NotFound if the name now belongs to another table."""
    found = await current_table(lake, identifier_of(health))
    if found.uuid != health.uuid:  # That of the record: the metadata of a registered table may have another one.
        raise NotFound(f"{identifier_of(health)}: another table has this name now", subject="table")
    return found.document.metadata


async def current_properties(lake: Lake, health: TableHealth) -> Mapping[str, str]:
    """The properties that the catalog knows of the table now."""
    if health.format == "delta":
        return (await find_by_id(lake, health.uuid)).value.properties
    return (await load_metadata(lake, health)).properties


def measure(metadata: TableMetadata) -> Measure:
    """The totals of the current snapshot; what its summary does not say stays unknown."""
    snapshot = metadata.current_snapshot
    if snapshot is None:
        return Measure(files=0, bytes=0, rows=0, delete_files=0, snapshots=len(metadata.snapshot_ids))
    return Measure(
        version=snapshot.snapshot_id,
        files=_total(snapshot, "total-data-files"),
        bytes=_total(snapshot, "total-files-size"),
        rows=_total(snapshot, "total-records"),
        delete_files=_total(snapshot, "total-delete-files"),
        snapshots=len(metadata.snapshot_ids),
    )


def _total(snapshot: Snapshot, name: str) -> int | None:
    return count_in((snapshot.summary or {}).get(name))


class Rewrite(NamedTuple):
    """A snapshot that a run added, and the one before it."""

    snapshot: Snapshot
    parent: Snapshot | None

    def replaced(self, name: str) -> int:
        return _total(self.snapshot, name) or 0


def rewrites_of(before: Sequence[int] | frozenset[int], after: TableMetadata, application: str) -> Sequence[Rewrite]:
    """The rewriting snapshots of an application that were not there before, oldest first."""
    by_id = {one.snapshot_id: one for one in after.snapshots}
    added = [
        one
        for one in by_id.values()
        if one.snapshot_id not in before
        and (one.summary or {}).get("operation") == _REWRITES
        and (one.summary or {}).get(APPLICATION) == application
    ]
    added.sort(key=lambda one: one.sequence_number)
    return [Rewrite(one, by_id.get(one.parent_snapshot_id or -1)) for one in added]


def rows_differ(rewrite: Rewrite, count: Callable[[int], int] | None = None) -> str:
    """Why the rows of a rewrite are not those of its parent; empty if they are equal, or if it is not known.

    Equal totals without deletes decide. Otherwise `count` counts the rows of both snapshots, because totals include
    deleted rows; without it, only totals without deletes are compared.
    """
    snapshot, parent = rewrite
    if parent is None:
        return ""  # It expired in the meantime, and its rows with it.
    rows = [_total(one, "total-records") for one in (parent, snapshot)]
    is_plain = None not in rows and all(_total(one, "total-delete-files") == 0 for one in (parent, snapshot))
    if (is_plain and rows[0] == rows[1]) or (not is_plain and count is None):
        return ""
    if count is not None:
        rows = [count(parent.snapshot_id), count(snapshot.snapshot_id)]
    if rows[0] == rows[1]:
        return ""
    return f"snapshot {parent.snapshot_id} has {rows[0]:,} rows, snapshot {snapshot.snapshot_id} has {rows[1]:,}"


def count_rows(table: SparkTable, snapshot_id: int) -> int:
    found = table.session.sql(f"SELECT count(*) FROM {table.full_name} VERSION AS OF {snapshot_id}")  # noqa: S608 - a number
    return int(found.collect()[0][0])


async def roll_back(lake: Lake, health: TableHealth, made: Sequence[Rewrite], run: str) -> str:
    """Make the parent of the first of these rewrites current again, unless a writer has committed since. Says which.

    `made` are the first one whose rows differ, and all later ones of the same operation.
    """
    first, newest = made[0], made[-1].snapshot
    if first.parent is None:
        return "its parent is gone"
    if any(one.snapshot.parent_snapshot_id != before.snapshot.snapshot_id for before, one in pairwise(made)):
        return _WRITER_FOLLOWED
    try:
        main = (await load_metadata(lake, health)).ref(MAIN_BRANCH)
        if main is None:
            return _WRITER_FOLLOWED
        back = SetSnapshotRef(
            ref_name=MAIN_BRANCH,
            snapshot_id=first.parent.snapshot_id,
            type=BRANCH,
            min_snapshots_to_keep=main.min_snapshots_to_keep,
            max_snapshot_age_ms=main.max_snapshot_age_ms,
        )
        asserted = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=newest.snapshot_id)
        commit = TableCommit(requirements=(asserted,), updates=(back,))
        await commit_table(lake, identifier_of(health), commit, request_of(run, f"roll back {newest.snapshot_id}"))
    except SandurError:
        return _WRITER_FOLLOWED
    return "rolled back"


def request_of(run: str, what: str) -> Request:
    source = Source(kind="pipeline", client="sandur", run_id=run, task_id="maintain")
    return Request(hash=hashlib.sha256(f"{run} {what}".encode()).hexdigest(), source=source)


async def compactions_of(
    lake: Lake, table: DeltaTable, run: str, *, upto: int, after: int = -1
) -> Mapping[int, LogFile]:
    """The commits of a run to a Delta table that replaced files, by their version."""
    logs = await read_logs(lake, table, range(upto, max(after, upto - _VERSIONS_MAX), -1))
    return {at: one for at, one in sorted(logs.items()) if one.info.user_metadata == run and one.removed}


def compacted(made: Mapping[int, LogFile], before: Measure, after: Measure, *, reason: str = "") -> OperationResult:
    """What these commits did. Writers may have committed beside them, so the measures alone do not show it."""
    if not made:
        return OperationResult(state="skipped", reason="Delta found nothing to compact", before=before, after=after)
    removed = [file for one in made.values() for file in one.removed]
    size = sum(file.size or 0 for file in removed)
    return OperationResult(
        reason=reason, before=before, after=after, files_rewritten=len(removed), bytes_rewritten=size
    )
