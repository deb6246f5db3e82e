"""The output of the demo: steps with their duration, rows, history, and the folder's content."""

import contextlib
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

WIDTH = 110
console = Console(width=WIDTH, highlight=False)

_STEPS = 11
_FOLDER_DEPTH = 4
_FIRST_COMMITS = 8
_LAST_COMMITS = 2


@contextlib.contextmanager
def step(number: int, text: str, *, waiting: str = "") -> Iterator[None]:
    """Print the title of a step, a spinner while it runs, and its duration."""
    console.print()
    console.print(Rule(f"{number}/{_STEPS}  {text}", align="left", style="cyan"))
    began = time.monotonic()
    with console.status(waiting) if waiting else contextlib.nullcontext():
        yield
    say(f"[dim]{time.monotonic() - began:.1f} s[/]")


def say(text: str) -> None:
    console.print(f"   {text}")


def print_output(line: str) -> None:
    """Print a line of another process unchanged."""
    console.print(Text(f"   {line.rstrip()}"), soft_wrap=True)


def show_statement(engine: str, statement: str) -> None:
    console.print(Text(f"   {engine}> ", style="dim"), Text(statement), sep="", soft_wrap=True)


def show_rows(title: str, rows: pa.Table, *, keep_order: bool = False) -> None:
    """Print rows sorted by their first column, or in their own order."""
    table = Table(*rows.column_names, title=title, title_justify="left")
    shown = rows.to_pylist()
    for row in shown if keep_order else sorted(shown, key=lambda row: str(next(iter(row.values())))):
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)


def show_counts(readings: dict[str, dict[str, object]]) -> None:
    """Print the row counts of each engine."""
    names = list(next(iter(readings.values())))
    table = Table("", *(f"sales.{name}" for name in names))
    for engine, found in readings.items():
        table.add_row(engine, *(str(found[name]) for name in names))
    console.print(table)


def show_history(store: Path, table_uuid: str) -> None:
    """Print the receipts of one table, and whether they form one chain."""
    receipts = [json.loads(path.read_bytes()) for path in store.rglob("events/*/iceberg/committed/*.json")]
    chain = sorted(
        (one for one in receipts if one["table_uuid"] == table_uuid), key=lambda one: one["metadata_version"]
    )
    table = Table("version", "operation", "snapshot", "by", title="Commits to sales.orders", title_justify="left")
    for receipt in [*chain[:_FIRST_COMMITS], *chain[_FIRST_COMMITS:][-_LAST_COMMITS:]]:
        client = receipt["source"].get("client", "").partition(" ")[0]
        if client.startswith("Apache-HttpClient"):  # The user agent of Iceberg's Java library.
            client = f"Spark ({client})"
        row = (receipt["metadata_version"], receipt["operation"], receipt["snapshot_id"], client)
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table)
    links = pairwise(chain)
    whole = all(later["previous_metadata_location"] == earlier["metadata_location"] for earlier, later in links)
    say(f"{len(chain)} receipts, {'one unbroken chain' if whole else 'NOT A CHAIN'}")


def show_folder(store: Path) -> None:
    tree = Tree("store/")
    for path, count in sorted(_folders(store).items()):
        tree.add(f"{path}/  [dim]{count} files[/]")
    console.print(tree)


def _folders(store: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for path in store.rglob("*"):
        parts = path.relative_to(store).parts
        if path.is_file() and parts[0] != ".sandur":
            key = "/".join(parts[: min(len(parts) - 1, _FOLDER_DEPTH)])
            counts[key] = counts.get(key, 0) + 1
    return counts


def print_next_steps() -> None:
    console.print()
    console.print(Rule("Next steps", align="left", style="cyan"))
    for line in (
        "make serve              a server on ./sandur-data, and how to connect each engine",
        "docs/tutorial.md        30 minutes from an empty folder to a Spark job on the history",
        "docs/engines.md         a recipe for each engine",
        "sandur spark-config     the options of a Spark session; in Python: sandur.spark.session()",
        "sandur probe --store s3://bucket/prefix    check that a bucket keeps the guarantees that Sandur needs",
        "docs/architecture.md    the architecture",
        "docs/protocol.md        how it survives crashes",
        "http://127.0.0.1:8181/ui    the web UI, as long as make serve runs",
    ):
        say(line)
