"""Create Delta tables with Delta Kernel, in the JVM of a Spark session.

The jars come with Delta for Spark (`io.delta:delta-spark_4.1_2.13:4.4.0`). Sandur plans the table as for a first commit
of its own; Kernel writes the commit, and Kernel's committer registers it in the catalog.
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
"""The end of `engineInfo` in the first commit; Kernel puts its own name and version before it."""

# The builder for catalogs sets these itself and rejects them as properties.
_SET_BY_KERNEL: Final = frozenset({"catalogManaged", "vacuumProtocolCheck"})
_IMPLIED: Final = frozenset({"appendOnly", "invariants"})
_EXISTS: Final = "TableAlreadyExistsException"


class Unity(NamedTuple):
    """A server with the Unity Catalog API, from Spark's options."""

    uri: str
    token: str = ""


class KernelCreated(NamedTuple):
    """The created table: its location, and its id in the catalog; empty for a path."""

    location: str
    table_id: str = ""


def create_by_path(
    spark: "SparkSession", location: str, asked: TableDefinition, *, engine: str = ENGINE
) -> KernelCreated:
    """Create a table at a path, committed by the file system; raises AlreadyExists if there is one."""
    kernel = _Kernel(spark)
    plan = plan_table(asked, location=location, table_id="", committer="path")
    builder = kernel.table_manager.buildCreateTableTransaction(plan.location, kernel.schema(plan), engine)
    kernel.commit(builder, plan, {**plan.properties, **_features(plan, left_out=_IMPLIED)}, storage={})
    return KernelCreated(plan.location)


def create_managed(
    spark: "SparkSession", unity: Unity, name: Sequence[str], asked: TableDefinition, *, engine: str = ENGINE
) -> KernelCreated:
    """Create a managed table `catalog.schema.table`: Kernel stages it, writes it and registers it in the catalog.

    The client stays open until the commit is done, because the committer calls the catalog last.
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
        all_properties = {
            **properties,
            **_features(plan, left_out=_IMPLIED | _SET_BY_KERNEL, always=REQUIRED_WRITER_FEATURES),
        }
        kernel.commit(builder, plan, all_properties, storage=dict(stage.getStorageProperties() or {}))
    finally:
        client.close()
    return KernelCreated(plan.location, table_id)


def _features(plan: CreatePlan, *, left_out: frozenset[str], always: Iterable[str] = ()) -> dict[str, str]:
    wanted = {*(plan.protocol.writer_features or ()), *always} - left_out
    return {f"{FEATURE}{feature}": SUPPORTED for feature in sorted(wanted)}


class _Kernel:
    """Kernel's classes through py4j; every argument must be a Java object."""

    def __init__(self, spark: "SparkSession") -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - the only access to the driver's JVM
        if jvm is None:
            raise Unfit("Delta Kernel runs in the driver's JVM, but a Spark Connect session has none")
        self.jvm = jvm
        self._gateway: Any = context._gateway  # noqa: SLF001 - likewise
        self._context: Any = context._jsc  # noqa: SLF001 - likewise
        if not _is_class(jvm.io.delta.kernel.TableManager):
            raise Unfit(f"this Spark session has no Delta Kernel: start it with the package {DELTA_PACKAGE}")

    @property
    def table_manager(self) -> Any:  # noqa: ANN401 - a class of Java
        return self.jvm.io.delta.kernel.TableManager

    def schema(self, plan: CreatePlan) -> Any:  # noqa: ANN401 - an object of Java
        serde = self.jvm.io.delta.kernel.internal.types.DataTypeJsonSerDe
        return serde.deserializeStructType(schema_string(plan.columns))

    def client(self, unity: Unity) -> Any:  # noqa: ANN401 - an object of Java
        settings = {"uri": unity.uri, "auth.type": "static", "auth.token": unity.token or "none"}
        coordinator = self.jvm.io.delta.storage.commit.uccommitcoordinator
        return coordinator.UCDeltaTokenBasedRestClient(self._map(settings), None)

    def identifier(self, catalog: str, schema: str, table: str) -> Any:  # noqa: ANN401 - an object of Java
        namespace = self._gateway.new_array(self.jvm.java.lang.String, 2)
        namespace[0], namespace[1] = catalog, schema
        return self.jvm.io.delta.storage.commit.TableIdentifier(namespace, table)

    def commit(self, builder: Any, plan: CreatePlan, properties: Mapping[str, str], storage: Mapping[str, str]) -> None:  # noqa: ANN401 - of Java
        """Commit a table without files; raises AlreadyExists if there is a table at the path."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - part of PySpark, which may be missing

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
    """False if the class is missing: py4j returns a package then."""
    return type(found).__name__ == "JavaClass"
