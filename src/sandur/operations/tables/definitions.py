"""Create a table of either format from a definition that people write: columns in SQL, and texts of partitions."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace, checked_new_name, full_name_of
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import Request
from sandur.delta.create_plan import PartitionTransform, TableDefinition, parse_column_list, parse_columns
from sandur.errors import AlreadyExists, Invalid
from sandur.iceberg.partitioning import PartitionField, PartitionSpec
from sandur.iceberg.requests import CreateTable
from sandur.iceberg.schema import Schema
from sandur.iceberg.types import FieldType, ListType, MapType, NestedField, StructType
from sandur.operations.delta.create import Created, create_external_at, create_managed, register_external
from sandur.operations.lake import Lake
from sandur.operations.tables.create import create_table

_TRANSFORM: Final = re.compile(r"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^()]+?)\s*\)|([^()]+?))\s*\Z")
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_PRIMITIVES: Final[Mapping[str, str]] = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "null": "unknown",
    "void": "unknown",
}
"""Where Iceberg has another word than the log of Delta, whose words the parser of SQL uses."""


class NewTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A table to create. `columns` is a list as in CREATE TABLE; `partition_by` has texts such as `day(ts)`.

    Without columns, a Delta table that exists at `location` is registered as it is.
    """

    name: str
    columns: str = ""
    format: Literal["iceberg", "delta"] = "iceberg"
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    comment: str | None = None
    location: str | None = None


class DefinedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table that was created."""

    name: str
    format: str
    id: str
    location: str


async def define_table(lake: Lake, namespace: Namespace, wanted: NewTable, request: Request) -> DefinedTable:
    """Create the table; AlreadyExists if the name is taken, Invalid if the definition breaks a rule."""
    identifier = Identifier(*namespace, checked_new_name("table", wanted.name))
    check_new_keys(wanted.properties)
    if wanted.format == "delta":
        return await _define_delta(lake, identifier, wanted, request)
    if wanted.cluster_by:
        raise Invalid("cluster-by is for Delta tables; an Iceberg table has a sort order, which engines set")
    loaded = await create_table(lake, namespace, iceberg_request(wanted), request)
    location = msgspec.json.decode(loaded.metadata, type=_Located).location
    return DefinedTable(name=full_name_of(identifier), format="iceberg", id=loaded.table_uuid, location=location)


class _Located(msgspec.Struct, frozen=True):
    location: str


async def _register_delta(
    lake: Lake, identifier: Identifier, location: str, wanted: NewTable, request: Request
) -> DefinedTable:
    if wanted.partition_by or wanted.cluster_by or wanted.properties:
        raise Invalid("a Delta table that exists has its own partitions and properties; give only its location")
    made = await register_external(lake, identifier, location, comment=wanted.comment, request=request)
    return _defined(identifier, made)


async def _define_delta(lake: Lake, identifier: Identifier, wanted: NewTable, request: Request) -> DefinedTable:
    if wanted.location and not wanted.columns:
        return await _register_delta(lake, identifier, wanted.location, wanted, request)
    definition = TableDefinition(
        fields=parse_columns(wanted.columns),
        partitioning=[PartitionTransform("identity", column) for column in wanted.partition_by],
        clustering=wanted.cluster_by,
        properties=wanted.properties,
        comment=wanted.comment,
    )
    if wanted.location:
        made = await create_external_at(lake, identifier, wanted.location, definition, request=request)
    else:
        made = await create_managed(lake, identifier, definition, request=request)
    return _defined(identifier, made)


def _defined(identifier: Identifier, made: Created) -> DefinedTable:
    if made.table is None:
        raise AlreadyExists(f"Delta table already exists at {made.location}", subject="table")
    return DefinedTable(name=full_name_of(identifier), format="delta", id=made.table.uuid, location=made.location)


def iceberg_request(wanted: NewTable) -> CreateTable:
    """The request of Iceberg's REST API for this definition; raises Invalid if a text cannot be parsed."""
    schema = Schema(fields=iceberg_fields(parse_column_list(wanted.columns)))
    spec = PartitionSpec(fields=tuple(partition_field(text, schema) for text in wanted.partition_by))
    comment = {"comment": wanted.comment} if wanted.comment else {}
    return CreateTable(
        name=wanted.name,
        schema=schema,
        location=wanted.location,
        partition_spec=spec if spec.fields else None,
        properties={**wanted.properties, **comment},
    )


def iceberg_fields(fields: Sequence[Mapping[str, object]]) -> tuple[NestedField, ...]:
    """The columns of a parsed list, with ids counted up from 1."""
    return _fields(fields, itertools.count(1))


def _fields(fields: Sequence[Mapping[str, object]], ids: Iterator[int]) -> tuple[NestedField, ...]:
    made = []
    for field in fields:
        metadata = field.get("metadata")
        doc = metadata.get("comment") if isinstance(metadata, dict) else None
        made.append(
            NestedField(
                id=next(ids),
                name=str(field["name"]),
                required=field.get("nullable") is False,
                type=_type(field["type"], ids),
                doc=doc if isinstance(doc, str) else None,
            )
        )
    return tuple(made)


def _type(kind: object, ids: Iterator[int]) -> FieldType:
    match kind:
        case str():
            return _PRIMITIVES.get(kind, kind)
        case {"type": "struct", "fields": [*fields]}:
            return StructType(fields=_fields(fields, ids))
        case {"type": "array", "elementType": element}:
            return ListType(element_id=next(ids), element=_type(element, ids), element_required=False)
        case {"type": "map", "keyType": key, "valueType": value}:
            key_id, value_id = next(ids), next(ids)
            key_type, value_type = _type(key, ids), _type(value, ids)
            return MapType(key_id=key_id, key=key_type, value_id=value_id, value=value_type, value_required=False)
    raise Invalid(f"columns: unknown type {kind!r}")


def partition_field(text: str, schema: Schema) -> PartitionField:
    """The partition field of a text: a column, or a transform such as `day(ts)` and `bucket(16, id)`."""
    found = _TRANSFORM.match(text)
    if found is None:
        raise Invalid(f"partition {text[:100]!r}: expected a column, or a transform such as day(ts) or bucket(16, id)")
    word, width, inner, plain = found.groups()
    column = (inner or plain).strip("`")
    if column not in schema.ids_by_path:
        raise Invalid(f"partition {text[:100]!r}: no such column: {column[:100]}")
    name = _PLURALS.get((word or "identity").lower(), (word or "identity").lower())
    last = column.rpartition(".")[2]
    return PartitionField(
        source_id=schema.ids_by_path[column],
        name=last if name == "identity" else f"{last}_{name}",
        transform=f"{name}[{width}]" if width else name,
    )
