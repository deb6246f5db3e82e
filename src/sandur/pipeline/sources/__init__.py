"""Data sources for Spark over the catalog's store: `spark.read.format("sandur_events").options(store=…)`."""

from typing import Final

from pyspark.sql import SparkSession

from sandur.pipeline.sources.events import SandurEvents
from sandur.pipeline.sources.files import SandurFiles

SOURCES: Final = (SandurEvents, SandurFiles)


def register_sources(spark: SparkSession) -> None:
    """Make the sources known to a session; doing so again changes nothing."""
    for source in SOURCES:
        spark.dataSource.register(source)
