"""The same metadata as another or an older engine would write it."""

from collections.abc import Callable
from random import Random

from tests.differential.outcomes import JsonObject

UNKNOWN_FIELD = "x-unknown"
CHANCE = 0.12


def older_form(rng: Random, metadata: JsonObject) -> JsonObject:
    """Mostly the metadata itself; sometimes with missing, differently written or unknown parts."""
    if rng.random() >= CHANCE:
        return metadata
    return rng.choice(_FORMS)(metadata)


def _without(metadata: JsonObject, *keys: str) -> JsonObject:
    return {key: value for key, value in metadata.items() if key not in keys}


def _first_version(metadata: JsonObject) -> JsonObject:
    """Version 1 before schema and spec evolution: one schema, one spec, no lists, no refs."""
    if metadata.get("format-version") != 1 or any(
        len(metadata[name]) != 1 for name in ("schemas", "partition-specs", "sort-orders")
    ):
        return metadata
    if metadata["default-spec-id"] != 0 or metadata["sort-orders"][0]["order-id"] != 0:
        return metadata
    schema = {key: value for key, value in metadata["schema"].items() if key != "schema-id"}
    lists = ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders")
    return {**_without(metadata, *lists, "default-sort-order-id", "refs", "statistics"), "schema": schema}


def _no_optional_lists(metadata: JsonObject) -> JsonObject:
    empty = [k for k in ("snapshots", "statistics", "snapshot-log", "metadata-log", "refs") if not metadata.get(k)]
    return _without(metadata, *empty, "partition-statistics" if not metadata.get("partition-statistics") else "")


def _no_refs(metadata: JsonObject) -> JsonObject:
    """Branches and tags came later: main is implied by the current snapshot."""
    refs = metadata.get("refs", {})
    plain = {"snapshot-id": metadata.get("current-snapshot-id"), "type": "branch"}
    return _without(metadata, "refs") if refs in ({}, {"main": plain}) else metadata


def _no_current_snapshot(metadata: JsonObject) -> JsonObject:
    current = metadata.get("current-snapshot-id")
    if current not in {None, -1}:
        return metadata
    return {**metadata, "current-snapshot-id": None if current == -1 else -1}


def _absent_current_snapshot(metadata: JsonObject) -> JsonObject:
    return _without(metadata, "current-snapshot-id") if metadata.get("current-snapshot-id") in {None, -1} else metadata


def _unknown_field(metadata: JsonObject) -> JsonObject:
    return {UNKNOWN_FIELD: {"written by": "another engine", "big": 2**60}, **metadata}


def _other_order(metadata: JsonObject) -> JsonObject:
    return dict(sorted(metadata.items(), reverse=True))


_FORMS: tuple[Callable[[JsonObject], JsonObject], ...] = (
    _first_version, _first_version, _no_optional_lists, _no_refs, _no_current_snapshot, _absent_current_snapshot,
    _unknown_field, _unknown_field, _other_order,
)  # fmt: skip
