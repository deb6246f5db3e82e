"""`collect-garbage`: find objects that nothing refers to, and delete them; a dry run by default.

Every candidate is visited first in a dry run, in which the janitors act on a store that discards writes. Without
`--dry-run`, the candidates that would have changed are visited again on the real store, up to a limit per run.
"""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Final

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.garbage import OWN_FILE
from sandur.catalog.locations import normalize_location
from sandur.errors import SandurError, Unavailable
from sandur.operations.containers.catalogs import list_catalogs
from sandur.operations.dry_run import open_dry_run
from sandur.operations.feed import AUDIT_BATCHES, RECEIPTS
from sandur.operations.feed_readers import trim_feed
from sandur.operations.janitors import purge
from sandur.operations.lake import Lake
from sandur.pipeline.executor_tasks.collect import (
    ABANDONED,
    CANDIDATES,
    FOLDERS,
    JANITORS_BY_NAME,
    KILLED,
    KINDS,
    OBJECTS,
    OWNED,
    PUBLISHED,
    RECORDS_AT_ONCE,
    VISITED,
    FolderDetail,
    collect_task,
    own_receipts,
    owners_task,
)
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import Publication, bump_manifest, referenced_files
from sandur.pipeline.sources.range_reader import SandurFiles, read_frame
from sandur.pipeline.tables import CHANGES, COMMITS
from sandur.pipeline.tasks import column_names, lake_task, parallelism
from sandur.settings import seconds_of
from sandur.storage.contract import LIST_LIMIT_MAX, Listed
from sandur.storage.layout import COMMITTED

NAME: Final = "collect-garbage"
WARNINGS_MAX: Final = 20
PURGE_PARTS_MAX: Final = 10_000
_COMMITTED: Final = "committed_receipts"
_FIRST_FILE: Final = rf"/0{{5,9}}-{OWN_FILE}$"
_CHANGES: Final = ("removed", "settled")
_COLUMNS: Final = column_names(CANDIDATES)


def run(context: JobContext) -> JobReport:
    """Visit all candidates, then delete the garbage unless this is a dry run; report counts by kind."""
    collection = _Collection(context)
    rehearsed = collection.rehearse()
    if not context.dry_run:
        collection.act(rehearsed)
    collection.purge()
    collection.trim_feeds()
    return context.report(
        NAME,
        counts={name: times for name, times in sorted(collection.counts.items()) if times},
        warnings=collection.warnings[:WARNINGS_MAX],
    )


class _Candidates:
    """The candidates of one run, of every kind. `problems` names what could not be searched, and why."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._now_ms = context.clock.now_ms()
        self._orphaned_ms = self._now_ms - seconds_of(context.settings.orphan_retention) * 1_000
        self.problems: list[str] = []

    def all(self) -> DataFrame:
        frames = [self._of_janitors(), self._receipts(), self._published(), *self._files_of_tables()]
        return reduce(DataFrame.unionByName, frames)

    def unreferenced(self, files: DataFrame) -> DataFrame:
        """The published files that neither the current manifest nor a recently replaced one refers to."""
        keys = self._context.wait(referenced_files(self._context, replaced_after_ms=self._orphaned_ms))
        frame = self._context.spark.createDataFrame([(key,) for key in keys], "key string")
        return files.join(frame, on="key", how="left_anti")

    def _of_janitors(self) -> DataFrame:
        """The objects that a janitor visits one by one."""
        few: list[tuple[object, ...]] = []
        frames: list[DataFrame] = []
        for name, janitor in JANITORS_BY_NAME.items():
            if name == _COMMITTED:
                continue
            folder, before_ms = janitor.folder(self._context.layout), self._before_ms(name)
            page = self._page(folder)
            if page is None:
                frames.append(self._of_kind(name, self._files(folder).where(F.col("modified_ms") <= before_ms)))
            else:
                few += [(name, *listed, "") for listed in page if listed.modified_ms <= before_ms]
        return reduce(DataFrame.unionByName, [self._context.spark.createDataFrame(few, CANDIDATES), *frames])

    def _receipts(self) -> DataFrame:
        """Receipts after their retention, once `commits` or `changes` has them."""
        files = self._files(self._context.layout.events_folder())
        is_receipt = F.col("key").contains(f"/{COMMITTED}/")
        old = files.where(is_receipt & (F.col("modified_ms") <= self._before_ms(_COMMITTED)))
        if old.isEmpty():
            return self._of_kind(_COMMITTED, old)
        publication = Publication(self._context)
        commits, changes = (publication.read(shape).select("commit_key") for shape in (COMMITS, CHANGES))
        history = commits.unionByName(changes)
        keyed = old.withColumn("commit_key", F.regexp_extract("key", r"/([0-9a-f]+)\.json$", 1))
        committed = keyed.join(history, on="commit_key", how="left_semi").select(*old.columns)
        others = keyed.join(history, on="commit_key", how="left_anti").select(*old.columns)
        own = lake_task(self._context.source_options, own_receipts, rows_at_once=RECORDS_AT_ONCE)
        garbage = committed.unionByName(others.mapInArrow(own, OBJECTS))
        return self._of_kind(_COMMITTED, garbage)

    def _published(self) -> DataFrame:
        """Published files without a reference: of failed runs, and of manifests that were replaced long ago."""
        files = self._files(self._context.layout.core_snapshots_folder())
        return self._of_kind(PUBLISHED, self.unreferenced(files.where(F.col("modified_ms") <= self._orphaned_ms)))

    def _files_of_tables(self) -> Sequence[DataFrame]:
        """Metadata files; none while a pointer or a catalog is unreadable, because owners are unknown then."""
        try:
            owners = self._context.persist(self.owners())
        except Unavailable as error:
            self.problems.append(f"metadata files are skipped: {error}")
            return []
        unreadable = owners.where("state = ''").limit(1).collect()
        if unreadable:
            self.problems.append(
                f"metadata files are skipped: {unreadable[0].key} cannot be read: {unreadable[0].folder}"
            )
            return []
        folders = _by_folder(owners)
        killed = self._without_object(owners.where("state = 'killed'").select("key"), kind=KILLED, detail="")
        owned = self._without_object(folders, kind=FOLDERS)
        return [owned.select(*_COLUMNS), killed.select(*_COLUMNS), self._abandoned(folders)]

    def _abandoned(self, owned: DataFrame) -> DataFrame:
        """First metadata files in folders without an owner: creates that died before they wrote a pointer."""
        own = self._context.lake.locations.own.rstrip("/")
        files = self._files(self._context.layout.tables_folder()).where(F.col("key").rlike(_FIRST_FILE))
        old = files.where(F.col("modified_ms") <= self._orphaned_ms)
        located = old.withColumn("key", F.concat(F.lit(f"{own}/"), "key"))
        placed = located.withColumn("plain", F.regexp_extract("key", r"^(.*)/[^/]+$", 1))
        return self._of_kind(ABANDONED, placed.join(owned.select("plain"), on="plain", how="left_anti"))

    def owners(self) -> DataFrame:
        """The owners of metadata files; raises Unavailable if a catalog cannot be read."""
        roots = [normalize_location(one.root) for one in self._context.wait(list_catalogs(self._context.lake))]
        files = self._files(self._context.layout.pointers_folder())
        return files.select("key").mapInArrow(owners_task(self._context.source_options, roots), OWNED)

    def _page(self, prefix: str) -> Sequence[Listed] | None:
        """The content of a folder; None if it does not fit into one page and executors should list it."""
        page = self._context.wait(self._context.lake.store.list(prefix))
        return page if len(page) < LIST_LIMIT_MAX else None

    def _files(self, prefix: str) -> DataFrame:
        page = self._page(prefix)
        if page is not None:
            return self._context.spark.createDataFrame(list(page), OBJECTS)
        source = SandurFiles({**self._context.source_options, "prefix": prefix})
        files = read_frame(self._context.spark, source)
        return files.select("key", "version", "size_bytes", F.unix_millis("modified_at").alias("modified_ms"))

    def _of_kind(self, kind: str, files: DataFrame) -> DataFrame:
        return files.withColumns({"kind": F.lit(kind), "detail": F.lit("")}).select(*_COLUMNS)

    def _without_object(self, frame: DataFrame, **values: str) -> DataFrame:
        """Candidates that are not one object: a folder, or the file that a pointer names."""
        empty = {"version": F.lit(""), "size_bytes": F.lit(0).cast("long"), "modified_ms": F.lit(0).cast("long")}
        return frame.withColumns({**empty, **{name: F.lit(value) for name, value in values.items()}})

    def _before_ms(self, janitor: str) -> int:
        """Objects that are older than this are the janitor's."""
        return self._now_ms - JANITORS_BY_NAME[janitor].age_ms(self._context.settings)


def _by_folder(owners: DataFrame) -> DataFrame:
    living = owners.where("plain is not null")
    uuids = F.sort_array(F.collect_set("uuid")).alias("uuids")
    grouped = living.groupBy("plain").agg(F.min("folder").alias("key"), uuids)
    return grouped.select("plain", "key", F.to_json(F.struct("uuids")).alias("detail"))


class _Collection:
    """One run. `budget` is the number of objects that it may still change."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._candidates = _Candidates(context)
        self._found = 0
        self.counts: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.budget = context.limits.objects_deleted_max

    def rehearse(self) -> DataFrame:
        """Visit every candidate in a dry run, whose outcomes a dry run of the job reports."""
        self._context.progress("visit all candidates")
        rehearsed = self._context.persist(self._visit(self._candidates.all(), dry_run=True))
        self.warnings += self._candidates.problems
        totals = rehearsed.groupBy("kind", "outcome").agg(F.sum("objects"), F.sum("freed_bytes")).collect()
        for kind, outcome, objects, freed_bytes in totals:
            if self._context.dry_run or outcome == "kept":
                self._count(kind, outcome, objects, freed_bytes)
            elif outcome in _CHANGES:
                self._found += objects
        failed = rehearsed.where("outcome = 'failed'").limit(WARNINGS_MAX).collect()
        self.warnings += [f"{row.kind} {row.key}: {row.problem}" for row in failed]
        return rehearsed

    def act(self, rehearsed: DataFrame) -> None:
        """Visit again, on the real store, what the dry run would have changed; in the order of KINDS."""
        changes = rehearsed.where(F.col("outcome").isin(*_CHANGES))
        present = {row.kind for row in changes.select("kind").distinct().collect()}
        allowed = self.budget
        for kind in KINDS:
            if kind in present and self.budget > 0:
                self._context.check_fence()
                self._context.progress(f"collect {kind.replace('_', ' ')}")
                self._act_on(changes.where(F.col("kind") == kind).orderBy("key").limit(self.budget), kind)
        self.counts["left_for_later"] = max(0, self._found - (allowed - self.budget))

    def purge(self) -> None:
        """Work off the queue of dropped tables to purge, on the driver, because it goes table by table.

        The whole queue is read, part by part: blocked orders stay at its front for weeks.
        """

        def warn(what: str, error: SandurError) -> None:
            self.warnings.append(f"purge of {what}: {error}")

        self._context.progress("purge dropped tables")
        position = ""
        for _ in range(PURGE_PARTS_MAX):
            if self.budget <= 0:
                return
            self._context.check_fence()
            swept = self._context.wait(purge.run_purge_queue(self._purge_lake(), position=position, on_error=warn))
            self.counts.update({f"purge_{outcome}": times for outcome, times in swept.counts.items()})
            self.budget -= swept.counts.get("files_removed", 0)
            position = swept.position
            if not position:
                return

    def trim_feeds(self) -> None:
        """Remove the oldest entries of the feeds, which no reader needs any more; on the driver, as they are few."""
        self._context.progress("trim the feeds")
        for log in (RECEIPTS, AUDIT_BATCHES):
            if self.budget <= 0:
                return
            self._context.check_fence()
            try:
                trimmed = self._context.wait(trim_feed(self._writable_lake(), log, entries_max=self.budget))
            except SandurError as error:
                self.warnings.append(f"{log.name} is not trimmed: {error}")
                continue
            kind = log.name.replace("-", "_")
            self._count(f"{kind}_entries", "removed", trimmed.entries_removed, 0)
            self.counts[f"{kind}_receipts_carried"] += trimmed.receipts_carried
            self.counts[f"{kind}_readers_forgotten"] += len(trimmed.readers_forgotten)
            self.budget -= trimmed.entries_removed
            self.warnings += [
                f"{log.name}: reader {name} was not seen for feed_reader_retention; the feed does not wait for it"
                for name in trimmed.readers_forgotten
            ]

    def _act_on(self, changes: DataFrame, kind: str) -> None:
        frame = changes
        if kind == FOLDERS:
            frame = self._still_owned(self._within_budget(changes.collect()))
        elif kind == PUBLISHED:
            # Every pending publication loses its swap (GC1): no manifest will ever refer to these files.
            self._context.wait(bump_manifest(self._context))
            frame = self._candidates.unreferenced(changes)
        done = self._visit(frame.select(*_COLUMNS), dry_run=False)
        for row in done.groupBy("outcome").agg(F.sum("objects"), F.sum("freed_bytes"), F.max("problem")).collect():
            outcome, objects, freed_bytes, problem = row
            self._count(kind, outcome, objects, freed_bytes)
            if outcome in _CHANGES:
                self.budget -= objects
            if outcome == "failed":
                self.warnings.append(f"{kind}: {objects} failed, for example: {problem}")

    def _within_budget(self, rows: Sequence[Row]) -> DataFrame:
        """Folders, limited to as many files in all as may still be deleted."""
        room = self.budget
        kept: list[tuple[object, ...]] = []
        for row in rows:
            folder = msgspec.json.decode(row.detail, type=FolderDetail)
            names = (folder.names or ())[:room]
            room -= len(names)
            detail = msgspec.json.encode(FolderDetail(folder.uuids, names)).decode()
            kept.append((*(row[name] for name in _COLUMNS[:-1]), detail))
        return self._context.spark.createDataFrame(kept, CANDIDATES)

    def _still_owned(self, folders: DataFrame) -> DataFrame:
        """The folders that belong to the same tables as at the time of the listing.

        A table that moved into a folder since then wrote nothing that was listed, but may refer to listed files.
        """
        uuids = F.get_json_object("detail", "$.uuids").alias("uuids")
        owned = _by_folder(self._candidates.owners()).select("key", uuids)
        return folders.select("*", uuids).join(owned, on=["key", "uuids"], how="left_semi")

    def _visit(self, candidates: DataFrame, *, dry_run: bool) -> DataFrame:
        task = collect_task(self._context.source_options, dry_run=dry_run)
        return candidates.repartition(parallelism(self._context.spark)).mapInArrow(task, VISITED)

    def _writable_lake(self) -> Lake:
        """The lake to change; in a dry run, one that discards writes."""
        return open_dry_run(self._context.lake) if self._context.dry_run else self._context.lake

    def _purge_lake(self) -> Lake:
        """A lake whose janitors delete no more than the budget."""
        lake = self._writable_lake()
        return Lake(
            store=lake.store,
            layout=lake.layout,
            clock=lake.clock,
            settings=replace(lake.settings, janitor_objects_max=self.budget),
            locations=lake.locations,
        )

    def _count(self, kind: str, outcome: str, objects: int, freed_bytes: int) -> None:
        self.counts[f"{kind}_{outcome}"] += objects
        self.counts["freed_bytes"] += freed_bytes


COLLECT_GARBAGE: Final = Job(NAME, "Delete objects that nothing refers to, after a day.", run, deletes=True)
