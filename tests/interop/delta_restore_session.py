"""A separate Spark process that writes a Delta table with many features, and compares versions after restores."""

import json
import sys
from typing import Final

from tests.interop.delta_sessions import delta_session

WRITES: Final = (
    """CREATE TABLE {t} (id BIGINT, part STRING, text STRING) USING delta PARTITIONED BY (part) TBLPROPERTIES (
       'delta.enableDeletionVectors' = 'true', 'delta.enableInCommitTimestamps' = 'true',
       'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '4')""",
    "INSERT INTO {t} SELECT id, if(id % 2 = 0, 'a b', 'ü/%'), concat('text ', id) FROM range(20)",
    "DELETE FROM {t} WHERE id = 3",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "INSERT INTO {t} SELECT id, 'c', 'later' FROM range(100, 110)",
    "UPDATE {t} SET text = 'changed' WHERE id < 10",
    "ALTER TABLE {t} RENAME COLUMN text TO words",
    "ALTER TABLE {t} ADD COLUMN extra INT",
    """MERGE INTO {t} t USING (SELECT 4 AS id, 'merged' AS words UNION ALL SELECT 999, 'new') s ON t.id = s.id
       WHEN MATCHED THEN UPDATE SET words = s.words
       WHEN NOT MATCHED THEN INSERT (id, part, words) VALUES (s.id, 'd', s.words)""",
    "OPTIMIZE {t}",
    "DELETE FROM {t} WHERE part = 'c'",
)


def main(url: str, folder: str, *restored: str) -> None:
    """Without `restored`, write the history. A pair such as `2:12` says that version 12 has the state of version 2."""
    spark = delta_session(url, folder)
    table = f"delta.`{folder}/t`"
    if not restored:
        for statement in WRITES:
            spark.sql(statement.format(t=table))
        spark.stop()
        return

    def rows(version: str) -> list[str]:
        found = spark.sql(f"SELECT * FROM {table} VERSION AS OF {version}")
        return [str(found.columns), *sorted(str(row.asDict()) for row in found.collect())]

    pairs = [pair.split(":") for pair in restored]
    facts: dict[str, object] = {f"{then} is {now}": rows(then) == rows(now) for then, now in pairs}
    facts["rows"] = [len(rows(now)) - 1 for _, now in pairs]
    facts["operations"] = [
        row["operation"] for row in spark.sql(f"DESCRIBE HISTORY {table} LIMIT {len(pairs)}").collect()
    ]
    spark.sql(f"INSERT INTO {table} (id, part) VALUES (-1, 'after')")
    ids = [row["row_id"] for row in spark.sql(f"SELECT _metadata.row_id AS row_id FROM {table}").collect()]
    facts["rows after"], facts["row ids after"] = len(ids), len(set(ids))
    spark.stop()
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main(*sys.argv[1:])
