"""What commands print: a table for people, lines with tabs for programs, JSON, JSON lines or CSV on request."""

import csv
import datetime as dt
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sandur.cli.flags import Format
from sandur.errors import BadRequest

_ESCAPES: Final = {code: repr(chr(code))[1:-1] for code in (*range(32), 127, *range(128, 160), 0x2028, 0x2029)}
"""Control characters of a name or a comment must not reach a terminal, nor break a line of output."""


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())  # noqa: T201 - output for machines


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """A table on a terminal; elsewhere lines with tabs, in which nothing is cut."""
    console = Console(highlight=False)
    if not console.is_terminal:
        for row in (columns, *rows):
            print("\t".join(cell.translate(_ESCAPES) for cell in row))  # noqa: T201 - output for machines
        return
    if not rows:
        console.print(empty)
        return
    table = Table(box=SIMPLE)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell.translate(_ESCAPES)) for cell in row))
    console.print(table)


def print_records(
    records: Iterable[Mapping[str, object]],
    columns: Sequence[str],
    format_: Format,
    *,
    empty: str = "Nothing.",
    heads: Sequence[str] | None = None,
) -> None:
    """Records in a format. Tables and CSV have the named columns; JSON has everything.

    With `heads`, the columns are those of a user's table: their names and values are printed as they are.
    """
    listed = list(records)
    match format_:
        case "json":
            print_json(listed)
        case "jsonl":
            for record in listed:
                print(msgspec.json.encode(record).decode())  # noqa: T201 - output for machines
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([cell_text(record.get(column)) for column in columns] for record in listed)
        case "table":
            shown = heads or [column.removesuffix("_ms").replace("_", " ") for column in columns]
            text = (lambda _column, value: cell_text(value)) if heads else _shown
            print_rows(
                shown, [[text(column, record.get(column)) for column in columns] for record in listed], empty=empty
            )


def print_fields(record: Mapping[str, object], fields: Mapping[str, object], format_: Format) -> None:
    """One object: `fields` are what people see of it, in lines; JSON has the whole record."""
    match format_:
        case "json":
            print_json(record)
        case "jsonl":
            print(msgspec.json.encode(record).decode())  # noqa: T201 - output for machines
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(["field", "value"])
            writer.writerows([name, cell_text(value)] for name, value in fields.items())
        case "table":
            print_rows(["field", "value"], [[name, cell_text(value)] for name, value in fields.items()], empty="")


def cell_text(value: object) -> str:
    """A value as the text of one cell; nested values are JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return str(value)
        case _:
            return msgspec.json.encode(value).decode()


def _shown(column: str, value: object) -> str:
    return time_text(value) if column.endswith("_ms") and isinstance(value, int) else cell_text(value)


def time_text(time_ms: int) -> str:
    """The time in UTC; empty for 0, which is unknown."""
    if not time_ms:
        return ""
    try:
        return dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC).isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError):  # Another catalog may have written any number.
        return str(time_ms)


def say(text: str) -> None:
    """A line for people, on stderr: stdout has only results."""
    lines = "\n".join(line.translate(_ESCAPES) for line in text.split("\n"))
    Console(stderr=True, highlight=False, markup=False).print(lines, soft_wrap=True)


def escaped(text: str) -> str:
    """A text in the markup of Rich: without control characters, and without markup of its own."""
    return escape(text.translate(_ESCAPES))


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask before something is lost. BadRequest without a terminal, or if the answer is not yes."""
    if is_confirmed:
        return
    if not (sys.stdin.isatty() and os.isatty(sys.stderr.fileno())):
        raise BadRequest(f"{question.rstrip('?')}: not done without a confirmation; pass --yes")
    say(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise BadRequest("not confirmed: nothing was changed")
