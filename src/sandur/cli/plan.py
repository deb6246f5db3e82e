"""`sandur plan`: what a scan of a table would read, and how much of the table its filter leaves out."""

import json
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sandur.catalog.identifiers import Identifier
from sandur.cli.store_admin import run_on_store
from sandur.errors import BadRequest
from sandur.iceberg.expressions.text import filter_of_text
from sandur.iceberg.scan.requests import ScanRequest
from sandur.operations.lake import Lake
from sandur.operations.planning.summary import Amount, Summary, scan_summary

_BAR_WIDTH = 30


def show_plan(
    table: str,
    *,
    filter_text: str | None,
    snapshot_id: int | None,
    store: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Plan the scan and show what it comes to."""
    request = scan_request(filter_text, snapshot_id)

    async def work(lake: Lake) -> Summary:
        return await scan_summary(lake, identifier_of(table, lake.settings.default_catalog), request)

    found = run_on_store(work, store=store, config=config)
    if as_json:
        print(json.dumps(msgspec.to_builtins(found)))  # noqa: T201 - output for machines
        return
    Console().print(plan_table(table, filter_text, found))


def identifier_of(text: str, default_catalog: str) -> Identifier:
    """`namespace.table` in the default catalog, or `catalog.namespace.table`; deeper names begin with the catalog."""
    parts = text.split(".")
    if len(parts) < 2 or not all(parts):  # noqa: PLR2004 - a namespace and a name
        raise BadRequest(f"table {text}: expected namespace.table or catalog.namespace.table")
    if len(parts) == 2:  # noqa: PLR2004 - without a catalog
        return Identifier(default_catalog, (parts[0],), parts[1])
    return Identifier(parts[0], tuple(parts[1:-1]), parts[-1])


def scan_request(filter_text: str | None, snapshot_id: int | None) -> ScanRequest:
    """A filter is JSON when it looks like it, and otherwise a condition as in SQL."""
    if filter_text is None:
        return ScanRequest(snapshot_id=snapshot_id)
    stripped = filter_text.strip()
    try:
        raw = stripped.encode() if stripped.startswith("{") else msgspec.json.encode(filter_of_text(stripped))
    except UnicodeEncodeError as error:
        raise BadRequest(f"Invalid filter: {error.reason}") from error
    return ScanRequest(snapshot_id=snapshot_id, filter=msgspec.Raw(raw))


def plan_table(table: str, filter_text: str | None, found: Summary) -> Table:
    """What is read beside what there is, with a bar for the share that is left out."""
    title = f"{table}{f' where {filter_text}' if filter_text else ''}"
    shown = Table("", "read", "of", "left out", "", title=Text(title), title_justify="left")
    for name, amount in (
        ("manifests", found.manifests),
        ("files", found.files),
        ("rows", found.rows),
        ("bytes", found.size_bytes),
    ):
        share = amount.pruned_share
        bar = ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH) if share is not None else ""
        shown.add_row(name, f"{amount.read:,}", _total(amount), "" if share is None else f"{share:.1%}", bar)
    if found.delete_manifests:
        shown.caption = f"{found.delete_manifests} manifests with deletes are read as well"
    return shown


def _total(amount: Amount) -> str:
    return "not known" if amount.total is None else f"{amount.total:,}"
