"""What people see of a table's metadata: columns as a tree by field id, partitions, order, references and totals."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.schema import Schema, SchemaColumn
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.sort_order import SortOrder
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.types import FieldType, ListType, MapType, StructType, primitive
from sandur.iceberg.updates import ViewVersion
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.splicing import count_in, encode

_TOTALS: Final[Mapping[str, str]] = {
    "total-records": "rows",
    "total-data-files": "data_files",
    "total-delete-files": "delete_files",
    "total-files-size": "bytes",
}
_VIEW_VERSIONS_MAX: Final = 50
_SQL_TYPES: Final[Mapping[str, str]] = {
    "long": "bigint",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
    "uuid": "uuid",
}


class ColumnRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column anywhere in a schema, in the order of the schema, parents before their children.

    `id` is the field id, and `parent` that of the column above; 0 without one. `default` is JSON.
    """

    id: int
    path: str
    name: str
    depth: int = 0
    parent: int = 0
    type: str
    required: bool = False
    doc: str = ""
    default: str = ""
    is_identifier: bool = False


class RefRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A branch or a tag."""

    name: str
    kind: str
    snapshot_id: int
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the summary of a snapshot says about the whole table; None where it says nothing."""

    rows: int | None = None
    data_files: int | None = None
    delete_files: int | None = None
    bytes: int | None = None


class TableSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table of either format. Texts are empty, and numbers None, where the format has no such thing."""

    format: str
    format_version: int | None = None
    table_id: str
    location: str
    columns: tuple[ColumnRow, ...] = ()
    partitions: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    refs: tuple[RefRow, ...] = ()
    current_snapshot_id: int | None = None
    snapshots: int = 0
    version: int
    updated_ms: int = 0
    metadata_location: str = ""
    totals: Totals = Totals()


class ViewText(msgspec.Struct, frozen=True, kw_only=True):
    """The SQL of one version of a view, by dialect."""

    version: int
    at_ms: int
    sql: dict[str, str]


class ViewSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A view: its columns, its SQL in each dialect, and that of its other versions, newest first."""

    view_id: str
    location: str
    version: int
    versions: int
    columns: tuple[ColumnRow, ...] = ()
    properties: dict[str, str] = {}
    sql: dict[str, str] = {}
    default_catalog: str = ""
    default_namespace: tuple[str, ...] = ()
    others: tuple[ViewText, ...] = ()


def summarize_table(metadata: TableMetadata, *, version: int = 0) -> TableSummary:
    """The summary of a table; `version` counts its metadata files."""
    schema = metadata.current_schema
    return TableSummary(
        format="iceberg",
        format_version=metadata.format_version,
        table_id=metadata.table_uuid or "",
        location=metadata.location,
        columns=column_rows(schema),
        partitions=partition_texts(metadata.default_spec, schema),
        order=order_texts(metadata.default_sort_order, schema),
        properties=dict(metadata.properties),
        refs=ref_rows(metadata),
        current_snapshot_id=metadata.current_snapshot_id,
        snapshots=len(metadata.snapshot_id_list),
        version=version,
        updated_ms=metadata.last_updated_ms,
        metadata_location=metadata.metadata_location or "",
        totals=totals_of(metadata.current_snapshot),
    )


def summarize_view(metadata: ViewMetadata) -> ViewSummary:
    version = metadata.current_version
    return ViewSummary(
        view_id=metadata.view_uuid,
        location=metadata.location,
        version=version.version_id,
        versions=len(metadata.versions_by_id),
        columns=column_rows(metadata.current_schema),
        properties=dict(metadata.properties),
        sql=_sql_of(version),
        default_catalog=version.default_catalog or "",
        default_namespace=version.default_namespace,
        others=tuple(
            ViewText(version=one.version_id, at_ms=one.timestamp_ms, sql=_sql_of(one))
            for one in sorted(metadata.versions, key=lambda one: -one.version_id)[:_VIEW_VERSIONS_MAX]
            if one.version_id != version.version_id
        ),
    )


def _sql_of(version: ViewVersion) -> dict[str, str]:
    return {one.dialect or "": one.sql for one in version.representations if one.sql is not None}


def column_rows(schema: Schema) -> tuple[ColumnRow, ...]:
    """The columns of a schema as a tree: each one is followed by its children."""
    children: dict[int | None, list[SchemaColumn]] = {}
    for column in schema.columns.values():
        children.setdefault(column.parent_id, []).append(column)
    rows: list[ColumnRow] = []
    pending = [(column, 0) for column in reversed(children.get(None, []))]
    while pending:
        column, depth = pending.pop()
        rows.append(_row(column, depth, schema))
        pending += [(child, depth + 1) for child in reversed(children.get(column.id, []))]
    return tuple(rows)


def _row(column: SchemaColumn, depth: int, schema: Schema) -> ColumnRow:
    field = column.field
    default = field.write_default if field else None
    return ColumnRow(
        id=column.id,
        path=column.path,
        name=field.name if field else column.path.rpartition(".")[2],
        depth=depth,
        parent=column.parent_id or 0,
        type=type_word(column.type),
        required=column.required,
        doc=(field.doc or "") if field else "",
        default="" if default is None else encode(default).decode(),
        is_identifier=column.id in schema.identifiers,
    )


def type_word(field_type: FieldType) -> str:
    """The type without its children, which have rows of their own."""
    match field_type:
        case str():
            return primitive(field_type).text
        case StructType():
            return "struct"
        case ListType():
            return "list"
        case MapType():
            return "map"


def sql_type(field_type: FieldType) -> str:
    """The type as Spark SQL spells it; what Spark does not have keeps the word of Iceberg."""
    match field_type:
        case str():
            found = primitive(field_type)
            if found.name == "decimal":
                return f"decimal({found.precision},{found.scale})"
            return "binary" if found.name == "fixed" else _SQL_TYPES.get(found.name, found.text)
        case StructType(fields=fields):
            return f"struct<{', '.join(f'{quoted(one.name)}: {sql_type(one.type)}' for one in fields)}>"
        case ListType(element=element):
            return f"array<{sql_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{sql_type(key)}, {sql_type(value)}>"


def quoted(name: str) -> str:
    """The name as an identifier of SQL, in backticks unless it is a plain word."""
    return name if name.isascii() and name.isidentifier() else f"`{name.replace('`', '``')}`"


def partition_texts(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """The fields of a spec, such as `day(ts)`; a column that was dropped is named by its id."""
    return tuple(
        _transformed(field.transform, field.sources, schema) for field in spec.fields if field.transform != "void"
    )


def order_texts(order: SortOrder, schema: Schema) -> tuple[str, ...]:
    """The fields of a sort order, such as `id desc nulls-last`."""
    return tuple(
        f"{_transformed(field.transform, field.sources, schema)} {field.direction} {field.null_order}"
        for field in order.fields
    )


def _transformed(transform: str, sources: Sequence[int], schema: Schema) -> str:
    columns = ", ".join(schema.columns[one].path if one in schema.columns else f"#{one}" for one in sources)
    if transform == "identity":
        return columns
    name, bracket, width = transform.rstrip("]").partition("[")
    return f"{name}({width}, {columns})" if bracket else f"{name}({columns})"


def ref_rows(metadata: TableMetadata) -> tuple[RefRow, ...]:
    return tuple(
        RefRow(
            name=name,
            kind=ref.type,
            snapshot_id=ref.snapshot_id,
            max_ref_age_ms=ref.max_ref_age_ms,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
        )
        for name, ref in sorted(metadata.refs.items())
    )


def totals_of(snapshot: Snapshot | None) -> Totals:
    """The totals in the summary of a snapshot. A writer may leave them out, or write something else than a number."""
    summary = (snapshot.summary if snapshot else None) or {}
    return Totals(**{field: number_in(summary, key) for key, field in _TOTALS.items()})


def number_in(summary: Mapping[str, str], key: str) -> int | None:
    """A number of a snapshot's summary; None if it is missing or not a number."""
    return count_in(summary.get(key))


def table_ddl(full_name: str, metadata: TableMetadata) -> str:
    """The statement of Spark SQL that creates an empty table like this one."""
    schema = metadata.current_schema
    columns = [
        f"  {quoted(field.name)} {sql_type(field.type)}"
        + (" NOT NULL" if field.required else "")
        + (f" COMMENT {text_literal(field.doc)}" if field.doc else "")
        for field in schema.fields
    ]
    partitions = partition_texts(metadata.default_spec, schema)
    return ddl_text(full_name, columns, provider="iceberg", partitions=partitions, properties=metadata.properties)


def ddl_text(
    full_name: str,
    columns: Sequence[str],
    *,
    provider: str,
    partitions: Sequence[str] = (),
    properties: Mapping[str, str],
    comment: str = "",
) -> str:
    """A CREATE TABLE statement of Spark SQL; `columns` are its lines, indented."""
    lines = [f"CREATE TABLE {full_name} (", ",\n".join(columns), ")", f"USING {provider}"]
    if comment:
        lines.append(f"COMMENT {text_literal(comment)}")
    if partitions:
        lines.append(f"PARTITIONED BY ({', '.join(partitions)})")
    if properties:
        pairs = ",\n".join(
            f"  {text_literal(key)} = {text_literal(value)}" for key, value in sorted(properties.items())
        )
        lines += ["TBLPROPERTIES (", pairs, ")"]
    return "\n".join(lines)


def text_literal(text: str) -> str:
    """The text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
