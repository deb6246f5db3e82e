"""Which builds of Iceberg go with which Spark, by their Maven coordinates."""

import importlib.metadata
import re
from dataclasses import dataclass
from typing import Final

from sandur.errors import BadRequest

DEFAULT_SPARK: Final = "4.1"
DEFAULT_ICEBERG: Final = "1.11.0"
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
"""Delta for Spark 4.1; it brings Delta Kernel, and Kernel's client of Unity Catalog."""

_SPARK: Final = re.compile(r"(\d+)\.(\d+)(\.\S*)?")
_ICEBERG: Final = re.compile(r"\d+\.\d+\.\d+\S*")
_FIRST_SPARK_ON_SCALA_213: Final = 4


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Spark (`4.1`, or in full), Iceberg and Scala.

    Without `spark` it is the PySpark that is installed here, or 4.1 where there is none; without `scala` the one that
    this Spark is built with when it comes from a package registry.
    """

    spark: str = ""
    iceberg: str = DEFAULT_ICEBERG
    scala: str = ""

    def packages(self, *, with_s3: bool) -> tuple[str, ...]:
        """Coordinates of Iceberg's runtime, and of what speaks to S3; both are always of one version."""
        if not _ICEBERG.fullmatch(self.iceberg):
            raise BadRequest(f"Iceberg version {self.iceberg!r}: expected something like {DEFAULT_ICEBERG}")
        major, minor = self._spark_line()
        scala = self.scala or ("2.13" if major >= _FIRST_SPARK_ON_SCALA_213 else "2.12")
        runtime = f"org.apache.iceberg:iceberg-spark-runtime-{major}.{minor}_{scala}:{self.iceberg}"
        bundle = f"org.apache.iceberg:iceberg-aws-bundle:{self.iceberg}"
        return (runtime, bundle) if with_s3 else (runtime,)

    def _spark_line(self) -> tuple[int, int]:
        version = self.spark or _installed_spark() or DEFAULT_SPARK
        parts = _SPARK.fullmatch(version)
        if not parts:
            raise BadRequest(f"Spark version {version!r}: expected something like {DEFAULT_SPARK} or {DEFAULT_SPARK}.4")
        return int(parts[1]), int(parts[2])


def _installed_spark() -> str | None:
    """The version of PySpark in this environment; None without one."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None
