"""Operations on Iceberg tables, by Iceberg's own procedures. Only `snapshots` removes files, and only where safe."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.measures import (
    Reference,
    SnapshotAge,
    is_in_grace,
    kept_snapshots,
    small_file_bytes,
)
from sandur.catalog.maintenance.policies import Compaction, Policy
from sandur.catalog.maintenance.records import OperationResult
from sandur.errors import NotFound, SandurError
from sandur.iceberg.requests import AssertRefSnapshotId, AssertTableUuid, TableCommit
from sandur.iceberg.snapshots import BRANCH, MAIN_BRANCH
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import RemoveSnapshots
from sandur.operations.tables.commit import commit_table
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance.engine import SPARK_ERRORS, Engine, is_conflict
from sandur.pipeline.maintenance.evidence import (
    Rewrite,
    RowsDiffer,
    Unsettled,
    count_rows,
    identifier_of,
    load_metadata,
    measure,
    request_of,
    rewrites_of,
    roll_back,
    rows_differ,
)
from sandur.spark.statements import quoted_text

COMMITS_MAX: Final = 10
"""The most commits of one rewrite: a writer that is faster costs a part of the work, not all of it."""
GROUPS_AT_ONCE: Final = 2
GROUP_BYTES_MAX: Final = 10 << 30
EXPIRED_MAX: Final = 10_000  # Each is named in the statement.
_GROUP_BYTES_MIN: Final = 256 << 20
_MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"


Sharing = Callable[[TableHealth, str], str]
"""Says why files at the location of a table may belong to others, too; empty if they do not."""


class IcebergTable:
    """One Iceberg table in one run: carries out operations, and compares the table before and after each."""

    def __init__(self, engine: Engine, blocking: BlockingLake, health: TableHealth, policy: Policy, run: str) -> None:
        self._engine = engine
        self._blocking = blocking
        self._health = health
        self._policy = policy
        self._run = run
        self._spark = engine.table(health)

    def state(self) -> TableMetadata:
        return self._blocking.wait(load_metadata(self._blocking.lake, self._health))

    def perform(self, operation: Operation, *, conflicts: int = 0, sharing: Sharing) -> OperationResult:
        """Carry out an operation. Errors of Spark and of the catalog are raised; the table is whole in every case.

        `conflicts`: how often it lost to writers before. `sharing` says why others may use its files (rule 3).
        """
        before = self.state()
        match operation:
            case "compaction":
                return self._rewrite(before, lambda: self._compact(conflicts))
            case "deletes":
                return self._rewrite(before, self._merge_deletes)
            case "manifests":
                return self._rewrite(before, self._merge_manifests)
            case "snapshots":
                return self._expire(before, sharing)
            case "statistics":
                self._compute_statistics(before)
                return OperationResult(before=measure(before), after=measure(self.state()))
            case _:
                return OperationResult(state="skipped", reason=f"{operation} is not for Iceberg tables")

    def _compact(self, conflicts: int) -> None:
        policy = self._policy.compaction
        arguments = {"options": _map(compaction_options(policy, conflicts))}
        if policy.strategy != "binpack" and policy.sort_order:
            order = policy.sort_order if policy.strategy == "sort" else f"zorder({policy.sort_order})"
            arguments |= {"strategy": quoted_text("sort"), "sort_order": quoted_text(order)}
        self._call("rewrite_data_files", arguments)

    def _merge_deletes(self) -> None:
        options = {"min-input-files": str(max(2, self._policy.deletes.min_files)), **_progress()}
        self._call("rewrite_position_delete_files", {"options": _map(options)})

    def _merge_manifests(self) -> None:
        self._call("rewrite_manifests", {"use_caching": "false"})

    def _compute_statistics(self, metadata: TableMetadata) -> None:
        if metadata.current_snapshot is None:
            return
        self._call("compute_table_stats", {})
        spec = next((one for one in metadata.specs if one.spec_id == metadata.default_spec_id), None)
        if spec and spec.fields:
            self._call("compute_partition_stats", {})

    def _rewrite(self, before: TableMetadata, work: Callable[[], None]) -> OperationResult:
        """Rewrite, then decide from the table what became of it, also if the answer of the commit was lost."""
        problem: BaseException | None = None
        try:
            work()
        except SPARK_ERRORS as error:
            problem = error
        after, made = self._compared(before)
        if problem and not made:
            raise problem
        if not made:
            reason = "Iceberg found nothing to rewrite"
            return OperationResult(state="skipped", reason=reason, before=measure(before), after=measure(after))
        files = sum(one.replaced("deleted-data-files") for one in made)
        reason = ""
        if problem:
            lost = "a writer was faster for the rest" if is_conflict(problem) else f"the rest failed: {problem}"
            reason = f"{len(made)} commits are done; {lost}"
        return OperationResult(
            state="conflict" if problem and is_conflict(problem) else "failed" if problem else "done",
            reason=reason,
            before=measure(before),
            after=measure(after),
            files_rewritten=files + sum(one.replaced("removed-delete-files") for one in made),
            bytes_rewritten=sum(one.replaced("removed-files-size") for one in made),
        )

    def _compared(self, before: TableMetadata) -> tuple[TableMetadata, Sequence[Rewrite]]:
        """The table after a rewrite, and its commits; RowsDiffer if their rows differ, Unsettled if that is unknown."""
        try:
            after = self.state()
            made = rewrites_of(before.snapshot_ids, after, self._engine.application)
            found = (rows_differ(rewrite, partial(count_rows, self._spark)) for rewrite in made)
            place, differs = next(((place, differs) for place, differs in enumerate(found) if differs), (0, ""))
        except NotFound:  # It was dropped, or renamed.
            raise
        except (*SPARK_ERRORS, SandurError) as error:  # Such as after Ctrl-C.
            raise Unsettled(f"its rows were not compared, so the next run settles it: {error}") from error
        if differs:
            done = self._blocking.wait(roll_back(self._blocking.lake, self._health, made[place:], self._run))
            raise RowsDiffer(f"{differs}; {done}")
        return after, made

    def _expire(self, before: TableMetadata, sharing: Sharing) -> OperationResult:
        """Remove old snapshots, and the files that only they need.

        Iceberg removes both, unless it would do more than the policy allows: it also ends branches and tags by an age
        of their own, and knows nothing of other tables that use the same files. Then the catalog removes the snapshots
        alone, and files stay.
        """
        now_ms = self._blocking.lake.clock.now_ms()
        expirable = expirable_snapshots(before, self._policy, now_ms)
        if not expirable:
            return OperationResult(state="skipped", reason="no snapshot may expire", before=measure(before))
        why_kept = self._why_files_stay(before, sharing)
        answer: Mapping[str, Any] = {}
        if why_kept:
            self._blocking.wait(self._remove_snapshots(before, expirable))
        else:
            # By id: Iceberg's own rule, which `older_than` turns off, would end snapshots that readers may still use.
            ids = f"array({', '.join(map(str, expirable))})"
            arguments = {"snapshot_ids": ids, "older_than": "timestamp_millis(0)", "stream_results": "true"}
            answer = self._call("expire_snapshots", arguments)
        after = measure(self.state())
        gone = (measure(before).snapshots or 0) - (after.snapshots or 0)
        return OperationResult(
            reason=f"{gone:,} snapshots expired" + (f"; files stay: {why_kept}" if why_kept else ""),
            before=measure(before),
            after=after,
            files_deleted=sum(int(value or 0) for value in answer.values()),
        )

    def _why_files_stay(self, metadata: TableMetadata, sharing: Sharing) -> str:
        if why := sharing(self._health, metadata.location):
            return why
        if not self._policy.snapshots.ages_references and _ages_references(metadata):
            return "a branch or tag has an age of its own, which Iceberg would end"
        outside = self._spark.session.sql(
            f"SELECT first(file_path) FROM {self._spark.full_name}.all_files "  # noqa: S608 - names in quotes
            f"WHERE NOT startswith(file_path, {quoted_text(metadata.location.rstrip('/') + '/')})"
        ).collect()[0][0]
        return f"{outside} is not below the table's location" if outside else ""

    async def _remove_snapshots(self, metadata: TableMetadata, ids: Sequence[int]) -> None:
        refs = metadata.refs
        requirements = [AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs.items()]
        commit = TableCommit(
            requirements=(AssertTableUuid(uuid=metadata.table_uuid or ""), *requirements),
            updates=(RemoveSnapshots(snapshot_ids=tuple(ids)),),
        )
        request = request_of(self._run, f"expire {self._health.uuid} {ids}")
        await commit_table(self._blocking.lake, identifier_of(self._health), commit, request)

    def _call(self, procedure: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Call a procedure of Iceberg; returns the row of its answer."""
        given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
        named = f"table => {quoted_text(self._spark.argument)}" + (f", {given}" if given else "")
        rows = self._spark.session.sql(f"CALL {self._spark.catalog}.system.{procedure}({named})").collect()
        return rows[0].asDict() if rows else {}


def compaction_options(policy: Compaction, conflicts: int) -> Mapping[str, str]:
    """The options of a rewrite; after conflicts its groups are smaller, so that less is lost to the next one."""
    target = policy.target_file_bytes
    return {
        "target-file-size-bytes": str(target),
        "min-file-size-bytes": str(min(small_file_bytes(policy), target - 1)),
        "min-input-files": str(policy.min_input_files),
        "delete-file-threshold": str(policy.delete_files_per_file),
        "delete-ratio-threshold": str(policy.deleted_rows_share),
        "max-file-group-size-bytes": str(max(GROUP_BYTES_MAX >> min(conflicts, 5), _GROUP_BYTES_MIN)),
        **_progress(),
    }


def _progress() -> Mapping[str, str]:
    return {
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": str(COMMITS_MAX),
        "max-concurrent-file-group-rewrites": str(GROUPS_AT_ONCE),
    }


def expirable_snapshots(metadata: TableMetadata, policy: Policy, now_ms: int) -> Sequence[int]:
    """The ids of the snapshots that the policy lets expire (rule 5), oldest first; a run expires a bounded number.

    What was current within the last day stays, also if a rollback replaced it.
    """
    ages = [
        SnapshotAge(snapshot_id=one.snapshot_id, committed_ms=one.timestamp_ms, parent_id=one.parent_snapshot_id)
        for one in metadata.snapshots
    ]
    references = [
        Reference(
            name=name,
            is_branch=ref.type == BRANCH,
            snapshot_id=ref.snapshot_id,
            min_to_keep=ref.min_snapshots_to_keep,
            max_age_ms=ref.max_snapshot_age_ms,
        )
        for name, ref in metadata.refs.items()
    ]
    kept = kept_snapshots(ages, references, policy.snapshots, now_ms=now_ms)
    log = pairwise(metadata.snapshot_log)
    kept |= {replaced.snapshot_id for replaced, by in log if is_in_grace(by.timestamp_ms, now_ms)}
    ages.sort(key=lambda one: one.committed_ms)
    return [one.snapshot_id for one in ages if one.snapshot_id not in kept][:EXPIRED_MAX]


def _ages_references(metadata: TableMetadata) -> bool:
    """Whether Iceberg might end a branch or tag by its age, or let a branch decide what young means."""
    others = [ref for name, ref in metadata.refs.items() if name != MAIN_BRANCH]
    has_own_age = any(ref.max_ref_age_ms is not None for ref in others)
    is_aged_by_table = _MAX_REF_AGE in metadata.properties and bool(others)
    return has_own_age or is_aged_by_table or any(ref.max_snapshot_age_ms is not None for ref in metadata.refs.values())


def _map(options: Mapping[str, str]) -> str:
    return "map(" + ", ".join(f"{quoted_text(name)}, {quoted_text(value)}" for name, value in options.items()) + ")"
