"""Delta tables created by Delta Kernel itself, in the JVM of a Spark session.

The jars come with Delta for Spark (`io.delta:delta-spark_4.1_2.13:4.4.0`). What is created is decided by the same plan
as when Sandur writes the first commit; here Kernel's primitives write it, and its committer tells the catalog.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sandur.delta.columns import schema_string
from sandur.delta.create_plan import CreatePlan, TableDefinition, plan_table
from sandur.delta.protocol import FEATURE, REQUIRED_WRITER_FEATURES, SUPPORTED, TABLE_ID
from sandur.errors import AlreadyExists, Unfit
from sandur.spark.sessions import DELTA_PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE: Final = "kernel-spark-dsv2"
"""What `engineInfo` of the first commit ends in; Kernel puts its own name and version before it."""

# The builder for catalogs sets these by itself, and takes no other word for it.
_SET_BY_KERNEL: Final = frozenset({"catalogManaged", "vacuumProtocolCheck"})
_IMPLIED: Final = frozenset({"appendOnly", "invariants"})
_EXISTS: Final = "TableAlreadyExistsException"


class Unity(NamedTuple):
    """A server that speaks Unity Catalog's API, as Spark's options tell it."""

    uri: str
    token: str = ""


class KernelCreated(NamedTuple):
    """What Kernel made: where it lies, and the id that the catalog gave it, empty for a path."""

    location: str
    table_id: str = ""


def create_by_path(
    spark: "SparkSession", location: str, asked: TableDefinition, *, engine: str = ENGINE
) -> KernelCreated:
    """A table at a path, committed by the file system; AlreadyExists when there is one."""
    kernel = _Kernel(spark)
    plan = plan_table(asked, location=location, table_id="", committer="path")
    builder = kernel.table_manager.buildCreateTableTransaction(plan.location, kernel.schema(plan), engine)
    kernel.commit(builder, plan, {**plan.properties, **_features(plan, left_out=_IMPLIED)}, storage={})
    return KernelCreated(plan.location)


def create_managed(
    spark: "SparkSession", unity: Unity, name: Sequence[str], asked: TableDefinition, *, engine: str = ENGINE
) -> KernelCreated:
    """A managed table `catalog.schema.table`: staged, written and made known by Kernel's committer for catalogs.

    The client stays open until the commit is done, for it is the committer that calls the catalog last.
    """
    kernel = _Kernel(spark)
    catalog, schema, table = name
    client = kernel.client(unity)
    try:
        stage = client.createStagingTable(kernel.identifier(catalog, schema, table))
        table_id, location = stage.getTableId().toString(), stage.getLocation()
        plan = plan_table(asked, location=location, table_id=table_id, committer="catalog")
        managed = kernel.jvm.io.delta.kernel.unitycatalog.UCCatalogManagedClient(client)
        known_as = kernel.jvm.io.delta.kernel.unitycatalog.UCTableIdentifier(catalog, schema, table)
        builder = managed.buildCreateTableTransaction(table_id, location, kernel.schema(plan), engine, known_as)
        properties = {key: value for key, value in plan.properties.items() if key != TABLE_ID}
        told = {**properties, **_features(plan, left_out=_IMPLIED | _SET_BY_KERNEL, always=REQUIRED_WRITER_FEATURES)}
        kernel.commit(builder, plan, told, storage=dict(stage.getStorageProperties() or {}))
    finally:
        client.close()
    return KernelCreated(plan.location, table_id)


def _features(plan: CreatePlan, *, left_out: frozenset[str], always: Iterable[str] = ()) -> dict[str, str]:
    wanted = {*(plan.protocol.writer_features or ()), *always} - left_out
    return {f"{FEATURE}{feature}": SUPPORTED for feature in sorted(wanted)}


class _Kernel:
    """Kernel's classes as Python reaches them: everything that is handed over must be an object of Java."""

    def __init__(self, spark: "SparkSession") -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - the only way into the driver's JVM
        if jvm is None:
            raise Unfit("Delta Kernel runs in the driver's JVM, which a Spark Connect session does not have")
        self.jvm = jvm
        self._gateway: Any = context._gateway  # noqa: SLF001 - likewise
        self._context: Any = context._jsc  # noqa: SLF001 - likewise
        if not _is_class(jvm.io.delta.kernel.TableManager):
            raise Unfit(f"Delta Kernel is not in this session: start it with {DELTA_PACKAGE}")

    @property
    def table_manager(self) -> Any:  # noqa: ANN401 - a class of Java
        return self.jvm.io.delta.kernel.TableManager

    def schema(self, plan: CreatePlan) -> Any:  # noqa: ANN401 - an object of Java
        serde = self.jvm.io.delta.kernel.internal.types.DataTypeJsonSerDe
        return serde.deserializeStructType(schema_string(plan.columns))

    def client(self, unity: Unity) -> Any:  # noqa: ANN401 - an object of Java
        told = {"uri": unity.uri, "auth.type": "static", "auth.token": unity.token or "none"}
        coordinator = self.jvm.io.delta.storage.commit.uccommitcoordinator
        return coordinator.UCDeltaTokenBasedRestClient(self._map(told), None)

    def identifier(self, catalog: str, schema: str, table: str) -> Any:  # noqa: ANN401 - an object of Java
        namespace = self._gateway.new_array(self.jvm.java.lang.String, 2)
        namespace[0], namespace[1] = catalog, schema
        return self.jvm.io.delta.storage.commit.TableIdentifier(namespace, table)

    def commit(self, builder: Any, plan: CreatePlan, properties: Mapping[str, str], storage: Mapping[str, str]) -> None:  # noqa: ANN401 - of Java
        """Build and commit, with no files added; AlreadyExists when there is a table at the path."""
        # Comes with PySpark, which may be missing; without types.
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - see above

        configuration = self.jvm.org.apache.hadoop.conf.Configuration(self._context.hadoopConfiguration())
        for key, value in storage.items():
            configuration.set(key, value)
        engine = self.jvm.io.delta.kernel.defaults.engine.DefaultEngine.create(configuration)
        builder = builder.withTableProperties(self._map(properties))
        if layout := self._layout(plan):
            builder = builder.withDataLayoutSpec(layout)
        try:
            transaction = builder.build(engine)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == _EXISTS:
                raise AlreadyExists(f"Delta table already exists at {plan.location}", subject="table") from error
            raise
        transaction.commit(engine, self.jvm.io.delta.kernel.utils.CloseableIterable.emptyIterable())

    def _layout(self, plan: CreatePlan) -> Any | None:  # noqa: ANN401 - an object of Java
        spec = self.jvm.io.delta.kernel.transaction.DataLayoutSpec
        if plan.partition_columns:
            return spec.partitioned(self._columns((name,) for name in plan.partition_columns))
        if plan.domains and plan.domains.clustering:
            return spec.clustered(self._columns(plan.domains.clustering.clustering_columns))
        return None

    def _columns(self, paths: Iterable[Sequence[str]]) -> Any:  # noqa: ANN401 - an object of Java
        columns = self.jvm.java.util.ArrayList()
        for path in paths:
            names = self._gateway.new_array(self.jvm.java.lang.String, len(path))
            for position, name in enumerate(path):
                names[position] = name
            columns.add(self.jvm.io.delta.kernel.expressions.Column(names))
        return columns

    def _map(self, values: Mapping[str, str]) -> Any:  # noqa: ANN401 - an object of Java
        found = self.jvm.java.util.HashMap()
        for key, value in values.items():
            found.put(key, value)
        return found


def _is_class(found: object) -> bool:
    """py4j gives a package for whatever it does not find."""
    return type(found).__name__ == "JavaClass"
