"""Spark sessions that know Sandur's catalogs: their options, for whoever starts Spark, or a session at once.

```python
import sandur.spark

spark = sandur.spark.session()  # the server on this machine, its default catalog as `sandur`
spark.sql("SELECT * FROM sandur.sales.orders").show()
```
"""

from sandur.spark.connection import Connection, S3Store
from sandur.spark.options import session_options
from sandur.spark.sessions import session
from sandur.spark.statements import sql
from sandur.spark.versions import Versions

__all__ = ["Connection", "S3Store", "Versions", "session", "session_options", "sql"]
