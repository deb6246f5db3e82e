"""Data sources for Spark over the catalog's store: `spark.read.format("sandur_events").option("store", …).load()`."""

from typing import Final
from weakref import WeakSet

from pyspark.sql import SparkSession

from sandur.pipeline.sources.audit import SandurAudit
from sandur.pipeline.sources.catalog import SandurCatalogs, SandurNames, SandurNamespaces, SandurPointers
from sandur.pipeline.sources.datasets import SandurDataset
from sandur.pipeline.sources.events import SandurEvents
from sandur.pipeline.sources.lineage import SandurLineage
from sandur.pipeline.sources.metadata import SandurMetadata
from sandur.pipeline.sources.range_reader import SandurFiles

SOURCES: Final = (
    SandurAudit,
    SandurCatalogs,
    SandurDataset,
    SandurEvents,
    SandurFiles,
    SandurLineage,
    SandurMetadata,
    SandurNames,
    SandurNamespaces,
    SandurPointers,
)


_registered: Final[WeakSet[SparkSession]] = WeakSet()


def register_sources(spark: SparkSession) -> None:
    if spark in _registered:
        return
    for source in SOURCES:
        spark.dataSource.register(source)
    _registered.add(spark)
