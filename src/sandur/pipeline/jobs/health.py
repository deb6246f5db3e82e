"""`health`: publish the health of every table, and what its policy would have done about it."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.operations.policies import WORKSPACE, Scopes, read_policies, scopes_of
from sandur.pipeline import system_tables
from sandur.pipeline.executor_tasks.health import measure_tables
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.publishing import DatasetUpdate, Publication
from sandur.pipeline.tables import CATALOGS, NAMESPACES, REFS, SNAPSHOTS, TABLE_HEALTH, TABLE_METRICS, TABLES, Shape
from sandur.pipeline.tasks import lake_task, task_count

NAME: Final = "health"
TABLES_PER_TASK: Final = 32
TABLES_PER_TASK_MAX: Final = 5_000
TABLES_AT_ONCE: Final = 200
SCANS_DAYS: Final = 7
"""Scans a day are those that engines reported in this many days."""


def run(context: JobContext) -> JobReport:
    """Measure every table that `project` published, under the name it has there."""
    publication = Publication(context)
    now_ms = context.clock.now_ms()
    context.progress("read policies")
    scopes = read_scopes(context, publication)
    context.progress("measure tables")
    rows = tables_to_measure(publication, now_ms)
    count = publication.dataset(TABLES).rows
    tasks = task_count(context.spark, count, at_least=TABLES_PER_TASK, at_most=TABLES_PER_TASK_MAX)
    task = lake_task(
        context.source_options,
        lambda blocking, some: measure_tables(blocking, some, scopes, now_ms),
        rows_at_once=TABLES_AT_ONCE,
    )
    health = context.persist(rows.repartition(tasks, "uuid").mapInArrow(task, TABLE_HEALTH.spark_schema))
    total, in_need, blocked = health.agg(
        F.count("*"), F.count_if(F.col("needs_json") != "[]"), F.count_if(F.col("blocked") != "")
    ).collect()[0]
    if not context.dry_run and (total or publication.dataset(TABLE_HEALTH).rows):
        context.progress("write health")
        files = publication.write(health, TABLE_HEALTH)
        publication.publish({TABLE_HEALTH.name: DatasetUpdate(files, {})})
    refused = system_tables.refresh(context, publication.manifest, (TABLE_HEALTH,))
    some = health.where("blocked != ''").orderBy("catalog", "namespace", "name").limit(3).collect()
    return context.report(
        NAME,
        counts={"tables": total, "tables_in_need": in_need, "tables_blocked": blocked},
        warnings=(*(f"{row.catalog}.{row.namespace}.{row.name}: {row.blocked}" for row in some), *refused),
        published=publication.published,
    )


def read_scopes(context: JobContext, publication: Publication) -> Scopes:
    """Every policy with the current name of its scope; one of a scope that is gone applies to nothing."""
    records = context.wait(read_policies(context.lake))
    if not any(id_ != WORKSPACE for id_ in records):
        return scopes_of(records, (), (), context.settings.default_catalog)
    ids = context.spark.createDataFrame([(id_,) for id_ in records], "id string")

    def named(shape: Shape, *columns: str) -> Sequence[Any]:
        return publication.read(shape).join(ids, on="id", how="left_semi").select(*columns, "id").collect()

    catalogs, namespaces = named(CATALOGS, "name"), named(NAMESPACES, "catalog", "namespace")
    return scopes_of(records, catalogs, namespaces, context.settings.default_catalog)


def tables_to_measure(publication: Publication, now_ms: int) -> DataFrame:
    """One row per table with its totals, its snapshots and references as JSON, and its scans a day."""
    age = F.struct(
        "snapshot_id",
        F.col("parent_snapshot_id").alias("parent_id"),
        F.unix_millis("committed_at").alias("committed_ms"),
    )
    snapshots = (
        publication.read(SNAPSHOTS)
        .groupBy("uuid")
        .agg(
            F.to_json(F.collect_list(age)).alias("snapshots_json"),
            F.max(F.when(F.col("is_current"), F.col("summary_json"))).alias("summary_json"),
        )
    )
    reference = F.struct(
        F.col("ref").alias("name"),
        (F.col("type") == "branch").alias("is_branch"),
        "snapshot_id",
        F.col("min_snapshots_to_keep").alias("min_to_keep"),
        F.col("max_snapshot_age_ms").alias("max_age_ms"),
    )
    refs = publication.read(REFS).groupBy("uuid").agg(F.to_json(F.collect_list(reference)).alias("refs_json"))
    since = F.date_format(F.timestamp_millis(F.lit(now_ms - SCANS_DAYS * 86_400_000)), "yyyy-MM-dd")
    scans = (
        publication.read(TABLE_METRICS)
        .where(F.col("day") >= since)
        .groupBy(F.col("table_uuid").alias("uuid"))
        .agg((F.sum("scans") / SCANS_DAYS).alias("scans_per_day"))
    )
    tables = publication.read(TABLES).where(F.col("kind") == "table")
    joined = (
        tables.join(snapshots, on="uuid", how="left")
        .join(refs, on="uuid", how="left")
        .join(scans, on="uuid", how="left")
    )
    return joined.select(
        *("catalog", "namespace", "name", "uuid", "format", "metadata_location", "file_count", "size_bytes"),
        *("properties_json", "problem", "summary_json", "snapshots_json", "refs_json", "scans_per_day"),
        F.unix_millis("last_updated_at").alias("last_commit_ms"),
    )


HEALTH: Final = Job(NAME, "Publish the health of every table, and the maintenance that it needs.", run)
