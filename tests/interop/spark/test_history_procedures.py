"""Procedures that roll back, cherry-pick and read the history of a table."""

from tests.interop.spark.flavours import NEW, shows
from tests.interop.spark.spark_processes import Sql


def make_three(sql: Sql) -> list[int]:
    """A table with three snapshots, and their ids."""
    sql("CREATE TABLE t (id BIGINT)")
    for number in range(3):
        sql("INSERT INTO t VALUES ({number})", number=number)
    return sql.snapshots()


@shows("rollback", by=NEW)
def test_a_table_is_rolled_back_to_a_snapshot(sql: Sql) -> None:
    first, _, third = make_three(sql)

    assert sql("CALL sandur.system.rollback_to_snapshot('{here}.t', {first})", first=first) == [[third, first]]

    assert sql.column("SELECT id FROM t") == [0]


@shows("rollback", by=NEW)
def test_a_table_is_rolled_back_to_a_time(sql: Sql) -> None:
    _, second, third = make_three(sql)
    then = sql.column("SELECT committed_at FROM {here}.t.snapshots ORDER BY committed_at")[2]

    rolled = sql("CALL sandur.system.rollback_to_timestamp('{here}.t', TIMESTAMP '{then}')", then=then)

    assert rolled == [[third, second]]
    assert sql.column("SELECT id FROM t ORDER BY id") == [0, 1]


@shows("rollback", by=NEW)
def test_any_snapshot_or_ref_becomes_the_current_one(sql: Sql) -> None:
    first, second, third = make_three(sql)
    sql("ALTER TABLE t CREATE TAG second AS OF VERSION {second}", second=second)

    assert sql("CALL sandur.system.set_current_snapshot('{here}.t', {first})", first=first) == [[third, first]]
    assert sql("CALL sandur.system.set_current_snapshot(table => '{here}.t', ref => 'second')") == [[first, second]]

    assert sql.column("SELECT id FROM t ORDER BY id") == [0, 1]


@shows("ancestors", by=NEW)
def test_ancestors_are_listed_from_the_newest(sql: Sql) -> None:
    first, second, third = make_three(sql)

    assert sql.column("CALL sandur.system.ancestors_of('{here}.t')") == [third, second, first]
    assert sql.column("CALL sandur.system.ancestors_of('{here}.t', {second})", second=second) == [second, first]


@shows("branches and tags", by=NEW)
def test_a_fast_forward_creates_a_branch(sql: Sql) -> None:
    _, _, third = make_three(sql)

    assert sql("CALL sandur.system.fast_forward('{here}.t', 'fresh', 'main')") == [["fresh", None, third]]

    assert sql.column("SELECT count(*) FROM {here}.t.branch_fresh") == [3]


@shows("changelog view", by=NEW)
def test_a_changelog_view_lists_changes_row_by_row(sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT, v STRING)")
    sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    start = sql.snapshots()[0]
    sql("UPDATE t SET v = 'c' WHERE id = 1")
    sql("DELETE FROM t WHERE id = 2")

    view = sql.column(
        """CALL sandur.system.create_changelog_view(table => '{here}.t', changelog_view => 'changes',
           options => map('start-snapshot-id', '{start}'), identifier_columns => array('id'))""",
        start=start,
    )

    assert view == ["changes"]
    assert sql("SELECT id, v, _change_type FROM changes ORDER BY _change_ordinal, id, _change_type DESC") == [
        [1, "a", "UPDATE_BEFORE"],
        [1, "c", "UPDATE_AFTER"],
        [2, "b", "DELETE"],
    ]
