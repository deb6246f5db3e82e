"""Answers of gRPC in the form of the REST APIs, and answers without what differs from call to call."""

import json
import re
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from sandur.v1 import catalogs_pb2, delta_pb2, scans_pb2, tables_pb2

Json = dict[str, Any]

_CHANGING: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\b1[0-9]{12}\b"), "0"),
    (re.compile(r'"etag": ?"[^"]*"'), '"etag":"TAG"'),
    (re.compile(r"main-by-(rest|grpc)"), "main"),
)


def comparable(value: Any) -> Any:
    """The value without ids, times and the name of its catalog."""
    text = json.dumps(value, sort_keys=True)
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return json.loads(text)


def as_rest(message: Message | list[Any]) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case per message
    """What the REST API answers for the same; None for an answer without a body."""
    match message:
        case tables_pb2.Table() | tables_pb2.View():
            return _document(message)
        case tables_pb2.ListTablesResponse(tables=names) | tables_pb2.ListViewsResponse(views=names):
            found = [{"namespace": list(name.namespace), "name": name.name} for name in names]
            return {"identifiers": found, "next-page-token": message.next_page_token or None}
        case catalogs_pb2.Namespace():
            return {"namespace": list(message.name.levels), "properties": dict(message.properties)}
        case catalogs_pb2.ListNamespacesResponse():
            found_levels = [list(name.levels) for name in message.namespaces]
            return {"namespaces": found_levels, "next-page-token": message.next_page_token or None}
        case catalogs_pb2.UpdateNamespaceResponse():
            parts = ("updated", "removed", "missing")
            return {part: list(getattr(message, part)) for part in parts}
        case catalogs_pb2.Catalog():
            return catalog(message)
        case catalogs_pb2.ListCatalogsResponse():
            return {"catalogs": [catalog(one) for one in message.catalogs]}
        case tables_pb2.ListSnapshotsResponse():
            return {"snapshots": [_snapshot(one) for one in message.snapshots]}
        case tables_pb2.ListSchemasResponse():
            return {"schemas": [_schema(one) for one in message.schemas]}
        case tables_pb2.ListPartitionSpecsResponse():
            return {"partition-specs": [_spec(one) for one in message.partition_specs]}
        case tables_pb2.GetCredentialsResponse():
            return {"storage-credentials": [{"prefix": one.prefix} for one in message.storage_credentials]}
        case delta_pb2.DeltaTable():
            return json.loads(message.table)
        case delta_pb2.DeltaStage():
            return json.loads(message.stage)
        case [scans_pb2.PlanScanResponse() as first, *others]:
            assert not others
            return {"status": "completed", "plan-id": first.plan_id, "plan-tasks": [], **json.loads(first.tasks)}
    return None


def _document(message: Any) -> Json:
    found = {"metadata": json.loads(message.metadata)}
    if message.metadata_location:
        found["metadata-location"] = message.metadata_location
    return found


def catalog(message: Any) -> Json:
    names = {"created_at_ms": "created_at", "updated_at_ms": "updated_at"}
    found = MessageToDict(message, preserving_proto_field_name=True)
    found = {names.get(name, name): value for name, value in found.items()}
    times = {name: int(found[name]) for name in names.values()}
    return {**found, **times, "properties": dict(message.properties)}


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _at(message: Any) -> Json:
    return {
        "snapshot-id": _optional(message, "snapshot_id"),
        "timestamp-ms": message.timestamp_ms,
        "ingested-at-ms": _optional(message, "ingested_at_ms"),
    }


def _schema(message: Any) -> Json:
    schema = json.loads(message.schema) if message.schema else None
    return {**_at(message), "schema-id": _optional(message, "schema_id"), "schema": schema}


def _spec(message: Any, *, is_alone: bool = True) -> Json:
    fields = [
        {"source-id": one.source_id, "field-id": one.field_id, "name": one.name, "transform": one.transform}
        for one in message.fields
    ]
    found = {
        "spec-id": _optional(message, "spec_id"),
        "spec-name": message.spec_name,
        "is-default": message.is_default,
        "fields": fields,
    }
    return {**_at(message), **found} if is_alone else found


def _snapshot(message: Any) -> Json:
    schema = {"schema-id": _optional(message, "schema_id"), "schema": json.loads(message.schema)}
    return {
        "snapshot-id": message.snapshot_id,
        "timestamp-ms": message.timestamp_ms,
        "ingested-at-ms": _optional(message, "ingested_at_ms"),
        "parent-snapshot-id": _optional(message, "parent_snapshot_id"),
        "sequence-number": _optional(message, "sequence_number"),
        **schema,
        "partition-spec": _spec(message.partition_spec, is_alone=False),
        "manifest-list": message.manifest_list,
        "summary": dict(message.summary),
        "is-current": message.is_current,
        "refs": list(message.refs),
    }
