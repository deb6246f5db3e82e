"""Run Spark SQL; in mode STRICT, Delta Kernel executes CREATE TABLE … USING delta.

Spark's own parser reads the statement. In mode STRICT, Sandur plans a plain CREATE TABLE of Delta and Kernel commits
it. Spark executes everything else, and everything in mode NONE. `engineInfo` of the first commit names the engine.
"""

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.delta.create_plan import PartitionTransform, TableDefinition
from sandur.errors import AlreadyExists, Invalid, NotFound, Unavailable
from sandur.spark.kernel import KernelCreated, Unity, create_by_path, create_managed

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


class Parsed(NamedTuple):
    """A CREATE TABLE of Delta, parsed by Spark."""

    name: tuple[str, ...]
    asked: TableDefinition
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
        asked=TableDefinition(
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


def create(spark: "SparkSession", parsed: Parsed) -> KernelCreated | None:
    """Execute the statement with Kernel; None if the table exists and IF NOT EXISTS is given.

    Checks first whether the table exists, so that a refusal writes nothing. A table of the session catalog is
    registered there after its commit.
    """
    if not parsed.asked.fields:
        raise Invalid("CREATE TABLE without columns: add columns, or use mode NONE")
    try:
        if len(parsed.name) == 2 and parsed.name[0].lower() == _DELTA:  # noqa: PLR2004 - delta.`path`
            return create_by_path(spark, parsed.name[1], parsed.asked)
        if unity := unity_of(spark, parsed.name):
            return _created_in_unity(spark, unity, parsed)
        return _created_in_session(spark, parsed)
    except AlreadyExists:
        if parsed.if_not_exists:
            return None
        raise


def unity_of(spark: "SparkSession", name: tuple[str, ...]) -> Unity | None:
    """The Unity Catalog server of a table's catalog in the session's options; None if there is none."""
    if len(name) != _NAME_PARTS or name[0] == _SESSION_CATALOG:
        return None
    prefix = f"spark.sql.catalog.{name[0]}"
    kind = spark.conf.get(prefix, "") or ""
    uri = spark.conf.get(f"{prefix}.uri", "") or ""
    if not uri or "iceberg" in kind:
        return None
    token = spark.conf.get(f"{prefix}.token", "") or spark.conf.get(f"{prefix}.auth.token", "") or ""
    return Unity(uri, token)


def _created_in_unity(spark: "SparkSession", unity: Unity, parsed: Parsed) -> KernelCreated:
    if parsed.location or parsed.is_external:
        raise Invalid(
            "external tables are not supported in mode STRICT: use mode NONE, or sandur delta create --location"
        )
    if _is_in_unity(unity, parsed.name):
        raise AlreadyExists(f"Table already exists: {'.'.join(parsed.name)}", subject="table")
    return create_managed(spark, unity, parsed.name, parsed.asked)


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


def _created_in_session(spark: "SparkSession", parsed: Parsed) -> KernelCreated:
    """Create a table of the session catalog at its location, or in the warehouse."""
    name = ".".join(f"`{part}`" for part in parsed.name)
    if spark.catalog.tableExists(name):
        raise AlreadyExists(f"Table already exists: {name}", subject="table")
    location = parsed.location or _warehouse_location(spark, parsed.name)
    made = create_by_path(spark, location, parsed.asked)
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{location}'")
    return made


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
