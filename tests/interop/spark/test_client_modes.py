"""Client modes with smaller answers: paged lists, and snapshots on demand."""

from tests.interop.spark.flavours import NEW, shows
from tests.interop.spark.spark_processes import Sql


@shows("namespaces", by=NEW)
def test_long_lists_are_paged(sql: Sql) -> None:
    for number in range(5):
        sql("CREATE TABLE {here}.t{number} (id BIGINT)", number=number)
        sql("CREATE NAMESPACE {here}.n{number}", number=number)
    lazy = sql.here.replace("sandur", "lazy")

    tables = [row[1] for row in sql("SHOW TABLES IN {lazy}", lazy=lazy)]
    children = sql.column("SHOW NAMESPACES IN {lazy}", lazy=lazy)

    assert sorted(tables) == ["t0", "t1", "t2", "t3", "t4"]
    assert sorted(name.rpartition(".")[2] for name in children) == ["n0", "n1", "n2", "n3", "n4"]


@shows("time travel", "expire snapshots", by=NEW)
def test_omitted_snapshots_are_loaded_on_demand(sql: Sql) -> None:
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
