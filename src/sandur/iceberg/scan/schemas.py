"""Avro schemas without what readers of manifests do not need, and none whose records are read for ever.

A record that holds itself may be as deep as its file has bytes, and an array of what takes no bytes as long as it says.
"""

import json
from typing import Any, Final

_DROPPED: Final = frozenset({"logicalType", "__fastavro_parsed", "__named_schemas"})
"""What would be read differently: dates and decimals as such, and names that were not seen here."""

Schema = Any
"""A schema as Avro writes it: JSON of any form."""


def plain_schema(written: bytes) -> dict[str, Any]:
    """The schema without logical types; ValueError, LookupError or TypeError when it is none that is read."""
    found = _Types().plain(json.loads(written))
    if not isinstance(found, dict):
        raise TypeError("the schema is no record")
    return found


class _Types:
    """The named types that were come across, by the last part of their name."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._empty: set[str] = set()

    def plain(self, schema: Schema) -> Schema:
        """A type; ValueError for one that holds itself, and for arrays of what takes no bytes."""
        if isinstance(schema, list):
            return [self.plain(one) for one in schema]
        if not isinstance(schema, dict):
            return self._name(schema)
        kept = {name: value for name, value in schema.items() if name not in _DROPPED}
        match kept["type"]:
            case "record":
                return self._record(kept)
            case "array":
                kept["items"] = self.plain(kept["items"])
                if self._takes_no_bytes(kept["items"]):
                    raise ValueError("an array of nothing")
            case "map":
                kept["values"] = self.plain(kept["values"])
            case "fixed":
                self._note(kept)
            case kind:
                kept["type"] = self.plain(kind)
        return kept

    def _name(self, name: Schema) -> Schema:
        if not isinstance(name, str) or name in {"error", "error_union", "request"}:
            raise TypeError(f"no type of records in files: {str(name)[:100]}")
        if _last(name) in self._open:
            raise ValueError("a type that holds itself")
        return name

    def _record(self, kept: dict[str, Schema]) -> dict[str, Schema]:
        self._open.append(_last(kept["name"]))
        fields = []
        for field in kept["fields"]:
            plain = {name: value for name, value in field.items() if name not in _DROPPED}
            fields.append({**plain, "type": self.plain(field["type"])})
        self._open.pop()
        found = {**kept, "fields": fields}
        self._note(found)
        return found

    def _note(self, named: dict[str, Schema]) -> None:
        if self._takes_no_bytes(named):
            self._empty.add(_last(named["name"]))

    def _takes_no_bytes(self, schema: Schema) -> bool:
        match schema:
            case str():
                return schema == "null" or _last(schema) in self._empty
            case {"type": "fixed", "size": size}:
                return bool(size == 0)
            case {"type": "record", "fields": fields}:
                return all(self._takes_no_bytes(field["type"]) for field in fields)
            case {"type": kind}:
                return self._takes_no_bytes(kind)
            case _:
                return False


def _last(name: str) -> str:
    """A name without its namespace, which may be said elsewhere."""
    return name.rpartition(".")[2]
