"""Orphans of tables: Iceberg finds them in a dry run, Sandur condemns and deletes them (O1–O7); VACUUM of Delta tables.

Iceberg compares our listing with the metadata of the table in executors, so only candidates reach the driver. What it
finds is not enough to delete a file: it knows nothing of other tables, stages, transactions and slow writers.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.maintenance.health import TableHealth
from sandur.catalog.maintenance.orphans import CONDEMNED_MAX, LEFT, Found, FoundFile
from sandur.catalog.maintenance.policies import Policy
from sandur.catalog.maintenance.records import OperationResult
from sandur.errors import Invalid, SandurError
from sandur.operations.lake import Lake
from sandur.operations.maintenance.delta_files import DeltaClones, DeltaFiles
from sandur.operations.maintenance.iceberg_files import IcebergFiles
from sandur.operations.maintenance.orphans import OrphanRemoval, Outcome, StoreTime, TableFiles, folder_of, list_files
from sandur.operations.maintenance.references import WorkspaceReferences
from sandur.operations.tables.documents import load_head
from sandur.pipeline.blocking_lake import BlockingLake, lake_options
from sandur.pipeline.maintenance.engine import SparkTable
from sandur.pipeline.maintenance.evidence import identifier_of
from sandur.pipeline.sources.range_reader import SandurFiles, read_frame
from sandur.settings import seconds_of
from sandur.spark.statements import quoted_text

CANDIDATES_MAX: Final = 2 * CONDEMNED_MAX
"""How many candidates are collected: other tables may refer to some of them."""

_LISTED: Final = "file_path string, version string, size_bytes bigint, modified_ms bigint"
_MISMATCH: Final = "Unable to determine whether certain files are orphan"


class PrefixMismatch(Exception):
    """The metadata of a table names files with another scheme or host than the store does."""


class Run(NamedTuple):
    """A run of maintenance. `references` and `clones` are shared by its tables, so that each table is read once."""

    blocking: BlockingLake
    run: str
    check_fence: Callable[[], None]
    references: WorkspaceReferences
    clones: DeltaClones

    async def fence(self) -> None:
        # In a thread of its own: the check waits for a lake with an event loop of its own.
        await asyncio.to_thread(self.check_fence)

    def removal(self, tables: TableFiles) -> OrphanRemoval:
        return OrphanRemoval(self.blocking.lake, self.run, self.fence, tables)


def begin(blocking: BlockingLake, run: str, check_fence: Callable[[], None]) -> Run:
    """A run on a lake; `check_fence` raises if the run has lost its turn."""
    return Run(blocking, run, check_fence, WorkspaceReferences(blocking.lake), DeltaClones(blocking.lake))


def remove_orphans(run: Run, table: SparkTable, health: TableHealth, policy: Policy) -> OperationResult:
    """Delete what earlier runs condemned in an Iceberg table, then condemn what Iceberg finds now."""
    blocking, name = run.blocking, identifier_of(health)
    removal = run.removal(IcebergFiles(blocking.lake, run.references, run.clones))
    deleted = blocking.wait(removal.delete(health.uuid, name, policy.orphans))
    place = blocking.wait(_place_of(blocking.lake, health.uuid))
    if not place:
        return result_of(deleted, Outcome(refusal="it cannot be read"))
    try:
        listed = listing(table.session, blocking, place)
    except Invalid as error:  # The driver lists any store but the catalog's own, and its memory is bounded.
        return result_of(deleted, Outcome(refusal=str(error)))
    try:
        now_ms = blocking.wait(blocking.lake.feature(StoreTime).now_ms())
        candidates = find_orphans(table, listed, place, policy, now_ms=now_ms)
    except PrefixMismatch as error:
        return result_of(deleted, Outcome(refusal=str(error)))
    finally:
        listed.unpersist()
    found = blocking.wait(removal.condemn(health.uuid, name, policy.orphans, candidates))
    return result_of(deleted, found)


def why_files_stay(run: Run, health: TableHealth, location: str) -> str:
    """O8: why the expiry of snapshots must leave the files of an Iceberg table; empty if nothing else needs them."""
    files = IcebergFiles(run.blocking.lake, run.references, run.clones)
    try:
        return run.blocking.wait(files.sharing(health.uuid, location))
    except SandurError as error:
        return str(error)


def vacuum(run: Run, health: TableHealth, policy: Policy) -> OperationResult:
    """Delete what earlier runs condemned in a Delta table, then condemn what its log does not need now.

    The catalog does it itself: Delta 4.4 refuses VACUUM on managed tables, whatever the catalog allows.
    """
    lake, name = run.blocking.lake, identifier_of(health)
    removal = run.removal(DeltaFiles(lake, policy, run.references, run.clones))
    deleted = run.blocking.wait(removal.delete(health.uuid, name, policy.orphans))
    found = run.blocking.wait(removal.condemn(health.uuid, name, policy.orphans))
    return result_of(deleted, found)


def result_of(deleted: Outcome, found: Outcome) -> OperationResult:
    """What both steps did, in one record."""
    reasons = [f"condemned nothing: {found.refusal}"] if found.refusal else []
    reasons += [f"deleted nothing: {deleted.refusal}"] if deleted.refusal else []
    # What the deletion left is found again, and then is among what is left now.
    left = deleted.left if found.refusal else max(deleted.left, found.left)
    kept = {**found.kept, **deleted.kept, LEFT: left}
    reasons += [f"{count:,} {reason}" for reason, count in sorted(kept.items()) if count]
    return OperationResult(
        state="skipped" if found.refusal and not deleted.files else "done",
        reason="; ".join(reasons),
        files_deleted=deleted.files,
        bytes_deleted=deleted.bytes,
        files_found=found.files,
        bytes_found=found.bytes,
        files_left=left,
    )


async def _place_of(lake: Lake, uuid: str) -> str:
    """The location of a table; empty if it cannot be read, which both steps report."""
    pointer = await lake.pointer(uuid).read()
    if pointer is None or pointer.value.head is None or pointer.value.kind != "table":
        return ""
    try:
        return (await load_head(lake, "table", pointer.value.head)).metadata.location.rstrip("/")
    except SandurError:
        return ""


def listing(spark: SparkSession, blocking: BlockingLake, place: str) -> DataFrame:
    """Every file below a place, once: executors list the catalog's own store, the driver any other."""
    lake = blocking.lake
    store, folder = folder_of(lake, place)
    if store is lake.store:
        files = read_frame(spark, SandurFiles({**lake_options(lake.settings), "prefix": folder}))
        path = F.concat(F.lit(f"{place}/"), F.substring("key", len(folder) + 1, 2_147_483_647))
        frame = files.select(
            path.alias("file_path"), "version", "size_bytes", F.unix_millis("modified_at").alias("modified_ms")
        )
    else:
        rows = [tuple(one) for one in blocking.wait(list_files(lake, place))]
        frame = spark.createDataFrame(rows, _LISTED)
    return frame.persist()


def find_orphans(
    table: SparkTable, listed: DataFrame, place: str, policy: Policy, *, now_ms: int, files_max: int = CANDIDATES_MAX
) -> Found:
    """The files that Iceberg finds no reference to; raises PrefixMismatch."""
    view = f"listed_{now_ms}_{abs(hash(place))}"
    known = listed.where("modified_ms > 0")
    known.select("file_path", F.timestamp_millis("modified_ms").alias("last_modified")).createOrReplaceTempView(view)
    before_ms = now_ms - seconds_of(policy.orphans.age) * 1_000
    # The location ends with a slash: for Iceberg it is the beginning of a text, and `t1` would match `t10/…`.
    arguments = {
        "table": quoted_text(table.argument),
        "older_than": f"timestamp_millis({before_ms})",
        "location": quoted_text(f"{place}/"),
        "dry_run": "true",
        "file_list_view": quoted_text(view),
        "prefix_mismatch_mode": "'ERROR'",
        "equal_schemes": "map('s3a,s3n', 's3', 'abfss,wasb,wasbs', 'abfs', 'gcs', 'gs')",
    }
    try:
        given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
        answer = table.session.sql(f"CALL {table.catalog}.system.remove_orphan_files({given})")
        orphans = answer.select(F.col("orphan_file_location").alias("file_path")).distinct()
        found = known.join(orphans, on="file_path", how="left_semi")
        rows: list[Any] = found.orderBy("file_path").limit(files_max).collect()
        more = found.count() - len(rows) if len(rows) == files_max else 0
        files = [FoundFile(row.file_path, row.version, row.size_bytes, row.modified_ms) for row in rows]
        return Found(files, listed.count(), more)
    except (PySparkException, Py4JJavaError) as error:
        if _MISMATCH in str(error):
            raise PrefixMismatch("its metadata names files with another scheme or host than its location") from error
        raise
    finally:
        table.session.catalog.dropTempView(view)
