"""A restore: write a backup into an empty store. It may be interrupted at any point and run again."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.records import DeltaCommit, DeltaTable
from sandur.catalog.security.manifest import SecurityManifest
from sandur.delta.coordination import apply_change, published_name, without_published
from sandur.delta.properties import KEY_OF_DOMAIN, Domains, commit_properties
from sandur.delta.protocol import Protocol
from sandur.delta.requests import Comment, DeltaChange
from sandur.delta.restore import Domain, LogProtocol, RestoreAction, VersionState, advanced
from sandur.errors import Conflict, Invalid, NotEmpty, SandurError, SwapLost
from sandur.operations.backups.repository import BackupManifest, BackupReader, Entry, read_entries
from sandur.operations.backups.restored import Restored, note_restore
from sandur.operations.delta.commit import metadata_of
from sandur.operations.delta.log_files import (
    Checkpoint,
    Form,
    log_names,
    newest_checkpoint,
    published_versions,
    read_checkpoint,
    read_commits,
)
from sandur.operations.delta.publishing import STAGED_FOLDER, have_same_actions, published_location, staged_location
from sandur.operations.delta.tables import DELTA
from sandur.operations.delta.versions import newest_in_log
from sandur.operations.lake import Lake
from sandur.operations.receipts import delta_commit_key, delta_receipt_key, delta_receipt_of
from sandur.splicing import NOT_JSON
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import ABSENT, Listed, ObjectStore, list_all
from sandur.storage.layout import RESTORING, Layout, layout_of
from sandur.storage.record_form import decode_record, encode_record

WRITES_AT_ONCE: Final = 32

NUMBERS_AHEAD: Final = 1_000_000
"""How far the number of the grants is raised: servers that ran on the store before refuse a smaller one."""

Progress = Callable[[int, int], None]
"""Receives how many objects were written, and how many there are."""


class Restoring(msgspec.Struct, frozen=True):
    """The mark of a restore that is not finished. No server starts on such a store."""

    backup: str


async def restore(
    lake: Lake, source: ObjectStore, manifest: BackupManifest, *, on_progress: Progress
) -> Mapping[str, int]:
    """Write the objects of a backup; returns how many were written, were there, and were left out.

    Raises NotEmpty if the store has a catalog, Damaged if the backup is not whole, and Invalid if the settings do not
    allow the place of a managed Delta table, whose log has to be read.
    """
    store, mark = lake.store, msgspec.json.encode(Restoring(manifest.id))
    await _check_target(store, manifest)
    await _put(store, RESTORING, mark)
    counts: Counter[str] = Counter()
    written = 0
    reader = BackupReader(source)
    async for entries in read_entries(source, manifest):
        for entry in entries:  # Whole packs are read one after the other; the writes run together.
            await reader.read(entry)

        async def write(entry: Entry) -> None:
            await _write(lake, entry, await reader.read(entry), counts)

        await gather_in_batches(entries, write, at_once=WRITES_AT_ONCE)
        written += len(entries)
        on_progress(written, manifest.objects)
    await note_restore(store, Restored(manifest.id, manifest.began_ms, lake.clock.now_ms()))
    held = await store.get(RESTORING)
    if held:
        await store.delete(RESTORING, expected=held.version)
    return counts


async def _check_target(store: ObjectStore, manifest: BackupManifest) -> None:
    """The target is empty, or an earlier run of this restore began there."""
    if held := await store.get(RESTORING):
        begun = decode_record(RESTORING, held.data, Restoring).backup
        if begun != manifest.id:
            raise Conflict(f"a restore of the backup {begun} is not finished here; finish it, or empty the store")
        return
    for folder in ("_shared/", ""):
        page = await store.list(folder, limit=1)
        is_catalog = page and (folder or layout_of(page[0].key) is not None)
        if is_catalog or (page and not folder and await _has_catalog(store)):
            raise NotEmpty("the store has a catalog already; restore into an empty bucket, prefix or folder")


async def _has_catalog(store: ObjectStore) -> bool:
    page = await store.list("", after="tenant", limit=1)
    return bool(page) and layout_of(page[0].key) is not None


async def _write(lake: Lake, entry: Entry, data: bytes, counts: Counter[str]) -> None:
    if entry.is_location:
        counts[await _write_file(lake, entry.key, data)] += 1
        return
    layout = layout_of(entry.key)
    if layout and entry.key == layout.security_manifest():
        data = raised(entry.key, data)
    elif layout and entry.key.startswith(layout.delta_tables_folder()):
        data = await _with_log(lake, layout, entry.key, data, counts)
    counts[await _put(lake.store, entry.key, data)] += 1


async def _with_log(lake: Lake, layout: Layout, key: str, data: bytes, counts: Counter[str]) -> bytes:
    """The record of a Delta table, with the commits that were published after the backup.

    They were accepted, and readers of the log see them. Without them, the next writer would get their version from the
    catalog, find the file of another commit under it, and lose its rows.
    """
    table = decode_record(key, data, DeltaTable)
    if table.table_type != "MANAGED" or table.data_source_format != DELTA or table.state not in {"live", "dropped"}:
        return data
    lake.locations.holder(published_location(table, 0))
    try:
        after = await _advanced(lake, table)
    except (SandurError, *NOT_JSON):  # Writers of the table write its log.
        counts["logs_unread"] += 1
        return data
    if after == table:
        return data
    for commit in after.commits:  # A commit may be forgotten only when its receipt exists (G6).
        receipt = delta_receipt_of(after, commit)
        await _put(lake.store, delta_receipt_key(layout, receipt), msgspec.json.encode(receipt))
    counts["commits_found_in_logs"] += after.last_version - table.last_version
    newest = after.last_version
    return encode_record(replace(after, published=newest, commits=without_published(after.commits, newest)))


async def _advanced(lake: Lake, table: DeltaTable) -> DeltaTable:
    newest = await newest_in_log(lake, table.location, at_least=table.last_version)
    if newest == table.last_version:
        return table
    store, folder = lake.locations.holder(f"{table.location}/{STAGED_FOLDER}/_")
    staged = await list_all(store, folder.removesuffix("_"))
    checkpoint = await _first_checkpoint(lake, table, newest)
    first = checkpoint.version if checkpoint else table.last_version + 1
    async for version, actions in read_commits(lake, table, range(first, newest + 1), RestoreAction):
        named = [one for one in staged if one.key.rpartition("/")[2].startswith(f"{version:020d}.")]
        commit = await _commit_of(lake, table, version, actions, named)
        begins = checkpoint if version == first else None
        table = _with_commit(table, commit, await _described(lake, table, begins) if begins else actions)
    return table


async def _first_checkpoint(lake: Lake, table: DeltaTable, newest: int) -> Checkpoint | None:
    """The checkpoint with which to begin if versions after the backup have expired (O12); None if all are there."""
    names = await log_names(lake, table)
    checkpoint = newest_checkpoint(names, upto=newest)
    if checkpoint is None or published_versions(names).issuperset(range(table.last_version + 1, newest + 1)):
        return None
    return checkpoint


async def _described(lake: Lake, table: DeltaTable, checkpoint: Checkpoint) -> Sequence[RestoreAction]:
    """What a checkpoint says of a table beside its files, and which of its domains are gone."""
    found: list[RestoreAction] = []
    async for part in read_checkpoint(lake, table, checkpoint, RestoreAction, _DESCRIPTION):
        found += [one for one in part if one.meta_data or one.protocol or one.domain_metadata]
    named = {one.domain_metadata.domain for one in found if one.domain_metadata}
    known = {domain for domain, key in KEY_OF_DOMAIN.items() if key in table.properties}
    return [*found, *(RestoreAction(domain_metadata=Domain(one, "", removed=True)) for one in sorted(known - named))]


def _is_described(path: str) -> bool:
    return path.partition(".")[0] in {"metaData", "protocol", "domainMetadata", "sidecar"}


_DESCRIPTION: Final = Form(_is_described, row_bytes=None)


async def _commit_of(
    lake: Lake, table: DeltaTable, version: int, actions: Sequence[RestoreAction], staged: Sequence[Listed]
) -> DeltaCommit:
    """A published commit as the catalog accepted it; a writer that waits for its answer finds it by its staged file."""
    name, size = published_name(version), 0
    for one in staged:
        file_name = one.key.rpartition("/")[2]
        if await have_same_actions(lake, staged_location(table, file_name), published_location(table, version)):
            name, size = file_name, one.size_bytes
    at_ms = max(advanced(VersionState(), actions).committed_ms, table.last_commit_ms)
    last = table.commits[-1].file_name if table.commits else ""
    return DeltaCommit(
        version=version,
        timestamp_ms=at_ms,
        file_name=name,
        file_size=size,
        file_modified_ms=at_ms,
        previous_commit_key=delta_commit_key(table.uuid, table.last_version, last),
    )


def _with_commit(table: DeltaTable, commit: DeltaCommit, actions: Sequence[RestoreAction]) -> DeltaTable:
    """The record after a commit that is in the log. It follows from both alone, so a second run writes the same."""
    change = _change_of(table, actions)
    metadata = apply_change(metadata_of(table), change, waives_deletion_vectors=True)
    table = replace(
        table,
        properties=dict(metadata.properties),
        commits=(*table.commits, commit),
        last_version=commit.version,
        last_commit_ms=commit.timestamp_ms,
    )
    if not change.changes_metadata:
        return table
    return replace(
        table,
        properties={**metadata.properties, **commit_properties(commit.version, commit.timestamp_ms)},
        columns=metadata.columns,
        comment=metadata.comment,
        etag=delta_commit_key(table.uuid, commit.version, commit.file_name),
        changed_ms=max(commit.timestamp_ms, table.changed_ms),
        updated_ms=commit.timestamp_ms,
    )


def _change_of(table: DeltaTable, actions: Sequence[RestoreAction]) -> DeltaChange:
    """What the actions of a commit change in the record."""
    after = advanced(VersionState(), actions)
    known = {domain: msgspec.Raw(text.encode()) for domain, text in after.domains.items() if domain in KEY_OF_DOMAIN}
    gone = {one.domain for action in actions if (one := action.domain_metadata) and one.removed}
    change = DeltaChange(
        asserted_uuid=table.uuid,
        protocol=None if after.protocol == LogProtocol() else Protocol(**msgspec.structs.asdict(after.protocol)),
        domains=msgspec.json.decode(msgspec.json.encode(known), type=Domains) if known else None,
        removed_domains=sorted(gone & KEY_OF_DOMAIN.keys()) or None,
    )
    if after.metadata is None:
        return change
    return change._replace(
        columns=msgspec.json.decode(after.metadata.schema_string, type=dict[str, object]),
        partition_columns=after.metadata.partition_columns,
        all_properties=after.metadata.configuration,
        comment=Comment(after.metadata.description),
    )


def raised(key: str, data: bytes) -> bytes:
    """The grants under a number that no server of the former store has seen.

    The backup may bring revoked grants back; nothing can tell which. What it must not do is look older than what a
    running server has seen, because that server would refuse it.
    """
    manifest = decode_record(key, data, SecurityManifest)
    return encode_record(replace(manifest, number=manifest.number + NUMBERS_AHEAD))


async def _write_file(lake: Lake, location: str, data: bytes) -> str:
    """A metadata file that is missing at its place; one that is there is the same, because no file is replaced."""
    try:
        await lake.locations.create(location, data)
    except SwapLost:
        return "files_there"
    except Invalid:  # Elsewhere: the settings of the restore do not allow the place.
        return "files_elsewhere"
    except SandurError:
        return "files_failed"
    return "files_written"


async def _put(store: ObjectStore, key: str, data: bytes) -> str:
    try:
        await store.put(key, data, expected=ABSENT)
    except SwapLost:
        found = await store.get(key)
        if found is None or found.data != data:
            raise Conflict(
                f"object {key} has changed since the restore began; empty the store and restore again"
            ) from None
        return "objects_there"
    return "objects_written"
