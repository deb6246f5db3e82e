"""What runs beside the test: Spark with Unity Catalog's connector and Delta, through statements that people write.

Every step is told by itself: what it gave, or the error it ended in.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from sandur.spark.versions import DELTA_PACKAGE


def main(url: str, folder: str, jars: str, is_older: str) -> None:
    spark = _session(url, folder, jars, is_older=is_older == "older")
    facts: dict[str, Any] = {}

    def step(name: str, work: Callable[[], object]) -> None:
        try:
            facts[name] = work()
        except Exception as error:  # noqa: BLE001 - told to the test, which judges it
            facts[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"

    def sql(statement: str) -> list[list[Any]]:
        return [list(row) for row in spark.sql(statement).collect()]

    step("schema", lambda: sql("CREATE SCHEMA IF NOT EXISTS main.t"))
    step("schemas", lambda: sorted(row[0] for row in sql("SHOW SCHEMAS IN main")))
    step("create", lambda: sql("CREATE TABLE main.t.a (id BIGINT, text STRING) USING delta"))
    step("insert", lambda: sql("INSERT INTO main.t.a VALUES (1, 'one'), (2, 'two'), (3, 'three')"))
    step("select", lambda: sql("SELECT * FROM main.t.a ORDER BY id"))
    step("update", lambda: sql("UPDATE main.t.a SET text = 'TWO' WHERE id = 2"))
    step("delete", lambda: sql("DELETE FROM main.t.a WHERE id = 3"))
    step(
        "merge",
        lambda: sql(
            "MERGE INTO main.t.a t USING (SELECT 2 AS id, 'merged' AS text UNION ALL SELECT 4, 'four') s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *"
        ),
    )
    step("after them", lambda: sql("SELECT * FROM main.t.a ORDER BY id"))
    step("time travel", lambda: sql("SELECT count(*) FROM main.t.a VERSION AS OF 1"))
    step("history", lambda: [row.operation for row in reversed(spark.sql("DESCRIBE HISTORY main.t.a").collect())])
    step("add column", lambda: sql("ALTER TABLE main.t.a ADD COLUMNS (more INT)"))
    step("set property", lambda: sql("ALTER TABLE main.t.a SET TBLPROPERTIES ('k' = 'v')"))
    step("columns", lambda: spark.table("main.t.a").columns)
    step("create as select", lambda: sql("CREATE TABLE main.t.b USING delta AS SELECT id, text FROM main.t.a"))
    step("rows of it", lambda: sql("SELECT count(*) FROM main.t.b"))
    step("replace", lambda: sql("CREATE OR REPLACE TABLE main.t.b (x INT) USING delta"))
    step("columns of it", lambda: spark.table("main.t.b").columns)
    step(
        "external",
        lambda: sql(
            f"CREATE TABLE main.t.ext (id INT) USING delta LOCATION '{folder}/tables/default/default/main/ext'"
        ),
    )
    step("insert into it", lambda: sql("INSERT INTO main.t.ext VALUES (7)"))
    step("read it", lambda: sql("SELECT * FROM main.t.ext"))
    step("tables", lambda: sorted(row[1] for row in sql("SHOW TABLES IN main.t")))
    step("many commits", lambda: [sql(f"INSERT INTO main.t.a VALUES ({n}, '', 0)") for n in range(10, 23)] and None)
    step("rows in all", lambda: sql("SELECT count(*) FROM main.t.a"))
    step("drop", lambda: sql("DROP TABLE main.t.b"))
    step("tables left", lambda: sorted(row[1] for row in sql("SHOW TABLES IN main.t")))
    spark.stop()
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


def _session(url: str, folder: str, jars: str, *, is_older: bool) -> SparkSession:
    options = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.main": "io.unitycatalog.spark.UCSingleCatalog",
        "spark.sql.catalog.main.uri": url,
        "spark.sql.catalog.main.token": "any",
    }
    if is_older:
        options["spark.sql.catalog.main.deltaRestApi.enabled"] = "false"
    packages = [DELTA_PACKAGE]
    if jars.endswith(".jar"):
        options["spark.jars"] = jars
    else:
        packages.append(jars)
    options["spark.jars.packages"] = ",".join(packages)
    builder = SparkSession.builder.master("local[1]")
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main(*sys.argv[1:])
