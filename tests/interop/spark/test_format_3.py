"""Tables of format version 3: row lineage, deletion vectors, variants and default values."""

import json
import urllib.request

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.spark.flavours import NEW, shows
from tests.interop.spark.spark_processes import Sql

LINEAGE = "SELECT id, _row_id, _last_updated_sequence_number FROM t ORDER BY id"


@shows("v3: row lineage", by=NEW)
def test_rows_keep_their_row_ids_through_updates_and_compaction(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, v STRING) TBLPROPERTIES ('format-version' = '3')")
    sql("INSERT INTO t SELECT id, 'a' FROM range(0, 3, 1, 1)")
    sql("INSERT INTO t VALUES (3, 'a')")
    assert sql(LINEAGE) == [[0, 0, 1], [1, 1, 1], [2, 2, 1], [3, 3, 2]]

    sql("UPDATE t SET v = 'b' WHERE id = 1")
    assert sql(LINEAGE) == [[0, 0, 1], [1, 1, 3], [2, 2, 1], [3, 3, 2]]
    sql("CALL sandur.system.rewrite_data_files(table => '{here}.t', options => map('rewrite-all', 'true'))")

    assert sql(LINEAGE) == [[0, 0, 1], [1, 1, 3], [2, 2, 1], [3, 3, 2]]


@shows("v3: row lineage", by=NEW)
def test_rows_of_an_upgraded_table_get_row_ids(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('format-version' = '2')")
    sql("INSERT INTO t VALUES (1)")

    sql("ALTER TABLE t SET TBLPROPERTIES ('format-version' = '3')")
    sql("INSERT INTO t VALUES (2)")

    assert len(set(sql.column("SELECT _row_id FROM t"))) == 2
    with pytest.raises(EngineError, match=r"(?i)downgrade"):
        sql("ALTER TABLE t SET TBLPROPERTIES ('format-version' = '2')")


@shows("v3: deletion vectors", by=NEW)
def test_deletes_are_written_as_one_deletion_vector_per_file(sql: Sql) -> None:
    sql(
        """CREATE TABLE t (id BIGINT) TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read',
           'write.update.mode' = 'merge-on-read')"""
    )
    sql("INSERT INTO t SELECT id FROM range(0, 10, 1, 1)")

    sql("DELETE FROM t WHERE id = 1")
    sql("DELETE FROM t WHERE id IN (2, 3)")

    assert sql("SELECT file_format, record_count FROM {here}.t.delete_files") == [["PUFFIN", 3]]
    assert sql.column("SELECT id FROM t ORDER BY id") == [0, *range(4, 10)]
    with_vectors = "SELECT count(*) FROM {here}.t.snapshots WHERE summary['added-dvs'] = '1'"
    assert sql.column(with_vectors) == [2]


@shows("v3: variant", by=NEW)
def test_variants_are_written_read_and_queried(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, v VARIANT) TBLPROPERTIES ('format-version' = '3')")

    sql("""INSERT INTO t SELECT 1, parse_json('{"a": {"b": 7}, "c": [1, "x"]}')""")
    sql("INSERT INTO t SELECT 2, parse_json('true')")

    assert sql("SELECT id, variant_get(v, '$.a.b', 'int'), to_json(v) FROM t ORDER BY id") == [
        [1, 7, '{"a":{"b":7},"c":[1,"x"]}'],
        [2, None, "true"],
    ]


@shows("v3: variant", by=NEW)
def test_a_variant_is_refused_before_format_version_3(sql: Sql) -> None:
    with pytest.raises(EngineError, match="variant is not supported until v3"):
        sql("CREATE TABLE t (v VARIANT) TBLPROPERTIES ('format-version' = '2')")

    assert sql("SHOW TABLES IN {here}") == []


@shows("v3: default values", by=NEW)
def test_an_initial_default_is_read_for_older_rows(sql: Sql) -> None:
    """Another client's commit adds the column; Spark reads its default."""
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('format-version' = '3')")
    sql("INSERT INTO t VALUES (1)")

    [url] = sql.job("options_of", prefix="spark.sql.catalog.sandur.uri").values()
    _add_column_with_default(url, sql.here.removeprefix("sandur."))
    sql("REFRESH TABLE t")

    assert sql("SELECT * FROM t ORDER BY id") == [[1, "then"]]
    sql("INSERT INTO t VALUES (2, 'given')")
    assert sql("SELECT * FROM t ORDER BY id") == [[1, "then"], [2, "given"]]


@shows("v3: set default values", by=NEW, cannot="Iceberg's Spark reads default values and cannot set them")
def test_spark_cannot_set_a_default(sql: Sql) -> None:
    with pytest.raises(EngineError, match="does not support column default value"):
        sql("CREATE TABLE t (id BIGINT, word STRING DEFAULT 'x') TBLPROPERTIES ('format-version' = '3')")
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('format-version' = '3')")
    with pytest.raises(EngineError, match="setting default values in Spark is currently unsupported"):
        sql("ALTER TABLE t ADD COLUMN word STRING DEFAULT 'x'")


@shows("v3: unknown type", by=NEW)
def test_a_column_of_unknown_type_is_always_null(sql: Sql) -> None:
    sql("CREATE TABLE t TBLPROPERTIES ('format-version' = '3') AS SELECT 1 id, NULL nothing")

    assert sql("SELECT * FROM t") == [[1, None]]
    with pytest.raises(EngineError, match="unknown is not supported until v3"):
        sql("CREATE TABLE u TBLPROPERTIES ('format-version' = '2') AS SELECT NULL nothing")


def _add_column_with_default(url: str, namespace: str) -> None:
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {
            "id": 2,
            "name": "word",
            "type": "string",
            "required": False,
            "initial-default": "then",
            "write-default": "now",
        },
    ]
    updates = [
        {"action": "add-schema", "schema": {"type": "struct", "fields": fields}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    request = urllib.request.Request(  # noqa: S310 - our own server on loopback
        f"{url}/v1/namespaces/{namespace}/tables/t",
        data=json.dumps({"requirements": [], "updates": updates}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server on loopback
        assert answer.status == 200
