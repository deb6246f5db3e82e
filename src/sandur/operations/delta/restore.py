"""RESTORE of Delta tables (L7): read two versions, plan the commit between them, and commit it like every other writer.

A managed table takes a staged commit through the catalog (L1). An external table has no coordinator: the file of its
next version is created only if it does not exist, as the Delta protocol requires of every writer.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import is_within, normalize_location
from sandur.catalog.records import DeltaTable, Request
from sandur.delta.log_state import DeletionVector, FileAction, named_files
from sandur.delta.properties import CLUSTERING, Clustering, Domains, RowTracking
from sandur.delta.requests import Comment, CommitFile, DeltaChange, UpdateSnapshotVersion
from sandur.delta.restore import (
    AddFile,
    Metadata,
    Restore,
    RestoreAction,
    VersionState,
    advanced,
    commit_body,
    plan_restore,
)
from sandur.errors import BadRequest, Conflict, Invalid, NotFound, SwapLost, WrongFormat
from sandur.iceberg.table_diff import Change
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.create import ENGINE
from sandur.operations.delta.log_files import (
    Form,
    log_names,
    newest_checkpoint,
    published_versions,
    read_checkpoint,
    read_commits,
)
from sandur.operations.delta.publishing import publish_commits, published_location, staged_location
from sandur.operations.delta.tables import DELTA, load_delta_table
from sandur.operations.delta.versions import metadata_changes, newest_version
from sandur.operations.lake import Lake
from sandur.operations.tables.swept import check_files, swept_files
from sandur.storage.cell import gather_all

COMMITS_READ_MAX: Final = 10_000
_FILES_AT_ONCE: Final = 50
_NAMES_SHOWN: Final = 3
_TRANSACTIONS: Final = uuid.UUID("6f1d8f0e-4b4c-5d2e-9a57-0d1c6d3f7a11")
"""The namespace of transaction ids that follow from idempotency keys."""


class RestoreSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore does, or did. `new_version` is None for a preview."""

    table_id: str
    version: int
    base_version: int
    files_added: int
    files_removed: int
    bytes_added: int
    bytes_removed: int
    changes: Sequence[Change]
    new_version: int | None = None


async def preview_restore(lake: Lake, identifier: Identifier, version: int) -> RestoreSummary:
    """What a restore would do now. Raises the same errors as the restore itself."""
    table = await _delta_table(lake, identifier)
    planned, now = await _plan(lake, table, version, await newest_version(lake, table))
    return _summary(table, planned, now)


async def restore_table(
    lake: Lake, identifier: Identifier, version: int, *, expected: int, request: Request
) -> RestoreSummary:
    """Give the table the files, columns and properties of an earlier version, as a new version after `expected`.

    Raises Conflict if the table is not at `expected` any more, NotFound if log or data files of the version are gone,
    and Invalid if the result could break a rule of the table. A retry with the same key is recognised by its commit.
    """
    table = await _delta_table(lake, identifier)
    newest = await newest_version(lake, table)
    transaction_id = _transaction_id(lake, table, version, expected, request)
    if newest > expected and request.key and await _is_made(lake, table, expected + 1, transaction_id):
        planned, now = await _plan(lake, table, version, expected, checks_files=False)
        return msgspec.structs.replace(_summary(table, planned, now), new_version=expected + 1)
    if newest != expected:
        raise Conflict(f"{identifier} is at version {newest}, not {expected}: preview the restore again")
    planned, now = await _plan(lake, table, version, newest)
    body = commit_body(planned, engine=ENGINE, transaction_id=transaction_id)
    commit = _commit_managed if table.table_type == "MANAGED" else _commit_external
    await commit(_Attempt(lake, identifier, table, planned, now, body, request))
    return msgspec.structs.replace(_summary(table, planned, now), new_version=newest + 1)


async def _delta_table(lake: Lake, identifier: Identifier) -> DeltaTable:
    table = await load_delta_table(lake, identifier)
    if table.data_source_format != DELTA or table.kind != "table":
        raise WrongFormat(f"{identifier} is not a Delta table")
    return table


def _transaction_id(lake: Lake, table: DeltaTable, version: int, expected: int, request: Request) -> str:
    """The id in the commit; with an idempotency key, the same one for every attempt of the request."""
    if not request.key:
        return lake.clock.new_uuid()
    parts = (request.source.principal, request.key, table.uuid, str(version), str(expected))
    return str(uuid.uuid5(_TRANSACTIONS, "\n".join(parts)))


async def _is_made(lake: Lake, table: DeltaTable, version: int, transaction_id: str) -> bool:
    async for _, actions in read_commits(lake, table, range(version, version + 1), _Transaction):
        return any(one.commit_info.get("txnId") == transaction_id for one in actions)
    return False


class _Transaction(msgspec.Struct, frozen=True, rename="camel"):
    commit_info: dict[str, Any] = {}
    sidecar: None = None


async def _plan(
    lake: Lake, table: DeltaTable, version: int, newest: int, *, checks_files: bool = True
) -> tuple[Restore, VersionState]:
    if not 0 <= version < newest:
        earlier = f"its earlier versions are 0 to {newest - 1}" if newest > 0 else "it has no earlier version"
        raise BadRequest(f"version {version} cannot be restored: the table is at version {newest}; {earlier}")
    then, now = await _states(lake, table, version, newest)
    planned = plan_restore(now, then, base_version=newest, version=version, now_ms=lake.clock.now_ms())
    if checks_files:
        await _check_files(lake, table, planned)
    return planned, now


async def _states(lake: Lake, table: DeltaTable, version: int, newest: int) -> tuple[VersionState, VersionState]:
    """The table at both versions; of its files only those that changed in between."""
    names = await log_names(lake, table)
    checkpoint = newest_checkpoint(names, upto=version)
    first = checkpoint.version + 1 if checkpoint else 0
    there = published_versions(names) | {commit.version for commit in table.commits if commit.file_name}
    gone = next((one for one in range(first, newest + 1) if one not in there), None)
    if gone is not None:
        raise NotFound(
            f"version {version} cannot be restored: version {gone} of the log is gone, and no checkpoint before it is "
            "there; the table keeps its log for delta.logRetentionDuration",
            subject="file",
        )
    if newest - first > COMMITS_READ_MAX:
        raise Invalid(
            f"version {version} cannot be restored: there are more than {COMMITS_READ_MAX:,} commits since its "
            "checkpoint; run RESTORE TABLE in Spark"
        )
    later: list[RestoreAction] = []
    async for _, actions in read_commits(lake, table, range(version + 1, newest + 1), RestoreAction):
        later += actions
    paths = {one.path for action in later for one in (action.add, action.remove) if one}
    then = VersionState()
    if checkpoint:
        async for part in read_checkpoint(lake, table, checkpoint, RestoreAction, _FORM):
            then = advanced(then, part, paths=paths)
    async for _, actions in read_commits(lake, table, range(first, version + 1), RestoreAction):
        then = advanced(then, actions, paths=paths)
    return then, advanced(then, later)


def _is_wanted(path: str) -> bool:
    top, _, rest = path.partition(".")
    field, _, below = rest.partition(".")
    if top == "add":
        return below == "numRecords" if field == "stats_parsed" else field != "partitionValues_parsed"
    return top in {"metaData", "protocol", "domainMetadata", "sidecar"}


def _with_statistics(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row; a file without statistics in JSON gets the number of its rows, which deletion vectors require."""
    add = row.get("add")
    parsed = add.get("stats_parsed") if add else None
    if not add or not parsed or add.get("stats") is not None or parsed.get("numRecords") is None:
        return row
    return {**row, "add": {**add, "stats": msgspec.json.encode({"numRecords": parsed["numRecords"]}).decode()}}


_FORM: Final = Form(_is_wanted, _with_statistics)


async def _check_files(lake: Lake, table: DeltaTable, planned: Restore) -> None:
    """Raise NotFound if a file that the restore adds again is gone, and Invalid if maintenance is deleting it.

    Files elsewhere, as of a shallow clone, are Invalid, too: whether they exist is not for every writer of a log.
    """
    locations = [location for one in planned.added for location in _files_of(one, table.location)]
    home = normalize_location(table.location)
    if elsewhere := next((one for one in locations if not is_within(normalize_location(one), home)), None):
        raise Invalid(
            f"version {planned.version} cannot be restored: it has files outside of the table, such as {elsewhere}; "
            "run RESTORE TABLE in Spark"
        )
    missing: list[str] = []
    for start in range(0, len(locations), _FILES_AT_ONCE):
        some = locations[start : start + _FILES_AT_ONCE]
        found = await gather_all(map(lake.locations.exists, some))
        missing += [location for location, is_there in zip(some, found, strict=True) if not is_there]
    if missing:
        shown = ", ".join(missing[:_NAMES_SHOWN]) + (" and others" if len(missing) > _NAMES_SHOWN else "")
        raise NotFound(
            f"version {planned.version} cannot be restored: {len(missing):,} of its files were removed, for example by "
            f"VACUUM: {shown}",
            subject="file",
        )
    if listed := await swept_files(lake, table):
        await check_files(lake, listed, locations)


def _files_of(file: AddFile, location: str) -> Sequence[str]:
    """The data file and the file of its deletion vector; paths in a log are encoded like those of a URL."""
    vector = file.deletion_vector
    known = DeletionVector(vector.storage_type, vector.path_or_inline_dv, vector.offset) if vector else None
    return list(named_files(FileAction(unquote(file.path), deletion_vector=known), location))


class _Attempt(NamedTuple):
    """A planned restore, and what commits it."""

    lake: Lake
    identifier: Identifier
    table: DeltaTable
    planned: Restore
    now: VersionState
    body: bytes
    request: Request


async def _commit_managed(attempt: _Attempt) -> None:
    """L1: stage the commit, then add it to the table's record; publish it afterwards, as every writer does."""
    lake, table, planned = attempt.lake, attempt.table, attempt.planned
    published = await publish_commits(lake, table)  # Commits that wait would leave no room for this one.
    version, now_ms = planned.base_version + 1, lake.clock.now_ms()
    file_name = f"{version:020d}.{lake.clock.new_uuid()}.json"
    await lake.locations.create(staged_location(table, file_name), attempt.body)
    commit = CommitFile(
        version=version,
        timestamp=planned.committed_ms,
        file_name=file_name,
        file_size=len(attempt.body),
        file_modification_timestamp=now_ms,
    )
    change = _catalog_change(table, planned, attempt.now)._replace(commit=commit, published=published or None)
    after = await update_table(lake, attempt.identifier, change, attempt.request)
    await lake.background.run("publish Delta commit", _publish(attempt, after))


async def _publish(attempt: _Attempt, table: DeltaTable) -> None:
    published = await publish_commits(attempt.lake, table)
    report = DeltaChange(asserted_uuid=table.uuid, published=published)
    await update_table(attempt.lake, attempt.identifier, report, attempt.request._replace(key=None))


async def _commit_external(attempt: _Attempt) -> None:
    """Create the file of the next version. Columns and properties of the catalog follow, if they changed."""
    lake, table, identifier = attempt.lake, attempt.table, attempt.identifier
    version = attempt.planned.base_version + 1
    location = published_location(table, version)
    try:
        await lake.locations.create(location, attempt.body)  # The commit happens here.
    except SwapLost as lost:
        if await lake.locations.read(location) != attempt.body:
            raise Conflict(f"{identifier}: another writer committed version {version}; preview it again") from lost
    change = _catalog_change(table, attempt.planned, attempt.now)
    if change.changes_metadata:
        committed_ms = attempt.planned.committed_ms
        snapshot = UpdateSnapshotVersion(last_commit_version=version, last_commit_timestamp_ms=committed_ms)
        await update_table(lake, identifier, change._replace(snapshot=snapshot), attempt.request._replace(key=None))


def _catalog_change(table: DeltaTable, planned: Restore, now: VersionState) -> DeltaChange:
    """What the record of the catalog learns from the restore."""
    change = DeltaChange(asserted_uuid=table.uuid)
    clustering = next((one for one in planned.domains if one.domain == CLUSTERING), None)
    mark = planned.row_id_high_water_mark
    domains = Domains(
        clustering=msgspec.json.decode(clustering.configuration, type=Clustering)
        if clustering and not clustering.removed
        else None,
        row_tracking=None if mark is None else RowTracking(mark),
    )
    if domains.names:
        change = change._replace(domains=domains)
    if clustering and clustering.removed:
        change = change._replace(removed_domains=(CLUSTERING,))
    after, before = planned.metadata, now.metadata
    return change if after is None or before is None else _with_metadata(change, before, after)


def _with_metadata(change: DeltaChange, before: Metadata, after: Metadata) -> DeltaChange:
    set_ = {key: value for key, value in after.configuration.items() if before.configuration.get(key) != value}
    removed = tuple(key for key in before.configuration if key not in after.configuration)
    return change._replace(
        columns=msgspec.json.decode(after.schema_string, type=dict[str, object]),
        partition_columns=after.partition_columns,
        set_properties=set_ or None,
        removed_properties=removed or None,
        comment=Comment(after.description) if after.description != before.description else None,
    )


def _summary(table: DeltaTable, planned: Restore, now: VersionState) -> RestoreSummary:
    before, after = now.metadata, planned.metadata
    return RestoreSummary(
        table_id=table.uuid,
        version=planned.version,
        base_version=planned.base_version,
        files_added=len(planned.added),
        files_removed=len(planned.removed),
        bytes_added=sum(one.size for one in planned.added),
        bytes_removed=sum(one.size for one in planned.removed),
        changes=metadata_changes(table, before, after) if before and after else (),
    )
