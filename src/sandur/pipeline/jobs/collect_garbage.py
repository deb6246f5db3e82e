"""`collect-garbage`: what nobody needs is found by executors and taken away, mark, look and act; dry unless told.

Everything is looked at twice: first in a rehearsal, in which the janitors do all they would do to a store that only
pretends; then, if this is no dry run, what they would have changed is visited again in earnest, at most so much a run.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

from sandur.errors import SandurError
from sandur.operations.janitors import purge
from sandur.operations.lake import Lake
from sandur.operations.rehearsing import rehearsal
from sandur.pipeline.candidates import Candidates
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import bump_manifest
from sandur.pipeline.tasks import parts_of
from sandur.pipeline.visiting import CANDIDATES, FOLDERS, KINDS, PUBLISHED, VISITED, FolderDetail, visitor

NAME: Final = "collect-garbage"
WARNINGS_MAX: Final = 20
PURGE_PARTS_MAX: Final = 10_000
_CHANGES: Final = ("removed", "settled")
_COLUMNS: Final = [field.split()[0] for field in CANDIDATES.split(", ")]


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
            swept = self._context.wait(purge.work_off(self._purging(), position=position, tell=self._tell))
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
        visit = visitor(dict(self._context.source_options), rehearses=rehearses)
        tasks = parts_of(self._context.spark)
        return candidates.repartition(tasks).mapInArrow(visit, VISITED)

    def _purging(self) -> Lake:
        """A workspace that deletes no more than this run may, or only pretends to."""
        lake = self._context.lake
        held = rehearsal(lake) if self._context.dry_run else lake
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
