"""Spark sessions with Delta for the processes that tests start: one for every test, with the server as `main`."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from sandur.spark.sessions import DELTA_PACKAGE


def delta_session(
    url: str, folder: str, connector: str = "", *, threads: int = 1, options: Mapping[str, str] | None = None
) -> SparkSession:
    """A session; `connector` is the jar file or the Maven coordinates of Unity Catalog's connector.

    Without a connector, only Delta Kernel reaches the tables of `main`.
    """
    given = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.main.uri": url,
        "spark.sql.catalog.main.token": "any",
        "spark.jars.packages": DELTA_PACKAGE,
        **(options or {}),
    }
    if connector:
        given["spark.sql.catalog.main"] = "io.unitycatalog.spark.UCSingleCatalog"
    if connector.endswith(".jar"):
        given["spark.jars"] = connector
    elif connector:
        given["spark.jars.packages"] += f",{connector}"
    builder = SparkSession.builder.master(f"local[{threads}]")
    for key, value in given.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
