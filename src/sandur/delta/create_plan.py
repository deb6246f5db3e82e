"""What a CREATE TABLE of Delta means, decided apart from who carries it out (seed 002).

A plan says everything about the first commit: schema, layout, configuration, protocol, where it goes, and who commits
it. It is carried out by Sandur itself or by Delta Kernel, and CREATE TABLE AS, REPLACE and LIKE may begin with it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.delta.columns import ColumnInfo, column_from_field, partition_names, schema_string, with_partitions
from sandur.delta.properties import Clustering, Domains
from sandur.delta.protocol import (
    FEATURE,
    REQUIRED_PROPERTIES,
    REQUIRED_WRITER_FEATURES,
    SUPPORTED,
    TABLE_ID,
    Protocol,
    needed_features,
    protocol_of,
)
from sandur.errors import Invalid

Committer = Literal["catalog", "path"]
"""Who accepts the first commit: the catalog, once the table is registered, or the file system by its name."""

OPERATION: Final = "CREATE TABLE"

# What describes the table and is not part of its configuration.
_NEVER_KEPT: Final = frozenset(
    {"location", "provider", "owner", "external", "is_managed_location", "path", "option.path", "comment", TABLE_ID}
    | {"ucTableId"}
)
_REFUSED: Final = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")
_MAPPING_MODE: Final = "delta.columnMapping.mode"
_IDENTITY: Final = frozenset({"identity", ""})


class PartitionTransform(NamedTuple):
    """How a table is partitioned by a column, as SQL says it."""

    name: str
    column: str


class TableDefinition(NamedTuple):
    """A CREATE TABLE as somebody asked for it, in whatever language; fields are in the log's spelling."""

    fields: Sequence[Mapping[str, object]]
    partitioning: Sequence[PartitionTransform] = ()
    clustering: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    comment: str | None = None


class CreatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that the first commit will say, and who commits it. `properties` is the table's configuration."""

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

    @property
    def feature_properties(self) -> dict[str, str]:
        """The features as properties, for engines that are told so."""
        return {f"{FEATURE}{feature}": SUPPORTED for feature in self.protocol.writer_features or ()}


def plan_table(asked: TableDefinition, *, location: str, table_id: str, committer: Committer) -> CreatePlan:
    """The plan; Invalid when the table cannot be. `table_id` is what the catalog gave out, or a fresh id for a path."""
    properties = table_configuration(asked.properties)
    if committer == "catalog":
        properties = _with_required(properties) | {TABLE_ID: table_id}
    if properties.get(_MAPPING_MODE, "none").lower() != "none":
        raise Invalid(f"{_MAPPING_MODE}: tables with column mapping are created by Delta Kernel or Spark")
    asking = {key: value for key, value in asked.properties.items() if key.startswith(FEATURE)} | properties
    features = needed_features(asking, asked.fields)
    if committer == "catalog":
        features |= set(REQUIRED_WRITER_FEATURES)
    if asked.clustering:
        features |= {"clustering", "domainMetadata"}
    columns = tuple(column_from_field(field, position) for position, field in enumerate(asked.fields))
    partitions = identity_columns(asked.partitioning)
    if partitions and asked.clustering:
        raise Invalid("a table is partitioned or clustered, not both")
    if partitions and len(partitions) == len(columns):
        raise Invalid("a table needs a column that it is not partitioned by")
    with_partitions(columns, asked.clustering)  # They exist, each once.
    return CreatePlan(
        committer=committer,
        location=location.rstrip("/"),
        table_id=table_id,
        columns=with_partitions(columns, partitions),
        properties=properties,
        protocol=protocol_of(features),
        domains=_clustered(asked.clustering),
        comment=asked.comment,
    )


def table_configuration(properties: Mapping[str, str]) -> dict[str, str]:
    """What of the properties becomes configuration; Invalid for what only the protocol may say."""
    for key in _REFUSED:
        if key in properties:
            raise Invalid(f"property {key}: the protocol follows from the features, name those instead")
    return {
        key: value
        for key, value in properties.items()
        if key.lower() not in _NEVER_KEPT and key not in _NEVER_KEPT and not key.startswith(FEATURE)
    }


def identity_columns(partitioning: Sequence[PartitionTransform]) -> list[str]:
    """The columns a table is partitioned by; Delta knows no other transform than the column itself."""
    for transform in partitioning:
        if transform.name.lower() not in _IDENTITY:
            raise Invalid(f"partitioning by {transform.name}({transform.column}): Delta partitions by columns alone")
        if "." in transform.column:
            raise Invalid(f"partitioning by {transform.column}: nested columns cannot be partition columns")
    return [transform.column for transform in partitioning]


def first_commit_body(plan: CreatePlan, *, engine: str, now_ms: int, transaction_id: str) -> bytes:
    """Version 0: one JSON object per line, in the order in which Kernel writes them, and no file added."""
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
    metadata: dict[str, object] = {"id": plan.table_id}
    if plan.comment is not None:
        metadata["description"] = plan.comment
    return metadata | {
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(plan.columns),
        "partitionColumns": plan.partition_columns,
        "configuration": plan.properties,
        "createdTime": now_ms,
    }


def _protocol(protocol: Protocol) -> dict[str, object]:
    spelled: dict[str, object] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    if protocol.reader_features is not None:
        spelled["readerFeatures"] = list(protocol.reader_features)
    if protocol.writer_features is not None:
        spelled["writerFeatures"] = list(protocol.writer_features)
    return spelled


def _with_required(properties: Mapping[str, str]) -> dict[str, str]:
    for key, value in REQUIRED_PROPERTIES.items():
        if properties.get(key, value) != value:
            raise Invalid(f"a managed table needs the property {key}={value}, found {properties[key]}")
    return {**properties, **REQUIRED_PROPERTIES}


def _clustered(columns: Sequence[str]) -> Domains | None:
    if not columns:
        return None
    return Domains(clustering=Clustering(tuple(tuple(column.split(".")) for column in columns)))
