"""What a query of a preview may try: one locked database, and every way out of it that we know."""

from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest

from sandur.operations.preview.reader import Refusal, connect, lock_in, read_rows
from sandur.operations.preview.rows import _extension_files


class Locked:
    """A database that is locked to the Delta table `sales.orders`; another one lies beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "orders"
        for name in ("orders", "other"):
            deltalake.write_deltalake(folder / name, pa.table({"id": [1, 2], "blob": [b"\x00\x01", None]}))
        (folder / "secret.csv").write_text("a,b")
        self.connection = connect(_extension_files(), 1 << 30)
        table = {
            "namespace": "sales",
            "name": "orders",
            "format": "delta",
            "location": str(self.table),
            "version": None,
        }
        lock_in(self.connection, {"secrets": [], "folders": [f"{self.table}/"], "tables": [table]})

    def rows(self, sql: str, *, rows_max: int = 10, bytes_max: int = 10_000) -> Any:
        limits = {"rows_max": rows_max, "cell_chars_max": 20, "bytes_max": bytes_max}
        return read_rows(self.connection, {"sql": sql, **limits})

    def files(self) -> list[str]:
        return sorted(str(file) for file in self.folder.rglob("*"))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Locked:
    return Locked(tmp_path_factory.mktemp("locked"))


def test_a_query_reads_its_table_by_both_names(locked: Locked) -> None:
    found = locked.rows("select * from sales.orders order by id")

    assert found["rows"] == [[1, "0001"], [2, None]]
    assert [column["name"] for column in found["columns"]] == ["id", "blob"]
    assert locked.rows("from orders")["is_cut"] is False
    nested = "with a as (from orders) select count(*) from a join range(2) on true where id in (from orders select id)"
    assert locked.rows(nested)["rows"] == [[4]]
    assert locked.rows("select unnest([1, 2]) order by 1")["rows"] == [[1], [2]]


def test_rows_cells_and_bytes_are_limited(locked: Locked) -> None:
    assert locked.rows("from range(100)", rows_max=3)["rows"] == [[0], [1], [2]]
    assert locked.rows("from range(3)", rows_max=3)["is_cut"] is False
    assert locked.rows("from range(4)", rows_max=3)["is_cut"] is True
    assert locked.rows("select repeat('x', 50)")["rows"] == [["x" * 20 + "…"]]
    few = locked.rows("select repeat('x', 20) from range(10)", bytes_max=100)
    assert (len(few["rows"]), few["is_cut"]) == (4, True)
    assert locked.rows("select 'nan'::double, [1, 2], {'a': 1}")["rows"] == [["nan", "[1, 2]", '{"a": 1}']]
    nested = locked.rows("select {'a': [date '2026-01-01', null]}, map {'k': 'Þ'}")["rows"]
    assert nested == [['{"a": ["2026-01-01",…', '{"k": "Þ"}']]


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '{folder}/out.csv'",
        "copy (select 1) to '{table}/out.csv'",
        "select 1; copy (select 1) to '{table}/out.csv'",
        "attach '{folder}/other.db'",
        "install json",
        "load '{folder}/x.duckdb_extension'",
        "set threads = 4",
        "create table t (id int)",
        "insert into orders values (1)",
        "export database '{table}/all'",
        "select * from read_text('/etc/passwd')",
        "select * from read_text('/proc/self/environ')",
        "select * from glob('/etc/*')",
        "select * from read_csv('{folder}/**')",
        "select * from 'http://127.0.0.1:1/x.csv'",
        "select * from delta_scan('{folder}/other')",
        "select * from duckdb_secrets()",
        "select * from nothing",
        "select from where",
        "",
        "select * from read_csv('{folder}/secret.csv')",
        "select * from '{folder}/other/*.parquet'",
        "reset memory_limit",
        "pragma threads = 4",
        "detach memory",
        "create secret (type s3)",
        "select * from query('select 1')",
        "select (select count(*) from query('from range(1)'))",
        "with a as (from delta_scan('{folder}/other')) select * from a",
        "select * from orders where id in (select 1 from delta_list_files('{folder}/other'))",
        "from delta_domain_metadata('{folder}/other')",
        "from delta_scan('http://127.0.0.1:1/x')",
        "from delta_scan('{table}/../other')",
        "from delta_set_transaction_version('{table}', 'a', 1, 1)",
        "from which_secret('s3://a', 's3')",
        "from duckdb_settings()",
        "describe orders",
        "summarize orders",
        "pragma database_list",
        "show tables",
    ],
)
def test_a_query_reaches_nothing_but_its_table(locked: Locked, sql: str) -> None:
    before = locked.files()

    with pytest.raises((Refusal, duckdb.Error)):
        locked.rows(sql.format(folder=locked.folder, table=locked.table))

    assert locked.files() == before
