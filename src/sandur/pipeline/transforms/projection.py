"""From names and the metadata files they lead to, to the tables that say what exists."""

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql.types import LongType, StructField, StructType

from sandur.pipeline.tables import TABLES, Shape

_NAMES: Final = ("catalog", "namespace", "name")
_OF_HEAD: Final = ("metadata_location", "metadata_version", "commit_key", "snapshot_id")
_OF_NAME: Final = (*_NAMES, "uuid", "table_uuid", "kind", "format", *_OF_HEAD, "problem")


def current_tables(names: DataFrame, own: tuple[str, str, Collection[str]]) -> DataFrame:
    """What a reader finds under the names, each uuid once.

    `own` are the catalog, the namespace and the names of the pipeline's own tables. They are told without what changes
    with every run: it would be news for ever.
    """
    catalog, namespace, own_names = own
    is_own = (F.col("catalog") == catalog) & (F.col("namespace") == namespace) & F.col("name").isin(sorted(own_names))
    steady = [F.when(is_own, None).otherwise(F.col(name)).alias(name) for name in _OF_HEAD]
    rest = [F.col(name) for name in _OF_NAME if name not in _OF_HEAD]
    shown = names.where(F.col("is_shown")).select(*rest, *steady)
    return shown.dropDuplicates(["uuid"]).select(*_OF_NAME)


def unread(current: DataFrame, before: DataFrame) -> DataFrame:
    """The tables whose metadata file is another than the one that was read before, or could not be read then."""
    read = before.where(F.col("problem").isNull()).select("uuid", "metadata_location")
    has_file = F.col("metadata_location").isNotNull()
    return current.where(has_file).join(read, on=["uuid", "metadata_location"], how="left_anti")


def part(opened: DataFrame, shape: Shape) -> DataFrame:
    """The rows of one shape among rows of many, without the names of their tables."""
    schema = StructType([_as_json(field) for field in shape.spark_schema if field.name not in _NAMES])
    rows = (
        opened.where(F.col("part") == shape.name).select(F.from_json("row_json", schema).alias("row")).select("row.*")
    )
    times = {column.name: F.timestamp_millis(column.name) for column in shape.columns if column.kind == "timestamptz"}
    return rows.withColumns(times) if times else rows


def _as_json(field: StructField) -> StructField:
    is_time = field.dataType.typeName() == "timestamp"
    return StructField(field.name, LongType() if is_time else field.dataType)


def of_metadata(shape: Shape, opened: DataFrame, before: DataFrame, current: DataFrame, fresh: DataFrame) -> DataFrame:
    """The rows of a shape: those that were read now, and those of before of tables whose file is the same.

    `fresh` are the tables that were read now. All are told under the names their tables have now.
    """
    kept = before.drop(*_NAMES).join(fresh.select("uuid"), on="uuid", how="left_anti")
    rows = part(opened, shape).unionByName(kept)
    names = current.where(F.col("metadata_location").isNotNull()).select("uuid", *_NAMES)
    return rows.join(names, on="uuid", how="inner").select(*shape.column_names)


def tables(opened: DataFrame, before: DataFrame, current: DataFrame, fresh: DataFrame) -> DataFrame:
    """One row for every table and view, with what its metadata file says; `problem` when that cannot be read."""
    from_file = [column for column in TABLES.column_names if column not in _OF_NAME]
    known = before.join(fresh.select("uuid"), on="uuid", how="left_anti").select("uuid", *from_file)
    about = part(opened, TABLES).select("uuid", *from_file).unionByName(known)
    wrong = opened.where(F.col("part") == "problem").select(
        "uuid", F.get_json_object("row_json", "$.problem").alias("wrong")
    )
    joined = current.join(about, on="uuid", how="left").join(wrong, on="uuid", how="left")
    return joined.withColumn("problem", _first("problem", "wrong")).select(*TABLES.column_names)


def difference(now: DataFrame, before: DataFrame) -> DataFrame:
    """The rows that are in the one and not in the other; none when both say the same."""
    return now.exceptAll(before).unionByName(before.exceptAll(now))


def _first(*columns: str) -> Column:
    return F.coalesce(*(F.col(column) for column in columns))
