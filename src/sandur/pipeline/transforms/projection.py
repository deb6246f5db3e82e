"""Compare the catalog with what was published last: which tables to read, keep or drop."""

from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.pipeline.tables import CATALOGS, NAMESPACES, TABLES, Shape

NAMES: Final = ("catalog", "namespace", "name")
_OF_HEAD: Final = ("metadata_location", "metadata_version", "commit_key", "snapshot_id")
_OF_FILE: Final = ("metadata_location", "etag")
OF_NAME: Final = (*NAMES, "uuid", "table_uuid", "kind", "format", *_OF_HEAD, "etag", "tags_json")
"""The columns of a table that come from its name and pointer, not from its metadata file."""

CREATED: Final = "created"
DROPPED: Final = "dropped"
RENAMED: Final = "renamed"
CHANGED: Final = "changed"
SAME: Final = "same"
UNREADABLE: Final = "unreadable"
"""A name that cannot be read; its table keeps the published rows."""


def current_tables(names: DataFrame, own: tuple[str, str, Collection[str]]) -> DataFrame:
    """Every visible table once by uuid, and every unreadable name with a `name_problem`.

    An unreadable name has no uuid; its full name is used instead. `own` is the catalog, the namespace and the names of
    the pipeline's own tables. Their rows lack the columns that change with every run, which would always be news.
    """
    catalog, namespace, own_names = own
    is_own = (F.col("catalog") == catalog) & (F.col("namespace") == namespace) & F.col("name").isin(sorted(own_names))
    steady = [F.when(is_own, None).otherwise(F.col(name)).alias(name) for name in _OF_HEAD]
    rest = [F.col(name) for name in OF_NAME if name not in (*_OF_HEAD, "uuid")]
    is_unreadable = F.col("problem").isNotNull()
    uuid = F.when(is_unreadable, F.concat_ws("/", *NAMES)).otherwise(F.col("uuid")).alias("uuid")
    rows = names.where(F.col("is_shown") | is_unreadable).select(
        *rest, *steady, uuid, F.col("problem").alias("name_problem")
    )
    # Two names lead to one table after a rename during the listing, or after a copied name: the first one counts.
    columns = [name for name in rows.columns if name != "uuid"]
    first = F.min_by(F.struct(*columns), F.struct(*NAMES)).alias("first")
    return rows.groupBy("uuid").agg(first).select("uuid", "first.*").select(*OF_NAME, "name_problem")


def compare_tables(current: DataFrame, before: DataFrame) -> DataFrame:
    """Every current or published table once: its current columns, its published ones as `was_…`, and the `change`.

    `is_unread`: its metadata file, or the record of a Delta table, differs from the one that was read before.
    `is_retried`: it is the same, but could not be read then. A dropped table has only its `uuid` and the published
    columns. Unreadable names have rows of their own.
    """
    compared = [name for name in OF_NAME if name != "uuid"]
    was = before.select(
        "uuid", *(F.col(name).alias(f"was_{name}") for name in (*compared, "problem")), _true("was_there")
    )
    both = current.withColumn("is_there", F.lit(True)).join(was, on="uuid", how="full")  # noqa: FBT003 - Spark's signature
    has_file = F.col("metadata_location").isNotNull()
    is_same_file = F.col("was_there").isNotNull() & _are_as_before(_OF_FILE)
    change = (
        F.when(F.col("name_problem").isNotNull(), UNREADABLE)
        .when(F.col("was_there").isNull(), CREATED)
        .when(F.col("is_there").isNull(), DROPPED)
        .when(~_are_as_before(NAMES), RENAMED)
        .when(~_are_as_before(compared), CHANGED)
        .otherwise(SAME)
    )
    return both.withColumns(
        {
            "change": change,
            "is_unread": has_file & ~is_same_file,
            "is_retried": has_file & is_same_file & F.col("was_problem").isNotNull(),
        }
    ).drop("was_there", "is_there")


def as_published(gone: DataFrame) -> DataFrame:
    """The published columns of tables that seem to be dropped."""
    return gone.select("uuid", *(F.col(f"was_{name}").alias(name) for name in OF_NAME if name != "uuid"))


def found_again(tables: DataFrame, current: DataFrame, before: DataFrame) -> DataFrame:
    """The compared tables, with new rows for those that seemed to be dropped and were found again as `current`."""
    uuids = current.select("uuid")
    found = compare_tables(current, before.join(uuids, on="uuid", how="left_semi"))
    return tables.join(uuids, on="uuid", how="left_anti").unionByName(found)


def sample_of_retried(tables: DataFrame, *, seed: str, tables_max: int) -> DataFrame:
    """A sample of the tables whose files could not be read; another `seed` gives another sample."""
    retried = tables.where(F.col("is_retried")).select(*OF_NAME, "was_problem")
    return retried.orderBy(F.xxhash64("uuid", F.lit(seed)), "uuid").limit(tables_max)


def read_now(tables: DataFrame, is_readable: Column | None = None) -> DataFrame:
    """The compared tables with `is_read`: this run reads the file, because it is new or readable again."""
    is_unread = F.col("is_unread")
    return tables.withColumn("is_read", is_unread if is_readable is None else is_unread | is_readable)


def fresh(tables: DataFrame) -> DataFrame:
    """The tables whose metadata files this run reads."""
    return tables.where(F.col("is_read")).select(*OF_NAME)


def kept_tables(tables: DataFrame, before: DataFrame) -> DataFrame:
    """The rows of existing tables that this run does not read, with their current names."""
    from_file = [name for name in TABLES.column_names if name not in OF_NAME]
    staying = tables.where((F.col("change") != DROPPED) & ~F.col("is_read")).select(*OF_NAME)
    return staying.join(before.select("uuid", *from_file), on="uuid", how="left").select(*TABLES.column_names)


def kept_rows(shape: Shape, tables: DataFrame, before: DataFrame) -> DataFrame:
    """The published rows of metadata files that this run does not read, with the current names of their tables."""
    is_kept = F.col("metadata_location").isNotNull() & ~F.col("is_read")
    names = tables.where(is_kept).select("uuid", *NAMES)
    return before.drop(*NAMES).join(names, on="uuid", how="inner").select(*shape.column_names)


def without_file(tables: DataFrame) -> DataFrame:
    """The rows of new tables without a metadata file to read."""
    is_new = (F.col("change") == CREATED) & ~F.col("is_read")
    unknown = [F.lit(None).alias(name) for name in TABLES.column_names if name not in OF_NAME]
    return tables.where(is_new).select(*OF_NAME, *unknown).select(*TABLES.column_names)


def _are_as_before(names: Sequence[str]) -> Column:
    return reduce(and_, (F.col(name).eqNullSafe(F.col(f"was_{name}")) for name in names))


def _true(name: str) -> Column:
    return F.lit(True).alias(name)  # noqa: FBT003 - Spark's signature


_NAMED: Final = {CATALOGS.name: ("name",), NAMESPACES.name: ("catalog", "namespace")}


def compare_containers(shape: Shape, now: DataFrame, before: DataFrame) -> DataFrame:
    """Every current or published catalog or namespace once by `id`: as it `is` and `was`, and the `change`."""
    rows = F.struct(*shape.column_names)
    both = now.select("id", rows.alias("is")).join(before.select("id", rows.alias("was")), on="id", how="full")
    names = _NAMED[shape.name]
    is_moved = F.struct(*(f"is.{name}" for name in names)) != F.struct(*(f"was.{name}" for name in names))
    change = (
        F.when(F.col("was").isNull(), CREATED)
        .when(F.col("is").isNull(), DROPPED)
        .when(is_moved, RENAMED)
        .when(~F.col("is").eqNullSafe(F.col("was")), CHANGED)
        .otherwise(SAME)
    )
    return both.withColumn("change", change)


def with_unreadable(shape: Shape, read: DataFrame, before: DataFrame) -> DataFrame:
    """The catalogs or namespaces that were read; an unreadable one keeps its published row, if there is one.

    An unreadable one is matched by name, because its id is in the record.
    """
    is_readable = F.col("problem").isNull()
    readable = read.where(is_readable).select(*shape.column_names)
    unreadable = read.where(~is_readable).select(*_NAMED[shape.name])
    kept = before.join(unreadable, on=list(_NAMED[shape.name]), how="left_semi").join(
        readable, on="id", how="left_anti"
    )
    return readable.unionByName(kept.select(*shape.column_names))


def unreadable_containers(shape: Shape, read: DataFrame) -> DataFrame:
    """The names of unreadable catalogs or namespaces, and the problems."""
    name = F.concat_ws(".", *_NAMED[shape.name]).alias("name")
    return read.where(F.col("problem").isNotNull()).select(F.lit(shape.name).alias("dataset"), name, "problem")
