"""Deleting the data files of a Delta table that no version needs any more, for tables whose VACUUM Delta refuses.

Delta for Spark refuses VACUUM on tables that a catalog manages, though the catalog allows it. What is needed is told by
Spark itself: the files of the version that was current when the retained time began, and of those since that may have
brought older files back. Whatever is younger than that stays, needed or not: somebody may be about to commit it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sandur.errors import Invalid, Unfit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETAIN_HOURS: Final = 168.0
"""As long as Delta keeps what was removed, unless it is told otherwise."""

CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Delta's own guard against a time so short that files of a commit under way are taken for garbage."""

_HOUR_MS: Final = 3_600_000
_DATA: Final = ".parquet"
# These can name files that are older than themselves.
_BRING_BACK: Final = frozenset({"RESTORE", "CLONE"})


class Version(NamedTuple):
    number: int
    committed_ms: int
    operation: str


class File(NamedTuple):
    """A file below the table's folder, by the path that Hadoop gives it."""

    path: str
    changed_ms: int


def vacuum(
    spark: "SparkSession", table: str, *, retain_hours: float = RETAIN_HOURS, deletes: bool = True
) -> Sequence[str]:
    """Delete data files that no version of the retained time needs, and return their paths; see `deletes=False` first.

    Deletion vectors, change data and the log are left alone. Invalid for a time shorter than Delta's own unless its
    check is off; Unfit, and nothing is deleted, when the table's files are not where its folder is listed.
    """
    if retain_hours < RETAIN_HOURS and spark.conf.get(CHECK, "true") != "false":
        raise Invalid(f"retain_hours {retain_hours:g}: at least {RETAIN_HOURS:g}, unless {CHECK} is false")
    history = _history(spark, table)
    now_ms = int(spark.sql("SELECT unix_millis(current_timestamp())").collect()[0][0])
    cutoff_ms = now_ms - int(retain_hours * _HOUR_MS)
    folder = _Folder(spark, str(spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0][0]))
    current = folder.paths(_files(spark, table, max(version.number for version in history)))
    needed = set(current)
    for number in needed_versions(history, cutoff_ms):
        needed |= folder.paths(_files(spark, table, number))
    listed = list(folder.files())
    if missing := current - {file.path for file in listed}:
        raise Unfit(
            f"table {table}: {len(missing)} of its files are not below {folder.location}, {min(missing)} is one"
        )
    unneeded = [file.path for file in unneeded_files(listed, needed, cutoff_ms)]
    if deletes:
        for path in unneeded:
            folder.delete(path)
    return unneeded


def needed_versions(history: Iterable[Version], cutoff_ms: int) -> Sequence[int]:
    """The versions whose files have to stay: the one current at the cutoff, and those that brought files back since.

    Files that other versions since then added are younger than the cutoff, and stay for that.
    """
    ordered = sorted(history)
    before = [version for version in ordered if version.committed_ms <= cutoff_ms]
    since = ordered[len(before) :]
    first = before[-1:] or ordered[:1]
    return [version.number for version in first + [one for one in since if one.operation in _BRING_BACK]]


def unneeded_files(listed: Iterable[File], needed: set[str], cutoff_ms: int) -> Iterator[File]:
    return (
        file for file in listed if file.path.endswith(_DATA) and file.changed_ms < cutoff_ms and file.path not in needed
    )


def _history(spark: "SparkSession", table: str) -> Sequence[Version]:
    rows = spark.sql(f"DESCRIBE HISTORY {table}").selectExpr("version", "unix_millis(timestamp)", "operation").collect()
    return [Version(int(row[0]), int(row[1]), str(row[2])) for row in rows]


def _files(spark: "SparkSession", table: str, version: int) -> Sequence[str]:
    """All files of a version, also those whose rows are all deleted."""
    return spark.sql(f"SELECT * FROM {table} VERSION AS OF {version}").inputFiles()  # noqa: S608 - the caller's session


class _Folder:
    """A table's folder, as Hadoop's file systems see it."""

    def __init__(self, spark: "SparkSession", location: str) -> None:
        self.location = location
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the only way to Hadoop's file systems
        context: Any = spark.sparkContext._jsc  # noqa: SLF001 - likewise
        self._root = self._path(location)
        self._system = self._root.getFileSystem(context.hadoopConfiguration())

    def paths(self, files: Iterable[str]) -> set[str]:
        """The files of a version, as they are named in a listing."""
        return {self._path(file).toUri().getPath() for file in files}

    def files(self) -> Iterator[File]:
        """All below the folder but for what is hidden, as the log is; folders of partitions are not."""
        folders = [self._root]
        while folders:
            for found in self._system.listStatus(folders.pop()):
                name = found.getPath().getName()
                if name.startswith(("_", ".")) and "=" not in name:
                    continue
                if found.isDirectory():
                    folders.append(found.getPath())
                else:
                    yield File(found.getPath().toUri().getPath(), found.getModificationTime())

    def delete(self, path: str) -> None:
        self._system.delete(self._jvm.org.apache.hadoop.fs.Path(path), False)  # noqa: FBT003 - Java has no names

    def _path(self, text: str) -> Any:  # noqa: ANN401 - an object of Java
        return self._jvm.org.apache.hadoop.fs.Path(text)
