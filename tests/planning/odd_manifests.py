"""Random valid manifests: fields in any order, null first or last in unions, maps in several blocks."""

import json
import random  # noqa: TID251 - seeded
from typing import Any

import numpy as np

COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")
OPTIONAL = {
    "key_metadata": "bytes",
    "split_offsets": {"type": "array", "items": "long"},
    "equality_ids": {"type": "array", "items": "int"},
    "sort_order_id": "int",
    "first_row_id": "long",
    "referenced_data_file": "string",
    "content_offset": "long",
}
PARTITION = ("int", "long", "string", "bytes", "boolean", "float", "double")

Schema = Any


def varint(number: int) -> bytes:
    """A number in Avro's encoding."""
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def number(chance: random.Random, width: int) -> int:
    """A random number of a given encoded width, of either sign."""
    lowest = 0 if width == 1 else 1 << (7 * width - 8)
    found = chance.randrange(lowest, min(1 << (7 * width - 1), 1 << 63))
    return found if chance.random() < 0.5 else -found - 1


def avro_file(schema: Schema, blocks: list[tuple[int, bytes]], *, codec: str = "null") -> bytes:
    """A container file of blocks, each with the number of records that it declares and its compressed bytes."""
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode(), "partition-spec-id": b"3"}
    entries = b"".join(_bytes(name.encode()) + _bytes(value) for name, value in header.items())
    sync = b"S" * 16
    parts = [varint(count) + _bytes(block) + sync for count, block in blocks]
    return b"".join((b"Obj\x01", varint(len(header)), entries, b"\x00", sync, *parts))


def _bytes(content: bytes) -> bytes:
    return varint(len(content)) + content


class OddManifest:
    """One random manifest that depends only on the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.schema = self._schema()
        # Per field, so that some fields have no nulls, some few, and some only nulls.
        self._nulls = {name: self._chance.choice([0, 0, 0.03, 0.5, 1]) for name in (*COUNTS, *BOUNDS, *OPTIONAL, "")}
        self._layouts = {name: self._layout() for name in (*COUNTS, *BOUNDS)}
        self._blocks = self._chance.choice(["one", "one", "many", "sized"])
        self._deleted = self._chance.choice([0, 0.1, 0.9])

    @property
    def data(self) -> bytes:
        """The file, in blocks of random size."""
        count, size = self._chance.choice([64, 80, 200]), self._chance.choice([1_000, 61, 30])
        records = [self._encoded(self.schema, "", row) for row in range(count)]
        parts = [records[start : start + size] for start in range(0, count, size)]
        return avro_file(self.schema, [(len(part), b"".join(part)) for part in parts])

    def _schema(self) -> Schema:
        partition = [
            {"name": f"p{place}", "type": self._optional(kind), "field-id": 1000 + place}
            for place, kind in enumerate(self._chance.sample(PARTITION, self._chance.randrange(4)))
        ]
        fields = {
            "content": "int",
            "file_path": "string",
            "file_format": "string",
            "partition": {"type": "record", "name": "r102", "fields": partition},
            "record_count": "long",
            "file_size_in_bytes": "long",
            **{name: self._optional(self._map(name)) for name in (*COUNTS, *BOUNDS) if self._chance.random() < 0.9},
            **{name: self._optional(kind) for name, kind in OPTIONAL.items() if self._chance.random() < 0.7},
        }
        if self._chance.random() < 0.2:
            del fields["content"]
        file = [{"name": name, "type": kind} for name, kind in fields.items()]
        if self._chance.random() < 0.1:
            self._chance.shuffle(file)
        entry: list[Schema] = [{"name": "status", "type": "int"}]
        entry += [{"name": name, "type": self._optional("long")} for name in ("snapshot_id", "sequence_number")]
        last = {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": file}}
        entry.insert(self._chance.choice([3, 3, 3, 3, 3, 3, 3, 0]), last)
        return {"type": "record", "name": "manifest_entry", "fields": entry}

    def _optional(self, kind: Schema) -> Schema:
        return self._chance.choice([["null", kind], ["null", kind], [kind, "null"], kind])

    def _map(self, name: str) -> Schema:
        value = "long" if name in COUNTS else "bytes"
        fields = [
            {"name": "key", "type": self._chance.choice(["int", "int", "int", "long"])},
            {"name": "value", "type": self._chance.choice([value] * 9 + [["null", value]])},
        ]
        if self._chance.random() < 0.1:
            fields.reverse()
        return {"type": "array", "items": {"type": "record", "name": f"k_{name}", "fields": fields}}

    def _layout(self) -> list[list[tuple[int, int]]]:
        """Keys and the widths of their values. A key may occur twice in a map."""
        keys = [self._chance.choice([1, 7, 200, 1 << 30]) * place for place in range(1, 8)]
        ways = self._chance.choice([1, 1, 3, 50])
        return [
            [(self._chance.choice(keys), self._chance.randrange(1, 10)) for _ in range(self._chance.randrange(6))]
            for _ in range(ways)
        ]

    def _encoded(self, schema: Schema, name: str, row: int) -> bytes:  # noqa: PLR0911 - one line per type
        if isinstance(schema, list):
            wants_null = self._chance.random() < self._nulls.get(name, self._nulls[""])
            place = next(place for place, kind in enumerate(schema) if (kind == "null") == wants_null)
            return varint(place) + (b"" if wants_null else self._encoded(schema[place], name, row))
        match schema:
            case {"type": "record", "fields": fields}:
                return b"".join(self._encoded(field["type"], field["name"], row) for field in fields)
            case {"type": "array", "items": {"fields": fields}}:
                pairs = self._chance.choice(self._layouts[name])
                return self._in_blocks([self._pair(fields, *pair) for pair in pairs])
            case {"type": "array"}:
                count = self._chance.randrange(4)
                return self._in_blocks([varint(number(self._chance, 2)) for _ in range(count)])
            case "boolean":
                return bytes([self._chance.randrange(2)])
            case "float" | "double":
                return np.array(row / 8, dtype="<f4" if schema == "float" else "<f8").tobytes()
            case "string" | "bytes":
                return _bytes(self._text(name, row))
            case _:
                return varint(self._number(name))

    def _pair(self, fields: list[Schema], key: int, width: int) -> bytes:
        found = b""
        for field in fields:
            if field["name"] == "key":
                found += varint(key)
            elif isinstance(field["type"], list):
                found += varint(self._chance.choice([0, 1]))
                found += self._value(field["type"][1], width) if found[-1] else b""
            else:
                found += self._value(field["type"], width)
        return found

    def _value(self, kind: str, width: int) -> bytes:
        return varint(number(self._chance, width)) if kind == "long" else _bytes(self._chance.randbytes(width - 1))

    def _in_blocks(self, elements: list[bytes]) -> bytes:
        found = b""
        while elements:
            count = len(elements) if self._blocks == "one" else self._chance.randrange(1, len(elements) + 1)
            body = b"".join(elements[:count])
            found += (varint(-count) + varint(len(body)) if self._blocks == "sized" else varint(count)) + body
            elements = elements[count:]
        return found + b"\x00"

    def _number(self, name: str) -> int:
        if name == "status":
            return 2 if self._chance.random() < self._deleted else self._chance.randrange(2)
        if name == "content":
            return self._chance.randrange(3)
        return number(self._chance, self._chance.randrange(1, 4 if name in {"sort_order_id", "p0", "p1", "p2"} else 10))

    def _text(self, name: str, row: int) -> bytes:
        if name == "file_path":
            return f"s3://bucket/table/data/p={row % 3}/{'é' * self._chance.randrange(70)}{row}.parquet".encode()
        return self._chance.choice([b"", b"parquet", "é".encode() * 5])
