"""Count the storage calls and bytes of each operation, and print what a million of them cost at list prices.

Counted on a warm server by the spy of the tests, with all calls after the answer. `python -m bench calls` also writes
the table of docs/operating.md.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.measurement import save, show
from bench.provenance import REPOSITORY
from bench.report import update
from tests.operations.call_counts import Counted, count_operations

PAGE: Final = REPOSITORY / "docs" / "operating.md"
COLUMNS: Final = ("operation", "rounds", "reads", "writes", "deletes", "bytes", "S3", "Google", "Azure")


class Price(NamedTuple):
    """Dollars per million calls. Lists cost as much as writes on all three clouds, and deletes are free."""

    read: float
    write: float


PRICES: Final[Mapping[str, Price]] = {
    "S3": Price(0.40, 5.00),
    "Google": Price(0.40, 5.00),
    "Azure": Price(0.40, 5.00),
}
"""Standard storage in one region of the United States (S3 us-east-1, Google us-east1, Azure Hot with local redundancy),
from memory and public pages on 2026-11-18; Azure's own page could not be opened. Traffic within a region is free."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench calls", description=__doc__)
    parser.add_argument("--json", type=Path, help="the result file; the default is bench/results/calls.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sandur-bench-") as folder:
        counted = asyncio.run(count_operations(Path(folder)))
    rows = [(name, *_cells(one)) for name, one in counted.items()]
    show("Storage calls, and dollars per million operations", COLUMNS, rows)
    result = {
        "settings": "a warm server, two tables of a few commits, no grants; calls after the answer included",
        "prices_per_million_calls": {cloud: price._asdict() for cloud, price in PRICES.items()},
        "operations": {name: _described(one) for name, one in counted.items()},
    }
    save("calls", result, file=options.json)
    if options.json is None:
        PAGE.write_text(update(PAGE.read_text(encoding="utf-8"), render_table(counted)), encoding="utf-8")


def dollars(counted: Counted, price: Price) -> float:
    """What a million of these operations cost."""
    return counted.reads * price.read + (counted.writes + counted.lists) * price.write


def render_table(counted: Mapping[str, Counted]) -> str:
    """The table as Markdown."""
    rows = [f"| {' | '.join((name, *_cells(one)))} |" for name, one in counted.items()]
    return "\n".join([f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1), *rows])


def _cells(one: Counted) -> tuple[str, ...]:
    numbers = (one.rounds, one.reads, one.writes + one.lists, one.deletes, one.bytes_read + one.bytes_written)
    return (*(f"{number:,}" for number in numbers), *(f"${dollars(one, price):.2f}" for price in PRICES.values()))


def _described(one: Counted) -> dict[str, object]:
    costs = {cloud: round(dollars(one, price), 2) for cloud, price in PRICES.items()}
    return {**one._asdict(), "bytes": one.bytes_read + one.bytes_written, "dollars_per_million": costs}


if __name__ == "__main__":
    main()
