"""Write, audit, publish: staged rows are invisible until they are published."""

import pytest

from tests.interop.engines.conversation import EngineError
from tests.interop.spark.flavours import NEW, shows
from tests.interop.spark.spark_processes import Sql


def make_audited(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('write.wap.enabled' = 'true')")
    sql("INSERT INTO t VALUES (1)")


@shows("write-audit-publish", by=NEW)
def test_a_staged_write_is_visible_after_its_publication(sql: Sql) -> None:
    make_audited(sql)
    sql("SET spark.wap.id = audit_1")
    sql("INSERT INTO t VALUES (2)")
    sql("RESET spark.wap.id")
    assert sql.column("SELECT id FROM t") == [1]
    staged = sql.column("SELECT snapshot_id FROM {here}.t.snapshots WHERE summary['wap.id'] = 'audit_1'")
    assert sql.column("SELECT id FROM t VERSION AS OF {id} ORDER BY id", id=staged[0]) == [1, 2]

    published = sql("CALL sandur.system.publish_changes('{here}.t', 'audit_1')")

    assert published[0][0] == staged[0]
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2]
    with pytest.raises(EngineError, match=r"(?i)duplicate|already"):
        sql("CALL sandur.system.publish_changes('{here}.t', 'audit_1')")


@shows("write-audit-publish", by=NEW)
def test_a_staged_write_is_published_on_top_of_later_commits(sql: Sql) -> None:
    make_audited(sql)
    sql("SET spark.wap.id = audit_2")
    sql("INSERT INTO t VALUES (2)")
    sql("RESET spark.wap.id")
    sql("INSERT INTO t VALUES (3)")

    sql("CALL sandur.system.publish_changes('{here}.t', 'audit_2')")

    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2, 3]


@shows("write-audit-publish", by=NEW)
def test_a_branch_is_written_audited_and_published(sql: Sql) -> None:
    make_audited(sql)
    sql("ALTER TABLE t CREATE BRANCH audit")
    sql("SET spark.wap.branch = audit")
    sql("INSERT INTO t VALUES (2)")
    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2]
    sql("RESET spark.wap.branch")
    assert sql.column("SELECT id FROM t") == [1]

    sql("CALL sandur.system.fast_forward('{here}.t', 'main', 'audit')")

    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2]


@shows("write-audit-publish", by=NEW)
def test_a_staged_snapshot_is_cherry_picked(sql: Sql) -> None:
    make_audited(sql)
    sql("SET spark.wap.id = audit_3")
    sql("INSERT INTO t VALUES (2)")
    sql("RESET spark.wap.id")
    staged = sql.column("SELECT snapshot_id FROM {here}.t.snapshots WHERE summary['wap.id'] = 'audit_3'")[0]

    sql("CALL sandur.system.cherrypick_snapshot('{here}.t', {staged})", staged=staged)

    assert sql.column("SELECT id FROM t ORDER BY id") == [1, 2]
