"""Statements of Spark SQL, in which CREATE TABLE … USING delta is carried out by Delta Kernel when the mode says so.

Spark's own parser reads the statement. In mode STRICT a plain CREATE TABLE of Delta is planned by Sandur and committed
by Kernel; everything else, and everything in mode NONE, is Spark's. `engineInfo` of the first commit tells which.
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
"""Where Delta for Spark keeps its mode; anything but STRICT is NONE here."""

_DELTA: Final = "delta"
_CREATE: Final = "CreateTable"
_CLUSTER: Final = "cluster_by"
_SESSION_CATALOG: Final = "spark_catalog"
_NAME_PARTS: Final = 3
_SECONDS_MAX: Final = 30


class Parsed(NamedTuple):
    """A CREATE TABLE of Delta as Spark's parser understood it."""

    name: tuple[str, ...]
    asked: TableDefinition
    location: str | None
    is_external: bool
    if_not_exists: bool


def sql(spark: "SparkSession", statement: str, *, mode: Mode | None = None) -> "DataFrame":
    """What `spark.sql` gives, and for a CREATE TABLE that Kernel carried out nothing, as Spark does.

    Without `mode` the session's setting counts (`spark.databricks.delta.v2.enableMode`).
    """
    chosen = mode or spark.conf.get(MODE, "NONE")
    if chosen == "STRICT" and (parsed := parsed_create(spark, statement)):
        create(spark, parsed)
        return spark.sql("SELECT 1 AS nothing WHERE false").drop("nothing")
    return spark.sql(statement)


def parsed_create(spark: "SparkSession", statement: str) -> Parsed | None:
    """The statement, when it is a plain CREATE TABLE of Delta; None for any other: that is Spark's.

    What does not parse is refused by Spark's parser, in its own words.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the only way to Spark's parser
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
    """Carry the statement out with Kernel; None when the table was there and that is fine.

    Whether it exists is asked first, so that a refusal comes before anything is written; a table of the session's own
    catalog is registered there once it is committed.
    """
    if not parsed.asked.fields:
        raise Invalid("CREATE TABLE without columns is not a plan of its own: give it columns, or use mode NONE")
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
    """The Unity Catalog server that the session's options name for a table's catalog; None when they name none."""
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
        raise Invalid("an external table is created by Spark itself (mode NONE), or by sandur delta create --location")
    if _is_in_unity(unity, parsed.name):
        raise AlreadyExists(f"Table already exists: {'.'.join(parsed.name)}", subject="table")
    return create_managed(spark, unity, parsed.name, parsed.asked)


def _is_in_unity(unity: Unity, name: tuple[str, ...]) -> bool:
    import httpx  # noqa: PLC0415 - who only builds a session does without

    catalog, schema, table = (quote(part, safe="") for part in name)
    path = f"/api/2.1/unity-catalog/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    headers = {"Authorization": f"Bearer {unity.token}"} if unity.token else {}
    try:
        answer = httpx.head(unity.uri.rstrip("/") + path, headers=headers, timeout=_SECONDS_MAX)
    except httpx.HTTPError as error:
        raise Unavailable(f"{unity.uri}: does not answer: {error}") from error
    if answer.is_success:
        return True
    if answer.status_code != httpx.codes.NOT_FOUND:
        raise Unavailable(f"{unity.uri}: answers {answer.status_code} when asked for {'.'.join(name)}")
    return False


def _created_in_session(spark: "SparkSession", parsed: Parsed) -> KernelCreated:
    """A table of the session's own catalog: at its location, or where the warehouse puts it."""
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
    """One for every column it names."""
    name = str(transform.name())
    if name.endswith(_CLUSTER):
        # Spark's and Delta's parsers have a class each for clustering, of which py4j does not see what it inherits.
        name, references = _CLUSTER, listed.asJava(transform.columnNames())
    else:
        references = transform.references()
    return [PartitionTransform(name, ".".join(reference.fieldNames())) for reference in references]
