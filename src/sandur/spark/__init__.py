"""Spark sessions with Sandur catalogs: create a session, or get its options.

```python
import sandur.spark

spark = sandur.spark.session()  # the local server; its default catalog is `sandur`
spark.sql("SELECT * FROM sandur.sales.orders").show()
```
"""

from typing import TYPE_CHECKING

from sandur.spark.sessions import Connection, S3Store, Versions, session, session_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sandur.spark.statements import Mode

__all__ = ["Connection", "S3Store", "Versions", "session", "session_options", "sql"]


def sql(spark: "SparkSession", statement: str, *, mode: "Mode | None" = None) -> "DataFrame":
    """As `spark.sql`, but in mode STRICT Delta Kernel creates Delta tables; see `statements`."""
    from sandur.spark import statements  # noqa: PLC0415 - it needs PySpark

    return statements.sql(spark, statement, mode=mode)
