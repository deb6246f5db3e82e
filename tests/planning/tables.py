"""Tables that consist of metadata and manifests. Their rows are known, but no data file is written."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro

from sandur.iceberg.expressions.transform_functions import apply_transform
from sandur.iceberg.partitioning import parse_transform
from sandur.iceberg.types import primitive
from tests.planning.avro_schemas import entry_schema, list_schema, optional

Row = Mapping[str, Any]
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"

COLUMNS: dict[str, tuple[int, str, bool]] = {
    "id": (1, "long", True),
    "name": (2, "string", False),
    "ts": (3, "timestamp", False),
    "day": (4, "date", False),
    "x": (5, "double", False),
    "flag": (6, "boolean", False),
    "amount": (7, "decimal(9, 2)", False),
    "f": (8, "float", False),
    "bin": (9, "binary", False),
    "i": (10, "int", False),
    "s.inner": (12, "int", False),
}
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        *(
            {"id": field_id, "name": name, "required": required, "type": kind}
            for name, (field_id, kind, required) in COLUMNS.items()
            if "." not in name
        ),
        {
            "id": 11,
            "name": "s",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 12, "name": "inner", "required": False, "type": "int"}]},
        },
    ],
}
_AVRO: dict[str, Any] = {
    "long": "long",
    "int": "int",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "string": "string",
    "binary": "bytes",
    "decimal(9, 2)": {
        "type": "fixed",
        "name": "decimal_9_2",
        "size": 4,
        "logicalType": "decimal",
        "precision": 9,
        "scale": 2,
    },
}
_FIXED_SIZE = 4


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def value_bytes(kind: str, value: Any) -> bytes:  # noqa: PLR0911 - one line per type
    """The binary form of a single value."""
    match primitive(kind).name:
        case "long" | "timestamp":
            return struct.pack("<q", value)
        case "int" | "date":
            return struct.pack("<i", value)
        case "double":
            return struct.pack("<d", value)
        case "float":
            return struct.pack("<f", value)
        case "boolean":
            return b"\x01" if value else b"\x00"
        case "string":
            return str(value).encode()
        case "decimal":
            return int(value).to_bytes(_FIXED_SIZE, signed=True)
        case _:
            return bytes(value)


@dataclass(frozen=True)
class Spec:
    """A partition spec: for each field its source, transform and id."""

    spec_id: int
    fields: tuple[tuple[str, str, int], ...] = ()

    @property
    def json(self) -> dict[str, Any]:
        fields = [
            {"source-id": COLUMNS[source][0], "field-id": field_id, "name": self.name(place), "transform": text}
            for place, (source, text, field_id) in enumerate(self.fields)
        ]
        return {"spec-id": self.spec_id, "fields": fields}

    def name(self, place: int) -> str:
        source, text, _ = self.fields[place]
        return source.replace(".", "_") + "_" + text.replace("[", "_").replace("]", "")

    def kind(self, place: int) -> str:
        source, text, _ = self.fields[place]
        match parse_transform(text).name:
            case "identity" | "truncate" | "void":
                return COLUMNS[source][1]
            case "day":
                return "date"
            case _:
                return "int"

    def partition(self, row: Row) -> tuple[Any, ...]:
        found: list[Any] = []
        for source, text, _ in self.fields:
            value = row.get(source)
            applied = parse_transform(text)
            if value is None or applied.is_void:
                found.append(None)
            else:
                found.append(apply_transform(applied, primitive(COLUMNS[source][1]), value))
        return tuple(found)


@dataclass(frozen=True)
class MadeFile:
    """The description of a data or delete file."""

    path: str
    partition: tuple[Any, ...] = ()
    rows: Sequence[Row] = ()
    record_count: int | None = None
    content: int = 0
    status: int = 1
    sequence_number: int | None = None
    snapshot_id: int | None = None
    file_format: str = "PARQUET"
    equality_ids: tuple[int, ...] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None
    has_stats: bool = True
    size: int = 1_000


@dataclass(frozen=True)
class MadeManifest:
    """A manifest: files of one spec, written by one snapshot."""

    spec: Spec
    files: Sequence[MadeFile]
    sequence_number: int = 1
    snapshot_id: int = 1
    content: int = 0
    first_row_id: int | None = None


@dataclass
class MadeTable:
    """A table in a folder that is not written yet."""

    folder: Path
    specs: Sequence[Spec]
    format_version: int = 2
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    codec: str = "deflate"
    uuid: str | None = UUID

    @property
    def location(self) -> str:
        return f"file://{self.folder}"

    def add_snapshot(self, manifests: Sequence[MadeManifest], **said: Any) -> int:
        """A snapshot of all these manifests; its id counts from 1."""
        snapshot_id = len(self.snapshots) + 1
        listed = [self._written(manifest, f"m{snapshot_id}-{n}") for n, manifest in enumerate(manifests)]
        path = self.folder / "metadata" / f"snap-{snapshot_id}.avro"
        _write(path, list_schema(self.format_version), listed, {"format-version": str(self.format_version)}, self.codec)
        self.snapshots.append(
            {
                "snapshot-id": snapshot_id,
                "timestamp-ms": 1_700_000_000_000 + snapshot_id,
                "manifest-list": f"file://{path}",
                "summary": {"operation": "append", **said.pop("summary", {})},
                "schema-id": 0,
                **({"parent-snapshot-id": snapshot_id - 1} if snapshot_id > 1 else {}),
                **({"sequence-number": snapshot_id} if self.format_version > 1 else {}),
                **({"first-row-id": 0, "added-rows": 0} if self.format_version > 2 else {}),
                **said,
            }
        )
        return snapshot_id

    def write(self, *, name: str = "v1.metadata.json") -> str:
        """Write the metadata file and return its path."""
        path = self.folder / "metadata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.metadata))
        return str(path)

    @property
    def metadata(self) -> dict[str, Any]:
        current = self.snapshots[-1]["snapshot-id"] if self.snapshots else -1
        specs = [spec.json for spec in self.specs]
        found = {
            "format-version": self.format_version,
            **({} if self.uuid is None else {"table-uuid": self.uuid}),
            "location": self.location,
            "last-updated-ms": 1_700_000_000_999,
            "last-column-id": 12,
            "schemas": [SCHEMA],
            "current-schema-id": 0,
            "schema": SCHEMA,
            "partition-spec": specs[-1]["fields"],
            "partition-specs": specs,
            "default-spec-id": self.specs[-1].spec_id,
            "last-partition-id": 1_010,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": current,
            "snapshots": self.snapshots,
            "snapshot-log": [],
            "metadata-log": [],
            "refs": {"main": {"snapshot-id": current, "type": "branch"}} if self.snapshots else {},
            "last-sequence-number": max((snapshot["snapshot-id"] for snapshot in self.snapshots), default=0),
        }
        return found | ({"next-row-id": 10_000} if self.format_version > 2 else {})

    def _written(self, manifest: MadeManifest, name: str) -> dict[str, Any]:
        path = self.folder / "metadata" / f"{name}.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        records = [_entry(manifest, file, self.format_version) for file in manifest.files]
        header = {
            "schema": json.dumps(SCHEMA),
            "schema-id": "0",
            "partition-spec": json.dumps(manifest.spec.json["fields"]),
            "partition-spec-id": str(manifest.spec.spec_id),
            "format-version": str(self.format_version),
            "content": "deletes" if manifest.content else "data",
        }
        _write(path, entry_schema(_partition_fields(manifest.spec), self.format_version), records, header, self.codec)
        counts = [sum(file.status == status for file in manifest.files) for status in (1, 0, 2)]
        return {
            "manifest_path": f"file://{path}",
            "manifest_length": path.stat().st_size,
            "partition_spec_id": manifest.spec.spec_id,
            "content": manifest.content,
            "sequence_number": manifest.sequence_number,
            "min_sequence_number": 0,
            "added_snapshot_id": manifest.snapshot_id,
            "added_files_count": counts[0],
            "existing_files_count": counts[1],
            "deleted_files_count": counts[2],
            "added_rows_count": 0,
            "existing_rows_count": 0,
            "deleted_rows_count": 0,
            "partitions": _summaries(manifest),
            "key_metadata": None,
            "first_row_id": manifest.first_row_id,
        }


def _summaries(manifest: MadeManifest) -> list[dict[str, Any]]:
    found = []
    for place in range(len(manifest.spec.fields)):
        kind = manifest.spec.kind(place)
        values = [file.partition[place] for file in manifest.files if file.status != 2]
        known = [value for value in values if value is not None]
        numbers = [value for value in known if not is_nan(value)]
        found.append(
            {
                "contains_null": len(known) < len(values),
                "contains_nan": len(numbers) < len(known),
                "lower_bound": value_bytes(kind, min(numbers)) if numbers else None,
                "upper_bound": value_bytes(kind, max(numbers)) if numbers else None,
            }
        )
    return found


def _entry(manifest: MadeManifest, file: MadeFile, version: int) -> dict[str, Any]:
    partition = {
        manifest.spec.name(place): _avro_value(manifest.spec.kind(place), value)
        for place, value in enumerate(file.partition)
    }
    data_file = {
        "content": file.content,
        "file_path": file.path,
        "file_format": file.file_format,
        "partition": partition,
        "record_count": len(file.rows) if file.record_count is None else file.record_count,
        "file_size_in_bytes": file.size,
        "block_size_in_bytes": 64,
        "key_metadata": None,
        "split_offsets": [4],
        "sort_order_id": 0,
        "equality_ids": None if file.equality_ids is None else list(file.equality_ids),
        "first_row_id": None,
        "referenced_data_file": file.referenced_data_file,
        "content_offset": file.content_offset,
        "content_size_in_bytes": file.content_size,
        **(statistics_of(file.rows) if file.has_stats else {}),
    }
    entry = {"status": file.status, "snapshot_id": file.snapshot_id, "data_file": data_file}
    if version > 1:
        entry |= {"sequence_number": file.sequence_number, "file_sequence_number": file.sequence_number}
    else:
        entry["snapshot_id"] = file.snapshot_id or manifest.snapshot_id
    return entry


def _avro_value(kind: str, value: Any) -> Any:
    if value is None or kind != "decimal(9, 2)":
        return value
    return value_bytes(kind, value)


def statistics_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts and bounds of every column of these rows."""
    found: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in (
            "column_sizes",
            "value_counts",
            "null_value_counts",
            "nan_value_counts",
            "lower_bounds",
            "upper_bounds",
        )
    }
    for name, (field_id, kind, _) in COLUMNS.items():
        values = [row.get(name) for row in rows]
        known = [value for value in values if value is not None]
        numbers = [value for value in known if not is_nan(value)]
        found["column_sizes"].append({"key": field_id, "value": 10 * len(rows)})
        found["value_counts"].append({"key": field_id, "value": len(values)})
        found["null_value_counts"].append({"key": field_id, "value": len(values) - len(known)})
        if kind in {"double", "float"}:
            found["nan_value_counts"].append({"key": field_id, "value": len(known) - len(numbers)})
        if numbers:
            lower, upper = _bounds(kind, numbers)
            found["lower_bounds"].append({"key": field_id, "value": lower})
            if upper is not None:
                found["upper_bounds"].append({"key": field_id, "value": upper})
    return found


_TRUNCATED = 6


def _bounds(kind: str, values: Sequence[Any]) -> tuple[bytes, bytes | None]:
    """Bounds as writers store them: texts are truncated, and the upper bound is then increased."""
    lowest, highest = min(values), max(values)
    if kind != "string" or len(highest) <= _TRUNCATED:
        lower = lowest[:_TRUNCATED] if kind == "string" else lowest
        return value_bytes(kind, lower), value_bytes(kind, highest)
    raised = highest[: _TRUNCATED - 1] + chr(ord(highest[_TRUNCATED - 1]) + 1)
    return value_bytes(kind, lowest[:_TRUNCATED]), raised.encode()


def _partition_fields(spec: Spec) -> list[dict[str, Any]]:
    found, kinds = [], dict(_AVRO)
    for place, (_, _, field_id) in enumerate(spec.fields):
        kind = kinds[spec.kind(place)]
        found.append(optional(spec.name(place), kind, field_id))
        if isinstance(kind, dict):
            # Avro defines a named type only once.
            kinds[spec.kind(place)] = kind.get("name", kind)
    return found


def _write(
    path: Path, schema: dict[str, Any], records: Sequence[dict[str, Any]], header: Mapping[str, str], codec: str
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), records, codec=codec, metadata=dict(header))
