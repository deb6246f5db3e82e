"""From receipts to the history of commits, their timeline, what tables were busy, and links that are missing."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline.tables import ACTIVITY, COMMITS, OWNERS, QUARANTINE, TIMELINE

SYSTEM_TABLES: Final = "system-tables"
"""The task under which the pipeline commits to its own tables. What it says about them would be news for ever."""

_DAY_MS: Final = 86_400_000
_CHECKED_SOURCE: Final = "pipeline"
_DECLARED_SOURCE: Final = "rest"


def commits(events: DataFrame, owners: DataFrame) -> DataFrame:
    """One row for every receipt that is understood, under the name its table has now.

    `owners` has one row for every `table_uuid`. The same receipt read twice is one commit: `commit_key` names it.
    Commits of the pipeline to its own tables are left out.
    """
    told = understood(events).withColumn("lineage", _lineage()).withColumn("quality", _quality())
    return named(told, owners)


def understood(events: DataFrame) -> DataFrame:
    """The receipts that are commits of others than the pipeline itself, each once."""
    is_understood = F.col("problem").isNull()
    is_own = (F.col("source") == _CHECKED_SOURCE) & (F.col("task_id") == SYSTEM_TABLES)
    return events.where(is_understood & ~is_own).dropDuplicates(["commit_key"])


def named(rows: DataFrame, owners: DataFrame) -> DataFrame:
    """Commits under the names their tables have now; without one, when nobody knows the table any more."""
    plain = rows.drop("catalog", "namespace", "name", "kind")
    return plain.join(owners, on="table_uuid", how="left").select(*COMMITS.column_names)


def owners(names: DataFrame, pointers: DataFrame, before: DataFrame) -> DataFrame:
    """Which name stands for each `table_uuid`: one row for each.

    A name that is shown comes first. Without one it is the name under which the table was dropped, or the one that was
    published before. A table that is registered under several names is told under the first of them.
    """
    shown = names.where(F.col("is_shown")).withColumn("rank", F.lit(0)).withColumn("at", _no_time())
    dropped = (
        pointers.where(F.col("name").isNotNull()).withColumn("rank", F.lit(1)).withColumn("at", F.col("updated_at"))
    )
    known = before.withColumn("rank", F.lit(2)).withColumn("at", _no_time())
    columns = [*OWNERS.column_names, "rank", "at"]
    every = shown.select(*columns).unionByName(dropped.select(*columns)).unionByName(known.select(*columns))
    order = [F.col("rank"), F.col("at").desc_nulls_last(), *map(F.col, OWNERS.column_names)]
    place = F.row_number().over(Window.partitionBy("table_uuid").orderBy(*order))
    ranked = every.where(F.col("table_uuid").isNotNull()).withColumn("place", place)
    return ranked.where(F.col("place") == 1).select(*OWNERS.column_names)


def registrations(events: DataFrame) -> DataFrame:
    """The receipts of files that were registered over a table: its `table_uuid` may be another from there on."""
    is_over = (F.col("operation") == "register") & F.col("previous_commit_key").isNotNull()
    return events.where(F.col("problem").isNull() & is_over)


def with_replaced(owners: DataFrame, events: DataFrame, commits_before: DataFrame) -> DataFrame:
    """The owners, and for every table that another was registered over, the name that stands for that one."""
    links = registrations(events).select(
        F.col("previous_commit_key").alias("commit_key"), F.col("table_uuid").alias("by")
    )
    known = events.select("commit_key", "table_uuid").unionByName(commits_before.select("commit_key", "table_uuid"))
    replaced = known.join(links, on="commit_key", how="inner").where(F.col("table_uuid") != F.col("by"))
    names = owners.withColumnRenamed("table_uuid", "by")
    told = replaced.select("table_uuid", "by").join(names, on="by", how="inner").select(*OWNERS.column_names)
    unknown = told.join(owners.select("table_uuid"), on="table_uuid", how="left_anti")
    return owners.unionByName(unknown.dropDuplicates(["table_uuid"]))


def renamed(now: DataFrame, before: DataFrame) -> DataFrame:
    """The owners that were published under another name."""
    changed = now.exceptAll(before)
    return changed.join(before.select("table_uuid"), on="table_uuid", how="left_semi").select(*OWNERS.column_names)


def quarantine(events: DataFrame) -> DataFrame:
    """What is not understood, or lies where it does not belong; the same object read twice is one row."""
    return events.where(F.col("problem").isNotNull()).dropDuplicates(["key"]).select(*QUARANTINE.column_names)


def activity(rows: DataFrame, before: DataFrame) -> DataFrame:
    """How busy each table was on each day: that of the rows, added to what is known from before."""
    is_snapshot = F.col("operation").isin("append", "overwrite", "replace", "delete")
    counted = rows.select(
        "table_uuid",
        _day().alias("day"),
        F.lit(1).cast("long").alias("commits"),
        is_snapshot.cast("long").alias("snapshots"),
        (~is_snapshot).cast("long").alias("changes_of_metadata"),
        (F.col("source") == _DECLARED_SOURCE).cast("long").alias("commits_by_rest"),
        (F.col("source") == _CHECKED_SOURCE).cast("long").alias("commits_by_pipeline"),
        (~F.col("source").isin(_DECLARED_SOURCE, _CHECKED_SOURCE)).cast("long").alias("commits_by_others"),
        F.col("committed_at").alias("first_committed_at"),
        F.col("committed_at").alias("last_committed_at"),
    )
    sums = [F.sum(column.name).alias(column.name) for column in ACTIVITY.columns if column.kind == "long"]
    return (
        counted.unionByName(before)
        .groupBy("table_uuid", "day")
        .agg(
            *sums,
            F.min("first_committed_at").alias("first_committed_at"),
            F.max("last_committed_at").alias("last_committed_at"),
        )
        .select(*ACTIVITY.column_names)
    )


def timeline(rows: DataFrame) -> DataFrame:
    """Every version a table ever had, which of them is current, and whether the one before it is known."""
    whole_table = Window.partitionBy("table_uuid").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    newest = F.max("metadata_version").over(whole_table)
    keys = rows.select(F.col("commit_key").alias("previous_commit_key"), _true().alias("has_previous"))
    followed = rows.where(F.col("previous_commit_key").isNotNull()).select(
        F.col("previous_commit_key").alias("commit_key"), _true().alias("is_followed")
    )
    return (
        rows.join(followed.distinct(), on="commit_key", how="left")
        .join(keys.distinct(), on="previous_commit_key", how="left")
        .withColumn("version", F.col("metadata_version"))
        .withColumn("is_current", F.col("is_followed").isNull() & (F.col("metadata_version") == newest))
        .withColumn("is_linked", F.col("previous_commit_key").isNull() | F.col("has_previous").isNotNull())
        .select(*TIMELINE.column_names)
    )


def missing_links(rows: DataFrame, heads: DataFrame) -> DataFrame:
    """The commit keys that something refers to and nothing has: receipts that are not there.

    `heads` are the `table_uuid` and `commit_key` of what is current. A chain that is whole leads from its head to a
    receipt that names none before it.
    """
    named_by_receipts = rows.where(F.col("previous_commit_key").isNotNull()).select(
        "table_uuid",
        F.col("previous_commit_key").alias("commit_key"),
        F.col("previous_metadata_location").alias("metadata_location"),
    )
    named_by_heads = heads.where(F.col("commit_key").isNotNull()).select(
        "table_uuid", "commit_key", "metadata_location"
    )
    wanted = named_by_receipts.unionByName(named_by_heads).dropDuplicates(["commit_key"])
    return wanted.join(rows.select("commit_key").distinct(), on="commit_key", how="left_anti")


def _lineage() -> Column:
    return (
        F.when(F.col("source") == _CHECKED_SOURCE, "verified")
        .when(F.col("source") == _DECLARED_SOURCE, "declared")
        .otherwise("none")
    )


def _quality() -> Column:
    return F.when(F.col("source") == _CHECKED_SOURCE, "checked").otherwise("not checked")


def _true() -> Column:
    return F.lit(True)  # noqa: FBT003 - Spark takes it by position only


def _no_time() -> Column:
    return F.lit(None).cast("timestamp")


def _day() -> Column:
    """The day of a commit in UTC, whatever the time zone of the session is."""
    days = F.floor(F.unix_millis("committed_at") / _DAY_MS)
    return F.date_from_unix_date(days.cast("int")).cast("string")
