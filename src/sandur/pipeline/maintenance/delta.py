"""Operations on Delta tables. This is the only module that uses classes of Delta that are not public.

OPTIMIZE by SQL comes first. Delta 4.4 refuses it on managed tables, although this catalog permits it; there, the class
behind that statement does the same work, and its commit goes through the catalog as every other one.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.health import Operation, TableHealth
from sandur.catalog.maintenance.measures import small_file_bytes
from sandur.catalog.maintenance.policies import Compaction, Policy
from sandur.catalog.maintenance.records import Measure, OperationResult
from sandur.catalog.records import DeltaTable
from sandur.delta.requests import DeltaChange
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.publishing import publish_commits
from sandur.operations.delta.tables import find_by_id
from sandur.operations.lake import Lake
from sandur.operations.maintenance.delta_health import log_position
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.maintenance.engine import SPARK_ERRORS, Engine, java_classes
from sandur.pipeline.maintenance.evidence import (
    RowsDiffer,
    Unsettled,
    compacted,
    compactions_of,
    identifier_of,
    request_of,
)
from sandur.spark.sessions import Connection

_UNITY: Final = "io.unitycatalog.spark.UCSingleCatalog"
"""Unity Catalog's connector. Delta takes the address of a server only from options of a catalog of this class."""
_ICEBERG: Final = "org.apache.iceberg.spark.SparkCatalog"
"""Resolves the name of the catalog where the connector is missing; Delta asks it for nothing else."""
_REFUSAL: Final = "org.apache.spark.sql.delta.DeltaUnsupportedOperationException"
_EXISTS: Final = "io.delta.kernel.exceptions.CheckpointAlreadyExistsException"
_OPTIMIZE: Final = "spark.databricks.delta.optimize"
_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_NO_DELTA: Final = "Spark was started without Delta, because no Delta table was published then: start it again"
_REGISTRATION: Final = threading.Lock()


class DeltaMaintenance:
    """Delta tables in one run."""

    def __init__(self, engine: Engine, run: str) -> None:
        self._engine = engine
        self._run = run

    def perform(
        self, blocking: BlockingLake, health: TableHealth, policy: Policy, operation: Operation
    ) -> OperationResult:
        """Carry out an operation. Errors of Spark and of the catalog are raised; the table is whole in every case."""
        table = blocking.wait(find_by_id(blocking.lake, health.uuid)).value
        match operation:
            case "publish":
                published = blocking.wait(self._publish(blocking.lake, health, table))
                before, after = Measure(version=table.published), Measure(version=published)
                return OperationResult(before=before, after=after, reason=f"published up to version {published}")
            case "compaction" | "checkpoint":
                return self._on_spark(blocking, health, table, policy, operation)
            case _:
                return OperationResult(state="skipped", reason=f"{operation} is not for Delta tables")

    async def last_commit_ms(self, lake: Lake, health: TableHealth) -> int:
        """When the table was committed to, according to its log."""
        return (await log_position(lake, (await find_by_id(lake, health.uuid)).value)).committed_ms

    async def _publish(self, lake: Lake, health: TableHealth, table: DeltaTable) -> int:
        published = await publish_commits(lake, table)
        if published > table.published:
            change = DeltaChange(asserted_uuid=table.uuid, published=published)
            await update_table(lake, identifier_of(health), change, request_of(self._run, f"publish {published}"))
        return published

    def _on_spark(
        self, blocking: BlockingLake, health: TableHealth, table: DeltaTable, policy: Policy, operation: Operation
    ) -> OperationResult:
        session = self._engine.new_session()
        if not _has_delta(session):
            return OperationResult(state="failed", reason=_NO_DELTA)
        if operation == "checkpoint" and table.table_type == "MANAGED":
            version = checkpoint_by_kernel(session, self._engine.connection, health, table)
            return OperationResult(before=Measure(version=table.last_version), after=Measure(version=version))
        session.conf.set(_USER_METADATA, self._run)  # The commits name the run, also those that the catalog never sees.
        log = DeltaLog(session, self._engine.connection, health, table)
        before = log.measure()
        if operation == "checkpoint":
            log.checkpoint()
            return OperationResult(before=before, after=log.measure())
        log.compact(policy.compaction)
        try:
            after = log.measure()
            differs = before.rows != after.rows and log.is_alone(before.version)
        except SPARK_ERRORS as error:  # Such as after Ctrl-C.
            raise Unsettled(f"its rows were not compared, so the next run settles it: {error}") from error
        if differs:
            raise RowsDiffer(
                f"version {before.version} has {before.rows:,} rows, version {after.version} has {after.rows:,}: "
                f"restore version {before.version}"
            )
        return blocking.wait(self._compacted(blocking.lake, table.uuid, before, after))

    async def _compacted(self, lake: Lake, uuid: str, before: Measure, after: Measure) -> OperationResult:
        table = (await find_by_id(lake, uuid)).value  # As it is now: it names the newest commits.
        upto, since = after.version or 0, before.version or 0
        return compacted(await compactions_of(lake, table, self._run, upto=upto, after=since), before, after)


def checkpoint_by_kernel(session: SparkSession, connection: Connection, health: TableHealth, table: DeltaTable) -> int:
    """Publish what is not published, and write a checkpoint of the newest version of a managed table; returns it."""
    context: Any = session.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Kernel's classes are in the driver's JVM
    kernel, unity = jvm.io.delta.kernel, jvm.io.delta.kernel.unitycatalog
    settings = {"uri": connection.uri, "auth.type": "static", "auth.token": connection.token or "none"}
    client = jvm.io.delta.storage.commit.uccommitcoordinator.UCDeltaTokenBasedRestClient(settings, None)
    try:
        hadoop = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001 - likewise
        engine = kernel.defaults.engine.DefaultEngine.create(hadoop)
        name = unity.UCTableIdentifier(health.catalog, health.namespace, health.name)
        newest = jvm.java.util.Optional.empty()
        managed = unity.UCCatalogManagedClient(client)
        snapshot = managed.loadSnapshot(engine, table.uuid, table.location, name, newest, newest).publish(engine)
        try:
            snapshot.writeCheckpoint(engine)
        except Py4JJavaError as error:
            if _EXISTS not in java_classes(error):
                raise
        return int(snapshot.getVersion())
    finally:
        client.close()


class DeltaLog:
    """Delta's own view of one table: through the catalog for a managed table, by its path for an external one."""

    def __init__(self, session: SparkSession, connection: Connection, health: TableHealth, table: DeltaTable) -> None:
        context: Any = session.sparkContext
        self._session = session
        self._jvm = context._jvm  # noqa: SLF001 - Delta's classes are in the driver's JVM
        self.java: Any = session._jsparkSession  # noqa: SLF001 - likewise
        self._health = health
        self._table = table
        self._is_managed = table.table_type == "MANAGED"
        self._has_connector = _is_class(self._jvm, _UNITY)
        self._none = _object(self._jvm.scala, "None")
        self.catalog_table = self._none
        logs = _object(self._jvm.org.apache.spark.sql.delta, "DeltaLog")
        # Delta reads checkpoints, and Spark reads the options of catalogs, by the active session of the thread.
        _object(self._jvm.org.apache.spark.sql.classic, "SparkSession").setActiveSession(self.java)
        # Delta caches a log together with the client of the server that it was read through.
        logs.invalidateCache(self.java, self._jvm.org.apache.hadoop.fs.Path(table.location))
        if self._is_managed:
            self._connect(connection)
            described = self._described()
            self.catalog_table = self._jvm.scala.Option.apply(described)
            nothing = _object(self._jvm.scala.collection.immutable, "Map").empty()
            self.log = logs.forTableWithSnapshot(self.java, described, nothing).productElement(0)
        else:
            self.log = logs.forTable(self.java, table.location)

    def _connect(self, connection: Connection) -> None:
        """Name the catalog server to Delta, which asks it for commits and sends it new ones."""
        catalog = self._health.catalog
        option = f"spark.sql.catalog.{catalog}"
        self._session.conf.set(f"{option}.uri", connection.uri)
        self._session.conf.set(f"{option}.token", connection.token or "none")
        self._session.conf.set(f"{option}.type", "rest")
        self._session.conf.set(f"{option}.warehouse", catalog)
        self._session.conf.set(option, _UNITY if self._has_connector else _ICEBERG)
        self.java.sessionState().catalogManager().catalog(catalog)  # It is loaded once, by this class.
        self._session.conf.set(option, _UNITY)
        coordinated = self._jvm.org.apache.spark.sql.delta.coordinatedcommits
        coordinators = _object(coordinated, "CatalogOwnedCommitCoordinatorProvider")
        with _REGISTRATION:
            if coordinators.getBuilder(catalog).isEmpty():
                coordinators.registerBuilder(catalog, _object(coordinated, "UCCommitCoordinatorBuilder"))

    def _described(self) -> Any:  # noqa: ANN401 - Spark's CatalogTable
        """The table as a catalog of Spark would describe it: Delta takes its location and its name from there."""
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        some = self._jvm.scala.Option.apply
        view = f"maintained_{self._table.uuid.replace('-', '')}"
        self._session.sql("SELECT 1 AS id").createOrReplaceTempView(view)
        state = self.java.sessionState()
        plain = state.catalog().getTempViewOrPermanentTableMetadata(state.sqlParser().parseTableIdentifier(view))
        levels = self._health.namespace
        identifier = catalyst.TableIdentifier(self._health.name, some(levels), some(self._health.catalog))
        storage = _copied(plain.storage(), locationUri=some(self._jvm.java.net.URI(self._table.location)))
        managed = catalyst.catalog.CatalogTableType.MANAGED()
        return _copied(plain, identifier=identifier, storage=storage, provider=some("delta"), tableType=managed)

    def _snapshot(self) -> Any:  # noqa: ANN401 - Delta's Snapshot
        return self.log.update(False, self._none, self.catalog_table)  # noqa: FBT003 - of Java: not in the background

    def measure(self) -> Measure:
        """The newest version, with its rows counted."""
        snapshot = self._snapshot()
        files = snapshot.allFiles().collect()
        sequence = _object(self._jvm.scala.collection.immutable, "ArraySeq").unsafeWrapArray(files)
        rows = self.log.createDataFrame(snapshot, sequence, False, self._none).count()  # noqa: FBT003 - no stream
        return Measure(
            version=int(snapshot.version()), files=len(files), bytes=int(snapshot.sizeInBytes()), rows=int(rows)
        )

    def is_alone(self, version: int | None) -> bool:
        """Whether the newest version directly follows this one: no writer committed in between."""
        return version is not None and int(self._snapshot().version()) == version + 1

    def compact(self, policy: Compaction) -> None:
        self._session.conf.set(f"{_OPTIMIZE}.maxFileSize", str(policy.target_file_bytes))
        self._session.conf.set(f"{_OPTIMIZE}.minFileSize", str(small_file_bytes(policy)))
        self._session.conf.set(f"{_OPTIMIZE}.maxDeletedRowsRatio", str(policy.deleted_rows_share))
        names = (self._health.catalog, self._health.namespace, self._health.name)
        if not self._is_managed:
            self._optimize(f"delta.`{self._table.location}`", policy)
            return
        if self._has_connector:
            try:
                self._optimize(".".join(f"`{name}`" for name in names), policy)
            except (PySparkException, Py4JJavaError) as error:
                if _REFUSAL not in java_classes(error):
                    raise
            else:
                return
        self._optimize_managed(_order_of(policy))

    def _optimize_managed(self, order: Sequence[str]) -> None:
        """What OPTIMIZE does after it has checked that the table is not managed.

        Other commits are no conflict as long as all files that were rewritten are still there.
        """
        commands = self._jvm.org.apache.spark.sql.delta.commands
        everything = _object(self._jvm.scala.collection.immutable, "Nil")
        sorted_by = everything
        for name in reversed(order):
            sorted_by = getattr(sorted_by, "$colon$colon")(name)
        unset = self._none
        context = commands.DeltaOptimizeContext(unset, unset, unset, unset, False)  # noqa: FBT003 - of Java: not full
        snapshot, is_automatic = self._snapshot(), False
        executor = commands.OptimizeExecutor(
            self.java, snapshot, self.catalog_table, everything, sorted_by, is_automatic, context
        )
        executor.optimize()

    def _optimize(self, name: str, policy: Compaction) -> None:
        order = _order_of(policy)
        by = f" ZORDER BY ({', '.join(order)})" if order else ""
        self._session.sql(f"OPTIMIZE {name}{by}").collect()

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, and remove log files that are older than the table keeps them."""
        self.log.checkpointAndCleanUpDeltaLog(self._snapshot(), self.catalog_table)


def _order_of(policy: Compaction) -> Sequence[str]:
    """The columns by which files are clustered; empty if they are only merged."""
    if policy.strategy != "zorder":
        return ()
    return [name.strip() for name in policy.sort_order.split(",") if name.strip()]


def _has_delta(session: SparkSession) -> bool:
    context: Any = session.sparkContext
    return _is_class(context._jvm, "org.apache.spark.sql.delta.DeltaLog")  # noqa: SLF001 - see DeltaLog


def _is_class(jvm: Any, name: str) -> bool:  # noqa: ANN401 - the gateway
    """Whether the driver has a class; py4j takes a missing one for a package."""
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return type(found).__name__ == "JavaClass"


def _object(package: Any, name: str) -> Any:  # noqa: ANN401 - of Java
    """An object of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _copied(value: Any, **changes: Any) -> Any:  # noqa: ANN401 - of Java
    """A copy of a case class of Scala with other values in some fields."""
    fields = {str(value.productElementName(at)): value.productElement(at) for at in range(value.productArity())}
    return value.copy(*{**fields, **changes}.values())
