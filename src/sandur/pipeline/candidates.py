"""What may be garbage: the objects that are old enough to be looked at, as rows for executors to visit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

from sandur.catalog.garbage import folders_in_use
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import Pointer
from sandur.errors import Unavailable
from sandur.operations.catalogs import list_catalogs
from sandur.pipeline.job import JobContext
from sandur.pipeline.publishing import Publication, named_files
from sandur.pipeline.receipt_rows import row_of
from sandur.pipeline.sources.files import FILES, FilesReader
from sandur.pipeline.sources.options import open_store_of
from sandur.pipeline.tables import COMMITS
from sandur.pipeline.tasks import frame_of
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
from sandur.pipeline.visiting import CANDIDATES, FOLDERS, KILLED, NOBODYS, PUBLISHED, SWEPT
from sandur.settings import seconds_of
from sandur.storage.contract import LIST_LIMIT_MAX, Listed, Stored, get_many
from sandur.storage.layout import Layout

POINTERS_AT_ONCE: Final = 500
RECEIPTS_AT_ONCE: Final = 500
_PENDING: Final = "pending_receipts"
_COMMITTED: Final = "committed_receipts"
_LISTED: Final = "key string, version string, size_bytes long, modified_ms long"
_OWNED: Final = "plain string, folder string, uuid string, state string, key string"
_FIRST_FILE: Final = r"/0{5,9}-[0-9a-f]{32}-[0-9a-f]{12}(\.gz)?\.metadata\.json$"
_COLUMNS: Final = [field.split()[0] for field in CANDIDATES.split(", ")]

Batches = Iterable[Any]


class Candidates:
    """The candidates of one run, of every kind. `problems` says what could not be looked for, and why."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._now_ms = context.clock.now_ms()
        self._kept: list[DataFrame] = []
        self.problems: list[str] = []

    def release(self) -> None:
        """What was kept for being read more than once is not needed any more."""
        for frame in self._kept:
            frame.unpersist()

    def all(self) -> DataFrame:
        frames = [self._swept(), self._receipts(), self._published(), *self._files_of_tables()]
        united = frames[0]
        for frame in frames[1:]:
            united = united.unionByName(frame)
        return united

    def owned_folders(self) -> DataFrame:
        """Every folder below the roots of the catalogs with metadata files of tables that may live, and whose it is.

        Unavailable when a catalog cannot be read.
        """
        return _by_folder(self._pointers())

    def _swept(self) -> DataFrame:
        """The objects that a janitor looks at one by one."""
        few: list[tuple[object, ...]] = []
        frames: list[DataFrame] = []
        for name, janitor in SWEPT.items():
            if name in {_PENDING, _COMMITTED}:
                continue
            folder = janitor.folder(self._context.layout)
            before_ms = self._now_ms - janitor.age_ms(self._context.settings)
            page = self._page(folder)
            if page is None:
                frames.append(self._of_kind(name, self._files(folder).where(F.col("modified_ms") <= before_ms)))
            else:
                few += [(name, *listed, "") for listed in page if listed.modified_ms <= before_ms]
        united = self._context.spark.createDataFrame(few, CANDIDATES)
        for frame in frames:
            united = united.unionByName(frame)
        return united

    def _receipts(self) -> DataFrame:
        """Receipts of attempts after a day; those of commits much later, and only if the history has or wants them."""
        settings = self._context.settings
        files = self._files(self._context.layout.events_folder())
        pending = files.where(F.col("key").contains("/pending/")).where(
            F.col("modified_ms") <= self._now_ms - SWEPT[_PENDING].age_ms(settings)
        )
        old = files.where(F.col("key").contains("/committed/")).where(
            F.col("modified_ms") <= self._now_ms - SWEPT[_COMMITTED].age_ms(settings)
        )
        if old.isEmpty():
            return self._of_kind(_PENDING, pending)
        history = Publication(self._context).read(COMMITS).select("commit_key")
        keyed = old.withColumn("commit_key", F.regexp_extract("key", r"/([0-9a-f]+)\.json$", 1))
        committed = keyed.join(history, on="commit_key", how="left_semi").select(*old.columns)
        others = keyed.join(history, on="commit_key", how="left_anti").select(*old.columns)
        own = others.mapInArrow(own_receipts(dict(self._context.source_options)), _LISTED)
        gone = committed.unionByName(own)
        return self._of_kind(_PENDING, pending).unionByName(self._of_kind(_COMMITTED, gone))

    def unnamed(self, files: DataFrame) -> DataFrame:
        """The files among those that runs wrote aside which no manifest names that counts, or counted lately."""
        followed_after_ms = self._now_ms - self._orphans_kept_ms()
        named = self._context.wait(named_files(self._context, followed_after_ms=followed_after_ms))
        frame = self._context.spark.createDataFrame([(key,) for key in named], "key string")
        return files.join(frame, on="key", how="left_anti")

    def _published(self) -> DataFrame:
        """What runs wrote aside and nobody reads: of runs that died or lost, and of those followed long ago."""
        before_ms = self._now_ms - self._orphans_kept_ms()
        files = self._files(self._context.layout.core_snapshots_folder()).where(F.col("modified_ms") <= before_ms)
        return self._of_kind(PUBLISHED, self.unnamed(files))

    def _files_of_tables(self) -> Sequence[DataFrame]:
        """Metadata files; none while a pointer or a catalog cannot be read, for nobody knows what is whose."""
        try:
            pointers = self._pointers().persist()
        except Unavailable as error:
            self.problems.append(f"no metadata files are looked at: {error}")
            return []
        self._kept.append(pointers)
        unread = pointers.where("state = ''").limit(1).collect()
        if unread:
            self.problems.append(f"no metadata files are looked at: {unread[0].key} cannot be read: {unread[0].folder}")
            return []
        folders = _by_folder(pointers)
        killed = self._with(pointers.where("state = 'killed'").select("key"), kind=KILLED, detail="")
        owned = self._with(folders, kind=FOLDERS)
        return [owned.select(*_COLUMNS), killed.select(*_COLUMNS), self._nobodys(folders)]

    def _nobodys(self, owned: DataFrame) -> DataFrame:
        """First files of tables where nobody has a file: what a create leaves that died before its pointer."""
        own = self._context.lake.locations.own.rstrip("/")
        before_ms = self._now_ms - self._orphans_kept_ms()
        files = self._files(self._context.layout.tables_folder()).where(F.col("key").rlike(_FIRST_FILE))
        located = files.where(F.col("modified_ms") <= before_ms).withColumn("key", F.concat(F.lit(f"{own}/"), "key"))
        placed = located.withColumn("plain", F.regexp_extract("key", r"^(.*)/[^/]+$", 1))
        return self._of_kind(NOBODYS, placed.join(owned.select("plain"), on="plain", how="left_anti"))

    def _pointers(self) -> DataFrame:
        roots = [normalize_location(one.root) for one in self._context.wait(list_catalogs(self._context.lake))]
        files = self._files(self._context.layout.pointers_folder())
        return files.select("key").mapInArrow(owned_files(dict(self._context.source_options), roots), _OWNED)

    def _page(self, prefix: str) -> Sequence[Listed] | None:
        """All that lies in a folder, if a page of a listing holds it; None when it takes executors to list it."""
        page = self._context.wait(self._context.open_store.store.list(prefix))
        return page if len(page) < LIST_LIMIT_MAX else None

    def _files(self, prefix: str) -> DataFrame:
        page = self._page(prefix)
        if page is not None:
            return self._context.spark.createDataFrame(list(page), _LISTED)
        reader = FilesReader({**self._context.source_options, "prefix": prefix})
        files = frame_of(self._context.spark, reader, FILES.spark_schema)
        return files.select("key", "version", "size_bytes", F.unix_millis("modified_at").alias("modified_ms"))

    def _of_kind(self, kind: str, files: DataFrame) -> DataFrame:
        return files.withColumns({"kind": F.lit(kind), "detail": F.lit("")}).select(*_COLUMNS)

    def _with(self, frame: DataFrame, **told: str) -> DataFrame:
        known = {"version": F.lit(""), "size_bytes": F.lit(0).cast("long"), "modified_ms": F.lit(0).cast("long")}
        return frame.withColumns({**known, **{name: F.lit(value) for name, value in told.items()}})

    def _orphans_kept_ms(self) -> int:
        return seconds_of(self._context.settings.orphan_retention) * 1_000


def _by_folder(pointers: DataFrame) -> DataFrame:
    living = pointers.where("plain is not null")
    uuids = F.sort_array(F.collect_set("uuid")).alias("uuids")
    grouped = living.groupBy("plain").agg(F.min("folder").alias("key"), uuids)
    return grouped.select("plain", "key", F.to_json(F.struct("uuids")).alias("detail"))


def own_receipts(options: Mapping[str, str]) -> Callable[[Batches], Iterator[Any]]:
    """What each task leaves of a list of receipts: those of the pipeline's commits to its own tables."""

    def read(batches: Batches) -> Iterator[Any]:
        with open_store_of(options) as open_store:
            for batch in batches:
                for start in range(0, batch.num_rows, RECEIPTS_AT_ONCE):
                    some = batch.slice(start, RECEIPTS_AT_ONCE)
                    keys = some.column("key").to_pylist()
                    found = open_store.wait(get_many(open_store.store, keys))
                    told = zip(keys, found, strict=True)
                    yield some.filter(pa.array([_is_own(open_store.layout, key, held) for key, held in told]))

    return read


def _is_own(layout: Layout, key: str, held: Stored | None) -> bool:
    row = row_of(layout, key, held.data) if held else {}
    return row.get("source") == "pipeline" and row.get("task_id") == SYSTEM_TABLES


def owned_files(options: Mapping[str, str], roots: Sequence[str]) -> Callable[[Batches], Iterator[Any]]:
    """What each task makes of the keys of pointers: a row for every folder that one has a file in, or for itself.

    A pointer that cannot be read has an empty `state`, and the reason in `folder`.
    """

    def read(batches: Batches) -> Iterator[Any]:
        with open_store_of(options) as open_store:
            for batch in batches:
                keys = batch.column("key").to_pylist()
                for start in range(0, len(keys), POINTERS_AT_ONCE):
                    some = keys[start : start + POINTERS_AT_ONCE]
                    found = open_store.wait(get_many(open_store.store, some))
                    rows = [
                        row
                        for key, held in zip(some, found, strict=True)
                        if held
                        for row in _rows(key, held.data, roots)
                    ]
                    yield _batch(rows)

    return read


def _rows(key: str, data: bytes, roots: Sequence[str]) -> list[tuple[str | None, ...]]:
    try:
        pointer = msgspec.json.decode(data, type=Pointer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [(None, str(error), None, "", key)]
    folders = folders_in_use([pointer], roots=roots)
    if not folders:
        return [(None, None, pointer.uuid, pointer.state, key)]
    return [(plain, folder.location, pointer.uuid, pointer.state, key) for plain, folder in folders.items()]


def _batch(rows: Sequence[tuple[str | None, ...]]) -> pa.RecordBatch:
    names = [field.split()[0] for field in _OWNED.split(", ")]
    arrays = [pa.array([row[at] for row in rows], type=pa.string()) for at in range(len(names))]
    return pa.RecordBatch.from_arrays(arrays, names=names)
