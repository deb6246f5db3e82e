"""A separate Spark process in which Delta Kernel creates tables; it prints the results."""

import json
import sys
from pathlib import Path
from typing import Any

import sandur.spark
from sandur.errors import AlreadyExists, Invalid
from sandur.spark.statements import MODE
from tests.interop.delta_sessions import delta_session


def main(url: str, folder: str) -> None:
    spark = delta_session(url, folder)
    facts: dict[str, Any] = {}
    path = f"{folder}/by_path"
    strict = "CREATE TABLE {} (id BIGINT NOT NULL COMMENT 'key', part STRING) USING delta {}"
    by_path = strict.format(f"delta.`{path}`", "PARTITIONED BY (part) TBLPROPERTIES ('k' = 'v')")
    sandur.spark.sql(spark, by_path, mode="STRICT")
    facts["by path"] = _first_commit(path)
    facts["by path, again"] = _refusal(lambda: sandur.spark.sql(spark, by_path, mode="STRICT"))
    sandur.spark.sql(spark, by_path.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"), mode="STRICT")
    facts["versions after IF NOT EXISTS"] = sorted(file.name for file in Path(path, "_delta_log").glob("*.json"))

    none = f"{folder}/none"
    sandur.spark.sql(spark, strict.format(f"delta.`{none}`", ""), mode="NONE")
    facts["mode NONE"] = _first_commit(none)

    clustered = f"{folder}/clustered"
    sandur.spark.sql(spark, strict.format(f"delta.`{clustered}`", "CLUSTER BY (id, part)"), mode="STRICT")
    facts["clustered"] = _first_commit(clustered)
    bucketed = strict.format(f"delta.`{folder}/bucketed`", "PARTITIONED BY (bucket(4, id))")
    facts["bucketed"] = _refusal(lambda: sandur.spark.sql(spark, bucketed, mode="STRICT"))

    spark.conf.set(MODE, "STRICT")
    sandur.spark.sql(spark, strict.format("default.in_warehouse", ""))
    spark.conf.set(MODE, "NONE")  # In STRICT mode, Spark's Delta has no history of the table.
    spark.sql("INSERT INTO default.in_warehouse VALUES (1, 'a')")
    facts["in the warehouse"] = [list(row) for row in spark.sql("SELECT * FROM default.in_warehouse").collect()]
    history = spark.sql("DESCRIBE HISTORY default.in_warehouse").collect()
    facts["history of it"] = [row.engineInfo for row in history]

    spark.conf.set(MODE, "STRICT")
    sandur.spark.sql(spark, strict.format("default.dropped", "COMMENT 'it''s a \\\\ comment'"))
    facts["managed in the warehouse"] = _described(spark, "default.dropped")
    spark.sql("DROP TABLE default.dropped")
    facts["files after the drop"] = Path(facts["managed in the warehouse"]["Location"].removeprefix("file:")).exists()

    odd = f"{folder}/it's \\ odd"
    located = strict.format(
        "default.located", f"""TBLPROPERTIES ('k' = 'v') LOCATION "{odd.replace(chr(92), chr(92) * 2)}" """
    )
    sandur.spark.sql(spark, located)
    facts["with a location"] = _first_commit(odd)
    facts["described"] = _described(spark, "default.located")
    spark.sql("DROP TABLE default.located")
    facts["files of it after the drop"] = Path(odd, "_delta_log").exists()
    in_unity = strict.format("main.s.located", f"LOCATION '{folder}/in_unity'")
    facts["with a location in Unity Catalog"] = _refusal(lambda: sandur.spark.sql(spark, in_unity))

    managed = strict.format("main.s.by_kernel", "TBLPROPERTIES ('k' = 'v')")
    sandur.spark.sql(spark, managed)
    facts["managed, again"] = _refusal(lambda: sandur.spark.sql(spark, managed))
    sandur.spark.sql(spark, managed.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    spark.stop()
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


def _described(spark: Any, name: str) -> dict[str, str]:
    """The properties of a table in the session catalog."""
    spark.conf.set(MODE, "NONE")  # In STRICT mode, Spark's Delta describes less.
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    spark.conf.set(MODE, "STRICT")
    state = spark._jsparkSession.sessionState()
    table = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    comment = str(table.comment().get()) if table.comment().isDefined() else ""
    return {row.col_name: row.data_type for row in rows if row.col_name in {"Type", "Location"}} | {"Comment": comment}


def _first_commit(path: str) -> list[Any]:
    lines = (Path(path) / "_delta_log" / f"{0:020d}.json").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _refusal(work: Any) -> str:
    try:
        work()
    except (AlreadyExists, Invalid) as error:
        return type(error).__name__
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
