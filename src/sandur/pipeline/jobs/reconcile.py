"""`reconcile`: walk every table's metadata log and write the receipts that are missing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.errors import SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.pipeline import system_tables
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.executor_tasks.reconcile import Finding, walk_delta_table, walk_table
from sandur.pipeline.feed import Feed, receipt_of_key
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Publication
from sandur.pipeline.sources.range_reader import FILES, FilesReader, KeyRange, each, hashed_ranges, listed_in, portions
from sandur.pipeline.sources.receipt_rows import key_of, receipt_of_row
from sandur.pipeline.tables import COMMITS
from sandur.pipeline.tasks import frame_of, one_task_each
from sandur.settings import seconds_of
from sandur.storage.contract import ABSENT

_AS_PUBLISHED: Final = "published"
_TOLD: Final = {"key": "string", "receipt": "string", "is_exact": "boolean"}


def with_published(found: DataFrame, commits: DataFrame, *, keep_from_ms: int) -> DataFrame:
    """What walks found, with `is_published`: whether `commits` has it.

    What is missing, was published and is older than `keep_from_ms` was collected, as it should be: it is left out.
    """
    history = commits.select("commit_key", F.col("committed_at_ms").alias("published_ms"))
    is_missing = F.col("status").isin("missing", "unreadable")
    is_collected = is_missing & F.col("published_ms").isNotNull() & (F.col("published_ms") < F.lit(keep_from_ms))
    known = found.join(history, on="commit_key", how="left").where(~is_collected)
    return known.withColumn("is_published", F.col("published_ms").isNotNull()).select(*found.columns, "is_published")


def unpublished_receipts(found: DataFrame) -> DataFrame:
    """The keys of receipts of others than ourselves that `commits` does not have: new ones, and those passed by."""
    is_told = F.col("is_published") | F.col("is_own")
    return found.where(F.col("status").isin("present", "missing") & ~is_told).select("key").distinct()


def receipts_to_restore(missing: DataFrame, commits: DataFrame, keys: DataFrame, *, keep_from_ms: int) -> DataFrame:
    """What is missing, each receipt once, with the row of `commits` that it was published as, if it was.

    `missing` is what walks found, without what was collected; `keys` are the commit keys of all receipts there are,
    each with the `date` it lies under: a copy under another date is none.
    What was published and is not among them was taken away, unless it is older than `keep_from_ms`. `published` is null
    for what was never published.
    """
    is_kept = F.col("committed_at_ms") >= F.lit(keep_from_ms)
    exact = commits.where(
        is_kept & (F.col("format") == "iceberg")
    )  # Rows of other formats say less than their receipts.
    date = F.date_format(F.timestamp_millis("committed_at_ms"), "yyyy-MM-dd").alias("date")
    known = exact.select("commit_key", date, F.struct(*COMMITS.column_names).alias(_AS_PUBLISHED))
    taken = known.join(keys, on=["commit_key", "date"], how="left_anti")
    # Two walks may come to one receipt: what a head says of it counts before what files tell.
    best = F.max_by(F.struct(*_TOLD), F.struct("is_exact", "receipt", "key")).alias("best")
    found = missing.groupBy("commit_key").agg(best).select("commit_key", "best.*")
    walked_only = found.join(taken.select("commit_key"), on="commit_key", how="left_anti")
    told = walked_only.join(known, on="commit_key", how="left")
    untold = taken.withColumns({name: F.lit(None).cast(kind) for name, kind in _TOLD.items()})
    columns = ("commit_key", *_TOLD, _AS_PUBLISHED)
    return told.select(*columns).unionByName(untold.select(*columns))


NAME: Final = "reconcile"
TABLES_AT_ONCE: Final = 16
WARNINGS_MAX: Final = 10
TOLD_AGAIN_MAX: Final = 200_000
_FOUND: Final = (
    "uuid string, status string, table_uuid string, commit_key string, key string, receipt string, "
    "is_exact boolean, detail string, is_own boolean"
)
_RECEIPT: Final = r"/events/([^/]+)/iceberg/committed/([^/]+)\.json$"
_FEED: Final = "feed"
_WRITTEN: Final = "outcome string"


def run(context: JobContext) -> JobReport:
    """Find what is missing, then write it, if it is still missing: the same bytes, whoever writes them."""
    context.progress("walk the logs of all tables")
    publication = Publication(context)
    commits = publication.read(COMMITS)
    own, problems = context.wait(system_tables.own_tables(context))
    walks = _found(context).where(~_is_own_and_collected(context, None if problems else own))
    found = with_published(walks, commits, keep_from_ms=_keep_from_ms(context)).persist()
    feed = Feed(context.lake)
    try:
        counts = {row.status: row["count"] for row in found.groupBy("status").count().collect()}
        to_restore = _to_restore(context, found, commits).persist()
        restored = _restored(context, to_restore)
        to_restore.unpersist()
        told_again = _told_again(context, feed, found, publication.watermark(COMMITS.name, _FEED))
        told = _warnings(found)
    finally:
        found.unpersist()
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts={
            **{f"receipts_{status}": count for status, count in sorted(counts.items())},
            **restored,
            "told_again": told_again,
        },
        warnings=(*feed.problems, *problems, *told),
    )


def _found(context: JobContext) -> DataFrame:
    store, layout = context.open_store.store, context.layout
    folders = (layout.pointers_folder(), layout.delta_tables_folder())
    ranges = [keys for folder in folders for keys in context.wait(hashed_ranges(store, folder))]
    walk = _walker(dict(context.source_options), context.limits.log_depth_max)
    return one_task_each(context.spark, ranges, walk, _FOUND)


def _is_own_and_collected(context: JobContext, own: Sequence[str] | None) -> Column:
    """Whether a receipt that is missing is of the pipeline's own tables, and so old that it was collected.

    `commits` has none of these, and what files tell of them would be taken for somebody else's commit. While nobody can
    tell which tables are its own (None), every table may be: another run restores what is that old.
    """
    collected_until = F.date_format(F.timestamp_millis(F.lit(_keep_from_ms(context))), "yyyy-MM-dd")
    is_old = F.regexp_extract("key", r"/(\d{4}-\d{2}-\d{2})/", 1) <= collected_until  # Without a key nothing is left.
    is_own = F.col("table_uuid").isNotNull() if own is None else F.col("table_uuid").isin(*own)
    return F.coalesce(is_own & F.col("status").isin("missing", "unreadable") & is_old, F.lit(False))  # noqa: FBT003 - as Spark has it


def _keep_from_ms(context: JobContext) -> int:
    return context.clock.now_ms() - seconds_of(context.settings.receipt_retention) * 1_000


def _warnings(found: DataFrame) -> tuple[str, ...]:
    """Some of what somebody should look at; that a walk did not go to the end comes last."""
    order = [F.col("status") == "depth_limited", F.col("uuid"), F.col("commit_key")]
    told = found.where(F.col("detail") != "").orderBy(*order).select("uuid", "detail").limit(WARNINGS_MAX)
    return tuple(f"table {row.uuid}: {row.detail}" for row in told.collect())


def _told_again(context: JobContext, feed: Feed, found: DataFrame, upto: int) -> int:
    """How many receipts are there now that `compact` has passed by: they were gone, or damaged, when it read them.

    They get another position, so that it comes to them again.
    """
    if not upto:
        return 0
    keys = [row.key for row in unpublished_receipts(found).limit(TOLD_AGAIN_MAX).collect()]
    passed = context.wait(feed.passed([receipt_of_key(context.layout, key) for key in keys], upto))
    if passed and not context.dry_run:
        context.check_fence()
        context.wait(feed.tell_again(passed))
    return len(passed)


def _to_restore(context: JobContext, found: DataFrame, commits: DataFrame) -> DataFrame:
    told = {**context.source_options, "prefix": context.layout.events_folder()}
    listed = frame_of(context.spark, FilesReader(told), FILES.spark_schema)
    parts = {"date": 1, "commit_key": 2}
    keys = listed.select(*(F.regexp_extract("key", _RECEIPT, part).alias(name) for name, part in parts.items()))
    missing = found.where(F.col("status") == "missing")
    return receipts_to_restore(missing, commits, keys, keep_from_ms=_keep_from_ms(context))


def _restored(context: JobContext, to_restore: DataFrame) -> Mapping[str, int]:
    """How many receipts were written, by what they were made of; in a dry run, how many would be."""
    is_exact = F.coalesce(F.col("is_exact"), F.lit(False)) | F.col("published").isNotNull()  # noqa: FBT003 - as Spark has it
    by_kind = {row.is_sure: row["count"] for row in to_restore.groupBy(is_exact.alias("is_sure")).count().collect()}
    counts = {"restored_exactly": by_kind.get(True, 0), "restored_without_source": by_kind.get(False, 0)}
    if context.dry_run or not by_kind:
        return counts
    context.progress("write missing receipts")
    context.check_fence()
    written = to_restore.mapInArrow(_restorer(dict(context.source_options)), _WRITTEN)
    outcomes = {row.outcome: row["count"] for row in written.groupBy("outcome").count().collect()}
    return {**counts, "written": outcomes.get("written", 0), "written_by_others": outcomes.get("there", 0)}


def _walker(options: Mapping[str, str], depth_max: int) -> Callable[[KeyRange], Iterator[Any]]:
    def walk(keys: KeyRange) -> Iterator[Any]:
        with open_lake(options) as open_store:
            for page in each(open_store, listed_in(open_store.store, keys)):
                for some in portions([listed.key for listed in page], TABLES_AT_ONCE):
                    yield _batch(open_store.wait(_walked_all(open_store, some, depth_max)))

    return walk


async def _walked_all(open_store: BlockingLake, keys: Sequence[str], depth_max: int) -> Sequence[tuple[Any, ...]]:
    found = await gather_all(_walked(open_store, key, depth_max) for key in keys)
    return [row for rows in found for row in rows]


async def _walked(open_store: BlockingLake, key: str, depth_max: int) -> Sequence[tuple[Any, ...]]:
    """What there is to say about the table of a pointer, or of a Delta table's record."""
    layout, lake = open_store.layout, open_store.lake
    rows: list[tuple[Any, ...]] = []
    is_delta = key.startswith(layout.delta_tables_folder())
    uuid = layout.parse_delta_table(key) if is_delta else layout.parse_pointer(key)
    findings = walk_delta_table(lake, uuid) if is_delta else walk_table(lake, uuid, depth_max=depth_max)
    try:
        rows.extend([_row(uuid, finding) async for finding in findings])
    except SandurError as error:
        rows.append((uuid, "failed", None, None, None, None, None, str(error), False))
    return rows


def _row(uuid: str, finding: Finding) -> tuple[Any, ...]:
    receipt = finding.receipt.decode() or None
    told = (finding.table_uuid, finding.commit_key, finding.key, receipt, finding.is_exact, finding.detail)
    return (uuid, finding.status, *told, finding.is_own)


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    kinds = [pa.string()] * 6 + [pa.bool_(), pa.string(), pa.bool_()]
    names = [column.split()[0] for column in _FOUND.split(", ")]
    columns = [[row[number] for row in rows] for number in range(len(names))]
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _restorer(options: Mapping[str, str]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def restore(batches: Iterable[Any]) -> Iterator[Any]:
        with open_lake(options) as open_store:
            for batch in batches:
                outcomes = [open_store.wait(_restore(open_store, row)) for row in batch.to_pylist()]
                yield pa.RecordBatch.from_arrays([pa.array(outcomes, type=pa.string())], names=["outcome"])

    return restore


async def _restore(open_store: BlockingLake, row: Mapping[str, Any]) -> str:
    """Write a receipt where none is: as its head or `commits` has it, otherwise as files tell it."""
    if row["published"] is None or row["is_exact"]:
        key, data = row["key"], row["receipt"].encode()
    else:
        receipt = receipt_of_row(row["published"])
        key, data = key_of(open_store.layout, receipt.commit_key, receipt.committed_at_ms), msgspec.json.encode(receipt)
    try:
        await open_store.store.put(key, data, expected=ABSENT)
    except SwapLost:
        return "there"
    return "written"


RECONCILE: Final = Job(NAME, "Walk every table's metadata log and write the receipts that are missing.", run)
