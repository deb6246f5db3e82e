"""Tables for clients that cannot decode every value of this API.

One table with a newer value would break such a client's list of a whole schema. So a value that a client is known not
to know is left out or replaced, or the table is left out. Clients are recognized by their User-Agent; all others get
every value.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from sandur.delta.columns import ColumnInfo, decode_columns, encode_columns, field_from_column
from sandur.delta.types import type_text
from sandur.server.context import Call

Fit = Callable[[bytes | memoryview], bytes | None]
"""From the JSON of a table to one that the client can decode; None if the table must not be in its lists."""

_PYTHON: Final = re.compile(r"OpenAPI-Generator/0\.(\d{1,4})\.(\d{1,4})(\.dev\d*)?/python\Z")
_JAVA: Final = "Java-http-client/"  # Unity Catalog's Java client before 0.3.1 has no name of its own.
_POLARS: Final = "polars/"
_DUCKDB: Final = "duckdb/"

Version = tuple[int, int, int, bool]
"""Major, minor and patch, and whether it is a release: 0.4.0 calls itself 0.4.1.dev0."""

# The first version of `unitycatalog-client` that knows a value.
_SINCE: Final[Mapping[str, Mapping[str, Version]]] = {
    "data_source_format": {"ICEBERG": (0, 7, 0, True)},
    "table_type": {
        "STREAMING_TABLE": (0, 3, 1, True),
        "MATERIALIZED_VIEW": (0, 3, 1, True),
        "METRIC_VIEW": (0, 5, 0, True),
        "VIEW": (0, 6, 0, True),
    },
    "type_name": {"VARIANT": (0, 4, 1, True)},
}
_OLDEST: Final[Version] = (0, 2, 0, True)


class _Unknown(NamedTuple):
    """The values, as JSON, that a client does not know: by field of a table, and for `type_name` of a column."""

    fields: Mapping[str, frozenset[bytes]]
    type_names: frozenset[bytes]


def table_fit(call: Call) -> Fit | None:
    """The change that tables need for the client of this call; None if it can decode every table."""
    agent = call.http.header(b"user-agent") or ""
    if agent.startswith(_DUCKDB):
        return _for_duckdb
    if agent.startswith(_POLARS):
        unknown = _FOR_POLARS
    elif agent.startswith(_JAVA):
        unknown = _unknown_to(_OLDEST)
    elif found := _PYTHON.match(agent):
        unknown = _unknown_to((0, int(found[1]), int(found[2]), found[3] is None))
    else:
        return None
    if not any(unknown.fields.values()) and not unknown.type_names:
        return None
    return lambda info: _without_unknown(info, unknown)


def _unknown_to(version: Version) -> _Unknown:
    newer = {
        field: frozenset(msgspec.json.encode(value) for value, since in values.items() if version < since)
        for field, values in _SINCE.items()
    }
    return _Unknown({field: newer[field] for field in ("data_source_format", "table_type")}, newer["type_name"])


_FOR_POLARS: Final = _Unknown(
    {"data_source_format": frozenset({b'"ICEBERG"'}), "table_type": frozenset({b'"METRIC_VIEW"'})}, frozenset()
)


def _without_unknown(info: bytes | memoryview, unknown: _Unknown) -> bytes:
    fields = msgspec.json.decode(info, type=dict[str, msgspec.Raw])
    for field, values in unknown.fields.items():
        if field in fields and bytes(fields[field]) in values:
            del fields[field]
    columns = fields.get("columns")
    if columns is not None and any(name in bytes(columns) for name in unknown.type_names):
        kept = msgspec.json.decode(columns, type=list[dict[str, msgspec.Raw]])
        for column in kept:
            if bytes(column.get("type_name", b"")) in unknown.type_names:
                del column["type_name"]
        fields["columns"] = msgspec.Raw(msgspec.json.encode(kept))
    return msgspec.json.encode(fields)


# DuckDB 1.5.5 parses `type_text`, and refuses the whole schema if it does not know one. In a Delta table a column must
# have its true type: with another one DuckDB fails beyond repair, and without the column its inserts would lose values.
_DUCKDB_PRIMITIVES: Final = frozenset(
    {"byte", "short", "integer", "long", "string", "double", "float", "boolean", "timestamp", "binary", "date"}
    | {"void", "decimal"}
)
_DUCKDB_DECIMAL: Final = re.compile(r"decimal\(\d+,\s*\d+\)\Z")
_DUCKDB_TEXTS: Final = re.compile(
    rb'"type_text":"(?!(?:tinyint|smallint|int|bigint|string|double|float|boolean|timestamp|binary|date|void'
    rb'|decimal\(\d+,\d+\))")'
)


def _for_duckdb(info: bytes | memoryview) -> bytes | None:
    """The table with types that DuckDB knows; a Delta table that has other types is left out."""
    if not _DUCKDB_TEXTS.search(info):
        return bytes(info)
    fields = msgspec.json.decode(info, type=dict[str, msgspec.Raw])
    columns: list[ColumnInfo] = []
    for column in decode_columns(fields["columns"]):
        kind = field_from_column(column)["type"]
        text = type_text(_type_for_duckdb(kind))
        if text != type_text(kind) and bytes(fields.get("data_source_format", b"")) == b'"DELTA"':
            return None
        columns.append(msgspec.structs.replace(column, type_text=text))
    return msgspec.json.encode({**fields, "columns": encode_columns(columns)})


def _type_for_duckdb(kind: object) -> object:
    """The type with every part that DuckDB does not know as another one."""
    match kind:
        case "timestamp_ntz":
            return "timestamp"
        case str():
            return kind if kind in _DUCKDB_PRIMITIVES or _DUCKDB_DECIMAL.match(kind) else "string"
        case {"type": "array", "elementType": element}:
            return {"type": "array", "elementType": _type_for_duckdb(element)}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {"type": "map", "keyType": _type_for_duckdb(key), "valueType": _type_for_duckdb(value)}
        case {"type": "struct", "fields": [_, *_] as fields}:
            known = [{"name": field["name"], "type": _type_for_duckdb(field["type"])} for field in fields]
            return {"type": "struct", "fields": known}
    return "string"
