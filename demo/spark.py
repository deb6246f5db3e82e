"""The Spark step of the demo, in its own process because Spark writes to the terminal."""

import sys

import sandur.spark

OPTIONS = {
    "spark.master": "local[2]",
    "spark.app.name": "sandur-demo",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
STATEMENTS = (
    """MERGE INTO sandur.sales.orders t
           USING (SELECT 2L id, 'DK' country, 99.0D amount UNION ALL SELECT 5L, 'NO', 1.0D) s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT *""",
    "DELETE FROM sandur.sales.orders WHERE id = 3",
    """CREATE TABLE sandur.sales.by_country USING iceberg AS
           SELECT country, sum(amount) total FROM sandur.sales.orders GROUP BY country""",
    "CREATE VIEW sandur.sales.large AS SELECT * FROM sandur.sales.orders WHERE amount > 50",
)


def main(url: str) -> None:
    spark = sandur.spark.session(url, options=OPTIONS)
    spark.sparkContext.setLogLevel("ERROR")
    for statement in STATEMENTS:
        print(f"spark-sql> {statement}", flush=True)
        spark.sql(statement)
    spark.sql("SELECT * FROM sandur.sales.large").show()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
