"""A process that appends to a table, one row at a time, and retries after a conflict."""

import json
import sys
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

TRIES_MAX: Final = 200


def append_once(table: Table, number: int) -> None:
    rows = pa.table({"id": pa.array([number], pa.int64())})
    for _ in range(TRIES_MAX):
        try:
            table.append(rows)
        except CommitFailedException:
            table.refresh()
        else:
            return
    raise RuntimeError(f"row {number}: no success after {TRIES_MAX} conflicts")


def main() -> None:
    url, namespace, name, first, count, *properties = sys.argv[1:]
    more = json.loads(properties[0]) if properties else {}
    table = load_catalog("sandur", type="rest", uri=url, **more).load_table((namespace, name))
    for number in range(int(first), int(first) + int(count)):
        append_once(table, number)


if __name__ == "__main__":
    main()
