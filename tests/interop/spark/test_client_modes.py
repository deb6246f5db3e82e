"""Clients that ask for less at a time: pages of lists, and snapshots only when they are needed."""

from tests.interop.spark.flavours import NEW, shows
from tests.interop.spark.spark_processes import Sql


@shows("namespaces", by=NEW)
def test_long_lists_come_in_pages(sql: Sql) -> None:
    for number in range(5):
        sql("CREATE TABLE {here}.t{number} (id BIGINT)", number=number)
        sql("CREATE NAMESPACE {here}.n{number}", number=number)
    lazy = sql.here.replace("sandur", "lazy")

    tables = [row[1] for row in sql("SHOW TABLES IN {lazy}", lazy=lazy)]
    children = sql.column("SHOW NAMESPACES IN {lazy}", lazy=lazy)

    assert sorted(tables) == ["t0", "t1", "t2", "t3", "t4"]
    assert sorted(name.rpartition(".")[2] for name in children) == ["n0", "n1", "n2", "n3", "n4"]


@shows("time travel", "expire snapshots", by=NEW)
def test_snapshots_that_were_not_sent_at_first_are_found_when_asked_for(sql: Sql) -> None:
    lazy = f"{sql.here.replace('sandur', 'lazy')}.t"
    sql("CREATE TABLE {lazy} (id BIGINT)", lazy=lazy)
    for number in range(3):
        sql("INSERT INTO {lazy} VALUES ({number})", lazy=lazy, number=number)
    sql("ALTER TABLE {lazy} CREATE TAG kept AS OF VERSION {id}", lazy=lazy, id=sql.snapshots()[1])

    assert sql.column("SELECT id FROM {lazy} VERSION AS OF {id}", lazy=lazy, id=sql.snapshots()[0]) == [0]
    assert sql.column("SELECT count(*) FROM {lazy}.snapshots", lazy=lazy) == [3]
    sql(
        "CALL lazy.system.expire_snapshots(table => '{lazy}', retain_last => 1, older_than => TIMESTAMP '2100-01-01')",
        lazy=lazy,
    )

    sql("REFRESH TABLE t")
    assert len(sql.snapshots()) == 2
    assert sql.column("SELECT id FROM {lazy} VERSION AS OF 'kept' ORDER BY id", lazy=lazy) == [0, 1]
    assert sql.column("SELECT id FROM {lazy} ORDER BY id", lazy=lazy) == [0, 1, 2]
