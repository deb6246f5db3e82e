"""RESTORE of a Delta table: the commit that gives the table the files, columns and properties of an earlier version.

Files that both versions have stay. Files of the earlier version that were removed since are added again, and files that
were added since are removed. The protocol never becomes older, and numbers that must not be used twice (row ids, column
ids, values of identity columns) stay as they are now.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.delta.log_state import Sidecar, is_uniform
from sandur.delta.properties import CLUSTERING, ROW_TRACKING, Clustering
from sandur.delta.protocol import FEATURES, READER_VERSION, TABLE_ID, WRITER_VERSION
from sandur.errors import BadRequest, Invalid
from sandur.splicing import NOT_JSON, Int64

CHANGED_FILES_MAX: Final = 200_000
"""The largest number of files that one restore adds and removes."""

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no date is later."""
_IN_COMMIT_TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
_MAPPING_MODE: Final = "delta.columnMapping.mode"
_APPEND_ONLY: Final = "delta.appendOnly"
_KEPT: Final = frozenset(
    {
        *(TABLE_ID, _IN_COMMIT_TIMESTAMPS, "delta.enableRowTracking", "delta.columnMapping.maxColumnId"),
        *("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"),
        *("delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"),
    }
)
"""Properties that say how the log itself is written, and numbers that only grow: they stay as they are now."""
_KNOWN_FEATURES: Final = FEATURES | {"checkpointProtection"}
_HIGH_WATER_MARK: Final = "delta.identity.highWaterMark"
_IDENTITY_STEP: Final = "delta.identity.step"
_ROW_TRACKING_FEATURE: Final = "rowTracking"


class Vector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A deletion vector, as the log describes it."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def id(self) -> str:
        return f"{self.storage_type}{self.path_or_inline_dv}@{self.offset}"


class AddFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An `add` with everything that has to be written again."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: Vector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.deletion_vector.id if self.deletion_vector else ""

    @property
    def rows(self) -> int | None:
        """How many rows the file has, deleted ones included; None if its statistics do not say."""
        try:
            return msgspec.json.decode(self.stats or "{}", type=_Statistics).num_records
        except NOT_JSON:
            return None


class RemoveFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A `remove`. `extended_file_metadata` says that the fields after it are there."""

    path: str
    data_change: bool
    deletion_timestamp: int | None = None
    deletion_vector: Vector | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    tags: dict[str, str | None] | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.deletion_vector.id if self.deletion_vector else ""


class Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    format: dict[str, Any]
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    name: str | None = None
    description: str | None = None
    created_time: int | None = None


class LogProtocol(msgspec.Struct, frozen=True, rename="camel"):
    min_reader_version: int = 1
    min_writer_version: int = 2
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    @property
    def features(self) -> frozenset[str]:
        return frozenset((*(self.reader_features or ()), *(self.writer_features or ())))


class Domain(msgspec.Struct, frozen=True):
    domain: str
    configuration: str
    removed: bool


class CommitInfo(msgspec.Struct, frozen=True, rename="camel"):
    timestamp: Int64 = 0
    in_commit_timestamp: Int64 = 0


class _Statistics(msgspec.Struct, frozen=True, rename="camel"):
    num_records: int | None = None


class RestoreAction(msgspec.Struct, frozen=True, rename="camel"):
    """One line of a log; other actions, such as `txn` and `cdc`, do not matter here and stay as they are."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    meta_data: Metadata | None = None
    protocol: LogProtocol | None = None
    domain_metadata: Domain | None = None
    commit_info: CommitInfo | None = None
    sidecar: Sidecar | None = None


class VersionState(NamedTuple):
    """A table at one version. `files` has only the files that are compared."""

    metadata: Metadata | None = None
    protocol: LogProtocol = LogProtocol()
    domains: Mapping[str, str] = {}
    files: Mapping[tuple[str, str], AddFile] = {}
    committed_ms: int = 0


def advanced(
    state: VersionState, actions: Iterable[RestoreAction], *, paths: Collection[str] | None = None
) -> VersionState:
    """The state after some actions. `paths` says which files are compared; None means all."""
    files, domains = dict(state.files), dict(state.domains)
    metadata, protocol, committed_ms = state.metadata, state.protocol, state.committed_ms
    for action in actions:
        if (add := action.add) and (paths is None or add.path in paths):
            files[add.key] = add
        if action.remove:
            files.pop(action.remove.key, None)
        if domain := action.domain_metadata:
            domains.pop(domain.domain, None)
            if not domain.removed:
                domains[domain.domain] = domain.configuration
        metadata, protocol = action.meta_data or metadata, action.protocol or protocol
        if action.commit_info:
            committed_ms = action.commit_info.in_commit_timestamp or action.commit_info.timestamp
    return VersionState(metadata, protocol, domains, files, committed_ms)


class Restore(NamedTuple):
    """What a restore writes. `metadata` is None if columns and properties are those of the earlier version already."""

    version: int
    base_version: int
    added: Sequence[AddFile]
    removed: Sequence[AddFile]
    metadata: Metadata | None
    domains: Sequence[Domain]
    committed_ms: int
    """A time that is later than that of the commit before it, if the table requires this."""
    has_commit_time: bool

    @property
    def row_id_high_water_mark(self) -> int | None:
        """The highest row id after the restore; None if it assigns none."""
        found = next((one.configuration for one in self.domains if one.domain == ROW_TRACKING), None)
        return _high_water_mark({ROW_TRACKING: found}) if found else None


def plan_restore(now: VersionState, then: VersionState, *, base_version: int, version: int, now_ms: int) -> Restore:
    """How `now` (at `base_version`) becomes `then` (at `version`).

    Raises BadRequest if nothing would change, and Invalid if the result could break a rule of the table.
    """
    if now.metadata is None or then.metadata is None:
        raise Invalid(f"version {version} cannot be restored: the log has no metaData action")
    _check_features(now, then, version)
    _check_properties(now.metadata, then.metadata, version)
    added, removed = _changed_files(now, then, version)
    domains = list(_clustering(now.domains, then.domains))
    try:  # The catalog decodes them again, after the commit.
        metadata = _merged(now.metadata, then.metadata)
        msgspec.json.decode(metadata.schema_string if metadata else "{}", type=dict[str, object])
        for one in domains:  # Those of clustering.
            msgspec.json.decode(one.configuration, type=Clustering)
    except (*NOT_JSON, KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"version {version} cannot be restored: its schema or clustering: {error}") from error
    if not (added or removed or metadata or domains):
        raise BadRequest(f"version {base_version} has the rows, columns and properties of version {version} already")
    if _ROW_TRACKING_FEATURE in now.protocol.features:
        added, mark = _with_row_ids(added, now.domains, base_version + 1)
        domains += [mark] if mark else []
    has_time = now.metadata.configuration.get(_IN_COMMIT_TIMESTAMPS, "").lower() == "true"
    committed_ms = max(now_ms, now.committed_ms + 1) if has_time else now_ms
    if committed_ms > _LAST_MS:
        raise Invalid(f"version {base_version} has the commit time {now.committed_ms}, and nothing can follow it")
    return Restore(version, base_version, added, removed, metadata, domains, committed_ms, has_time)


def _changed_files(now: VersionState, then: VersionState, version: int) -> tuple[list[AddFile], list[AddFile]]:
    """The files to add again and those to remove; Invalid if they are too many, or must not go."""
    added = [one for key, one in then.files.items() if key not in now.files]
    removed = [one for key, one in now.files.items() if key not in then.files]
    if len(added) + len(removed) > CHANGED_FILES_MAX:
        raise Invalid(
            f"version {version} differs in {len(added) + len(removed):,} files, at most {CHANGED_FILES_MAX:,} are "
            "allowed; run RESTORE TABLE in Spark"
        )
    if removed and now.metadata and now.metadata.configuration.get(_APPEND_ONLY, "").lower() == "true":
        raise Invalid(f"the table has {_APPEND_ONLY}=true: the rows that came after version {version} cannot go")
    return [replace(one, data_change=True) for one in added], removed


def _check_features(now: VersionState, then: VersionState, version: int) -> None:
    protocol = now.protocol
    unknown = sorted(protocol.features - _KNOWN_FEATURES)
    if unknown or protocol.min_reader_version > READER_VERSION or protocol.min_writer_version > WRITER_VERSION:
        needs = ", ".join(unknown) or f"protocol {protocol.min_reader_version}/{protocol.min_writer_version}"
        raise Invalid(f"the table uses {needs}, which this catalog does not know; run RESTORE TABLE in its engine")
    if gone := sorted(then.protocol.features - protocol.features) if protocol.features else ():
        raise Invalid(f"version {version} uses {', '.join(gone)}, which was dropped from the table since")


def _check_properties(now: Metadata, then: Metadata, version: int) -> None:
    if now.configuration.get(_MAPPING_MODE, "none") != then.configuration.get(_MAPPING_MODE, "none"):
        raise Invalid(f"{_MAPPING_MODE} was changed after version {version}: the files of both have other column names")
    if any(is_uniform(one.configuration) for one in (now, then)):
        raise Invalid("the table has Iceberg metadata, which only its engine writes; run RESTORE TABLE there")


def _merged(now: Metadata, then: Metadata) -> Metadata | None:
    """The metadata to write; None if it is the present one."""
    kept = {key: value for key, value in now.configuration.items() if key in _KEPT}
    configuration = {key: value for key, value in then.configuration.items() if key not in _KEPT} | kept
    wanted = replace(
        now,
        schema_string=_with_high_water_marks(then.schema_string, now.schema_string),
        partition_columns=then.partition_columns,
        configuration=configuration,
        description=then.description,
    )
    return wanted if wanted != now else None


def _with_high_water_marks(then: str, now: str) -> str:
    """The earlier schema, in which identity columns continue behind the values that were used since."""
    if _HIGH_WATER_MARK not in now:
        return then
    schema = msgspec.json.decode(then, type=dict[str, Any])
    present = {one["name"]: one.get("metadata", {}) for one in msgspec.json.decode(now)["fields"]}
    for field in schema["fields"]:
        marks = [one.get(_HIGH_WATER_MARK) for one in (field.get("metadata", {}), present.get(field["name"], {}))]
        if marks[1] is not None and field["metadata"].get(_IDENTITY_STEP):
            farthest = max if field["metadata"][_IDENTITY_STEP] > 0 else min
            field["metadata"][_HIGH_WATER_MARK] = farthest(one for one in marks if one is not None)
    return msgspec.json.encode(schema).decode()


def _clustering(now: Mapping[str, str], then: Mapping[str, str]) -> Iterable[Domain]:
    """The clustering columns of the earlier version; other domains stay."""
    if now.get(CLUSTERING) != then.get(CLUSTERING):
        wanted = then.get(CLUSTERING)
        yield Domain(CLUSTERING, now[CLUSTERING] if wanted is None else wanted, removed=wanted is None)


def _with_row_ids(
    added: Sequence[AddFile], domains: Mapping[str, str], version: int
) -> tuple[list[AddFile], Domain | None]:
    """The files, each with row ids: a file from before row tracking gets new ones. Also the new high-water mark."""
    first = mark = _high_water_mark(domains)
    files: list[AddFile] = []
    for one in added:
        if one.base_row_id is None:
            if one.rows is None:
                raise Invalid(f"file {one.path}: its statistics do not say how many rows it has, which row ids require")
            one = replace(one, base_row_id=mark + 1)  # noqa: PLW2901 - the same file, complete
            mark += one.rows or 0
        if one.default_row_commit_version is None:
            one = replace(one, default_row_commit_version=version)  # noqa: PLW2901 - likewise
        files.append(one)
    configuration = msgspec.json.encode({"rowIdHighWaterMark": mark}).decode()
    return files, None if mark == first else Domain(ROW_TRACKING, configuration, removed=False)


def _high_water_mark(domains: Mapping[str, str]) -> int:
    try:
        return int(msgspec.json.decode(domains.get(ROW_TRACKING, "{}")).get("rowIdHighWaterMark", -1))
    except (*NOT_JSON, AttributeError, TypeError, ValueError) as error:
        raise Invalid(f"the domain {ROW_TRACKING} cannot be read: {error}") from error


def commit_body(restore: Restore, *, engine: str, transaction_id: str) -> bytes:
    """The log file of the restore: one JSON object per line. A reader finds the time of the commit in the first one."""
    info: dict[str, object] = {
        **({"inCommitTimestamp": restore.committed_ms} if restore.has_commit_time else {}),
        "timestamp": restore.committed_ms,
        "operation": "RESTORE",
        "operationParameters": {"version": restore.version, "timestamp": None},
        "readVersion": restore.base_version,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {
            "numRestoredFiles": str(len(restore.added)),
            "numRemovedFiles": str(len(restore.removed)),
            "restoredFilesSize": str(sum(one.size for one in restore.added)),
            "removedFilesSize": str(sum(one.size for one in restore.removed)),
        },
        "engineInfo": engine,
        "txnId": transaction_id,
    }
    actions: list[Mapping[str, object]] = [{"commitInfo": info}]
    actions += [{"metaData": restore.metadata}] if restore.metadata else []
    actions += [{"domainMetadata": one} for one in restore.domains]
    actions += [{"remove": _removal(one, restore.committed_ms)} for one in restore.removed]
    actions += [{"add": one} for one in restore.added]
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def _removal(file: AddFile, now_ms: int) -> RemoveFile:
    return RemoveFile(
        path=file.path,
        data_change=True,
        deletion_timestamp=now_ms,
        deletion_vector=file.deletion_vector,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
        tags=file.tags,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
    )
