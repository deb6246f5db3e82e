"""`reconcile`: walk every table's metadata log and settle every record, and write the receipts that are missing."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.feed import FEED, Feed
from sandur.operations.janitors.events import EVENT_FOLDERS, EVENT_KEYS
from sandur.operations.receipts import receipt_of_key
from sandur.pipeline import system_tables
from sandur.pipeline.executor_tasks.reconcile import (
    EVENTS_ENSURED,
    FINDINGS,
    RESTORED,
    events_task,
    restore_receipt,
    walk_task,
)
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Publication
from sandur.pipeline.sources.events import CatalogEvents
from sandur.pipeline.sources.range_reader import KeyRange, SandurFiles, folder_ranges, hashed_ranges, read_frame
from sandur.pipeline.tables import CHANGES, COMMITS
from sandur.pipeline.tasks import map_rows, run_per_item
from sandur.settings import seconds_of

NAME: Final = "reconcile"
WARNINGS_MAX: Final = 10
REPEATED_MAX: Final = 200_000
HOLES_MAX: Final = 10_000
_RECEIPT_KEY: Final = r"/events/([^/]+)/iceberg/committed/([^/]+)\.json$"
_PUBLISHED: Final = "published"
_RESTORABLE: Final = {"key": "string", "receipt": "string", "is_exact": "boolean"}


def run(context: JobContext) -> JobReport:
    """Find missing receipts and write those that are still missing; every writer writes the same bytes."""
    context.progress("walk the logs of all tables")
    publication = Publication(context)
    commits = publication.read(COMMITS)
    own, problems = context.wait(system_tables.own_tables(context))
    walks = _walk(context).where(~_is_own_and_collected(context, None if problems else own))
    found = context.persist(with_published(walks, commits, keep_from_ms=_keep_from_ms(context)))
    ensured, unsettled = _ensure_events(context)
    changes, holes = _chains(context, publication.read(CHANGES))
    feed = Feed(context.lake)
    counts = {row.status: row["count"] for row in found.groupBy("status").count().collect()}
    restored = _restore(context, context.persist(_to_restore(context, found, commits)))
    unpublished = unpublished_receipts(found).unionByName(changes)
    repeated = _repeat_skipped(context, feed, unpublished, publication.dataset(COMMITS).watermark.get(FEED, 0))
    warnings = _warnings(found)
    statuses = {f"receipts_{status}": count for status, count in sorted(counts.items())}
    return context.report(
        NAME,
        counts={**statuses, **restored, **ensured, "chains_broken": len(holes), "read_again": repeated},
        warnings=(*feed.problems, *problems, *unsettled, *holes[:WARNINGS_MAX], *warnings),
    )


def _walk(context: JobContext) -> DataFrame:
    store, layout = context.lake.store, context.layout
    folders = (layout.pointers_folder(), layout.delta_tables_folder())
    ranges = [keys for folder in folders for keys in context.wait(hashed_ranges(store, folder))]
    walk = walk_task(context.source_options, context.limits.log_depth_max)
    return run_per_item(context.spark, ranges, walk, FINDINGS)


def _is_own_and_collected(context: JobContext, own: Sequence[str] | None) -> Column:
    """Whether a missing receipt belongs to one of the pipeline's own tables and is old enough to be collected.

    `commits` does not have such receipts, and a derived one would look like a commit of somebody else. `own` is None if
    the own tables are unknown; then every table may be one, and a later run restores receipts of that age.
    """
    collected_until = F.date_format(F.timestamp_millis(F.lit(_keep_from_ms(context))), "yyyy-MM-dd")
    is_old = F.regexp_extract("key", r"/(\d{4}-\d{2}-\d{2})/", 1) <= collected_until  # Also true without a key.
    is_own = F.col("table_uuid").isNotNull() if own is None else F.col("table_uuid").isin(*own)
    return F.coalesce(is_own & F.col("status").isin("missing", "unreadable") & is_old, F.lit(False))  # noqa: FBT003 - Spark's signature


def _keep_from_ms(context: JobContext) -> int:
    return context.clock.now_ms() - seconds_of(context.settings.receipt_retention) * 1_000


def _warnings(found: DataFrame) -> tuple[str, ...]:
    """A few warnings; those about the depth limit come last."""
    order = [F.col("status") == "depth_limited", F.col("uuid"), F.col("commit_key")]
    some = found.where(F.col("detail") != "").orderBy(*order).select("uuid", "detail").limit(WARNINGS_MAX)
    return tuple(f"table {row.uuid}: {row.detail}" for row in some.collect())


def _ensure_events(context: JobContext) -> tuple[Mapping[str, int], Sequence[str]]:
    """Settle every record and write the receipts of its events; returns counts, and some records with problems."""
    context.progress("settle all records")
    store, layout = context.lake.store, context.layout
    folders = [context.wait(folder_ranges(store, folder(layout))) for folder in EVENT_FOLDERS]
    single = [KeyRange(key.rpartition("/")[0] + "/", key[:-1], key) for key in (one(layout) for one in EVENT_KEYS)]
    ranges = [*(keys for some in folders for keys in some), *single]
    if not context.dry_run:
        context.check_fence()
    rows = run_per_item(
        context.spark, ranges, events_task(context.source_options, dry_run=context.dry_run), EVENTS_ENSURED
    )
    counts = {"records_visited": 0, "events_restored": 0, "records_unsettled": 0}
    problems: list[str] = []
    for row in rows.collect():
        if row.problem:
            problems.append(row.problem)
        else:
            counts[row.name] += row.times
    return counts, sorted(problems)[:WARNINGS_MAX]


def _chains(context: JobContext, changes: DataFrame) -> tuple[DataFrame, Sequence[str]]:
    """The keys of receipts of events that `changes` does not have, and a warning for each hole in a chain.

    A receipt that was written during the listing may be missing in it, so receipts are listed again to be sure.
    """
    context.progress("follow the chains of events")
    events = context.persist(read_frame(context.spark, CatalogEvents(context.source_options)))
    holes = missing_events(events, events, changes)
    if not holes.isEmpty():
        again = read_frame(context.spark, CatalogEvents(context.source_options))
        holes = missing_events(events, again, changes)
    warnings = [
        f"{row.object_type} {row.object_id}: a change names {row.commit_key} as the one before, which has no receipt"
        for row in holes.orderBy("object_id", "commit_key").limit(HOLES_MAX).collect()
    ]
    is_valid = F.col("problem").isNull()
    return events.where(is_valid).join(changes, on="commit_key", how="left_anti").select("key"), warnings


def missing_events(events: DataFrame, listed: DataFrame, changes: DataFrame) -> DataFrame:
    """The events that others name as the one before, and that neither a receipt nor `changes` has."""
    published = changes.withColumnsRenamed({"object": "object_type", "id": "object_id"})
    columns = ("object_type", "object_id", "previous_commit_key")
    named = events.select(*columns).unionByName(published.select(*columns))
    wanted = named.withColumnRenamed("previous_commit_key", "commit_key").where("commit_key is not null")
    keys = listed.select(F.regexp_extract("key", r"/([0-9a-f]+)\.json$", 1).alias("commit_key"))
    known = keys.unionByName(changes.select("commit_key"))
    return wanted.join(known, on="commit_key", how="left_anti").distinct()


def _repeat_skipped(context: JobContext, feed: Feed, unpublished: DataFrame, upto: int) -> int:
    """Give another position to those receipts that `compact` skipped because they were missing or damaged.

    Returns their number; a dry run only counts them.
    """
    if not upto:
        return 0
    keys = [row.key for row in unpublished.limit(REPEATED_MAX).collect()]
    skipped = context.wait(feed.passed([receipt_of_key(context.layout, key) for key in keys], upto))
    if skipped and not context.dry_run:
        context.check_fence()
        context.wait(feed.append_again(skipped))
    return len(skipped)


def _to_restore(context: JobContext, found: DataFrame, commits: DataFrame) -> DataFrame:
    source = SandurFiles({**context.source_options, "prefix": context.layout.events_folder()})
    listed = read_frame(context.spark, source)
    parts = {"date": 1, "commit_key": 2}
    keys = listed.select(*(F.regexp_extract("key", _RECEIPT_KEY, part).alias(name) for name, part in parts.items()))
    missing = found.where(F.col("status") == "missing")
    return receipts_to_restore(missing, commits, keys, keep_from_ms=_keep_from_ms(context))


def _restore(context: JobContext, to_restore: DataFrame) -> Mapping[str, int]:
    """Write missing receipts, and count them by their origin; a dry run only counts."""
    is_exact = F.coalesce(F.col("is_exact"), F.lit(False)) | F.col(_PUBLISHED).isNotNull()  # noqa: FBT003 - Spark's signature
    by_kind = {row.is_sure: row["count"] for row in to_restore.groupBy(is_exact.alias("is_sure")).count().collect()}
    counts = {"restored_exactly": by_kind.get(True, 0), "restored_without_source": by_kind.get(False, 0)}
    if context.dry_run or not by_kind:
        return counts
    context.progress("write missing receipts")
    context.check_fence()
    written = map_rows(to_restore, context.source_options, restore_receipt, RESTORED)
    outcomes = {row.outcome: row["count"] for row in written.groupBy("outcome").count().collect()}
    return {**counts, "written": outcomes.get("written", 0), "written_by_others": outcomes.get("there", 0)}


def with_published(found: DataFrame, commits: DataFrame, *, keep_from_ms: int) -> DataFrame:
    """Add `is_published`: whether `commits` has the receipt.

    A missing receipt that was published and is older than `keep_from_ms` was collected on purpose; it is left out.
    """
    history = commits.select("commit_key", F.col("committed_at_ms").alias("published_ms"))
    is_missing = F.col("status").isin("missing", "unreadable")
    is_collected = is_missing & F.col("published_ms").isNotNull() & (F.col("published_ms") < F.lit(keep_from_ms))
    known = found.join(history, on="commit_key", how="left").where(~is_collected)
    return known.withColumn("is_published", F.col("published_ms").isNotNull()).select(*found.columns, "is_published")


def unpublished_receipts(found: DataFrame) -> DataFrame:
    """The keys of receipts that `commits` should have but does not: new ones, and those that `compact` skipped."""
    is_known = F.col("is_published") | F.col("is_own")
    return found.where(F.col("status").isin("present", "missing") & ~is_known).select("key").distinct()


def receipts_to_restore(missing: DataFrame, commits: DataFrame, keys: DataFrame, *, keep_from_ms: int) -> DataFrame:
    """Every missing receipt once, with its row of `commits` in `published`, or null if it was never published.

    `missing` is what walks found, without collected receipts. `keys` has the commit key and the `date` of every
    existing receipt; a copy under another date does not count. A published receipt that is not in `keys` was deleted,
    and is restored unless it is older than `keep_from_ms`.
    """
    is_kept = F.col("committed_at_ms") >= F.lit(keep_from_ms)
    # Rows of other formats have fewer fields than their receipts.
    exact = commits.where(is_kept & (F.col("format") == "iceberg"))
    date = F.date_format(F.timestamp_millis("committed_at_ms"), "yyyy-MM-dd").alias("date")
    known = exact.select("commit_key", date, F.struct(*COMMITS.column_names).alias(_PUBLISHED))
    deleted = known.join(keys, on=["commit_key", "date"], how="left_anti")
    # Two walks may find the same receipt: the exact one of a head wins over a derived one.
    best = F.max_by(F.struct(*_RESTORABLE), F.struct("is_exact", "receipt", "key")).alias("best")
    found = missing.groupBy("commit_key").agg(best).select("commit_key", "best.*")
    walked_only = found.join(deleted.select("commit_key"), on="commit_key", how="left_anti")
    walked = walked_only.join(known, on="commit_key", how="left")
    listed = deleted.withColumns({name: F.lit(None).cast(kind) for name, kind in _RESTORABLE.items()})
    columns = ("commit_key", *_RESTORABLE, _PUBLISHED)
    return walked.select(*columns).unionByName(listed.select(*columns))


RECONCILE: Final = Job(NAME, "Walk every table's metadata log, settle every record, and write missing receipts.", run)
