"""What happened to the catalog itself: catalogs, namespaces and names that came, went, moved or were changed."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline.tables import CATALOGS, CHANGES, NAMESPACES, Shape
from sandur.pipeline.transforms.projection import CHANGED, CREATED, DROPPED, RENAMED, SAME

_NAMED: Final = {CATALOGS.name: ("name",), NAMESPACES.name: ("catalog", "namespace")}
_OBJECTS: Final = {CATALOGS.name: "catalog", NAMESPACES.name: "namespace"}
_TOLD: Final = ("catalog", "namespace", "name")


def homes_compared(shape: Shape, now: DataFrame, before: DataFrame) -> DataFrame:
    """Every catalog, or every namespace, that is or was, once by its `id`: as it `is` and `was`, and the `change`."""
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


def homes_known(shape: Shape, read: DataFrame, before: DataFrame) -> DataFrame:
    """Catalogs, or namespaces, as they are read; those that cannot be read as they were published before, if they were.

    What cannot be read is found by its name, for its record is what knows its id.
    """
    is_sound = F.col("problem").isNull()
    sound = read.where(is_sound).select(*shape.column_names)
    unread = read.where(~is_sound).select(*_NAMED[shape.name])
    kept = before.join(unread, on=list(_NAMED[shape.name]), how="left_semi").join(sound, on="id", how="left_anti")
    return sound.unionByName(kept.select(*shape.column_names))


def homes_unread(shape: Shape, read: DataFrame) -> DataFrame:
    """The names of those that cannot be read, and why."""
    name = F.concat_ws(".", *_NAMED[shape.name]).alias("name")
    return read.where(F.col("problem").isNotNull()).select(F.lit(shape.name).alias("dataset"), name, "problem")


def of_homes(shape: Shape, compared: DataFrame, *, seen_at_ms: int, feed_entry: int) -> DataFrame:
    """The changes of catalogs, or of namespaces."""
    parts = dict(zip(("catalog", "namespace"), _NAMED[shape.name], strict=False))
    now = {told: F.coalesce(F.col(f"is.{name}"), F.col(f"was.{name}")) for told, name in parts.items()}
    previous = {told: F.col(f"was.{name}") for told, name in parts.items()}
    is_created = F.col("change") == CREATED
    rows = compared.where(F.col("change") != SAME).withColumns(
        {
            "object": F.lit(_OBJECTS[shape.name]),
            "changed_at": F.when(is_created, F.col("is.created_at")).otherwise(F.col("is.updated_at")),
            "principal": F.when(is_created, F.col("is.created_by")).otherwise(F.col("is.updated_by")),
            **{told: now.get(told, _nothing("string")) for told in _TOLD},
            **{f"previous_{told}": _if_renamed(previous.get(told, _nothing("string"))) for told in _TOLD},
            "format": _nothing("string"),
            **_seen(seen_at_ms, feed_entry),
        }
    )
    return rows.select(*CHANGES.column_names)


def of_names(compared: DataFrame, *, seen_at_ms: int, feed_entry: int) -> DataFrame:
    """The changes of what has a name: tables, views and the like; what is committed to them is told by receipts."""
    is_told = F.col("change").isin(CREATED, DROPPED, RENAMED)
    rows = compared.where(is_told).withColumns(
        {
            "object": F.coalesce("kind", "was_kind"),
            "id": F.col("uuid"),
            "changed_at": _nothing("timestamp"),
            "principal": _nothing("string"),
            **{f"previous_{told}": _if_renamed(F.col(f"was_{told}")) for told in _TOLD},
            **{told: F.coalesce(told, f"was_{told}") for told in (*_TOLD, "format")},
            **_seen(seen_at_ms, feed_entry),
        }
    )
    return rows.select(*CHANGES.column_names)


def _if_renamed(value: Column) -> Column:
    return F.when(F.col("change") == RENAMED, value)


def _seen(at_ms: int, feed_entry: int) -> dict[str, Column]:
    return {"seen_at": F.timestamp_millis(F.lit(at_ms)), "feed_entry": F.lit(feed_entry).cast("long")}


def _nothing(kind: str) -> Column:
    return F.lit(None).cast(kind)
