"""The plan of a CREATE TABLE of Delta (seed 002): columns, layout, configuration, protocol, location and committer.

Sandur or Delta Kernel carries a plan out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.delta import types
from sandur.delta.column_mapping import MAPPING_MODE, is_mapped
from sandur.delta.columns import ColumnInfo, column_from_field, partition_names, schema_string, with_partitions
from sandur.delta.properties import Clustering, Domains
from sandur.delta.protocol import (
    FEATURE,
    REQUIRED_PROPERTIES,
    REQUIRED_WRITER_FEATURES,
    TABLE_ID,
    Protocol,
    protocol_of,
    required_features,
)
from sandur.errors import Invalid

Committer = Literal["catalog", "path"]
"""Where the first commit is accepted: in the catalog, by registration, or in the file system, by its file name."""

OPERATION: Final = "CREATE TABLE"

# Properties that describe the table and are not part of its configuration.
_NEVER_KEPT: Final = frozenset(
    {"location", "provider", "owner", "external", "is_managed_location", "path", "option.path", "comment", TABLE_ID}
    | {"ucTableId"}
)
_REFUSED: Final = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")
_IDENTITY: Final = frozenset({"identity", ""})

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_0-9][\w$]*|[<>(),:])")
_TYPE_NUMBERS_MAX: Final = 2
_END: Final = ""


class PartitionTransform(NamedTuple):
    """A partition transform of SQL: its name and its column."""

    name: str
    column: str


class TableDefinition(NamedTuple):
    """The content of a CREATE TABLE statement; fields are in the form of the log."""

    fields: Sequence[Mapping[str, object]]
    partitioning: Sequence[PartitionTransform] = ()
    clustering: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    comment: str | None = None


class CreatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the first commit contains. `properties` is the configuration of the table."""

    committer: Committer
    location: str
    table_id: str
    columns: tuple[ColumnInfo, ...]
    properties: dict[str, str]
    protocol: Protocol
    domains: Domains | None = None
    comment: str | None = None

    @property
    def partition_columns(self) -> list[str]:
        return partition_names(self.columns)


def plan_table(definition: TableDefinition, *, location: str, table_id: str, committer: Committer) -> CreatePlan:
    """The plan; raises Invalid if the table breaks a rule. `table_id` is the stage's id, or a new one for a path."""
    properties = table_configuration(definition.properties)
    if committer == "catalog":
        properties = _with_required(properties) | {TABLE_ID: table_id}
    if is_mapped(properties):
        raise Invalid(f"{MAPPING_MODE}: Sandur does not create tables with column mapping; create this one with Spark")
    requested = {key: value for key, value in definition.properties.items() if key.startswith(FEATURE)} | properties
    features = required_features(requested, definition.fields)
    if committer == "catalog":
        features |= set(REQUIRED_WRITER_FEATURES)
    if definition.clustering:
        features |= {"clustering", "domainMetadata"}
    columns = tuple(column_from_field(field, position) for position, field in enumerate(definition.fields))
    partitions = identity_columns(definition.partitioning)
    if partitions and definition.clustering:
        raise Invalid("a table cannot be both partitioned and clustered")
    if partitions and len(partitions) == len(columns):
        raise Invalid("a table needs at least one column that is not a partition column")
    with_partitions(columns, definition.clustering)  # Raises unless each exists and is named once.
    clustering = Clustering(tuple(tuple(column.split(".")) for column in definition.clustering))
    return CreatePlan(
        committer=committer,
        location=location.rstrip("/"),
        table_id=table_id,
        columns=with_partitions(columns, partitions),
        properties=properties,
        protocol=protocol_of(features),
        domains=Domains(clustering=clustering) if definition.clustering else None,
        comment=definition.comment,
    )


def table_configuration(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that become configuration; raises Invalid for those that only the protocol may set."""
    for key in _REFUSED:
        if key in properties:
            raise Invalid(f"property {key}: the protocol follows from the features; set delta.feature.<name> instead")
    return {
        key: value
        for key, value in properties.items()
        if key.lower() not in _NEVER_KEPT and key not in _NEVER_KEPT and not key.startswith(FEATURE)
    }


def identity_columns(partitioning: Sequence[PartitionTransform]) -> list[str]:
    """The columns that a table is partitioned by; raises Invalid for a transform, which Delta does not support."""
    for transform in partitioning:
        if transform.name.lower() not in _IDENTITY:
            raise Invalid(f"partitioning by {transform.name}({transform.column}): Delta supports only columns")
        if "." in transform.column:
            raise Invalid(f"partitioning by {transform.column}: nested columns cannot be partition columns")
    return [transform.column for transform in partitioning]


def first_commit_body(plan: CreatePlan, *, engine: str, now_ms: int, transaction_id: str) -> bytes:
    """Version 0 of the log, which adds no file: one JSON object per line, in the order of Delta Kernel."""
    partitions = msgspec.json.encode(plan.partition_columns).decode()
    info: dict[str, object] = {
        "timestamp": now_ms,
        "engineInfo": engine,
        "operation": OPERATION,
        "operationParameters": {"partitionBy": partitions},
        "isBlindAppend": False,
        "txnId": transaction_id,
        "operationMetrics": {},
    }
    if "inCommitTimestamp" in (plan.protocol.writer_features or ()):
        info = {"inCommitTimestamp": now_ms, **info}
    actions: list[dict[str, object]] = [{"commitInfo": info}, {"metaData": _metadata(plan, now_ms)}]
    actions.append({"protocol": _protocol(plan.protocol)})
    if plan.domains and plan.domains.clustering:
        configuration = msgspec.json.encode(plan.domains.clustering).decode()
        domain = {"domain": "delta.clustering", "configuration": configuration, "removed": False}
        actions.append({"domainMetadata": domain})
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def _metadata(plan: CreatePlan, now_ms: int) -> dict[str, object]:
    return {
        "id": plan.table_id,
        **({} if plan.comment is None else {"description": plan.comment}),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(plan.columns),
        "partitionColumns": plan.partition_columns,
        "configuration": plan.properties,
        "createdTime": now_ms,
    }


def _protocol(protocol: Protocol) -> dict[str, object]:
    fields = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _with_required(properties: Mapping[str, str]) -> dict[str, str]:
    for key, value in REQUIRED_PROPERTIES.items():
        if properties.get(key, value) != value:
            raise Invalid(f"a managed table needs the property {key}={value}, found {properties[key]}")
    return {**properties, **REQUIRED_PROPERTIES}


def parse_columns(text: str) -> list[dict[str, object]]:
    """The fields of a column list, as the log has them; raises Invalid if `text` is not a column list."""
    return types.fields_from_api(parse_column_list(text), "columns")


def parse_column_list(text: str) -> list[dict[str, object]]:
    """The same for any format: names of types that Delta does not have are accepted."""
    fields = _ColumnParser(text).fields(end=_END)
    if not fields:
        raise Invalid("columns: the list is empty")
    return fields


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise Invalid(f"columns: unexpected {text[position:].strip()[:20]!r}")
        found.append(match[1])
        position = match.end()
    return found


class _ColumnParser:
    """A recursive descent parser over the tokens of a column list."""

    def __init__(self, text: str) -> None:
        self._rest = list(reversed(_tokens(text)))
        self._depth = 0

    def fields(self, *, end: str) -> list[dict[str, object]]:
        fields: list[dict[str, object]] = []
        while self._peek() not in {end, _END}:
            fields.append(self._field(is_nested=end != _END))
            if not self._accept(",") and self._peek() != end:
                raise self._unexpected(self._peek())
        return fields

    def _field(self, *, is_nested: bool) -> dict[str, object]:
        name = self._name()
        if is_nested:
            self._accept(":")
        field: dict[str, object] = {"name": name, "type": self._type(), "nullable": True, "metadata": {}}
        if self._accept("NOT"):
            self._expect("NULL")
            field["nullable"] = False
        if self._accept("COMMENT"):
            field["metadata"] = {"comment": self._string()}
        return field

    def _type(self) -> object:
        self._depth += 1
        if self._depth > types.DEPTH_MAX:
            raise Invalid(f"columns: types are nested more than {types.DEPTH_MAX} levels deep")
        word = self._take().lower()
        kind = self._nested_type(word) if word in {"array", "map", "struct"} else self._plain_type(word)
        self._depth -= 1
        return kind

    def _nested_type(self, word: str) -> dict[str, object]:
        self._expect("<")
        kind: dict[str, object] = {"type": word}
        if word == "array":
            kind |= {"elementType": self._type(), "containsNull": True}
        elif word == "map":
            kind |= {"keyType": self._type()}
            self._expect(",")
            kind |= {"valueType": self._type(), "valueContainsNull": True}
        else:
            kind |= {"fields": self.fields(end=">")}
        self._expect(">")
        return kind

    def _plain_type(self, word: str) -> str:
        numbers: list[str] = []
        if self._accept("("):
            while self._peek() not in {")", _END} and len(numbers) < _TYPE_NUMBERS_MAX:
                numbers.append(self._take())
                self._accept(",")
            self._expect(")")
        name = types.named_type(word)
        if name == "decimal":
            precision, scale = (*numbers, "10", "0")[:2] if len(numbers) != 1 else (numbers[0], "0")
            return f"decimal({precision},{scale})"
        if word in {"char", "varchar"} and len(numbers) == 1:
            return "string"  # Delta stores both as strings.
        if numbers:
            raise Invalid(f"columns: the type {word} takes no numbers")
        return name

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not (token[0].isalnum() or token[0] == "_"):
            raise self._unexpected(token)
        return token

    def _string(self) -> str:
        token = self._take()
        if token[0] not in "'\"":
            raise self._unexpected(token)
        return re.sub(r"\\(.)", r"\1", token[1:-1])

    def _accept(self, token: str) -> bool:
        """Take the next token if it is this one."""
        is_next = self._peek().upper() == token
        if is_next:
            self._take()
        return is_next

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._unexpected(self._peek())

    def _peek(self) -> str:
        return self._rest[-1] if self._rest else _END

    def _take(self) -> str:
        if not self._rest:
            raise Invalid("columns: the text ends too early")
        return self._rest.pop()

    def _unexpected(self, token: str) -> Invalid:
        return Invalid(f"columns: unexpected {token or 'end'!r} before {' '.join(self._rest[:-6:-1])!r}")
