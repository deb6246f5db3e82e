"""`make demo`: an empty folder, a server, PyIceberg, DuckDB and Spark on the same tables, grants, the pipeline."""

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
from demo.output import (
    print_next_steps,
    print_output,
    say,
    show_counts,
    show_folder,
    show_history,
    show_rows,
    show_statement,
    step,
)
from demo.pipeline import run_pipeline
from demo.racer import FIRST_ID
from demo.security import restrict_access
from demo.server import running_server

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
            with step(1, "Start a server on an empty folder. There is no database and no lock service."):
                say(f"serving {store} at {url}")
                catalog = load_catalog("sandur", type="rest", uri=url, warehouse="main")
            write_with_pyiceberg(catalog)
            duck = session(url)
            write_with_duckdb(duck)
            write_with_spark(url)
            read_with_all(catalog, duck)
            race(catalog, url)
            show_history_of_orders(catalog, duck, store)
            with step(8, "The folder: plain files, changed only by compare-and-swap."):
                show_folder(store)
            restrict_access(9, Path(folder))
            run_pipeline(10, store, duck, url, catalog)
    print_next_steps()
    return 0


def write_with_pyiceberg(catalog: Catalog) -> None:
    with step(2, "PyIceberg creates a table and appends to it."):
        catalog.create_namespace("sales")
        table = catalog.create_table("sales.orders", schema=ORDERS.schema)
        table.append(ORDERS)
        table.append(MORE_ORDERS)
        show_rows("sales.orders", table.scan().to_arrow())


def write_with_duckdb(duck: duckdb.DuckDBPyConnection) -> None:
    with step(3, "DuckDB reads the table and changes two tables in one transaction."):
        totals = "SELECT country, sum(amount) AS total FROM sandur.sales.orders GROUP BY country"
        show_statement("duckdb", totals)
        show_rows("by country", duck.execute(totals).to_arrow_table())
        for statement in DUCKDB_STATEMENTS:
            show_statement("duckdb", statement)
            duck.execute(statement)


def write_with_spark(url: str) -> None:
    with step(4, "Spark merges, deletes, and creates a table and a view from queries.", waiting="starting a JVM …"):
        if shutil.which("java") is None:
            say("[yellow]skipped: Java is not installed[/]")
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.spark", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        errors: list[str] = []
        # Read both pipes concurrently: a full pipe blocks its writer.
        reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
        watchdog = threading.Timer(SECONDS_MAX, process.kill)
        reader.start()
        watchdog.start()
        for line in process.stdout or ():
            print_output(line)
        failed = process.wait()
        watchdog.cancel()
        reader.join()
        if failed:
            print_output("".join(errors)[-3_000:])
            raise SystemExit("demo: Spark failed")


def read_with_all(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    """Compare the row counts of PyIceberg and DuckDB."""
    with step(5, "Every engine reads the tables of the others."):
        names = sorted(identifier[-1] for identifier in catalog.list_tables("sales"))
        readings: dict[str, dict[str, object]] = {"PyIceberg": {}, "DuckDB": {}}
        for name in names:
            scanned = catalog.load_table(f"sales.{name}").scan().to_arrow()
            readings["PyIceberg"][name] = f"{scanned.num_rows} rows"
            readings["DuckDB"][name] = f"{duck.table(f'sandur.sales.{name}').count('*').fetchall()[0][0]} rows"
        show_counts(readings)
        show_rows("sales.orders", catalog.load_table("sales.orders").scan().to_arrow())
        if readings["PyIceberg"] != readings["DuckDB"]:
            raise SystemExit("demo: the engines do not agree")


def race(catalog: Catalog, url: str) -> None:
    with step(6, "Four writers append to one table at the same time.", waiting="racing …"):
        command = [sys.executable, "-m", "demo.racer", url]
        racers = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, text=True) for n in range(RACERS)]
        ended = [(racer.communicate(timeout=SECONDS_MAX)[1], racer.returncode) for racer in racers]
        if failures := [errors for errors, code in ended if code]:
            print_output(failures[0])
            raise SystemExit("demo: a writer failed")
        retries = sum(errors.count("retrying") for errors, _ in ended)
        say(f"{retries} conflicts, each retried by the writer that lost")
        found = catalog.load_table("sales.orders").scan(row_filter=f"id >= {FIRST_ID}").to_arrow()
        say(f"20 appends by 4 processes; rows found: {found.num_rows}")


def show_history_of_orders(catalog: Catalog, duck: duckdb.DuckDBPyConnection, store: Path) -> None:
    with step(7, "History: every commit has a receipt with its author; the receipts of a table form a chain."):
        table = catalog.load_table("sales.orders")
        show_history(store, str(table.metadata.table_uuid))
        first = table.history()[0].snapshot_id
        travel = f"SELECT count(*) FROM sandur.sales.orders AT (VERSION => {first})"  # noqa: S608 - a number we read
        show_statement("duckdb", travel)
        say(f"{duck.execute(travel).fetchall()[0][0]} rows: the first snapshot by PyIceberg")


if __name__ == "__main__":
    sys.exit(main())
