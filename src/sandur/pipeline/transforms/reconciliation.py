"""From what is missing to what is to be written: the exact receipt where one is known, what files tell elsewhere."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline.tables import COMMITS

_AS_PUBLISHED: Final = "published"
_TOLD: Final = {"key": "string", "receipt": "string", "is_exact": "boolean"}


def beside_history(found: DataFrame, commits: DataFrame, *, keep_from_ms: int) -> DataFrame:
    """What walks found, with `is_published`: whether `commits` has it.

    What is missing, was published and is older than `keep_from_ms` was collected, as it should be: it is left out.
    """
    history = commits.select("commit_key", F.col("committed_at_ms").alias("published_ms"))
    is_missing = F.col("status").isin("missing", "unreadable")
    is_collected = is_missing & F.col("published_ms").isNotNull() & (F.col("published_ms") < F.lit(keep_from_ms))
    known = found.join(history, on="commit_key", how="left").where(~is_collected)
    return known.withColumn("is_published", F.col("published_ms").isNotNull()).select(*found.columns, "is_published")


def receipts_not_told(found: DataFrame) -> DataFrame:
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
