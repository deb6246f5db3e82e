"""The records of Avro files that others wrote, one by one."""

import io
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import fastavro

from sandur.avro.container import REMEMBERED_BYTES_MAX, REMEMBERED_MAX, Container, plain_schema


def read_records(container: Container) -> Iterator[dict[str, Any]]:
    """Every record in order. Dates and decimals are the numbers and bytes that they are kept as.

    Over bytes that are not what they seem this raises anything, but it ends.
    """
    written = container.metadata["avro.schema"]
    schema = _remembered(written) if len(written) <= REMEMBERED_BYTES_MAX else _parsed(written)
    for count, raw in container.inflated():
        block = io.BytesIO(raw)
        for _ in range(count):
            record = fastavro.schemaless_reader(block, schema)
            if not isinstance(record, dict):
                raise TypeError("an entry is no record")
            yield record


def _parsed(written: bytes) -> Any:  # noqa: ANN401 - whatever fastavro makes of a schema
    return fastavro.parse_schema(plain_schema(written))


# Taking a schema apart takes as long as reading a hundred entries.
_remembered: Final = lru_cache(maxsize=REMEMBERED_MAX)(_parsed)
