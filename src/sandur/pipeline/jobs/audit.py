"""`audit`: publish the records of the audit trail, each exactly once."""

from collections import Counter
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.audit.trail import is_day_over
from sandur.operations.feed import AUDIT_BATCHES, AUDIT_FEED, Feed
from sandur.operations.published import ROWS_PER_FILE_MAX
from sandur.pipeline import system_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.sources.audit import MISSING, AuditFeedSource
from sandur.pipeline.sources.events import unread_entries
from sandur.pipeline.sources.range_reader import read_frame
from sandur.pipeline.tables import AUDIT, QUARANTINE

NAME: Final = "audit"


def run(context: JobContext) -> JobReport:
    """Publish every batch that has been written since the last run: the watermark is published with the rows."""
    context.progress("append new batches to the audit feed")
    feed = Feed(context.lake, AUDIT_BATCHES)
    publication = Publication(context)
    after = publication.dataset(AUDIT).watermark.get(AUDIT_FEED, 0)
    state = context.wait(feed.catch_up() if context.dry_run else feed.advance(unread_after=after))
    context.progress("read audit records")
    unread = unread_entries(context.blocking, feed, after, state.sequence, is_new=not after)
    rows = context.persist(read_frame(context.spark, AuditFeedSource({**context.source_options, **unread.options})))
    counts, warnings = _count(rows)
    if not context.dry_run and after != state.sequence:
        _publish(context, publication, rows, counts, state.sequence)
    refused = system_tables.refresh(context, publication.manifest, (AUDIT, QUARANTINE))
    return context.report(
        NAME,
        counts={"feed_from": after, "feed_to": state.sequence, **counts},
        warnings=(*feed.problems, *unread.warnings, *warnings, *refused),
        published=publication.published,
    )


def _count(rows: DataFrame) -> tuple[dict[str, int], list[str]]:
    """Count records by decision, and objects by problem; warn of problems and of losses that the trail states."""
    counts: Counter[str] = Counter()
    warnings: list[str] = []
    totals = rows.groupBy("problem", "decision", "kind").agg(F.count("*"), F.min("key"), F.min("lost_json")).collect()
    for problem, decision, kind, count, key, lost in sorted(totals, key=str):
        if problem:
            counts[f"objects_{problem}"] += count
            warnings.append(_warning(problem, count, key))
            continue
        counts["records"] += count
        counts[f"records_{decision}"] += count
        if kind == "loss":
            warnings.append(f"{count} records say that others were lost, for example {lost}")
    quarantined = sum(count for problem, _, _, count, _, _ in totals if problem not in {None, MISSING})
    return {"records": 0, "quarantined": quarantined, **counts}, warnings


def _warning(problem: str, count: int, key: str) -> str:
    if problem == MISSING:
        return f"{count} objects were removed before they were read, for example {key}; see the setting audit_retention"
    return f"{count} objects are {problem}, for example {key}; see system.quarantine"


def _publish(context: JobContext, publication: Publication, rows: DataFrame, counts: dict[str, int], upto: int) -> None:
    """Append the new records; with many small files, write all records again that are within the retention."""
    context.progress("write audit records")
    new, total = rows.where("problem is null").select(*AUDIT.column_names), counts["records"]
    before = publication.dataset(AUDIT)
    changes: dict[str, DatasetUpdate] = {}
    if before.is_scattered:
        total += before.rows
        new = within_retention(context, new.unionByName(publication.read(AUDIT)))
    tasks = -(-total // ROWS_PER_FILE_MAX)
    files = publication.write(new.coalesce(tasks), AUDIT) if total else ()
    changes[AUDIT.name] = DatasetUpdate(files, {AUDIT_FEED: upto}, appends=not before.is_scattered)
    if counts["quarantined"]:
        bad = rows.where(F.col("problem").isNotNull() & (F.col("problem") != MISSING))
        renamed = bad.withColumn("detail", F.col("problem_detail")).select(*QUARANTINE.column_names)
        watermark = publication.dataset(QUARANTINE).watermark
        changes[QUARANTINE.name] = DatasetUpdate(publication.write(renamed, QUARANTINE), watermark, appends=True)
    publication.publish(changes)


def within_retention(context: JobContext, records: DataFrame) -> DataFrame:
    """The records of days that the retention keeps."""
    now_ms, settings = context.clock.now_ms(), context.settings
    days = [row.date for row in records.select("date").distinct().collect()]
    return records.where(F.col("date").isin([day for day in days if not is_day_over(day, now_ms, settings)]))


AUDIT_JOB: Final = Job(NAME, "Publish the records of the audit trail.", run, reads=("audit trail",))
