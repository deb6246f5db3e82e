"""A real Spark that reads every table twice: planned by itself and by the server.

Runs in its own process; prints one JSON line per table and filter.
"""

import json
import sys

from pyspark.sql import SparkSession

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"

TABLES = {
    "plain": (
        "CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(200)",
        "INSERT INTO {t} VALUES (NULL, NULL, NULL, NULL)",
    ),
    "partitioned": (
        """CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg
           PARTITIONED BY (bucket(4, id), days(ts), truncate(1, name))""",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(200)",
        "INSERT INTO {t} VALUES (NULL, NULL, NULL, NULL)",
    ),
    "evolved": (
        "CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(100)",
        "ALTER TABLE {t} ADD PARTITION FIELD name",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(100, 200)",
        "ALTER TABLE {t} DROP PARTITION FIELD name",
        "ALTER TABLE {t} ADD PARTITION FIELD months(ts)",
        "ALTER TABLE {t} RENAME COLUMN name TO label",
        "ALTER TABLE {t} RENAME COLUMN label TO name",
        "ALTER TABLE {t} ADD COLUMN note STRING",
        """INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4, 'x'
           FROM range(200, 260)""",
    ),
    "deleted_from": (
        """CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg
           PARTITIONED BY (name) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read',
           'write.update.mode' = 'merge-on-read', 'format-version' = '2')""",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(200)",
        "DELETE FROM {t} WHERE id % 3 = 0",
        "UPDATE {t} SET amount = 1 WHERE id = 11",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(9)",
    ),
    "with_vectors": (
        """CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg
           PARTITIONED BY (name) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read',
           'write.update.mode' = 'merge-on-read', 'format-version' = '3')""",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(200)",
        "DELETE FROM {t} WHERE id % 3 = 0",
        "DELETE FROM {t} WHERE id % 5 = 0",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(9)",
    ),
    "version_4": (
        """CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg
           PARTITIONED BY (name) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'format-version' = '4')""",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(100)",
        "DELETE FROM {t} WHERE id % 3 = 0",
    ),
    "branched": (
        "CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(100)",
        "ALTER TABLE {t} CREATE BRANCH audit",
        "ALTER TABLE {t} ADD COLUMN note STRING",
        "INSERT INTO {t} SELECT id, 'n9', timestamp_seconds(id), id / 4, 'x' FROM range(100, 120)",
    ),
    "version_1": (
        """CREATE TABLE {t} (id BIGINT, name STRING, ts TIMESTAMP, amount DECIMAL(9, 2)) USING iceberg
           PARTITIONED BY (name) TBLPROPERTIES ('format-version' = '1')""",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(50)",
        "ALTER TABLE {t} REPLACE PARTITION FIELD name WITH bucket(3, id)",
        "INSERT INTO {t} SELECT id, concat('n', id % 7), timestamp_seconds(id * 7200), id / 4 FROM range(50, 90)",
    ),
}
# A branch is read with the current schema, also with the columns that were added since.
READ_AS = {"branched": "branched VERSION AS OF 'audit'"}
# Not for the branch: Iceberg 1.11 itself cannot bind a filter on a column that the snapshot lacks.
MORE_FILTERS = {"evolved": ("note = 'x'",)}
FILTERS = (
    "true",
    "id = 11",
    "id IN (1, 50, 199)",
    "id NOT IN (1, 50)",
    "name = 'n3' AND id > 100",
    "name LIKE 'n%' AND amount < 2.5",
    "name LIKE 'n5%'",
    "ts >= TIMESTAMP '1970-01-05 00:00:00' AND ts < TIMESTAMP '1970-01-07 03:00:00'",
    "amount = 12.25 OR id IS NULL",
    "name <> 'n1'",
    "NOT (id > 20)",
)


def session(url: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("sandur-planning")
    options = {
        "spark.jars.packages": PACKAGES,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    for catalog, mode in (("client", "client"), ("server", "server")):
        options |= {
            f"spark.sql.catalog.{catalog}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{catalog}.type": "rest",
            f"spark.sql.catalog.{catalog}.uri": url,
            f"spark.sql.catalog.{catalog}.scan-planning-mode": mode,
            f"spark.sql.catalog.{catalog}.cache-enabled": "false",
        }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(url: str) -> None:
    spark = session(url)
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE NAMESPACE client.scans")
    for name, statements in TABLES.items():
        for statement in statements:
            spark.sql(statement.format(t=f"client.scans.{name}"))
        for wanted in (*FILTERS, *MORE_FILTERS.get(name, ())):
            query = "SELECT * FROM {c}.scans.{t} WHERE {w} ORDER BY id, amount"
            source = READ_AS.get(name, name)
            found = {
                catalog: [str(row) for row in spark.sql(query.format(c=catalog, t=source, w=wanted)).collect()]
                for catalog in ("client", "server")
            }
            result = {
                "table": name,
                "filter": wanted,
                "rows": len(found["client"]),
                "same": found["client"] == found["server"],
            }
            print(json.dumps(result), flush=True)  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
