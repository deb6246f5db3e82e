"""`collect-garbage`: find objects that nothing refers to, and delete them; a dry run unless told otherwise.

Everything is looked at twice: first in a rehearsal, in which the janitors do all they would do to a store that only
pretends; then, if this is no dry run, what they would have changed is visited again in earnest, at most so much a run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

from sandur.catalog.garbage import folders_in_use
from sandur.catalog.locations import normalize_location
from sandur.catalog.records import Pointer
from sandur.errors import SandurError, Unavailable
from sandur.operations.containers.catalogs import list_catalogs
from sandur.operations.dry_run import open_dry_run
from sandur.operations.janitors import purge
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.executor_tasks.collect import (
    ABANDONED,
    CANDIDATES,
    FOLDERS,
    JANITORS_BY_NAME,
    KILLED,
    KINDS,
    PUBLISHED,
    VISITED,
    FolderDetail,
    collect_task,
)
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Publication, bump_manifest, referenced_files
from sandur.pipeline.sources.range_reader import FILES, FilesReader
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.pipeline.tables import COMMITS
from sandur.pipeline.tasks import frame_of, parts_of
from sandur.pipeline.transforms.commits import SYSTEM_TABLES
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
        for name, janitor in JANITORS_BY_NAME.items():
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
            F.col("modified_ms") <= self._now_ms - JANITORS_BY_NAME[_PENDING].age_ms(settings)
        )
        old = files.where(F.col("key").contains("/committed/")).where(
            F.col("modified_ms") <= self._now_ms - JANITORS_BY_NAME[_COMMITTED].age_ms(settings)
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
        named = self._context.wait(referenced_files(self._context, followed_after_ms=followed_after_ms))
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
        return self._of_kind(ABANDONED, placed.join(owned.select("plain"), on="plain", how="left_anti"))

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
        with open_lake(options) as open_store:
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
        with open_lake(options) as open_store:
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


NAME: Final = "collect-garbage"
WARNINGS_MAX: Final = 20
PURGE_PARTS_MAX: Final = 10_000
_CHANGES: Final = ("removed", "settled")


def run(context: JobContext) -> JobReport:
    """Look at everything, then take away what can go, unless this is a dry run; the counts say what, by kind."""
    collection = _Collection(context)
    try:
        collection.look()
        if not context.dry_run:
            collection.act()
        collection.purge()
    finally:
        collection.release()
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts={name: times for name, times in sorted(collection.counts.items()) if times},
        warnings=tuple(collection.warnings[:WARNINGS_MAX]),
    )


class _Collection:
    """One run. `left` is how many objects it may still change."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._candidates = Candidates(context)
        self._looked: DataFrame | None = None
        self._found = 0
        self.counts: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.left = context.limits.objects_deleted_max

    def look(self) -> None:
        """Rehearse everything. What is seen here is what a dry run reports."""
        self._context.progress("look at everything")
        self._looked = self._visited(self._candidates.all(), rehearses=True).persist()
        self.warnings += self._candidates.problems
        totals = self._looked.groupBy("kind", "outcome").agg(F.sum("objects"), F.sum("freed_bytes")).collect()
        for kind, outcome, objects, freed_bytes in totals:
            if self._context.dry_run or outcome == "kept":
                self._count(kind, outcome, objects, freed_bytes)
            elif outcome in _CHANGES:
                self._found += objects
        self._warn(self._looked.where("outcome = 'failed'").limit(WARNINGS_MAX).collect())

    def act(self) -> None:
        """What the rehearsal would have changed is visited again, kind by kind: what others lean on comes first."""
        if self._looked is None:
            return
        changes = self._looked.where(F.col("outcome").isin(*_CHANGES))
        present = {row.kind for row in changes.select("kind").distinct().collect()}
        allowed = self.left
        for kind in KINDS:
            if kind in present and self.left > 0:
                self._context.check_fence()
                self._context.progress(f"collect {kind.replace('_', ' ')}")
                self._act_on(changes.where(F.col("kind") == kind).orderBy("key").limit(self.left), kind)
        self.counts["left_for_later"] = max(0, self._found - (allowed - self.left))

    def purge(self) -> None:
        """The queue of dropped tables whose files are to go; here, for it is one table after the other.

        All of it, part by part: orders that are blocked stay in front for weeks.
        """
        self._context.progress("purge dropped tables")
        position = ""
        for _ in range(PURGE_PARTS_MAX):
            if self.left <= 0:
                return
            self._context.check_fence()
            swept = self._context.wait(purge.run_purge_queue(self._purging(), position=position, tell=self._tell))
            self.counts.update({f"purge_{outcome}": times for outcome, times in swept.counts.items()})
            self.left -= swept.counts.get("files_removed", 0)
            position = swept.position
            if not position:
                return

    def release(self) -> None:
        self._candidates.release()
        if self._looked is not None:
            self._looked.unpersist()

    def _act_on(self, changes: DataFrame, kind: str) -> None:
        frame = changes
        if kind == FOLDERS:
            frame = self._still_owned(self._at_most(changes.collect()))
        elif kind == PUBLISHED:
            frame = self._still_unnamed(changes)
        done = self._visited(frame.select(*_COLUMNS), rehearses=False)
        for row in done.groupBy("outcome").agg(F.sum("objects"), F.sum("freed_bytes"), F.max("problem")).collect():
            outcome, objects, freed_bytes, problem = row
            self._count(kind, outcome, objects, freed_bytes)
            if outcome in _CHANGES:
                self.left -= objects
            if outcome == "failed":
                self.warnings.append(f"{kind}: {objects} failed, such as {problem}")

    def _at_most(self, rows: Sequence[Row]) -> DataFrame:
        """Folders with as many files in all as may still be deleted."""
        room = self.left
        kept: list[tuple[object, ...]] = []
        for row in rows:
            told = msgspec.json.decode(row.detail, type=FolderDetail)
            names = (told.names or ())[:room]
            room -= len(names)
            detail = msgspec.json.encode(FolderDetail(told.uuids, names)).decode()
            kept.append((*(row[name] for name in _COLUMNS[:-1]), detail))
        return self._context.spark.createDataFrame(kept, CANDIDATES)

    def _still_owned(self, folders: DataFrame) -> DataFrame:
        """Only folders that belong to the same tables as when their files were listed.

        A table that came to a folder since then has written nothing that was listed, but may have begun to need it.
        """
        owned = self._candidates.owned_folders().select("key", F.get_json_object("detail", "$.uuids").alias("uuids"))
        told = folders.withColumn("uuids", F.get_json_object("detail", "$.uuids"))
        return told.join(owned, on=["key", "uuids"], how="left_semi")

    def _still_unnamed(self, files: DataFrame) -> DataFrame:
        """Only files that no manifest will ever name: first every swap is made to lose that would name one (GC1)."""
        self._context.wait(bump_manifest(self._context))
        return self._candidates.unnamed(files)

    def _visited(self, candidates: DataFrame, *, rehearses: bool) -> DataFrame:
        visit = collect_task(dict(self._context.source_options), rehearses=rehearses)
        tasks = parts_of(self._context.spark)
        return candidates.repartition(tasks).mapInArrow(visit, VISITED)

    def _purging(self) -> Lake:
        """A workspace that deletes no more than this run may, or only pretends to."""
        lake = self._context.lake
        held = open_dry_run(lake) if self._context.dry_run else lake
        return Lake(
            store=held.store,
            layout=held.layout,
            clock=held.clock,
            settings=replace(held.settings, janitor_objects_max=self.left),
            locations=held.locations,
        )

    def _count(self, kind: str, outcome: str, objects: int, freed_bytes: int) -> None:
        self.counts[f"{kind}_{outcome}"] += objects
        self.counts["freed_bytes"] += freed_bytes

    def _tell(self, what: str, error: SandurError) -> None:
        self.warnings.append(f"purge of {what}: {error}")

    def _warn(self, rows: Sequence[Row]) -> None:
        self.warnings += [f"{row.kind} {row.key}: {row.problem}" for row in rows]


COLLECT_GARBAGE: Final = Job(NAME, "What nobody needs is taken away, after a look and a day.", run, deletes=True)
