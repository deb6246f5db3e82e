"""The versions of a Delta table, from its log: a summary, the history, and the difference between two versions.

Published versions are `_delta_log/{version}.json`; the newest ones may still be staged, and the record names them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from sandur.catalog.events import Source
from sandur.catalog.records import DeltaTable
from sandur.catalog.timeline import HistoryRow
from sandur.delta.columns import ColumnInfo, decode_columns, field_from_column, partition_names
from sandur.delta.coordination import published_name
from sandur.delta.types import DEPTH_MAX, fields_of, type_text
from sandur.errors import NotFound
from sandur.iceberg.table_diff import Change, diff_summaries
from sandur.iceberg.table_summary import ColumnRow, TableSummary
from sandur.operations.delta.publishing import LOG_FOLDER, published_location, staged_location
from sandur.operations.lake import Lake
from sandur.operations.receipts import DeltaReceipt, delta_receipt_of, read_delta_receipt
from sandur.splicing import NOT_JSON, Int64
from sandur.storage.cell import gather_all

_LOG_VERSIONS_MAX: Final = 200
"""The largest number of log files that one request reads."""
_READS_AT_ONCE: Final = 20
_VERSIONS_SEARCHED_MAX: Final = 1 << 30
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_COLUMN_ID: Final = "delta.columnMapping.id"


class _Vector(msgspec.Struct, frozen=True):
    cardinality: Int64 = 0


class _Change(msgspec.Struct, frozen=True, rename="camel"):
    path: str = ""
    size: Int64 | None = None
    stats: str | None = None
    partition_values: dict[str, str | None] = {}
    deletion_vector: _Vector | None = None

    @property
    def rows(self) -> int | None:
        """How many rows the file has; None if it does not say."""
        return _rows((self,))

    @property
    def live_rows(self) -> int | None:
        """The rows that are not deleted; None if the file does not say how many it has."""
        deleted = self.deletion_vector.cardinality if self.deletion_vector else 0
        return None if self.rows is None else self.rows - deleted


class _CommitInfo(msgspec.Struct, frozen=True, rename="camel"):
    timestamp: Int64 = 0
    in_commit_timestamp: Int64 = 0
    operation: str = ""
    engine_info: str = ""
    user_name: str | None = None
    user_metadata: str | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    schema_string: str = ""
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = {}


class _Schema(msgspec.Struct, frozen=True):
    fields: tuple[dict[str, object], ...] = ()


class Described(Protocol):
    """The part of a `metaData` action that a summary shows."""

    @property
    def schema_string(self) -> str: ...

    @property
    def partition_columns(self) -> tuple[str, ...]: ...

    @property
    def configuration(self) -> dict[str, str]: ...


class _Checkpoint(msgspec.Struct, frozen=True):
    version: Int64 = -1


class LogAction(msgspec.Struct, frozen=True, rename="camel"):
    commit_info: _CommitInfo | None = None
    meta_data: _Metadata | None = None
    add: _Change | None = None
    remove: _Change | None = None


class _Statistics(msgspec.Struct, frozen=True, rename="camel"):
    num_records: Int64 | None = None


class LogFile(NamedTuple):
    """What one version of a log did. `metadata` is None if it left the schema and the properties alone."""

    info: _CommitInfo
    metadata: _Metadata | None
    added: Sequence[_Change]
    removed: Sequence[_Change]


def parse_log(data: bytes) -> LogFile:
    """What one version did; a line that is not an action counts as none."""
    return log_file(list(_actions(data)))


def log_file(actions: Sequence[LogAction]) -> LogFile:
    """What some actions did together."""
    info = next((one.commit_info for one in actions if one.commit_info), _CommitInfo())
    metadata = next((one.meta_data for one in actions if one.meta_data), None)
    added = [one.add for one in actions if one.add]
    return LogFile(info, metadata, added, [one.remove for one in actions if one.remove])


def _actions(data: bytes) -> Iterator[LogAction]:
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=LogAction)
        except NOT_JSON:
            continue


async def read_logs(lake: Lake, table: DeltaTable, versions: Sequence[int]) -> Mapping[int, LogFile]:
    """The log files of these versions, as far as they exist, a bounded number at a time."""
    staged = {commit.version: commit.file_name for commit in table.commits if commit.file_name}

    async def read(version: int) -> bytes | None:
        data = await lake.locations.read(published_location(table, version))
        if data is None and version in staged:
            data = await lake.locations.read(staged_location(table, staged[version]))
        return data

    found: dict[int, LogFile] = {}
    for start in range(0, len(versions), _READS_AT_ONCE):
        batch = versions[start : start + _READS_AT_ONCE]
        for version, data in zip(batch, await gather_all(read(one) for one in batch), strict=True):
            if data is not None:
                found[version] = parse_log(data)
    return found


def summarize_delta(table: DeltaTable) -> TableSummary:
    """The summary of a Delta table, or of another table of the Unity Catalog API, from its record."""
    columns = decode_columns(table.columns)
    return TableSummary(
        format=table.data_source_format.lower() or "unity",
        table_id=table.uuid,
        location=table.location,
        columns=tuple(column_rows([field_from_column(column) for column in columns], columns)),
        partitions=tuple(partition_names(columns)),
        properties=table.properties,
        version=table.last_version,
        updated_ms=table.last_commit_ms or table.changed_ms,
    )


def column_rows(
    fields: Sequence[Mapping[str, object]], columns: Sequence[ColumnInfo] = (), *, prefix: str = "", depth: int = 0
) -> Iterator[ColumnRow]:
    """The columns as a tree: each one is followed by its children. Arrays and maps are leaves, with their whole type.

    A column has an id only with column mapping.
    """
    comments = {column.name: column.comment or "" for column in columns}
    for field in fields:
        name, kind, metadata = str(field.get("name", "")), field.get("type"), field.get("metadata")
        known = metadata if isinstance(metadata, dict) else {}
        id_, path = known.get(_COLUMN_ID), f"{prefix}{name}"
        is_struct = isinstance(kind, dict) and kind.get("type") == "struct" and depth < DEPTH_MAX
        yield ColumnRow(
            id=id_ if isinstance(id_, int) else 0,
            path=path,
            name=name,
            depth=depth,
            type="struct" if is_struct else type_text(kind),
            required=field.get("nullable") is False,
            doc=comments.get(name) or str(known.get("comment") or ""),
        )
        if isinstance(kind, dict) and is_struct:
            yield from column_rows(fields_of(kind), prefix=f"{path}.", depth=depth + 1)


async def newest_version(lake: Lake, table: DeltaTable) -> int:
    """The newest version. That of an external table only its log knows."""
    if table.table_type == "MANAGED":
        return table.last_version
    return await newest_in_log(lake, table.location, at_least=table.last_version)


async def newest_in_log(lake: Lake, location: str, *, at_least: int) -> int:
    """The newest version in a log, `at_least` if none is newer.

    Versions have no gap from the last checkpoint on, so the newest one is found by doubled steps, then halved ones.
    """

    async def exists(version: int) -> bool:
        return await lake.locations.exists(f"{location}/{LOG_FOLDER}/{published_name(version)}")

    data = await lake.locations.read(f"{location}/{LOG_FOLDER}/{_LAST_CHECKPOINT}")
    newest = max(at_least, _checkpoint_version(data))
    step = 1
    while step <= _VERSIONS_SEARCHED_MAX and await exists(newest + step):
        newest += step
        step *= 2
    while step > 1:
        step //= 2
        if await exists(newest + step):
            newest += step
    return newest


def _checkpoint_version(data: bytes | None) -> int:
    try:
        return msgspec.json.decode(data or b"{}", type=_Checkpoint).version
    except NOT_JSON:
        return -1


async def delta_history(lake: Lake, table: DeltaTable, *, limit: int) -> Sequence[HistoryRow]:
    """The newest versions, newest first, as far back as the log files exist."""
    newest, wanted = await newest_version(lake, table), min(limit, _LOG_VERSIONS_MAX)
    versions = list(range(newest, max(newest - wanted, -1), -1))
    logs = await read_logs(lake, table, versions)
    receipts = await _receipts(lake, table, logs)
    return [_row(table, version, logs[version], receipts.get(version)) for version in versions if version in logs]


async def _receipts(lake: Lake, table: DeltaTable, logs: Mapping[int, LogFile]) -> Mapping[int, DeltaReceipt]:
    """The receipts of the versions in `logs`: of the record's own commits, and back along the chain, one by one.

    A published file does not say which staged file it was, so only its successor names its receipt.
    """
    found = {commit.version: delta_receipt_of(table, commit) for commit in table.commits}
    version = min(found, default=0)
    while version - 1 in logs and (key := found[version].previous_commit_key):
        info = logs[version - 1].info
        receipt = await read_delta_receipt(lake, key, info.in_commit_timestamp or info.timestamp)
        if receipt is None:
            break
        version -= 1
        found[version] = receipt
    return found


def _row(table: DeltaTable, version: int, log: LogFile, receipt: DeltaReceipt | None) -> HistoryRow:
    info = log.info
    source = receipt.source if receipt else (table.created_source or Source()) if version == 0 else Source()
    return HistoryRow(
        version=version,
        at_ms=receipt.committed_at_ms if receipt else info.in_commit_timestamp or info.timestamp,
        source=source.kind,
        principal=source.principal or info.user_name or "",
        engine=info.engine_info or source.client,
        run_id=source.run_id,
        operation=info.operation.lower(),
        rows_added=_rows(log.added),
        files_added=len(log.added),
        files_removed=len(log.removed),
        bytes_added=sum(one.size or 0 for one in log.added),
        bytes_removed=sum(one.size or 0 for one in log.removed),
        location=published_location(table, version),
    )


def _rows(changes: Sequence[_Change]) -> int | None:
    """How many rows these files have; None if one of them does not say."""
    total = 0
    for change in changes:
        try:
            count = msgspec.json.decode(change.stats or "{}", type=_Statistics).num_records
        except NOT_JSON:
            return None
        if count is None:
            return None
        total += count
    return total


async def delta_changes(
    lake: Lake, table: DeltaTable, *, before: int | None, after: int | None
) -> tuple[int, int, Sequence[Change]]:
    """The differences between two versions, and which these are; by default the last two.

    Raises NotFound for a version that does not exist, or whose log files are gone.
    """
    newest = await newest_version(lake, table)
    to = newest if after is None else after
    since = max(to - 1, 0) if before is None else before
    for version in (since, to):
        _check_version(table, version, newest)
    first, last = sorted((since, to))
    between = await read_logs(lake, table, list(range(first + 1, min(last, first + _LOG_VERSIONS_MAX) + 1)))
    if len(between) < last - first:
        raise NotFound(
            f"table {table.uuid}: the log files of versions {first} to {last} are not all there, or are more than "
            f"{_LOG_VERSIONS_MAX}; compare versions that are closer",
            subject="file",
        )
    old = await _metadata_at(lake, table, first, newest)
    new = next((between[one].metadata for one in range(last, first, -1) if between[one].metadata), None) or old
    changes = diff_summaries(_summary(table, old), _summary(table, new))
    if since > to:
        changes = diff_summaries(_summary(table, new), _summary(table, old))
    return since, to, (*changes, *_data_changes([between[one] for one in sorted(between)], is_forward=since <= to))


def _check_version(table: DeltaTable, version: int, newest: int) -> None:
    if not 0 <= version <= newest:
        raise NotFound(f"table {table.uuid} has no version {version}: its versions are 0 to {newest}", subject="file")


async def delta_version(lake: Lake, table: DeltaTable, version: int, newest: int) -> TableSummary:
    """The table as it was at a version. Raises NotFound if it has no such version, or its log files are gone."""
    _check_version(table, version, newest)
    summary = _summary(table, await _metadata_at(lake, table, version, newest))
    return msgspec.structs.replace(summary, version=version)


async def _metadata_at(lake: Lake, table: DeltaTable, version: int, newest: int) -> _Metadata:
    """The schema and properties at a version: of the newest log file up to it that has them.

    If these files are gone, those of the record, provided that no later version changed them.
    """
    for start in range(version, max(version - _LOG_VERSIONS_MAX, -1), -_READS_AT_ONCE):
        logs = await read_logs(lake, table, list(range(start, max(start - _READS_AT_ONCE, -1), -1)))
        found = next((logs[one].metadata for one in sorted(logs, reverse=True) if logs[one].metadata), None)
        if found:
            return found
    later = list(range(version + 1, newest + 1))[:_LOG_VERSIONS_MAX]
    logs = await read_logs(lake, table, later)
    if len(logs) < newest - version or any(log.metadata for log in logs.values()):
        raise NotFound(
            f"table {table.uuid}: the log files with the schema of version {version} are gone", subject="file"
        )
    columns = decode_columns(table.columns)
    schema = msgspec.json.encode({"type": "struct", "fields": [field_from_column(column) for column in columns]})
    return _Metadata(schema.decode(), tuple(partition_names(columns)), table.properties)


def metadata_changes(table: DeltaTable, before: Described, after: Described) -> Sequence[Change]:
    """The differences between two `metaData` actions: columns, partitioning and properties."""
    return diff_summaries(_summary(table, before), _summary(table, after))


def _summary(table: DeltaTable, metadata: Described) -> TableSummary:
    try:
        fields = msgspec.json.decode(metadata.schema_string, type=_Schema).fields
    except NOT_JSON:
        fields = ()
    return TableSummary(
        format="delta",
        table_id=table.uuid,
        version=0,
        location=table.location,
        columns=tuple(column_rows(fields)),
        partitions=metadata.partition_columns,
        properties=metadata.configuration,
    )


def _data_changes(logs: Sequence[LogFile], *, is_forward: bool) -> Iterator[Change]:
    """How many files and bytes came and went."""
    added = [one for log in logs for one in log.added]
    removed = [one for log in logs for one in log.removed]
    if not is_forward:
        added, removed = removed, added
    for name, plus, minus in (
        ("files", len(added), len(removed)),
        ("bytes", sum(one.size or 0 for one in added), sum(one.size or 0 for one in removed)),
    ):
        if plus or minus:
            yield Change(area="total", kind="changed", name=name, before=f"-{minus}", after=f"+{plus}")
