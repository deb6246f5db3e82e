"""Requests as clients send them, and the catalog that tests of the operations send them to."""

import copy
import hashlib
import json
from typing import Any, Final

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Catalog, NamespaceRecord, Request
from sandur.iceberg.requests import CreateTable, TableCommit, decode_create_table, decode_table_commit
from sandur.iceberg.view_commit import CreateView, ViewCommit, decode_create_view, decode_view_commit
from sandur.operations.lake import Lake, complete_new_store
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, load_table
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock

NAMESPACE: Final = Namespace("main", ("a",))
ELSEWHERE: Final = Namespace("main", ("b",))
TIMESTAMP_MS: Final = 1_767_225_600_000
SCHEMA: Final = {"type": "struct", "fields": [{"id": 0, "name": "x", "type": "long", "required": True}]}


def identifier_of(name: str, namespace: Namespace = NAMESPACE) -> Identifier:
    return Identifier(*namespace, name)


def request(label: str, *, key: str | None = None) -> Request:
    """A request with a label: the same label means the same body."""
    return Request(hashlib.sha256(label.encode()).hexdigest(), key)


def keyed_request(label: str) -> Request:
    return request(label, key=f"key of {label}")


async def set_up_catalog(lake: Lake) -> None:
    """A catalog `main` with the namespaces `a` and `b`."""
    await complete_new_store(lake.store, lake.clock)
    await lake.catalog("main").create(Catalog(name="main", id="catalog", root=f"{lake.area}/main"))
    for namespace in (NAMESPACE, ELSEWHERE):
        record = NamespaceRecord(state="active", id=f"id of {namespace}", parent_id="catalog")
        await lake.namespace(namespace).create(record)


def table(name: str, **fields: object) -> CreateTable:
    body = {"name": name, "schema": SCHEMA, **{key.replace("_", "-"): value for key, value in fields.items()}}
    return decode_create_table(json.dumps(body).encode())


def commit(*updates: dict[str, Any], require: tuple[dict[str, Any], ...] = ()) -> TableCommit:
    return decode_table_commit(json.dumps({"requirements": require, "updates": updates}).encode())


def same_uuid(uuid: str) -> dict[str, Any]:
    return {"type": "assert-table-uuid", "uuid": uuid}


def at_snapshot(snapshot_id: int | None, ref: str = "main") -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}


def set_property(key: str, value: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": {key: value}}


def set_location(location: str) -> dict[str, Any]:
    return {"action": "set-location", "location": location}


def snapshot(snapshot_id: int, parent: int | None = None, *, number: int | None = None) -> dict[str, Any]:
    """A snapshot without files; its sequence number is its id, unless one is given."""
    fields: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": number or snapshot_id,
        "timestamp-ms": TIMESTAMP_MS + snapshot_id,
        "manifests": [],
        "summary": {"operation": "append"},
    }
    return fields if parent is None else {**fields, "parent-snapshot-id": parent}


def append(
    snapshot_id: int, parent: int | None = None, *, uuid: str | None = None, number: int | None = None
) -> TableCommit:
    """A commit that appends to `main`, as engines send it."""
    require = (at_snapshot(parent), *((same_uuid(uuid),) if uuid else ()))
    return commit(
        {"action": "add-snapshot", "snapshot": snapshot(snapshot_id, parent, number=number)},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        require=require,
    )


def create_commit(uuid: str, *more: dict[str, Any]) -> TableCommit:
    """The end of a create transaction, as clients send it."""
    return commit(
        {"action": "assign-uuid", "uuid": uuid},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA | {"schema-id": 0}, "last-column-id": 0},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        *more,
        require=({"type": "assert-create"},),
    )


def view_version(sql: str, version_id: int = 1) -> dict[str, Any]:
    return {
        "version-id": version_id,
        "timestamp-ms": TIMESTAMP_MS,
        "schema-id": 0,
        "summary": {"engine-name": "test"},
        "default-namespace": ["a"],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }


def view(name: str, sql: str = "select 1", **fields: object) -> CreateView:
    body = {"name": name, "schema": SCHEMA, "view-version": view_version(sql), "properties": {}, **fields}
    return decode_create_view(json.dumps(body).encode())


def replace_view(sql: str, *, uuid: str | None = None) -> ViewCommit:
    body = {
        "requirements": [{"type": "assert-view-uuid", "uuid": uuid}] if uuid else [],
        "updates": [
            {"action": "add-view-version", "view-version": view_version(sql, 2)},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }
    return decode_view_commit(json.dumps(body).encode())


async def create(lake: Lake, name: str, namespace: Namespace = NAMESPACE, **fields: object) -> LoadedTable:
    """A new table, with all background work done."""
    made = await create_table(lake, namespace, table(name, **fields), request(f"create {namespace} {name}"))
    await lake.background.drain()
    return made


async def load(lake: Lake, identifier: Identifier) -> LoadedTable:
    loaded = await load_table(lake, identifier)
    assert isinstance(loaded, LoadedTable)
    return loaded


def content(loaded: LoadedTable) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(loaded.metadata)
    return metadata


def copy_store(store: MemoryStore, clock: FixedClock) -> tuple[MemoryStore, FixedClock]:
    """A copy of the store with the same objects and versions, and a clock that continues at the same time."""
    ticking = copy.deepcopy(clock)
    twin = MemoryStore(clock=ticking)
    twin._objects, twin._sorted_keys, twin._writes = dict(store._objects), list(store._sorted_keys), store._writes
    return twin, ticking
