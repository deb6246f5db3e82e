"""One of several writers that append to the same table; it retries after a conflict."""

import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

APPENDS = 5
FIRST_ID = 100
TRIES_MAX = 50


def main(url: str, number: int) -> int:
    table = load_catalog("sandur", type="rest", uri=url, warehouse="main").load_table("sales.orders")
    for count in range(APPENDS):
        rows = pa.table({"id": [FIRST_ID + number * APPENDS + count], "country": ["IS"], "amount": [1.0]})
        for _ in range(TRIES_MAX):
            try:
                table.append(rows)
            except CommitFailedException:
                table.refresh()
            else:
                break
        else:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
