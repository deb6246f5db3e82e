"""Spark sessions that know Sandur's catalogs: their options, for whoever starts Spark, or a session at once.

```python
import sandur.spark

spark = sandur.spark.session()  # the server on this machine, its default catalog as `sandur`
spark.sql("SELECT * FROM sandur.sales.orders").show()
```
"""

from typing import TYPE_CHECKING

from sandur.spark.sessions import Connection, S3Store, Versions, session, session_options
from sandur.spark.vacuuming import vacuum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sandur.spark.statements import Mode

__all__ = ["Connection", "S3Store", "Versions", "session", "session_options", "sql", "vacuum"]


def sql(spark: "SparkSession", statement: str, *, mode: "Mode | None" = None) -> "DataFrame":
    """As `spark.sql`, but in mode STRICT a CREATE TABLE of Delta is carried out by Delta Kernel; see `statements`."""
    from sandur.spark import statements  # noqa: PLC0415 - sessions need nothing but Python

    return statements.sql(spark, statement, mode=mode)
