"""The timeline of a table or view: its versions with the source of each, and the difference between any two.

The metadata log names the versions. Their receipts are read in one round; nothing is listed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import DeltaTable, Pointer
from sandur.catalog.timeline import HistoryRow, Logged, SnapshotFacts, history_rows
from sandur.errors import Invalid, NotFound
from sandur.extras import pa, pc
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_diff import Change, diff_tables
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.table_summary import RefRow, TableSummary, ref_rows, summarize_table
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.access import resolve_authorized
from sandur.operations.delta.versions import delta_changes, delta_history, delta_version, newest_version
from sandur.operations.lake import Lake
from sandur.operations.published import PublishedDatasets
from sandur.operations.tables.documents import TABLES, VIEWS, Document, load_document, version_in_name
from sandur.operations.tables.history import LoggedVersion, logged_versions
from sandur.operations.tables.names import ResolvedName, effective_head, name_not_found
from sandur.storage.cell import gather_all

HISTORY_MAX: Final = 1_000
"""The largest number of versions in one answer."""


async def load_history(lake: Lake, identifier: Identifier, *, limit: int) -> Sequence[HistoryRow]:
    """The newest versions of a table or view, newest first."""
    return await _history(lake, await _find(lake, identifier), limit)


async def _history(lake: Lake, found: ResolvedName, limit: int) -> Sequence[HistoryRow]:
    wanted = min(limit, HISTORY_MAX)
    if isinstance(found.pointer.value, DeltaTable):
        return await delta_history(lake, found.pointer.value, limit=wanted)
    if found.name.value.kind == "view":
        return (await _view_rows(lake, found))[:wanted]
    document = await _document(lake, found)
    # One more than wanted: the oldest row says what it moved only by the version before it.
    pointer = found.iceberg_pointer
    versions = await logged_versions(lake, document, newest=wanted + 1, head=pointer.value.head if pointer else None)
    is_whole = versions[0].receipt is not None and versions[0].receipt.previous_commit_key is None
    return table_rows(document.metadata, versions, is_whole=is_whole)[:wanted]


async def load_changes(
    lake: Lake, identifier: Identifier, *, before: int | None, after: int | None
) -> tuple[int, int, Sequence[Change]]:
    """The differences between two versions, and which versions these are. By default the last two.

    Raises NotFound for a version that the log does not name, or whose file is gone.
    """
    found = await load_difference(lake, identifier, before=before, after=after)
    return found.before, found.after, found.changes


class Difference(NamedTuple):
    """Two versions and their differences. `snapshots` are the current ones at both; None where it is not known."""

    before: int
    after: int
    changes: Sequence[Change]
    snapshots: tuple[int | None, int | None] = (None, None)


async def load_difference(lake: Lake, identifier: Identifier, *, before: int | None, after: int | None) -> Difference:
    """As `load_changes`, with the snapshots of both versions."""
    found = await _find(lake, identifier)
    if isinstance(found.pointer.value, DeltaTable):
        return Difference(*await delta_changes(lake, found.pointer.value, before=before, after=after))
    if found.name.value.kind != "table":
        raise Invalid(f"{identifier} is a view: its versions are in its history, and only tables can be compared")
    locations = _locations(await _document(lake, found))
    to = max(locations) if after is None else after
    earlier = [version for version in locations if version < to]
    since = (max(earlier) if earlier else to) if before is None else before
    for version in (since, to):
        if version not in locations:
            raise _no_version(identifier, version, locations)
    old, new = await gather_all(load_document(lake, TABLES, locations[version]) for version in (since, to))
    changes = diff_tables(old.metadata, new.metadata)
    return Difference(since, to, changes, (old.metadata.current_snapshot_id, new.metadata.current_snapshot_id))


class Timeline(NamedTuple):
    """A part of the versions of a table or view, newest first.

    `older` are versions that the log does not name any more, as they were published. `lineage` and `quality` are by
    version, as far as they were published at `published_ms`.
    """

    rows: Sequence[HistoryRow]
    older: Sequence[HistoryRow]
    marks: Mapping[int, tuple[str, str]]
    published_ms: int
    kind: str
    version: "TableVersion | str | None"


async def load_timeline(
    lake: Lake, identifier: Identifier, *, limit: int, before: int | None = None, at: int | None = None
) -> Timeline:
    """At most `limit` versions, the newest ones or those before a version; and the table at one of them.

    Without `at`, that is the current version. It is None for a view, and the reason if it is gone.
    """
    published = lake.feature(PublishedDatasets)
    found, manifest = await gather_all((_find(lake, identifier), published.manifest()))
    rows, version = await gather_all(
        (_rows_before(lake, found, limit, before), _version_or_problem(lake, identifier, found, at))
    )
    table = await published.table(manifest, "timeline", _PUBLISHED)
    pointer = found.iceberg_pointer
    known = _published_rows(table, pointer.value.table_uuid if pointer else found.uuid)
    first = min((row.version for row in rows), default=before if before is not None else _VERSIONS_END)
    older = [_published_row(row) for row in known if row["version"] < first][: limit - len(rows)]
    marks = {row["version"]: (row["lineage"], row["quality"]) for row in known}
    return Timeline(rows, older, marks, manifest.published_ms, found.name.value.kind, version)


async def _version_or_problem(
    lake: Lake, identifier: Identifier, found: ResolvedName, at: int | None
) -> "TableVersion | str | None":
    if found.name.value.kind != "table":
        return None
    try:
        return await _version_at(lake, identifier, found, at)
    except NotFound as error:
        return str(error)


_PUBLISHED: Final = (
    *("table_uuid", "version", "committed_at", "operation", "snapshot_id", "source", "principal", "client"),
    *("lineage", "quality", "metadata_location"),
)
_VERSIONS_END: Final = 1 << 62


async def _rows_before(lake: Lake, found: ResolvedName, limit: int, before: int | None) -> Sequence[HistoryRow]:
    """The rows of the log itself, in one round of receipts."""
    if before is None:
        return await _history(lake, found, limit)
    # As far back as the first row that is wanted; the log is bounded.
    head = found.pointer.value.last_version if isinstance(found.pointer.value, DeltaTable) else None
    newest = head if head is not None else (await effective_head(lake, found)).metadata_version
    rows = await _history(lake, found, max(newest - before, 0) + 1 + limit)
    return [row for row in rows if row.version < before][:limit]


def _published_rows(table: "pa.Table", uuid: str) -> Sequence[Mapping[str, Any]]:
    """The published versions of a table, newest first, the newest part of a long list."""
    if not table.num_rows:
        return ()
    own = table.filter(pc.equal(table["table_uuid"].cast(pa.string()), uuid)).sort_by([("version", "descending")])
    rows: list[Mapping[str, Any]] = own.slice(0, HISTORY_MAX).to_pylist()
    return rows


def _published_row(row: Mapping[str, Any]) -> HistoryRow:
    return HistoryRow(
        version=row["version"],
        at_ms=int(row["committed_at"].timestamp() * 1_000),
        source=row["source"],
        principal=row["principal"],
        engine=row["client"],
        operation=row["operation"],
        snapshot_id=row["snapshot_id"],
        location=row["metadata_location"],
    )


class TableVersion(NamedTuple):
    """A table as it was at a version. `before` and `after` are the versions beside it; None at either end."""

    summary: TableSummary
    before: int | None
    after: int | None


async def load_version(lake: Lake, identifier: Identifier, version: int) -> TableVersion:
    """A table as it was at a version. Raises NotFound for one that the log does not name, or whose file is gone."""
    found = await _find(lake, identifier)
    if found.name.value.kind != "table":
        raise Invalid(f"{identifier} is a view: its versions are in its history")
    return await _version_at(lake, identifier, found, version)


async def _version_at(lake: Lake, identifier: Identifier, found: ResolvedName, at: int | None) -> TableVersion:
    """The table at a version; None: the current one."""
    if isinstance(found.pointer.value, DeltaTable):
        newest = await newest_version(lake, found.pointer.value)
        version = newest if at is None else at
        summary = await delta_version(lake, found.pointer.value, version, newest)
        return TableVersion(summary, version - 1 if version else None, version + 1 if version < newest else None)
    document = await _document(lake, found)
    locations = _locations(document)
    version = max(locations) if at is None else at
    if version not in locations:
        raise _no_version(identifier, version, locations)
    old = await load_document(lake, TABLES, locations[version])
    numbers = sorted(locations)
    place = numbers.index(version)
    return TableVersion(
        summarize_table(old.metadata, version=version),
        numbers[place - 1] if place else None,
        numbers[place + 1] if place + 1 < len(numbers) else None,
    )


def _locations(document: Document[TableMetadata]) -> Mapping[int, str]:
    """The metadata files that the log names and the current one, by the versions in their names."""
    logged = [entry.metadata_file for entry in document.metadata.metadata_log[-HISTORY_MAX:]]
    return {version_in_name(location): location for location in (*logged, document.location)}


def _no_version(identifier: Identifier, version: int, known: Mapping[int, object]) -> NotFound:
    known_text = f"{min(known)} to {max(known)}"
    return NotFound(f"{identifier} has no version {version}: its log names versions {known_text}", subject="file")


class TableSnapshots(NamedTuple):
    """The snapshots that a table still has, in their order, and its branches and tags."""

    snapshots: Sequence[Snapshot]
    refs: Sequence[RefRow]
    current_id: int | None


async def load_snapshots(lake: Lake, identifier: Identifier) -> TableSnapshots | Sequence[HistoryRow]:
    """The snapshots of an Iceberg table. A Delta table has none: its newest versions are returned, newest first."""
    found = await _find(lake, identifier)
    if isinstance(found.pointer.value, DeltaTable):
        return await delta_history(lake, found.pointer.value, limit=HISTORY_MAX)
    if found.name.value.kind != "table":
        raise Invalid(f"{identifier} is a view: it has no snapshots")
    metadata = (await _document(lake, found)).metadata
    return TableSnapshots(metadata.snapshots, ref_rows(metadata), metadata.current_snapshot_id)


async def _find(lake: Lake, identifier: Identifier) -> ResolvedName:
    """The table or view of any format under that name, if the caller may read it."""
    missing = name_not_found(identifier, "table")
    return await resolve_authorized(
        lake, identifier, lambda found: found.name.value.kind in {"table", "view"}, missing=missing
    )


async def _document(lake: Lake, found: ResolvedName) -> Document[TableMetadata]:
    return await load_document(lake, TABLES, (await effective_head(lake, found)).metadata_location)


def table_rows(
    metadata: TableMetadata, versions: Sequence[LoggedVersion], *, is_whole: bool = False
) -> list[HistoryRow]:
    """The rows of the versions of an Iceberg table, newest first."""
    facts = {one.snapshot_id: SnapshotFacts(one.sequence_number, one.summary or {}) for one in metadata.snapshots}
    return history_rows([_logged(one) for one in versions], facts, is_whole=is_whole)


def _version(one: LoggedVersion) -> int:
    return one.receipt.metadata_version if one.receipt else version_in_name(one.location)


def _logged(one: LoggedVersion) -> Logged:
    receipt = one.receipt
    if receipt is None:
        return Logged(version=_version(one), at_ms=one.time_ms, location=one.location)
    return Logged(
        version=receipt.metadata_version,
        at_ms=receipt.committed_at_ms,
        location=one.location,
        operation=receipt.operation,
        snapshot_id=receipt.snapshot_id,
        refs=receipt.refs if isinstance(receipt.refs, dict) else None,
        sequence_number=receipt.last_sequence_number,
        source=receipt.source,
    )


async def _view_rows(lake: Lake, found: ResolvedName) -> list[HistoryRow]:
    """The versions of a view, newest first. Only the source of the newest is known: a view has no log of files."""
    head = await effective_head(lake, found)
    document: Document[ViewMetadata] = await load_document(lake, VIEWS, head.metadata_location)
    logged = [
        Logged(
            version=entry.version_id,
            at_ms=entry.timestamp_ms,
            location="",
            operation=document.metadata.versions_by_id[entry.version_id].summary.get("operation", "replace"),
        )
        for entry in document.metadata.version_log
        if entry.version_id in document.metadata.versions_by_id
    ]
    if logged and isinstance(found.pointer.value, Pointer):
        newest = logged[-1]
        logged[-1] = Logged(
            version=newest.version,
            at_ms=newest.at_ms,
            location=head.metadata_location,
            operation=newest.operation,
            source=head.source,
        )
    return history_rows(logged, {}, is_whole=False)
