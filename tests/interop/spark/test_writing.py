"""More ways to write, and unusual names."""

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.spark.flavours import NEW, ON_A_FOLDER, shows
from tests.interop.spark.spark_processes import Sql


@shows("insert", "overwrite", by=NEW)
def test_rows_are_inserted_by_name_replaced_by_condition_and_truncated(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, n INT)")

    sql("INSERT INTO t BY NAME SELECT 2 AS n, 1L AS id")
    sql("INSERT INTO t VALUES (2, 3)")
    sql("INSERT INTO t REPLACE WHERE id = 1 SELECT 1L, 9")
    assert sql("SELECT * FROM t ORDER BY id") == [[1, 9], [2, 3]]
    sql("TRUNCATE TABLE t")

    assert sql("SELECT * FROM t") == []


@shows("create table as select", "replace table", "insert", "overwrite", by=NEW)
def test_frames_are_written_to_tables(sql: Sql) -> None:
    table = f"{sql.here}.t"

    sql.job("write_frame", query="SELECT 1L id, 'a' part", table=table, how="create", partition_by="part")
    sql.job("write_frame", query="SELECT 2L id, 'b' part", table=table, how="append")
    sql.job("write_frame", query="SELECT 3L id, 'a' part", table=table, how="overwritePartitions")
    assert sql("SELECT * FROM t ORDER BY id") == [[2, "b"], [3, "a"]]
    sql.job("write_frame", query="SELECT 'x' word", table=table, how="createOrReplace")

    assert sql("SELECT * FROM t") == [["x"]]


@shows("evolve schema", by=NEW)
def test_an_identifier_field_cannot_be_dropped(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT NOT NULL, n INT)")

    sql("ALTER TABLE t SET IDENTIFIER FIELDS id")
    with pytest.raises(EngineError, match="identifier"):
        sql("ALTER TABLE t DROP COLUMN id")
    sql("ALTER TABLE t DROP IDENTIFIER FIELDS id")
    sql("ALTER TABLE t ALTER COLUMN id DROP NOT NULL")
    sql("INSERT INTO t VALUES (NULL, 1)")

    assert sql("SELECT * FROM t") == [[None, 1]]


@shows("create table", by=NEW)
def test_names_may_contain_dots_spaces_slashes_and_any_script(sql: Sql) -> None:
    sql("CREATE NAMESPACE {here}.`dot.ted and spaced`")
    sql("CREATE TABLE {here}.`dot.ted and spaced`.`t/ö ❄ +%` AS SELECT 1 AS `ein e.s`")
    sql("INSERT INTO {here}.`dot.ted and spaced`.`t/ö ❄ +%` VALUES (2)")

    found = "SELECT `ein e.s` FROM {here}.`dot.ted and spaced`.`t/ö ❄ +%` ORDER BY 1"
    assert sql.column(found) == [1, 2]
    assert [row[1] for row in sql("SHOW TABLES IN {here}.`dot.ted and spaced`")] == ["t/ö ❄ +%"]
    assert sql.column("SELECT count(*) FROM {here}.`dot.ted and spaced`.`t/ö ❄ +%`.snapshots") == [2]


@shows("create table", by=ON_A_FOLDER)
def test_a_location_that_the_server_does_not_allow_is_refused(sql: Sql) -> None:
    for statement in (
        "CREATE TABLE t (id BIGINT) LOCATION 'file:///etc/t'",
        "CREATE TABLE t LOCATION 'file:///etc/t' AS SELECT 1 a",
    ):
        with pytest.raises(EngineError, match="Invalid location file:/"):
            sql(statement)

    assert sql("SHOW TABLES IN {here}") == []
