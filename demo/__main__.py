"""`make demo`: a fresh folder, a server, PyIceberg and Spark on the same tables, and what came out of it."""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.tree import Tree

from demo.racer import FIRST_ID
from demo.server import running_server

ORDERS = pa.table({"id": [1, 2, 3], "country": ["IS", "DK", "IS"], "amount": [10.5, 20.0, 7.25]})
MORE_ORDERS = pa.table({"id": [4], "country": ["FO"], "amount": [120.0]})
SPARK_SECONDS_MAX = 600

console = Console(width=110, highlight=False)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sandur-demo-") as folder:
        store = Path(folder) / "store"
        step("1. A server on a fresh folder. No database, no lock service: the folder is all there is.")
        with running_server(store) as url:
            console.print(f"   serving {store} at {url}")
            catalog = load_catalog("sandur", type="rest", uri=url, warehouse="main")
            write_with_pyiceberg(catalog)
            write_with_spark(url)
            read_with_pyiceberg(catalog)
            race(url)
        show_receipts(store)
        show_folder(store)
    goodbye()
    return 0


def step(text: str) -> None:
    console.print()
    console.print(Rule(text, align="left", style="cyan"))


def write_with_pyiceberg(catalog: Catalog) -> None:
    step("2. PyIceberg creates a table and appends to it.")
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", schema=ORDERS.schema)
    table.append(ORDERS)
    table.append(MORE_ORDERS)
    show_rows("sales.orders", catalog.load_table("sales.orders").scan().to_arrow())


def write_with_spark(url: str) -> None:
    step("3. Spark merges, deletes, makes a table of a query, and a view. (It starts a JVM; that takes a while.)")
    if shutil.which("java") is None:
        console.print("   [yellow]skipped: Java is not installed[/]")
        return
    command = [sys.executable, "-m", "demo.spark", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SPARK_SECONDS_MAX, check=False)
    if done.returncode:
        console.print(done.stderr[-3_000:], markup=False)
        raise SystemExit("demo: Spark failed")
    console.print(done.stdout.rstrip(), markup=False)


def read_with_pyiceberg(catalog: Catalog) -> None:
    step("4. PyIceberg reads what Spark left, and its history.")
    for name in sorted(identifier[-1] for identifier in catalog.list_tables("sales")):
        show_rows(f"sales.{name}", catalog.load_table(f"sales.{name}").scan().to_arrow())
    table = Table("snapshot", "operation", "rows", title="Snapshots of sales.orders", title_justify="left")
    for snapshot in catalog.load_table("sales.orders").metadata.snapshots:
        summary: Any = snapshot.summary
        table.add_row(str(snapshot.snapshot_id), summary.operation.value, summary["total-records"])
    console.print(table)


def race(url: str) -> None:
    step("5. Four writers append to one table at the same time.")
    command = [sys.executable, "-m", "demo.racer", url]
    racers = [subprocess.Popen([*command, str(number)]) for number in range(4)]
    if any(racer.wait(timeout=SPARK_SECONDS_MAX) for racer in racers):
        raise SystemExit("demo: a writer failed")
    table = load_catalog("sandur", type="rest", uri=url, warehouse="main").load_table("sales.orders")
    written = [row for row in table.scan().to_arrow().to_pylist() if row["id"] >= FIRST_ID]
    console.print(f"   20 appends by 4 processes; rows found: {len(written)}, none lost, none doubled")


def show_receipts(store: Path) -> None:
    step("6. Every commit left a receipt; those of one table form a chain.")
    receipts = [json.loads(path.read_bytes()) for path in sorted(store.rglob("events/*/iceberg/committed/*.json"))]
    table = Table(
        "version", "operation", "snapshot", "by", "file", title="Receipts of sales.orders", title_justify="left"
    )
    uuid = min(receipts, key=lambda receipt: receipt["committed_at_ms"])["table_uuid"]
    chain = sorted((r for r in receipts if r["table_uuid"] == uuid), key=lambda r: r["metadata_version"])
    for receipt in [*chain[:6], *chain[-2:]]:
        client = receipt["source"].get("client", "").partition(" ")[0]
        file_name = receipt["metadata_location"].rpartition("/")[2][:24] + "…"
        row = (receipt["metadata_version"], receipt["operation"], receipt["snapshot_id"], client, file_name)
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table)
    links = itertools.pairwise(chain)
    whole = all(later["previous_metadata_location"] == earlier["metadata_location"] for earlier, later in links)
    console.print(f"   {len(chain)} receipts, {'one unbroken chain' if whole else 'WITH A HOLE'}")


def show_folder(store: Path) -> None:
    step("7. What lies in the folder: plain files, changed only by compare-and-swap.")
    tree = Tree("store/")
    for path, count in sorted(_folders(store).items()):
        tree.add(f"{path}/  [dim]{count} files[/]")
    console.print(tree)


def _folders(store: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for path in store.rglob("*"):
        parts = path.relative_to(store).parts
        if path.is_file() and parts[0] != ".sandur":
            key = "/".join(parts[: min(len(parts) - 1, 4)])
            counts[key] = counts.get(key, 0) + 1
    return counts


def show_rows(title: str, rows: pa.Table) -> None:
    table = Table(*rows.column_names, title=title, title_justify="left")
    for row in sorted(rows.to_pylist(), key=lambda row: str(next(iter(row.values())))):
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def goodbye(lines: Sequence[str] = ()) -> None:
    step("Go on")
    for line in lines or (
        "make serve              a server on ./sandur-data, with lines to paste into Spark, PyIceberg and others",
        "sandur probe --store s3://bucket/prefix    whether a bucket keeps what Sandur rests on",
        "docs/architecture.md    how it is built",
        "docs/protocol.md        why it stays right when something dies",
    ):
        console.print(f"   {line}")


if __name__ == "__main__":
    sys.exit(main())
