"""Plan requests: decoded from a body, and resolved against one table."""

from contextlib import suppress
from typing import Annotated, Final

import msgspec

from sandur.errors import BadRequest
from sandur.iceberg.expressions.binding import ColumnNames, bind_filter
from sandur.iceberg.expressions.predicates import Filter
from sandur.iceberg.expressions.values import Json
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.splicing import Int64, decode, decode_body

_WHAT: Final = "plan request"
APPEND: Final = "append"
ANCESTORS_MAX: Final = 1_000_000
LONG_FILTER_BYTES: Final = 16_384
REQUEST_BYTES_MAX: Final = 4 << 20
"""A plan stores its request and reads it again for every task. There is room for 100,000 UUIDs."""

Natural64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ScanRequest(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A request to plan a scan. Absent fields have defaults. A filter of null is an error."""

    snapshot_id: Int64 | None = None
    start_snapshot_id: Int64 | None = None
    end_snapshot_id: Int64 | None = None
    select: tuple[str, ...] | None = None
    filter: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    min_rows_requested: Natural64 | None = None
    case_sensitive: bool | None = None
    use_snapshot_schema: bool | None = None
    stats_fields: tuple[str, ...] | None = None

    @property
    def is_case_sensitive(self) -> bool:
        return self.case_sensitive is not False

    @property
    def is_long(self) -> bool:
        """Whether work on the filter takes long and should run in a thread."""
        return self.filter is not msgspec.UNSET and len(memoryview(self.filter)) > LONG_FILTER_BYTES

    @property
    def is_incremental(self) -> bool:
        return self.end_snapshot_id is not None


class Scan(msgspec.Struct, frozen=True):
    """A scan of one table: of a snapshot, or of the files that the snapshots in `appended` added.

    Without a snapshot there is nothing to read. `is_long` says that work on the filter should run in a thread.
    """

    snapshot: Snapshot | None
    schema: Schema
    filter: Filter
    stats_ids: frozenset[int]
    appended: tuple[Snapshot, ...] | None = None
    min_rows: int | None = None
    is_long: bool = False

    @property
    def appended_ids(self) -> frozenset[int] | None:
        return None if self.appended is None else frozenset(snapshot.snapshot_id for snapshot in self.appended)


def decode_scan_request(body: bytes) -> ScanRequest:
    """Decode a body; BadRequest if it contradicts itself."""
    if len(body) > REQUEST_BYTES_MAX:
        raise BadRequest(f"Invalid {_WHAT}: has {len(body)} bytes, more than {REQUEST_BYTES_MAX}")
    request = decode_body(body or b"{}", ScanRequest, _WHAT)
    point, start, end = request.snapshot_id, request.start_snapshot_id, request.end_snapshot_id
    if point is not None and (start is not None or end is not None):
        raise BadRequest(f"Invalid {_WHAT}: snapshot-id and start-snapshot-id or end-snapshot-id exclude each other")
    if (start is None) != (end is None):
        raise BadRequest(f"Invalid {_WHAT}: start-snapshot-id and end-snapshot-id need each other")
    if request.filter is not msgspec.UNSET and bytes(request.filter) == b"null":
        raise BadRequest(f"Invalid {_WHAT}: filter is null; leave it out to select all rows")
    return request


def resolve_scan(request: ScanRequest, metadata: TableMetadata) -> Scan:
    """Resolve a request against a table; BadRequest if the table does not have a snapshot or a column."""
    snapshot, appended = _snapshots(request, metadata)
    current = metadata.current_schema
    schema = _schema_of(snapshot, metadata) if request.use_snapshot_schema else current
    try:
        return _bind_scan(request, schema, snapshot, appended)
    except BadRequest:
        # Spark asks for the snapshot's schema of a branch, but names columns that were added since.
        if schema is not current:
            with suppress(BadRequest):
                return _bind_scan(request, current, snapshot, appended)
        raise


def _bind_scan(
    request: ScanRequest, schema: Schema, snapshot: Snapshot | None, appended: tuple[Snapshot, ...] | None
) -> Scan:
    names = ColumnNames(schema, is_case_sensitive=request.is_case_sensitive)
    for name in request.select or ():
        if not name.startswith("_"):  # Readers have metadata columns, such as _file and _pos.
            names.id_of(name)
    given: Json = True
    if request.filter is not msgspec.UNSET:
        given = decode(request.filter, object, "filter")  # type: ignore[assignment]  # decoded JSON
    return Scan(
        snapshot=snapshot,
        schema=schema,
        filter=bind_filter(given, schema, is_case_sensitive=request.is_case_sensitive),
        stats_ids=_with_fields_below(schema, frozenset(names.id_of(name) for name in request.stats_fields or ())),
        appended=appended,
        min_rows=request.min_rows_requested,
        is_long=request.is_long,
    )


def _with_fields_below(schema: Schema, ids: frozenset[int]) -> frozenset[int]:
    """Only leaf columns have statistics: a struct stands for all its fields."""
    found = set(ids)
    for column in schema.columns.values():
        if column.parent_id in found:
            found.add(column.id)
    return frozenset(found)


def _snapshots(request: ScanRequest, metadata: TableMetadata) -> tuple[Snapshot | None, tuple[Snapshot, ...] | None]:
    if request.start_snapshot_id is not None and request.end_snapshot_id is not None:
        end = _snapshot(metadata, request.end_snapshot_id)
        return end, _appended_between(metadata, request.start_snapshot_id, end.snapshot_id)
    if request.snapshot_id is not None:
        return _snapshot(metadata, request.snapshot_id), None
    return metadata.current_snapshot, None


def _snapshot(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    found = metadata.snapshot(snapshot_id)
    if found is None:
        raise BadRequest(f"Cannot find snapshot with ID {snapshot_id}")
    return found


def _appended_between(metadata: TableMetadata, start: int, end: int) -> tuple[Snapshot, ...]:
    """The append snapshots after `start`, up to and including `end`, oldest first.

    `start` may have expired if its child still exists. BadRequest if it is not an ancestor of `end`.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    found: list[Snapshot] = []
    here: int | None = end
    for _ in range(min(len(by_id), ANCESTORS_MAX) + 1):
        if here == start:
            return tuple(reversed(found))
        if here is None or here not in by_id:
            break
        snapshot = by_id[here]
        if (snapshot.summary or {}).get("operation", APPEND) == APPEND:
            found.append(snapshot)
        here = snapshot.parent_snapshot_id
    raise BadRequest(f"Starting snapshot (exclusive) {start} is not an ancestor of end snapshot {end}")


def _schema_of(snapshot: Snapshot | None, metadata: TableMetadata) -> Schema:
    """The schema that the snapshot names; the current one if it names none."""
    wanted = None if snapshot is None else snapshot.schema_id
    known = (schema for schema in metadata.schemas if wanted is not None and schema.schema_id == wanted)
    return next(known, metadata.current_schema)
