"""Run Spark SQL; in mode STRICT, Delta Kernel executes CREATE TABLE … USING delta.

Spark's own parser reads the statement. In mode STRICT, Sandur plans a plain CREATE TABLE of Delta, Kernel writes the
first commit, and Kernel's committer registers the table in the catalog. Spark executes everything else, and everything
in mode NONE. Kernel's jars come with Delta for Spark (`DELTA_PACKAGE`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.delta.columns import schema_string
from sandur.delta.create_plan import CreatePlan, PartitionTransform, TableDefinition, plan_table
from sandur.delta.protocol import FEATURE, REQUIRED_WRITER_FEATURES, SUPPORTED, TABLE_ID
from sandur.errors import AlreadyExists, Invalid, NotFound, Unavailable, Unfit
from sandur.spark.sessions import DELTA_PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["STRICT", "NONE"]

MODE: Final = "spark.databricks.delta.v2.enableMode"
"""The mode setting of Delta for Spark; every value but STRICT counts as NONE."""

_DELTA: Final = "delta"
_CREATE: Final = "CreateTable"
_CLUSTER: Final = "cluster_by"
_SESSION_CATALOG: Final = "spark_catalog"
_NAME_PARTS: Final = 3
_SECONDS_MAX: Final = 30

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


class Parsed(NamedTuple):
    """A CREATE TABLE of Delta, parsed by Spark."""

    name: tuple[str, ...]
    definition: TableDefinition
    location: str | None
    is_external: bool
    if_not_exists: bool


def sql(spark: "SparkSession", statement: str, *, mode: Mode | None = None) -> "DataFrame":
    """The result of `spark.sql`; a CREATE TABLE that Kernel executes returns no rows, as in Spark.

    `mode` defaults to the session's setting `spark.databricks.delta.v2.enableMode`.
    """
    chosen = mode or spark.conf.get(MODE, "NONE")
    if chosen == "STRICT" and (parsed := parsed_create(spark, statement)):
        create(spark, parsed)
        return spark.sql("SELECT 1 AS nothing WHERE false").drop("nothing")
    return spark.sql(statement)


def parsed_create(spark: "SparkSession", statement: str) -> Parsed | None:
    """The statement if it is a plain CREATE TABLE of Delta; None for every other statement.

    A syntax error is raised by Spark's parser.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the only access to Spark's parser
    session: Any = spark._jsparkSession  # noqa: SLF001 - likewise
    plan = session.sessionState().sqlParser().parsePlan(statement)
    if plan.getClass().getSimpleName() != _CREATE:
        return None
    spec = plan.tableSpec()
    listed = jvm.scala.jdk.javaapi.CollectionConverters
    provider = _option(spec.provider()) or spark.conf.get("spark.sql.sources.default", "parquet")
    if provider is None or provider.lower() != _DELTA:
        return None
    transforms = [one for transform in listed.asJava(plan.partitioning()) for one in _transforms(transform, listed)]
    return Parsed(
        name=tuple(listed.asJava(plan.name().nameParts())),
        definition=TableDefinition(
            fields=msgspec.json.decode(plan.tableSchema().json())["fields"],
            partitioning=[one for one in transforms if one.name != _CLUSTER],
            clustering=[one.column for one in transforms if one.name == _CLUSTER],
            properties=dict(listed.asJava(spec.properties())),
            comment=_option(spec.comment()),
        ),
        location=_option(spec.location()),
        is_external=bool(spec.external()),
        if_not_exists=bool(plan.ignoreIfExists()),
    )


def create(spark: "SparkSession", parsed: Parsed) -> None:
    """Execute the statement with Kernel.

    Checks first whether the table exists, so that a refusal writes nothing. A table of the session catalog is
    registered there after its commit.
    """
    if not parsed.definition.fields:
        raise Invalid("CREATE TABLE without columns: add columns, or use mode NONE")
    try:
        if len(parsed.name) == 2 and parsed.name[0].lower() == _DELTA:  # noqa: PLR2004 - delta.`path`
            create_by_path(spark, parsed.name[1], parsed.definition)
        elif unity := unity_of(spark, parsed.name):
            _create_in_unity(spark, unity, parsed)
        else:
            _create_in_session(spark, parsed)
    except AlreadyExists:
        if not parsed.if_not_exists:
            raise


def unity_of(spark: "SparkSession", name: tuple[str, ...]) -> Unity | None:
    """The Unity Catalog server of a table's catalog in the session's options; None if the options name no server."""
    if len(name) != _NAME_PARTS or name[0] == _SESSION_CATALOG:
        return None
    prefix = f"spark.sql.catalog.{name[0]}"
    kind, uri, token, auth_token = (
        spark.conf.get(f"{prefix}{option}", "") or "" for option in ("", ".uri", ".token", ".auth.token")
    )
    return Unity(uri, token or auth_token) if uri and "iceberg" not in kind else None


def _create_in_unity(spark: "SparkSession", unity: Unity, parsed: Parsed) -> None:
    if parsed.location or parsed.is_external:
        raise Invalid(
            "external tables are not supported in mode STRICT: use mode NONE, or sandur delta create --location"
        )
    if _is_in_unity(unity, parsed.name):
        raise AlreadyExists(f"Table already exists: {'.'.join(parsed.name)}", subject="table")
    create_managed(spark, unity, parsed.name, parsed.definition)


def _is_in_unity(unity: Unity, name: tuple[str, ...]) -> bool:
    import httpx  # noqa: PLC0415 - only this check needs it

    catalog, schema, table = (quote(part, safe="") for part in name)
    path = f"/api/2.1/unity-catalog/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    headers = {"Authorization": f"Bearer {unity.token}"} if unity.token else {}
    try:
        answer = httpx.head(unity.uri.rstrip("/") + path, headers=headers, timeout=_SECONDS_MAX)
    except httpx.HTTPError as error:
        raise Unavailable(f"{unity.uri} does not answer: {error}") from error
    if answer.is_success:
        return True
    if answer.status_code != httpx.codes.NOT_FOUND:
        raise Unavailable(f"{unity.uri} answered {answer.status_code} to the request for {'.'.join(name)}")
    return False


def _create_in_session(spark: "SparkSession", parsed: Parsed) -> None:
    """Create a table of the session catalog at its location, or a managed one in the warehouse.

    Spark registers a table whose files exist only as external, and without a comment: both are set afterwards. Between
    the two, a DROP TABLE leaves the files.
    """
    name = ".".join(f"`{part.replace('`', '``')}`" for part in parsed.name)
    if spark.catalog.tableExists(name):
        raise AlreadyExists(f"Table already exists: {name}", subject="table")
    location = parsed.location or _warehouse_location(spark, parsed.name)
    create_by_path(spark, location, parsed.definition)
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION {quoted_text(location)}")
    is_managed = parsed.location is None and not parsed.is_external
    if is_managed or parsed.definition.comment:
        _describe_in_session(spark, name, parsed.definition.comment, is_managed=is_managed)


def quoted_text(text: str) -> str:
    """A string of Spark SQL, in which a backslash starts an escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _describe_in_session(spark: "SparkSession", name: str, comment: str | None, *, is_managed: bool) -> None:
    """Give a table of the session catalog its comment, and make it managed: dropping it then deletes its files."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the only access to the session catalog
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001 - likewise
    table = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    fields = {str(table.productElementName(place)): place for place in range(table.productArity())}
    values = {field: table.productElement(place) for field, place in fields.items()}
    if is_managed:
        values["tableType"] = jvm.org.apache.spark.sql.catalyst.catalog.CatalogTableType.MANAGED()
    if comment:
        values["comment"] = jvm.scala.Option.apply(comment)
    state.catalog().alterTable(table.copy(*values.values()))


def _warehouse_location(spark: "SparkSession", name: tuple[str, ...]) -> str:
    database = name[-2] if len(name) > 1 else spark.catalog.currentDatabase()
    found = spark.catalog.getDatabase(database)
    if not found.locationUri:
        raise NotFound(f"Schema {database} has no location", subject="namespace")
    return f"{found.locationUri.rstrip('/')}/{name[-1].lower()}"


def _option(value: Any) -> str | None:  # noqa: ANN401 - Scala's Option
    return str(value.get()) if value.isDefined() else None


def _transforms(transform: Any, listed: Any) -> list[PartitionTransform]:  # noqa: ANN401 - objects of Java
    """One transform per column."""
    name = str(transform.name())
    if name.endswith(_CLUSTER):
        # Spark and Delta have one class each for clustering, and py4j does not see their inherited methods.
        name, references = _CLUSTER, listed.asJava(transform.columnNames())
    else:
        references = transform.references()
    return [PartitionTransform(name, ".".join(reference.fieldNames())) for reference in references]


def create_by_path(spark: "SparkSession", location: str, definition: TableDefinition) -> None:
    """Create a table at a path, committed by the file system; raises AlreadyExists if there is one."""
    kernel = _Kernel(spark)
    plan = plan_table(definition, location=location, table_id="", committer="path")
    manager = kernel.jvm.io.delta.kernel.TableManager
    builder = manager.buildCreateTableTransaction(plan.location, kernel.schema(plan), ENGINE)
    kernel.commit(builder, plan, {**plan.properties, **_features(plan, left_out=_IMPLIED)}, storage={})


def create_managed(spark: "SparkSession", unity: Unity, name: Sequence[str], definition: TableDefinition) -> None:
    """Create a managed table `catalog.schema.table`: Kernel stages it, writes it and registers it in the catalog.

    The client stays open until the commit is done, because the committer calls the catalog last.
    """
    kernel = _Kernel(spark)
    catalog, schema, table = name
    commits, unity_classes = kernel.jvm.io.delta.storage.commit, kernel.jvm.io.delta.kernel.unitycatalog
    settings = {"uri": unity.uri, "auth.type": "static", "auth.token": unity.token or "none"}
    client = commits.uccommitcoordinator.UCDeltaTokenBasedRestClient(settings, None)
    try:
        stage = client.createStagingTable(commits.TableIdentifier(kernel.strings((catalog, schema)), table))
        table_id, location = stage.getTableId().toString(), stage.getLocation()
        plan = plan_table(definition, location=location, table_id=table_id, committer="catalog")
        managed = unity_classes.UCCatalogManagedClient(client)
        known_as = unity_classes.UCTableIdentifier(catalog, schema, table)
        builder = managed.buildCreateTableTransaction(table_id, location, kernel.schema(plan), ENGINE, known_as)
        features = _features(plan, left_out=_IMPLIED | _SET_BY_KERNEL, always=REQUIRED_WRITER_FEATURES)
        properties = {key: value for key, value in plan.properties.items() if key != TABLE_ID} | features
        kernel.commit(builder, plan, properties, storage=dict(stage.getStorageProperties() or {}))
    finally:
        client.close()


def _features(plan: CreatePlan, *, left_out: frozenset[str], always: Iterable[str] = ()) -> dict[str, str]:
    wanted = {*(plan.protocol.writer_features or ()), *always} - left_out
    return {f"{FEATURE}{feature}": SUPPORTED for feature in sorted(wanted)}


class _Kernel:
    """Kernel's classes through py4j, which converts dicts and lists to Java's."""

    def __init__(self, spark: "SparkSession") -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - the only access to the driver's JVM
        if jvm is None:
            raise Unfit("Delta Kernel runs in the driver's JVM, but a Spark Connect session has none")
        self.jvm = jvm
        self._gateway: Any = context._gateway  # noqa: SLF001 - likewise
        self._context: Any = context._jsc  # noqa: SLF001 - likewise
        if type(jvm.io.delta.kernel.TableManager).__name__ != "JavaClass":  # py4j takes a missing class for a package.
            raise Unfit(f"this Spark session has no Delta Kernel: start it with the package {DELTA_PACKAGE}")

    def schema(self, plan: CreatePlan) -> Any:  # noqa: ANN401 - an object of Java
        serde = self.jvm.io.delta.kernel.internal.types.DataTypeJsonSerDe
        return serde.deserializeStructType(schema_string(plan.columns))

    def commit(self, builder: Any, plan: CreatePlan, properties: Mapping[str, str], storage: Mapping[str, str]) -> None:  # noqa: ANN401 - of Java
        """Commit a table without files; raises AlreadyExists if there is a table at the path."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - part of PySpark, which may be missing

        configuration = self.jvm.org.apache.hadoop.conf.Configuration(self._context.hadoopConfiguration())
        for key, value in storage.items():
            configuration.set(key, value)
        engine = self.jvm.io.delta.kernel.defaults.engine.DefaultEngine.create(configuration)
        builder = builder.withTableProperties(dict(properties))
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

    def _columns(self, paths: Iterable[Sequence[str]]) -> list[Any]:
        return [self.jvm.io.delta.kernel.expressions.Column(self.strings(path)) for path in paths]

    def strings(self, values: Sequence[str]) -> Any:  # noqa: ANN401 - an array of Java
        array = self._gateway.new_array(self.jvm.java.lang.String, len(values))
        for position, value in enumerate(values):
            array[position] = value
        return array
