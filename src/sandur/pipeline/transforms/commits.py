"""Turn receipts into the history of commits, its timeline, the activity of tables, missing links, and changes."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.pipeline.tables import ACTIVITY, CHANGES, COMMITS, OWNERS, QUARANTINE, TIMELINE

SYSTEM_TABLES: Final = "system-tables"
"""The task id of commits to the pipeline's own tables. Publishing them would cause new commits for ever."""

_DAY_MS: Final = 86_400_000
_OWNED: Final = tuple(name for name in OWNERS.column_names if name != "table_uuid")
_PLACE: Final = ("key_before", "named_after", "newest_version")
_VISIBLE, _DROPPED, _KNOWN, _UNREADABLE, _CREATED_FOR = range(5)
_LINK_DOUBLINGS: Final = 4
_CHECKED_SOURCE: Final = "pipeline"
_DECLARED_SOURCE: Final = "rest"


def valid_commits(events: DataFrame) -> DataFrame:
    """The valid receipts of commits without the pipeline's own; a commit may occur more than once."""
    return events.where(F.col("problem").isNull() & ~is_change() & ~is_own())


def is_change() -> Column:
    """Whether a receipt is that of a change of the catalog, not of a commit."""
    return F.col("object_type").isNotNull()


def changes(events: DataFrame, before: DataFrame) -> DataFrame:
    """The changes of the catalog that are not published yet, each once."""
    new = events.where(F.col("problem").isNull() & is_change()).dropDuplicates(["commit_key"])
    known = before.select("commit_key")
    renamed = new.withColumns(
        {
            "object": F.col("object_type"),
            "id": F.col("object_id"),
            "changed_at": F.col("committed_at"),
            "seen_at": _no_time(),
            "feed_entry": F.lit(None).cast("long"),
        }
    )
    return renamed.join(known, on="commit_key", how="left_anti").select(*CHANGES.column_names)


def is_own() -> Column:
    """Whether a receipt is that of a commit to one of the pipeline's own tables.

    These jobs work on the store and have no principal. A client of the server has one: it cannot hide its commits.
    """
    is_job = (F.col("source") == _CHECKED_SOURCE) & (F.col("principal") == "")
    return is_job & (F.col("task_id") == SYSTEM_TABLES)


def history(events: DataFrame, before: DataFrame, owners: DataFrame) -> DataFrame:
    """Every commit once, published and new ones, with the current name of its table and its neighbours.

    `owners` has one row per `table_uuid`. Of two rows with one `commit_key` the published one is kept (`is_new` is
    false). `key_before` is the previous commit of the table by version, `named_after` the commit that the next one
    names as its predecessor, `newest_version` the highest version of the table. The pipeline's own commits are left
    out.
    """
    is_checked, is_declared = F.col("source") == _CHECKED_SOURCE, F.col("source") == _DECLARED_SOURCE
    new = valid_commits(events).withColumns(
        {
            "lineage": F.when(is_checked, "verified").when(is_declared, "declared").otherwise("none"),
            "quality": F.when(is_checked, "checked").otherwise("not checked"),
            "is_new": _true(),
        }
    )
    columns = [*(name for name in COMMITS.column_names if name not in _OWNED), "is_new"]
    known = before.withColumn("is_new", ~_true())
    every = new.select(*columns).unionByName(known.select(*columns))
    in_order = Window.partitionBy("table_uuid").orderBy("metadata_version", "commit_key", "is_new", "committed_at_ms")
    whole_table = Window.partitionBy("table_uuid").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    placed = every.withColumns(
        {
            "key_before": F.lag("commit_key").over(in_order),
            "named_after": F.lead("previous_commit_key").over(in_order),
            "newest_version": F.max("metadata_version").over(whole_table),
        }
    )
    once = placed.where(~F.col("commit_key").eqNullSafe(F.col("key_before")))
    return once.join(owners, on="table_uuid", how="left").select(*COMMITS.column_names, "is_new", *_PLACE)


def is_loose() -> Column:
    """Whether a commit names another predecessor than the previous commit of its table."""
    return F.col("previous_commit_key").isNotNull() & ~F.col("previous_commit_key").eqNullSafe(F.col("key_before"))


def loose_ends(rows: DataFrame) -> DataFrame:
    """The predecessors that loose commits name, with `is_known`: whether such a commit exists.

    These are few: a commit lost its receipt, or a file was registered over another table.
    """
    wanted = rows.where(is_loose()).select(F.col("previous_commit_key").alias("commit_key")).distinct()
    known = rows.select("commit_key", _true().alias("is_known"))
    return wanted.join(known, on="commit_key", how="left").select("commit_key", "is_known")


def owners(names: DataFrame, pointers: DataFrame, before: DataFrame) -> DataFrame:
    """The name of each table: one row per `table_uuid`.

    A visible name wins, then the name under which the table was dropped, then the published name, because a missing
    name may only be unreadable. For a table that was never published: the unreadable name, or the name that the table
    was created for. A table with several names gets the first one. `has_name`: the catalog itself has that name.
    """
    is_shown, is_dropped = F.col("is_shown"), F.col("state").eqNullSafe(F.lit("dropped"))
    of_names = names.where(is_shown | F.col("problem").isNotNull()).withColumns(
        {
            "table_uuid": F.when(is_shown, F.col("table_uuid")).otherwise(F.nullif("uuid", F.lit(""))),
            "rank": F.when(is_shown, _VISIBLE).otherwise(_UNREADABLE),
            "at": _no_time(),
        }
    )
    of_pointers = pointers.where(F.col("name").isNotNull()).withColumns(
        {"rank": F.when(is_dropped, _DROPPED).otherwise(_CREATED_FOR), "at": F.col("updated_at")}
    )
    known = before.withColumns({"rank": F.lit(_KNOWN), "at": _no_time()})
    columns = [*OWNERS.column_names, "rank", "at"]
    every = of_names.select(*columns).unionByName(of_pointers.select(*columns)).unionByName(known.select(*columns))
    order = [F.col("rank"), F.col("at").desc_nulls_last(), *map(F.col, OWNERS.column_names)]
    place = F.row_number().over(Window.partitionBy("table_uuid").orderBy(*order))
    ranked = every.where(F.col("table_uuid").isNotNull()).withColumn("place", place)
    first = ranked.where(F.col("place") == 1)
    return first.select(*OWNERS.column_names, F.col("rank").isin(_VISIBLE, _DROPPED).alias("has_name"))


def is_registration() -> Column:
    """Whether a commit registers a file over an existing table, which may change its `table_uuid`."""
    return F.col("operation").eqNullSafe(F.lit("register")) & F.col("previous_commit_key").isNotNull()


def replacements(events: DataFrame, before: DataFrame) -> DataFrame:
    """The tables that a registration replaced, each once, and `by` which table: the one of the latest registration.

    They follow from all commits, published and new, so it does not matter which run saw which of them.
    """
    columns = ("commit_key", "table_uuid", "previous_commit_key", "operation", "committed_at_ms")
    every = events.where(F.col("problem").isNull() & ~is_change()).select(*columns).unionByName(before.select(*columns))
    registrations = every.where(is_registration()).select(
        F.col("previous_commit_key").alias("commit_key"),
        F.col("table_uuid").alias("by"),
        F.struct("committed_at_ms", F.col("commit_key").alias("key")).alias("at"),
    )
    found = every.select("commit_key", "table_uuid").join(registrations, on="commit_key", how="inner")
    replaced = found.where(F.col("table_uuid") != F.col("by"))
    return replaced.groupBy("table_uuid").agg(F.max_by("by", "at").alias("by"))


def with_replaced(owners: DataFrame, replaced: DataFrame) -> DataFrame:
    """The owners; a table without a name of its own has the current name of the table that replaced it.

    That one may be replaced, too: each of the few steps doubles the number of links that are followed.
    """
    named = owners.where("has_name").select("table_uuid")
    links = replaced.join(named, on="table_uuid", how="left_anti")
    for _ in range(_LINK_DOUBLINGS):
        further = links.select(F.col("table_uuid").alias("by"), F.col("by").alias("further"))
        links = links.join(further, on="by", how="left").select("table_uuid", F.coalesce("further", "by").alias("by"))
    names = owners.withColumnRenamed("table_uuid", "by")
    renamed = links.join(names, on="by", how="inner").select(*OWNERS.column_names)
    others = owners.join(renamed.select("table_uuid"), on="table_uuid", how="left_anti")
    return others.select(*OWNERS.column_names).unionByName(renamed)


def renamed_owners(now: DataFrame, before: DataFrame) -> DataFrame:
    """The owners that were published under another name."""
    names = F.struct(*_OWNED)
    was = before.select("table_uuid", names.alias("was"))
    return now.join(was, on="table_uuid", how="inner").where(names != F.col("was")).select(*OWNERS.column_names)


def quarantine(events: DataFrame) -> DataFrame:
    """The receipts with a problem; an object that was read twice is one row."""
    return events.where(F.col("problem").isNotNull()).dropDuplicates(["key"]).select(*QUARANTINE.column_names)


def activity(rows: DataFrame, before: DataFrame) -> DataFrame:
    """Commits by table and day: the counts of the rows, added to the published ones."""
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


def timeline(rows: DataFrame, ends: DataFrame) -> DataFrame:
    """Every version of every table: whether it is current, and whether its predecessor is known.

    `rows` is the history, `ends` are its loose ends.
    """
    followed = ends.select("commit_key", _true().alias("is_named_elsewhere"))
    known = ends.select(F.col("commit_key").alias("previous_commit_key"), "is_known")
    is_followed = F.col("commit_key").eqNullSafe(F.col("named_after")) | F.col("is_named_elsewhere").isNotNull()
    is_newest = F.col("metadata_version") == F.col("newest_version")
    return (
        rows.join(followed, on="commit_key", how="left")
        .join(known, on="previous_commit_key", how="left")
        .withColumn("version", F.col("metadata_version"))
        .withColumn("is_current", is_newest & ~is_followed)
        .withColumn("is_linked", ~is_loose() | F.col("is_known").isNotNull())
        .select(*TIMELINE.column_names)
    )


def _true() -> Column:
    return F.lit(True)  # noqa: FBT003 - Spark's signature


def _no_time() -> Column:
    return F.lit(None).cast("timestamp")


def _day() -> Column:
    """The day of a commit in UTC, independent of the session's time zone."""
    days = F.floor(F.unix_millis("committed_at") / _DAY_MS)
    return F.date_from_unix_date(days.cast("int")).cast("string")
