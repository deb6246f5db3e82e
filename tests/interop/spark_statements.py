"""Statements given to a real Spark, one JSON line of answer each; run in a process of its own."""

import json
import sys

from demo.spark import session

STATEMENTS = {
    "namespace": "CREATE NAMESPACE sandur.spark",
    "create": """CREATE TABLE sandur.spark.t (id BIGINT, country STRING, amount DOUBLE) USING iceberg
        PARTITIONED BY (bucket(2, id), country)""",
    "insert": "INSERT INTO sandur.spark.t VALUES (1, 'IS', 10.5), (2, 'DK', 20.0), (3, 'IS', 7.25)",
    "merge": """MERGE INTO sandur.spark.t t
        USING (SELECT 2L id, 'DK' country, 99.0D amount UNION ALL SELECT 4L, 'NO', 1.0D) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT *""",
    "update": "UPDATE sandur.spark.t SET amount = 8.0 WHERE id = 3",
    "delete": "DELETE FROM sandur.spark.t WHERE id = 1",
    "evolve": "ALTER TABLE sandur.spark.t ADD COLUMN note STRING",
    "rows": "SELECT id, country, amount, note FROM sandur.spark.t ORDER BY id",
    "ctas": """CREATE TABLE sandur.spark.sums USING iceberg AS
        SELECT country, sum(amount) s FROM sandur.spark.t GROUP BY country""",
    "replace": "CREATE OR REPLACE TABLE sandur.spark.sums USING iceberg AS SELECT count(*) n FROM sandur.spark.t",
    "replaced": "SELECT * FROM sandur.spark.sums",
    "branch": "ALTER TABLE sandur.spark.t CREATE BRANCH audit",
    "write branch": "INSERT INTO sandur.spark.t.branch_audit VALUES (9, 'FO', 1.0, 'x')",
    "read branch": "SELECT count(*) FROM sandur.spark.t VERSION AS OF 'audit'",
    "fast forward": "CALL sandur.system.fast_forward('spark.t', 'main', 'audit')",
    "main": "SELECT count(*) FROM sandur.spark.t",
    "expire": "CALL sandur.system.expire_snapshots(table => 'spark.t', retain_last => 1)",
    "rewrite": "CALL sandur.system.rewrite_data_files('spark.t')",
    "view": "CREATE VIEW sandur.spark.v AS SELECT id FROM sandur.spark.t WHERE id > 2",
    "read view": "SELECT count(*) FROM sandur.spark.v",
    "rename": "ALTER TABLE sandur.spark.sums RENAME TO spark.totals",
    "tables": "SHOW TABLES IN sandur.spark",
    "snapshots": "SELECT count(*) > 0 FROM sandur.spark.t.snapshots",
    "v3": "CREATE TABLE sandur.spark.v3 (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')",
    "insert v3": "INSERT INTO sandur.spark.v3 VALUES (1), (2)",
    "delete v3": "DELETE FROM sandur.spark.v3 WHERE id = 1",
    "row ids": "SELECT id, _row_id FROM sandur.spark.v3",
    "drop": "DROP TABLE sandur.spark.totals PURGE",
    "drop view": "DROP VIEW sandur.spark.v",
}


def main(url: str) -> None:
    spark = session(url)
    spark.sparkContext.setLogLevel("ERROR")
    for name, statement in STATEMENTS.items():
        rows = [list(row) for row in spark.sql(statement).collect()]
        print(json.dumps({"name": name, "rows": rows}, default=str), flush=True)  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
