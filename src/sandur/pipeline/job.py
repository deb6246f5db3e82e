"""What a job is: a name, what it is given, and what it says when it is done."""

import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from pyspark.sql import SparkSession

from sandur.clock import Clock
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import BlockingLake, lake_options
from sandur.pipeline.sources import register_sources
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout

T = TypeVar("T")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run may do at once. What is left over is done by the next run."""

    objects_deleted_max: int = 10_000
    log_depth_max: int = 1_000
    files_retried_max: int = 1_000
    tables_imported_max: int = 200_000


class Progress(Protocol):
    """Hears how far a run has come."""

    def __call__(self, step: str, done: int = 0, total: int | None = None) -> None:
        """A step has begun, or has come so far; `total` None when nobody knows how far it goes."""
        ...


def no_progress(step: str, done: int = 0, total: int | None = None) -> None:
    """For runs that nobody watches."""


def _never_fenced() -> None:
    """For runs that have no rivals."""


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """What a job works with.

    Storage is asynchronous and Spark's driver is not: `wait` runs one piece of asynchronous work to its end.
    `check_fence` is called before anything is published or deleted; it raises Conflict when another run took over.
    """

    spark: SparkSession
    open_store: BlockingLake
    run_id: str
    progress: Progress = no_progress
    dry_run: bool = False
    limits: Limits = field(default_factory=Limits)
    check_fence: Callable[[], None] = _never_fenced
    # What this run is told beyond the settings, such as which location to crawl; each job names its own.
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.open_store.settings

    @property
    def layout(self) -> Layout:
        return self.open_store.layout

    @property
    def clock(self) -> Clock:
        return self.open_store.clock

    @property
    def lake(self) -> Lake:
        return self.open_store.lake

    @property
    def source_options(self) -> Mapping[str, str]:
        """What the data sources are told, so that executors open the same store."""
        return lake_options(self.settings, self.layout)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.open_store.wait(work)


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did: how many of what, what somebody should look at, and what is published now.

    `manifest` is the key of the immutable manifest that was swapped in; None when nothing new was published.
    """

    job: str
    run_id: str
    dry_run: bool = False
    counts: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    manifest: str | None = None
    sequence: int | None = None
    took_ms: int = 0


class Job(NamedTuple):
    """One job. `deletes`: it takes things away, so that a run is dry unless it is told otherwise."""

    name: str
    summary: str
    run: Callable[[JobContext], JobReport]
    deletes: bool = False


@contextlib.contextmanager
def job_context(  # noqa: PLR0913 - one parameter per thing a run is told
    spark: SparkSession,
    settings: Settings,
    *,
    run_id: str,
    clock: Clock | None = None,
    store: ObjectStore | None = None,
    progress: Progress = no_progress,
    dry_run: bool = False,
    limits: Limits | None = None,
    check_fence: Callable[[], None] = _never_fenced,
    arguments: Mapping[str, str] | None = None,
) -> Iterator[JobContext]:
    """The context of a run on the store of the settings, closed when the run ends."""
    register_sources(spark)
    layout = Layout(settings.tenant or "default", settings.workspace or "default")
    with BlockingLake(settings, layout, clock=clock, store=store) as open_store:
        yield JobContext(
            spark=spark,
            open_store=open_store,
            run_id=run_id,
            progress=progress,
            dry_run=dry_run,
            limits=limits or Limits(),
            check_fence=check_fence,
            arguments=arguments or {},
        )
