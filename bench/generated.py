"""A generated catalog for benchmarks: any number of tables and receipts, written directly as files."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.catalog.location_claims import LocationsComplete
from sandur.catalog.record_versions import NEWEST, StoreFormat
from sandur.catalog.records import Catalog, Head, NameRecord, NamespaceRecord, Pointer
from sandur.operations.receipts import commit_key_of, receipt_key, receipt_of, tried_of
from sandur.storage.layout import LOCATIONS_COMPLETE, STORE_FORMAT, Layout
from sandur.storage.locations import address_of

START_MS: Final = 1_767_225_600_000
MINUTE_MS: Final = 60_000
COMMITS_PER_TABLE: Final = 100
TABLES_PER_NAMESPACE: Final = 1_000
_SOURCE: Final = Source(kind="rest", client="bench", principal="ada")
_HASH: Final = "0123456789abcdef" * 2
_FIELDS: Final = [
    {"id": number + 1, "name": f"column_{number}", "required": number == 0, "type": "long" if number % 2 else "string"}
    for number in range(20)
]


class Made:
    """A folder as a store, and its generated content."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = Layout()
        self._address = address_of(str(root))
        self._folders: set[str] = set()
        self._put(self.layout.catalog("main"), Catalog(name="main", id="main", root=f"{self._address}/tables/main"))

    def as_new(self) -> None:
        """Mark the store as one of this release: nothing is to be migrated."""
        self._put(
            STORE_FORMAT, StoreFormat(major=NEWEST.major, minor=NEWEST.minor, state="steady", changed_ms=START_MS)
        )
        self._put(LOCATIONS_COMPLETE, LocationsComplete(completed_ms=START_MS))

    def receipts(self, count: int) -> None:
        """Receipts of `count` commits, COMMITS_PER_TABLE per table; each table's receipts are a chain."""
        for number in range(-(-count // COMMITS_PER_TABLE)):
            commits = min(COMMITS_PER_TABLE, count - number * COMMITS_PER_TABLE)
            for head in self._heads(number, commits):
                key = receipt_key(self.layout, tried_of(head))
                self._put(key, receipt_of(_uuid(number), head))

    def tables(self, count: int, *, per_namespace: int = TABLES_PER_NAMESPACE, has_receipts: bool = False) -> None:
        """Tables with names, pointers and metadata files of twenty columns and ten snapshots."""
        for number in range(count):
            namespace = ("sales", f"n{number // per_namespace}")
            if number % per_namespace == 0:
                self._namespaces(namespace)
            uuid = _uuid(number)
            head = next(self._heads(number, 1))
            identifier = Identifier("main", namespace, f"t{number:07d}")
            name = NameRecord(state="active", uuid=uuid, kind="table", metadata_location=head.metadata_location)
            self._put(self.layout.name(identifier), name)
            self._put(self.layout.pointer(uuid), Pointer(uuid=uuid, table_uuid=uuid, state="live", head=head))
            path = head.metadata_location.removeprefix("file://")
            self._write(path, _metadata(uuid, path.rpartition("/metadata/")[0]))
            if has_receipts:
                self._put(receipt_key(self.layout, tried_of(head)), receipt_of(uuid, head))

    def _namespaces(self, levels: tuple[str, ...]) -> None:
        for depth in range(1, len(levels) + 1):
            name = Identifier("main", levels[:depth], "x").namespace
            parent = str(name.parent or "main")
            record = NamespaceRecord(state="active", id=str(name), parent_id=parent, catalog_id="main")
            self._put(self.layout.namespace(name), record)

    def _heads(self, table: int, commits: int) -> Iterator[Head]:
        previous: Head | None = None
        for version in range(commits):
            location = (
                f"{self._address}/tables/main/t{table:07d}/metadata/{version:05d}-{_HASH}-{table:012x}.metadata.json"
            )
            head = Head(
                metadata_location=location,
                last_updated_ms=START_MS + (table + version) * MINUTE_MS,
                metadata_version=version,
                previous_metadata_location=previous.metadata_location if previous else None,
                previous_commit_key=commit_key_of(previous) if previous else None,
                snapshot_id=version + 1,
                operation="append" if version else "create",
                last_sequence_number=version,
                source=_SOURCE,
            )
            yield head
            previous = head

    def _put(self, key: str, value: msgspec.Struct) -> None:
        self._write(f"{self.root}/{key}", msgspec.json.encode(value))

    def _write(self, path: str, data: bytes) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self._folders:  # A check of each file would take as long as writing it.
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.write(descriptor, data)
        os.close(descriptor)


class MadeInMemory(Made):
    """The same content as objects by key. `root` is only a part of the addresses."""

    def __init__(self, root: Path) -> None:
        self.objects: dict[str, bytes] = {}
        super().__init__(root)

    def _write(self, path: str, data: bytes) -> None:
        self.objects[path.removeprefix(f"{self.root}/")] = data


def _uuid(number: int) -> str:
    text = hashlib.sha256(str(number).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _summary(number: int) -> dict[str, str]:
    """Totals of large files: no manifest has to be opened to see that compaction does not pay."""
    totals = {"total-records": number, "total-data-files": number, "total-files-size": number << 30}
    return {"operation": "append", "total-delete-files": "0"} | {name: str(total) for name, total in totals.items()}


def _metadata(uuid: str, location: str) -> bytes:
    snapshots = [
        {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": START_MS + number,
            "manifest-list": f"{location}/metadata/snap-{number}.avro",
            "summary": _summary(number),
            "schema-id": 0,
        }
        for number in range(1, 11)
    ]
    document = {
        "format-version": 2,
        "table-uuid": uuid,
        "location": location,
        "last-sequence-number": 10,
        "last-updated-ms": START_MS + 10,
        "last-column-id": len(_FIELDS),
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": _FIELDS}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "current-snapshot-id": 10,
        "refs": {"main": {"snapshot-id": 10, "type": "branch"}},
        "snapshots": snapshots,
    }
    return msgspec.json.encode(document)
