"""The records of an Avro file as columns: the one function that readers of Avro files call."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from sandur.avro.arrow_columns import concat_columns
from sandur.avro.batch_decoder import Layout, decode_batches
from sandur.avro.batch_reader import Unreadable
from sandur.avro.container import Container, read_records

RECORDS_AT_ONCE: Final = 1_000
"""Records take a hundred times the memory of their columns."""

Record = Mapping[str, Any]


def read_columns(container: Container, layout: Layout) -> dict[str, pa.Array]:
    """The columns that the layout asks for. Damaged data and a schema of another kind raise any exception."""
    try:
        return decode_batches(container, layout)
    except Unreadable:
        pass
    records = read_records(container)
    pieces = [columns_of(islice(records, RECORDS_AT_ONCE), layout)]
    while piece := list(islice(records, RECORDS_AT_ONCE)):
        pieces.append(columns_of(piece, layout))
    return concat_columns(pieces, [len(piece[layout.anchor]) for piece in pieces])


def columns_of(records: Iterable[Record], layout: Layout) -> dict[str, pa.Array]:
    """The columns of records that were read one by one."""
    field, number = layout.skipped
    rows: list[Record] = [{**record, **record[layout.inner]} for record in records if record[field] != number]
    columns = {
        name: pa.array([_or_default(row.get(name), layout.defaults.get(name)) for row in rows], type=kind)
        for name, kind in layout.fields.items()
    }
    for name, (outer, inner, kind) in layout.nested.items():
        columns[name] = pa.array([(row[outer] or {}).get(inner) for row in rows], type=kind)
    for name, kind in layout.maps.items():
        columns |= _map_columns(name, rows, kind)
    return columns


def _or_default(value: object, default: int | None) -> object:
    return default if value is None else value


def _map_columns(name: str, rows: Sequence[Record], kind: pa.DataType) -> dict[str, pa.Array]:
    """One column for every key that any of the records has."""
    found: dict[int, list[object]] = {}
    for place, row in enumerate(rows):
        for pair in row.get(name) or ():
            values = found.get(pair["key"])
            if values is None:
                values = found[pair["key"]] = [None] * len(rows)
            values[place] = pair["value"]
    if any(type(key) is not int for key in found):
        raise TypeError("a map with keys that are not numbers")
    return {f"{name}.{key}": pa.array(values, type=kind) for key, values in sorted(found.items())}
