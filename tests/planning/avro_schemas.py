"""The Avro schemas of manifests and manifest lists, by format version."""

from typing import Any


def _map(name: str, value: str, ids: tuple[int, int], field_id: int) -> dict[str, Any]:
    pair = {
        "type": "record",
        "name": f"k{ids[0]}_v{ids[1]}",
        "fields": [
            {"name": "key", "type": "int", "field-id": ids[0]},
            {"name": "value", "type": value, "field-id": ids[1]},
        ],
    }
    kind = ["null", {"type": "array", "items": pair, "logicalType": "map"}]
    return {"name": name, "type": kind, "default": None, "field-id": field_id}


def optional(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _list_of(kind: str, element_id: int) -> dict[str, Any]:
    return {"type": "array", "items": kind, "element-id": element_id}


def entry_schema(partition_fields: list[dict[str, Any]], version: int) -> dict[str, Any]:
    partition = {"type": "record", "name": "r102", "fields": partition_fields}
    file_fields = [
        *([{"name": "content", "type": "int", "field-id": 134}] if version > 1 else []),
        {"name": "file_path", "type": "string", "field-id": 100},
        {"name": "file_format", "type": "string", "field-id": 101},
        {"name": "partition", "type": partition, "field-id": 102},
        {"name": "record_count", "type": "long", "field-id": 103},
        {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        *([{"name": "block_size_in_bytes", "type": "long", "field-id": 105}] if version == 1 else []),
        _map("column_sizes", "long", (117, 118), 108),
        _map("value_counts", "long", (119, 120), 109),
        _map("null_value_counts", "long", (121, 122), 110),
        _map("nan_value_counts", "long", (138, 139), 137),
        _map("lower_bounds", "bytes", (126, 127), 125),
        _map("upper_bounds", "bytes", (129, 130), 128),
        optional("key_metadata", "bytes", 131),
        optional("split_offsets", _list_of("long", 133), 132),
        *([optional("equality_ids", _list_of("int", 136), 135)] if version > 1 else []),
        optional("sort_order_id", "int", 140),
        *(
            [
                optional("first_row_id", "long", 142),
                optional("referenced_data_file", "string", 143),
                optional("content_offset", "long", 144),
                optional("content_size_in_bytes", "long", 145),
            ]
            if version > 1
            else []
        ),
    ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            {"name": "snapshot_id", "type": "long", "field-id": 1}
            if version == 1
            else optional("snapshot_id", "long", 1),
            *(
                [optional("sequence_number", "long", 3), optional("file_sequence_number", "long", 4)]
                if version > 1
                else []
            ),
            {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": file_fields}, "field-id": 2},
        ],
    }


def list_schema(version: int) -> dict[str, Any]:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            {"name": "contains_null", "type": "boolean", "field-id": 509},
            optional("contains_nan", "boolean", 518),
            optional("lower_bound", "bytes", 510),
            optional("upper_bound", "bytes", 511),
        ],
    }
    partitions = optional("partitions", {"type": "array", "items": summary, "element-id": 508}, 507)
    counts = [
        {"name": f"{status}_files_count", "type": "int", "field-id": 504 + place}
        for place, status in enumerate(("added", "existing", "deleted"))
    ]
    rows = [
        {"name": f"{status}_rows_count", "type": "long", "field-id": 512 + place}
        for place, status in enumerate(("added", "existing", "deleted"))
    ]
    numbers = [
        {"name": "content", "type": "int", "field-id": 517},
        {"name": "sequence_number", "type": "long", "field-id": 515},
        {"name": "min_sequence_number", "type": "long", "field-id": 516},
    ]
    return {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            {"name": "manifest_path", "type": "string", "field-id": 500},
            {"name": "manifest_length", "type": "long", "field-id": 501},
            {"name": "partition_spec_id", "type": "int", "field-id": 502},
            *(numbers if version > 1 else []),
            {"name": "added_snapshot_id", "type": "long", "field-id": 503},
            *counts,
            *rows,
            partitions,
            optional("key_metadata", "bytes", 519),
            *([optional("first_row_id", "long", 520)] if version > 2 else []),
        ],
    }
