"""`make demo`: a fresh folder, a server, PyIceberg, DuckDB and Spark on the same tables, and the pipeline over it."""

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from demo.duckdb_sessions import session
from demo.pipeline import run_pipeline
from demo.racer import FIRST_ID
from demo.server import running_server
from demo.showing import (
    goodbye,
    said_by,
    say,
    show_folder,
    show_history,
    show_readings,
    show_rows,
    show_statement,
    step,
)

ORDERS = pa.table({"id": [1, 2, 3], "country": ["IS", "DK", "IS"], "amount": [10.5, 20.0, 7.25]})
MORE_ORDERS = pa.table({"id": [4], "country": ["FO"], "amount": [120.0]})
DUCKDB_STATEMENTS = (
    "BEGIN",
    "CREATE TABLE sandur.sales.countries AS SELECT * FROM (VALUES ('IS', 'Iceland'), ('DK', 'Denmark')) c (code, name)",
    "INSERT INTO sandur.sales.orders VALUES (6, 'DK', 42.0)",
    "COMMIT",
)
RACERS = 4
SECONDS_MAX = 600


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sandur-demo-") as folder:
        store = Path(folder) / "store"
        with running_server(store) as url:
            with step(1, "A server on a fresh folder. No database, no lock service: the folder is all there is."):
                say(f"serving {store} at {url}")
                catalog = load_catalog("sandur", type="rest", uri=url, warehouse="main")
            write_with_pyiceberg(catalog)
            duck = session(url)
            write_with_duckdb(duck)
            write_with_spark(url)
            read_with_all(catalog, duck)
            race(catalog, url)
            show_the_past(catalog, duck, store)
            with step(8, "What lies in the folder: plain files, changed only by compare-and-swap."):
                show_folder(store)
            run_pipeline(9, store, duck)
    goodbye()
    return 0


def write_with_pyiceberg(catalog: Catalog) -> None:
    with step(2, "PyIceberg creates a table and appends to it."):
        catalog.create_namespace("sales")
        table = catalog.create_table("sales.orders", schema=ORDERS.schema)
        table.append(ORDERS)
        table.append(MORE_ORDERS)
        show_rows("sales.orders", table.scan().to_arrow())


def write_with_duckdb(duck: duckdb.DuckDBPyConnection) -> None:
    with step(3, "DuckDB reads it, and changes two tables in one transaction."):
        totals = "SELECT country, sum(amount) AS total FROM sandur.sales.orders GROUP BY country"
        show_statement("duckdb", totals)
        show_rows("by country", duck.execute(totals).to_arrow_table())
        for statement in DUCKDB_STATEMENTS:
            show_statement("duckdb", statement)
            duck.execute(statement)


def write_with_spark(url: str) -> None:
    with step(4, "Spark merges, deletes, makes a table of a query, and a view.", waiting="starting a JVM …"):
        if shutil.which("java") is None:
            say("[yellow]skipped: Java is not installed[/]")
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.spark", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        errors: list[str] = []
        # Both are read as they come: a pipe that nobody reads stops who writes to it.
        reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
        watchdog = threading.Timer(SECONDS_MAX, process.kill)
        reader.start()
        watchdog.start()
        for line in process.stdout or ():
            said_by(line)
        failed = process.wait()
        watchdog.cancel()
        reader.join()
        if failed:
            said_by("".join(errors)[-3_000:])
            raise SystemExit("demo: Spark failed")


def read_with_all(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    """Spark said above what it sees; the others must agree about what it left."""
    with step(5, "Everybody reads what the others wrote."):
        names = sorted(identifier[-1] for identifier in catalog.list_tables("sales"))
        readings: dict[str, dict[str, object]] = {"PyIceberg": {}, "DuckDB": {}}
        for name in names:
            scanned = catalog.load_table(f"sales.{name}").scan().to_arrow()
            readings["PyIceberg"][name] = f"{scanned.num_rows} rows"
            readings["DuckDB"][name] = f"{duck.table(f'sandur.sales.{name}').count('*').fetchall()[0][0]} rows"
        show_readings(readings)
        show_rows("sales.orders", catalog.load_table("sales.orders").scan().to_arrow())
        if readings["PyIceberg"] != readings["DuckDB"]:
            raise SystemExit("demo: the engines do not agree")


def race(catalog: Catalog, url: str) -> None:
    with step(6, "Four writers append to one table at the same time.", waiting="racing …"):
        command = [sys.executable, "-m", "demo.racer", url]
        racers = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, text=True) for n in range(RACERS)]
        ended = [(racer.communicate(timeout=SECONDS_MAX)[1], racer.returncode) for racer in racers]
        if failures := [errors for errors, code in ended if code]:
            said_by(failures[0])
            raise SystemExit("demo: a writer failed")
        retries = sum(errors.count("retrying") for errors, _ in ended)
        say(f"{retries} times somebody was faster, and the writer tried again")
        found = catalog.load_table("sales.orders").scan(row_filter=f"id >= {FIRST_ID}").to_arrow()
        say(f"20 appends by 4 processes; rows found: {found.num_rows}, none lost, none doubled")


def show_the_past(catalog: Catalog, duck: duckdb.DuckDBPyConnection, store: Path) -> None:
    with step(7, "The past: every commit left a receipt that says who made it; those of a table form a chain."):
        table = catalog.load_table("sales.orders")
        show_history(store, str(table.metadata.table_uuid))
        first = table.history()[0].snapshot_id
        travel = f"SELECT count(*) FROM sandur.sales.orders AT (VERSION => {first})"  # noqa: S608 - a number we read
        show_statement("duckdb", travel)
        say(f"{duck.execute(travel).fetchall()[0][0]} rows, as PyIceberg wrote them first")


if __name__ == "__main__":
    sys.exit(main())
