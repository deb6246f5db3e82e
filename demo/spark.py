"""The Spark part of the demonstration, in a process of its own: Spark writes to whatever terminal it finds."""

import sys

from pyspark.sql import SparkSession

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
STATEMENTS = (
    """MERGE INTO sandur.sales.orders t
           USING (SELECT 2L id, 'DK' country, 99.0D amount UNION ALL SELECT 5L, 'NO', 1.0D) s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT *""",
    "DELETE FROM sandur.sales.orders WHERE id = 3",
    """CREATE TABLE sandur.sales.by_country USING iceberg AS
           SELECT country, sum(amount) total FROM sandur.sales.orders GROUP BY country""",
    "CREATE VIEW sandur.sales.large AS SELECT * FROM sandur.sales.orders WHERE amount > 50",
)


def session(url: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("sandur-demo")
    options = {
        "spark.jars.packages": PACKAGES,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.sandur": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.sandur.type": "rest",
        "spark.sql.catalog.sandur.uri": url,
        "spark.sql.catalog.sandur.warehouse": "main",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(url: str) -> None:
    spark = session(url)
    spark.sparkContext.setLogLevel("ERROR")
    for statement in STATEMENTS:
        print(f"spark-sql> {statement}", flush=True)
        spark.sql(statement)
    spark.sql("SELECT * FROM sandur.sales.large").show()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
