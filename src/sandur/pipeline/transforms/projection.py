"""Compare the catalog with what was published last: which tables to read, keep or drop, and the changes between."""

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.pipeline.tables import CATALOGS, CHANGES, NAMESPACES, TABLES, Shape

NAMES: Final = ("catalog", "namespace", "name")
_OF_HEAD: Final = ("metadata_location", "metadata_version", "commit_key", "snapshot_id")
_OF_FILE: Final = ("metadata_location", "etag")
OF_NAME: Final = (*NAMES, "uuid", "table_uuid", "kind", "format", *_OF_HEAD, "etag")
"""What names tell of a table, without its metadata file."""

CREATED: Final = "created"
DROPPED: Final = "dropped"
RENAMED: Final = "renamed"
CHANGED: Final = "changed"
SAME: Final = "same"
UNREADABLE: Final = "unreadable"
"""No table, but a name that cannot be read: what it stands for is told by what is known from before."""


def current_tables(names: DataFrame, own: tuple[str, str, Collection[str]]) -> DataFrame:
    """What a reader finds under the names, each uuid once, and the names that cannot be read, with a `name_problem`.

    A name that cannot be read stands for no uuid: in that place it has its own spelling, which is nobody's.
    `own` are the catalog, the namespace and the names of the pipeline's own tables. They are told without what changes
    with every run: it would be news for ever.
    """
    catalog, namespace, own_names = own
    is_own = (F.col("catalog") == catalog) & (F.col("namespace") == namespace) & F.col("name").isin(sorted(own_names))
    steady = [F.when(is_own, None).otherwise(F.col(name)).alias(name) for name in _OF_HEAD]
    rest = [F.col(name) for name in OF_NAME if name not in (*_OF_HEAD, "uuid")]
    is_unreadable = F.col("problem").isNotNull()
    uuid = F.when(is_unreadable, F.concat_ws("/", *NAMES)).otherwise(F.col("uuid")).alias("uuid")
    told = names.where(F.col("is_shown") | is_unreadable).select(
        *rest, *steady, uuid, F.col("problem").alias("name_problem")
    )
    # Two names lead to one table if it is renamed between two looks, or if somebody copied a name: the first counts.
    columns = [name for name in told.columns if name != "uuid"]
    first = F.min_by(F.struct(*columns), F.struct(*NAMES)).alias("first")
    return told.groupBy("uuid").agg(first).select("uuid", "first.*").select(*OF_NAME, "name_problem")


def compare_tables(current: DataFrame, before: DataFrame) -> DataFrame:
    """Every table that is or was, once: as it is now, as it `was_…`, and which `change` made it so.

    `is_unread`: its metadata file is another than the one that was read before, or what the catalog keeps of a Delta
    table is. `is_retried`: it is the same, which could not be read then. What was dropped has nothing but its `uuid`
    and what it was. Names that cannot be read are told beside the tables.
    """
    told = [name for name in OF_NAME if name != "uuid"]
    was = before.select("uuid", *(F.col(name).alias(f"was_{name}") for name in (*told, "problem")), _true("was_there"))
    both = current.withColumn("is_there", F.lit(True)).join(was, on="uuid", how="full")  # noqa: FBT003 - as Spark has it
    has_file = F.col("metadata_location").isNotNull()
    is_same_file = F.col("was_there").isNotNull() & _are_as_before(_OF_FILE)
    change = (
        F.when(F.col("name_problem").isNotNull(), UNREADABLE)
        .when(F.col("was_there").isNull(), CREATED)
        .when(F.col("is_there").isNull(), DROPPED)
        .when(~_are_as_before(NAMES), RENAMED)
        .when(~_are_as_before(told), CHANGED)
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
    """What seems to be gone, as it was."""
    return gone.select("uuid", *(F.col(f"was_{name}").alias(name) for name in OF_NAME if name != "uuid"))


def found_again(tables: DataFrame, current: DataFrame, before: DataFrame) -> DataFrame:
    """What is compared, but for the tables that seemed to be gone and that a second look found: those are `current`."""
    uuids = current.select("uuid")
    told = compare_tables(current, before.join(uuids, on="uuid", how="left_semi"))
    return tables.join(uuids, on="uuid", how="left_anti").unionByName(told)


def tried_again(tables: DataFrame, *, lot: str, tables_max: int) -> DataFrame:
    """The tables whose files could not be read, as many as may be tried; by another `lot` it is others' turn."""
    retried = tables.where(F.col("is_retried")).select(*OF_NAME, "was_problem")
    return retried.orderBy(F.xxhash64("uuid", F.lit(lot)), "uuid").limit(tables_max)


def read_now(tables: DataFrame, is_healed: Column | None = None) -> DataFrame:
    """What is compared, with `is_read`: its file is read by this run, as it is new or could not be read before."""
    is_unread = F.col("is_unread")
    return tables.withColumn("is_read", is_unread if is_healed is None else is_unread | is_healed)


def fresh(tables: DataFrame) -> DataFrame:
    """The tables whose metadata files are read by this run."""
    return tables.where(F.col("is_read")).select(*OF_NAME)


def kept_tables(tables: DataFrame, before: DataFrame) -> DataFrame:
    """The rows of the tables that exist and are not read by this run, under the names they have now."""
    from_file = [name for name in TABLES.column_names if name not in OF_NAME]
    staying = tables.where((F.col("change") != DROPPED) & ~F.col("is_read")).select(*OF_NAME)
    return staying.join(before.select("uuid", *from_file), on="uuid", how="left").select(*TABLES.column_names)


def kept_rows(shape: Shape, tables: DataFrame, before: DataFrame) -> DataFrame:
    """What is known from the metadata files that are not read by this run, under the names their tables have now."""
    is_kept = F.col("metadata_location").isNotNull() & ~F.col("is_read")
    names = tables.where(is_kept).select("uuid", *NAMES)
    return before.drop(*NAMES).join(names, on="uuid", how="inner").select(*shape.column_names)


def without_file(tables: DataFrame) -> DataFrame:
    """The rows of tables that are new and have no metadata file to read."""
    is_plain = (F.col("change") == CREATED) & ~F.col("is_read")
    unknown = [F.lit(None).alias(name) for name in TABLES.column_names if name not in OF_NAME]
    return tables.where(is_plain).select(*OF_NAME, *unknown).select(*TABLES.column_names)


def _is_as_before(name: str) -> Column:
    return F.col(name).eqNullSafe(F.col(f"was_{name}"))


def _are_as_before(names: Sequence[str]) -> Column:
    same = _is_as_before(names[0])
    for name in names[1:]:
        same &= _is_as_before(name)
    return same


def _true(name: str) -> Column:
    return F.lit(True).alias(name)  # noqa: FBT003 - Spark takes it by position only


_NAMED: Final = {CATALOGS.name: ("name",), NAMESPACES.name: ("catalog", "namespace")}
_OBJECTS: Final = {CATALOGS.name: "catalog", NAMESPACES.name: "namespace"}
_TOLD: Final = ("catalog", "namespace", "name")


def compare_containers(shape: Shape, now: DataFrame, before: DataFrame) -> DataFrame:
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


def with_unreadable(shape: Shape, read: DataFrame, before: DataFrame) -> DataFrame:
    """Catalogs, or namespaces, as they are read; those that cannot be read as they were published before, if they were.

    What cannot be read is found by its name, for its record is what knows its id.
    """
    is_sound = F.col("problem").isNull()
    sound = read.where(is_sound).select(*shape.column_names)
    unread = read.where(~is_sound).select(*_NAMED[shape.name])
    kept = before.join(unread, on=list(_NAMED[shape.name]), how="left_semi").join(sound, on="id", how="left_anti")
    return sound.unionByName(kept.select(*shape.column_names))


def unreadable_containers(shape: Shape, read: DataFrame) -> DataFrame:
    """The names of those that cannot be read, and why."""
    name = F.concat_ws(".", *_NAMED[shape.name]).alias("name")
    return read.where(F.col("problem").isNotNull()).select(F.lit(shape.name).alias("dataset"), name, "problem")


def container_changes(shape: Shape, compared: DataFrame, *, seen_at_ms: int, feed_entry: int) -> DataFrame:
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


def name_changes(compared: DataFrame, *, seen_at_ms: int, feed_entry: int) -> DataFrame:
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
