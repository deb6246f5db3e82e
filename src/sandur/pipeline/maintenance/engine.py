"""The Spark side of a maintenance run: catalogs, sessions by the size of a table, job tags, and cancellation.

Spark reaches tables through a catalog server, as every engine does. The server knows the run, so that the receipts of
its commits name it.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import TableHealth
from sandur.errors import Unfit
from sandur.operations.lake import Lake
from sandur.operations.maintenance.planning import is_system
from sandur.operations.maintenance.requests import list_requests
from sandur.operations.policies import read_policies
from sandur.operations.published import PublishedDatasets
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.settings import Settings
from sandur.spark.sessions import (
    DELTA_PACKAGE,
    EXTENSIONS,
    ICEBERG_EXTENSIONS,
    PACKAGES,
    Connection,
    Versions,
)

_POOL: Final = "spark.scheduler.pool"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SIZE_CLASSES: Final = ((1_000, 4), (50_000, 32))
"""The shuffle partitions of tables with fewer files than this; larger tables have the most."""
_PARTITIONS_MAX: Final = 200
_CAUSES_MAX: Final = 20
_RUN: Final = "run"
_DELTA_EXTENSIONS: Final = "io.delta.sql.DeltaSparkSessionExtension"
_BUNDLES: Final = {"gs://": "iceberg-gcp-bundle", "az://": "iceberg-azure-bundle"}

CONFLICTS: Final = frozenset(
    {
        "org.apache.iceberg.exceptions.CommitFailedException",
        "org.apache.iceberg.exceptions.ValidationException",
        "io.delta.exceptions.ConcurrentAppendException",
        "io.delta.exceptions.ConcurrentDeleteDeleteException",
        "io.delta.exceptions.ConcurrentDeleteReadException",
        "io.delta.exceptions.ConcurrentTransactionException",
        "io.delta.exceptions.ConcurrentWriteException",
        "io.delta.exceptions.MetadataChangedException",
        "io.delta.exceptions.ProtocolChangedException",
    }
)
"""Java's exceptions that mean that a writer was faster."""


class SparkTable(NamedTuple):
    """A table in one session: the name for SQL, the catalog in Spark, and the name that procedures take."""

    session: SparkSession
    catalog: str
    full_name: str
    argument: str


class EngineNeeds(NamedTuple):
    """`is_needed`: a policy, a table property or a request lets maintenance change tables of users.

    `has_delta`: there are Delta tables. `has_own`: system tables need something.
    """

    is_needed: bool
    has_delta: bool
    has_own: bool = False


def engine_needs(settings: Settings) -> EngineNeeds:
    """Decided from the policies and from the health that was published last."""
    with BlockingLake(settings) as blocking:
        return blocking.wait(_needs(blocking.lake))


async def _needs(lake: Lake) -> EngineNeeds:
    published = lake.feature(PublishedDatasets)
    manifest = await published.manifest()
    tables = await published.table(manifest, "tables", ("format",))
    names = ("catalog", "namespace", "mode", "needs_json")
    health = await published.table(manifest, "table_health", names)
    running = [row for row in health.to_pylist() if row["mode"] == _RUN]
    own = [row for row in running if is_system(lake, row["catalog"], row["namespace"])]
    is_needed = len(own) < len(running)
    is_needed = is_needed or any(one.values.get("mode") == _RUN for one in (await read_policies(lake)).values())
    is_needed = is_needed or any(one.is_open for one in await list_requests(lake))
    has_own = any(row["needs_json"] != "[]" for row in own)
    return EngineNeeds(is_needed, "delta" in _values(tables, "format"), has_own)


def _values(table: Any, column: str) -> set[Any]:  # noqa: ANN401 - Arrow has no types
    return set(table.column(column).to_pylist())


def session_options(settings: Settings, *, with_delta: bool) -> dict[str, str]:
    """The options that a session must have from its start, so that it can maintain tables."""
    packages = [*Versions().packages(with_s3=settings.store.startswith("s3://"))]
    packages += [
        f"org.apache.iceberg:{name}:{Versions().iceberg}"
        for scheme, name in _BUNDLES.items()
        if settings.store.startswith(scheme)
    ]
    options = {EXTENSIONS: ICEBERG_EXTENSIONS}
    if with_delta:
        packages.append(DELTA_PACKAGE)
        options[EXTENSIONS] += f",{_DELTA_EXTENSIONS}"
        options["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return {PACKAGES: ",".join(packages), **options}


def session_refusal(spark: SparkSession) -> str:
    """Why a session cannot maintain tables; empty if it can."""
    if getattr(spark, "_sc", None) is None:
        return "maintenance needs a Spark driver in this process: Spark Connect (sc://…) is not enough"
    if ICEBERG_EXTENSIONS not in (spark.conf.get(EXTENSIONS, "") or ""):
        return (
            "this Spark session was started without Iceberg, because nothing let maintenance change tables then: "
            "start it again"
        )
    return ""


class Engine:
    """Sessions of one Spark application for one run; `connection` leads to the catalog server."""

    def __init__(self, spark: SparkSession, connection: Connection, run: str) -> None:
        if refusal := session_refusal(spark):
            raise Unfit(refusal)
        self._spark = spark
        self._context: Any = spark.sparkContext
        self._connection = connection
        self._run = run
        self._sessions: dict[tuple[int, str], tuple[SparkSession, str]] = {}
        self._lock = threading.Lock()  # Two catalogs of a session must not get the same name.
        self.application = str(self._context.applicationId)

    @property
    def connection(self) -> Connection:
        return self._connection

    def new_session(self) -> SparkSession:
        """A session of its own, for options that only one table needs."""
        return self._spark.newSession()

    def table(self, health: TableHealth) -> SparkTable:
        """The table in the session of its size class; the catalog is added to that session if it is not there yet."""
        session, catalog = self._session(health)
        parts = (*health.namespace.split("."), health.name)
        quoted = ".".join(_quoted(part) for part in parts)
        return SparkTable(session, catalog, f"{catalog}.{quoted}", quoted)

    def _session(self, health: TableHealth) -> tuple[SparkSession, str]:
        files = health.data_files or 0
        partitions = next((number for below, number in _SIZE_CLASSES if files < below), _PARTITIONS_MAX)
        with self._lock:
            key = (partitions, health.catalog)
            if key not in self._sessions:
                self._sessions[key] = self._new_catalog(partitions, health.catalog)
            return self._sessions[key]

    def _new_catalog(self, partitions: int, catalog: str) -> tuple[SparkSession, str]:
        session = next((one for (size, _), (one, _) in self._sessions.items() if size == partitions), None)
        session = session or self._spark.newSession()
        session.conf.set(_PARTITIONS, str(partitions))
        name = f"maintained_{len(self._sessions)}"
        properties = {**self._connection.properties, "cache-enabled": "false"}
        connection = replace(self._connection, name=name, warehouse=catalog, properties=properties)
        for option, value in connection.options().items():
            session.conf.set(option, value)
        return session, name

    @contextmanager
    def tagged(self, table_uuid: str) -> Iterator[str]:
        """The jobs that this thread starts in the block have a pool of their own, and the tags of run and table."""
        tag = f"{self._run}/{table_uuid}".replace(",", "_")
        self._context.setLocalProperty(_POOL, table_uuid)
        for one in (self._run, tag):
            self._context.addJobTag(one)
        try:
            yield tag
        finally:
            for one in (self._run, tag):
                self._context.removeJobTag(one)
            self._context.setLocalProperty(_POOL, None)

    def cancel(self) -> None:
        """Cancel every job of this run, and no other."""
        self._context.cancelJobsWithTag(self._run)

    def task_seconds(self, tag: str) -> float:
        """What the tasks of jobs with this tag have taken so far."""
        scala = self._context._jsc.sc()  # noqa: SLF001 - Python has no status of stages by tag
        store = scala.statusStore()
        jobs = scala.statusTracker().getJobIdsForTag(tag)
        return sum(sum(run_times_ms(store, job)) for job in jobs) / 1_000


def run_times_ms(store: Any, job: int) -> Iterator[int]:  # noqa: ANN401 - an object of Java
    """What the stages of a job took, without what Spark keeps no more, and without stages that were skipped."""
    with suppress(Py4JJavaError):
        stages = store.job(job).stageIds()
        for at in range(stages.length()):
            with suppress(Py4JJavaError):
                yield int(store.lastStageAttempt(stages.apply(at)).executorRunTime())


def java_classes(error: BaseException) -> Iterable[str]:
    """The names of the Java classes of an error and its causes, outermost first."""
    thrown = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if thrown is None:
            return
        yield str(thrown.getClass().getName())
        thrown = thrown.getCause()


def is_conflict(error: BaseException) -> bool:
    return any(name in CONFLICTS for name in java_classes(error))


SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)


def _quoted(part: str) -> str:
    return f"`{part.replace('`', '``')}`"
