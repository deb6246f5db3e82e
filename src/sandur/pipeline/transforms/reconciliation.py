"""From what is missing to what is to be written: the exact receipt where one is known, what files tell elsewhere."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline.tables import COMMITS

_AS_PUBLISHED: Final = "published"


def receipts_to_restore(missing: DataFrame, commits: DataFrame, keys: DataFrame, *, keep_from_ms: int) -> DataFrame:
    """What is missing, each receipt once, with the row of `commits` that it was published as, if it was.

    `missing` is what walks found; `keys` are the commit keys of all receipts there are. What was published and is not
    among them was taken away: what is older than `keep_from_ms` was collected, and is left so. `published` is null for
    what was never published.
    """
    is_kept = F.col("committed_at_ms") >= F.lit(keep_from_ms)
    expired = commits.where(~is_kept).select("commit_key")
    exact = commits.where(
        is_kept & (F.col("format") == "iceberg")
    )  # Rows of other formats say less than their receipts.
    known = exact.select("commit_key", F.struct(*COMMITS.column_names).alias(_AS_PUBLISHED))
    taken = known.join(keys, on="commit_key", how="left_anti")
    found = missing.join(expired, on="commit_key", how="left_anti").dropDuplicates(["commit_key"])
    walked_only = found.join(taken.select("commit_key"), on="commit_key", how="left_anti")
    told = walked_only.join(known, on="commit_key", how="left")
    nothing = {"key": "string", "receipt": "string", "is_exact": "boolean"}
    untold = taken.withColumns({name: F.lit(None).cast(kind) for name, kind in nothing.items()})
    columns = ("commit_key", *nothing, _AS_PUBLISHED)
    return told.select(*columns).unionByName(untold.select(*columns))
