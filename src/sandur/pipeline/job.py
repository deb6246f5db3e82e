"""A job of the pipeline: its name, the context that it runs in, and the report of a run."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession

from sandur.clock import Clock
from sandur.operations.lake import Lake
from sandur.operations.published import CorePointer
from sandur.pipeline.blocking_lake import BlockingLake, lake_options
from sandur.pipeline.sources import register_sources
from sandur.settings import Settings
from sandur.spark.sessions import Connection
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout

T = TypeVar("T")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run may do. The next run continues with the rest."""

    objects_deleted_max: int = 10_000
    log_depth_max: int = 1_000
    files_retried_max: int = 1_000
    tables_imported_max: int = 200_000


class WrittenTable(NamedTuple):
    """A commit to a system table."""

    dataset: str
    table_uuid: str
    snapshot_id: int
    commit_key: str
    rows: int


class Progress(Protocol):
    """Receives each step of a run when it begins, and of one with parts, how many of them are done."""

    def __call__(self, step: str, *, done: int = 0, total: int | None = None) -> None: ...


def no_progress(step: str, *, done: int = 0, total: int | None = None) -> None:
    """Ignore the progress."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. `manifest` is the key of the manifest that it published; None if it published nothing.

    `exit_code` is that of a command that runs this job by its name: not 0 if a run that succeeded calls for action.
    """

    job: str
    run_id: str
    dry_run: bool = False
    counts: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    manifest: str | None = None
    sequence: int | None = None
    took_ms: int = 0
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """Everything that a job needs, until the `with` block ends.

    Storage is asynchronous and Spark's driver is not: `wait` runs one coroutine to its end. Jobs call `check_fence`
    before they publish or delete; it raises Conflict if another run took over the lease.
    """

    spark: SparkSession
    blocking: BlockingLake
    run_id: str
    progress: Progress = no_progress
    dry_run: bool = False
    limits: Limits = field(default_factory=Limits)
    check_fence: Callable[[], None] = lambda: None
    # Arguments beyond the settings, such as the location to crawl; each job defines its own.
    arguments: Mapping[str, str] = field(default_factory=dict)
    _persisted: list[DataFrame] = field(default_factory=list)
    read_datasets: set[str] = field(default_factory=set)
    """The published datasets that this run has read."""
    written: list[WrittenTable] = field(default_factory=list)
    """The commits of this run to system tables."""
    open_catalog: Callable[[str], AbstractContextManager[Connection]] | None = None
    """Opens a catalog server for the Spark of a run, until the block ends; None if Spark gets no access to tables."""
    connect_store: Callable[[], ObjectStore | None] = lambda: None
    """Opens the store for the lake of another thread; None for the store of the settings."""

    @property
    def settings(self) -> Settings:
        return self.lake.settings

    @property
    def layout(self) -> Layout:
        return self.lake.layout

    @property
    def clock(self) -> Clock:
        return self.lake.clock

    @property
    def lake(self) -> Lake:
        return self.blocking.lake

    @property
    def source_options(self) -> dict[str, str]:
        """The options with which executors open the same lake."""
        return lake_options(self.settings)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.blocking.wait(work)

    def another_lake(self) -> BlockingLake:
        """The same lake for another thread, with a store and an event loop of its own."""
        return BlockingLake(self.settings, clock=self.clock, store=self.connect_store())

    def persist(self, frame: DataFrame) -> DataFrame:
        """Persist a frame that the job uses several times, until the run ends."""
        self._persisted.append(frame.persist())
        return frame

    def __enter__(self) -> Self:
        register_sources(self.spark)
        return self

    def __exit__(self, *error: object) -> None:
        for frame in self._persisted:
            frame.unpersist()
        self.blocking.close()

    def report(
        self,
        job: str,
        *,
        counts: dict[str, int],
        warnings: Sequence[str] = (),
        published: CorePointer | None = None,
    ) -> JobReport:
        """The report of this run; `published` is the pointer that it swapped in."""
        return JobReport(
            job=job,
            run_id=self.run_id,
            dry_run=self.dry_run,
            counts=counts,
            warnings=tuple(warnings),
            manifest=published.manifest if published else None,
            sequence=published.sequence if published else None,
        )


class Job(NamedTuple):
    """One job. `deletes`: it deletes objects, so a run is a dry run by default.

    `reads` is what it reads from the store, besides published datasets.
    """

    name: str
    summary: str
    run: Callable[[JobContext], JobReport]
    deletes: bool = False
    reads: tuple[str, ...] = ()
