"""Render README's table of figures from bench/results/server.json: `python -m bench.report` writes it into README."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.load.figures import render_number
from bench.provenance import REPOSITORY, RESULTS

README: Final = REPOSITORY / "README.md"
_WRITTEN: Final = re.compile(r"(<!-- begin: written by [^>]*-->\n).*?(<!-- end -->)", re.DOTALL)
_SERVERS: Final = ("default", "s3", "unsynced", "peer")
_HEADER: Final = "| | default: folder, fsync | S3 | folder, unsynced | SeaweedFS, unsynced |"
_RATES: Final = {
    "load a table, 32 connections": "loadTable 1 snap, plain, 32 conn",
    "load a table with 500 snapshots": "loadTable 500 snap, plain, 32 conn",
    "commit to 20 tables, 8 writers": "commit set-properties, 20 tables, 8 writers",
    "commit to one table, 8 writers": "hot table, uuid only, 8 writers",
    "two-table transactions, 4 writers": "two-table transaction, one pair, 4 writers",
    "list 10,000 tables": "list 10,000 tables, all",
}
_STORM: Final = "retry storm, every 5th answer dropped, 4 writers"

Figure = Mapping[str, Any]


def render_table(figures: Mapping[str, Mapping[str, Figure]]) -> str:
    """The table as Markdown: a row per workload, a column per server."""
    rows = [
        f"| {label} | {' | '.join(_cell(figures.get(workload, {}).get(server)) for server in _SERVERS)} |"
        for label, workload in _RATES.items()
    ]
    storm = figures.get(_STORM, {})
    doubled = " | ".join(_doubled(storm.get(server)) for server in _SERVERS)
    return "\n".join(
        [_HEADER, "|---|---|---|---|---|", *rows, f"| lost answers, sent again: applied twice | {doubled} |"]
    )


def update(page: str, table: str) -> str:
    """The page with the table between its two markers."""
    return _WRITTEN.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


def _cell(figure: Figure | None) -> str:
    if not figure or not figure["rate"]:
        return "–"
    return ", ".join([f"{render_number(figure['rate'])}/s", *_faults(figure)])


def _faults(figure: Figure) -> Iterator[str]:
    if figure["conflict_share"]:
        yield f"{figure['conflict_share']:.1%} refused"
    torn = figure.get("torn_looks", 0) + figure.get("torn_at_end", 0)
    if torn:
        yield f"{torn} half visible"


def _doubled(figure: Figure | None) -> str:
    return "–" if not figure or "dropped" not in figure else f"{figure.get('doubled', 0)} of {figure['dropped']}"


def main() -> None:
    figures = json.loads((RESULTS / "server.json").read_text(encoding="utf-8"))["figures"]
    README.write_text(update(README.read_text(encoding="utf-8"), render_table(figures)), encoding="utf-8")


if __name__ == "__main__":
    main()
