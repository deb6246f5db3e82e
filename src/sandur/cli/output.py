"""What commands print: a table for people, tabs for programs that read lines, JSON for machines."""

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())  # noqa: T201 - output for machines


def print_rows(columns: list[str], rows: list[list[str]], *, empty: str) -> None:
    """A table on a terminal; elsewhere lines with tabs, in which nothing is cut."""
    console = Console(highlight=False)
    if not console.is_terminal:
        for row in (columns, *rows):
            print("\t".join(row))  # noqa: T201 - output for machines
        return
    if not rows:
        console.print(empty)
        return
    table = Table(box=SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    console.print(table)


def say(text: str) -> None:
    """A line for people, on stderr: stdout has only results."""
    Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)
