"""Old snapshots of the system tables: every run replaces much of what they hold, and they are kept for a while only."""

from collections.abc import Sequence
from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.sources import Request
from sandur.errors import NotFound
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.requirements import AssertTableUuid
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import RemoveSnapshots
from sandur.operations.lake import Lake
from sandur.operations.tables.commit_table import commit_table
from sandur.pipeline.iceberg_manifests import read_manifest, read_manifest_list

SNAPSHOTS_KEPT: Final = 20


def superfluous(metadata: TableMetadata, *, keep: int = SNAPSHOTS_KEPT) -> Sequence[Snapshot]:
    """The snapshots that may go: all but the newest ones, and none that a branch or tag names.

    None until there are twice as many as are kept, so that not every commit has something to take away.
    """
    in_order = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
    if len(in_order) < 2 * keep:
        return ()
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return [snapshot for snapshot in in_order[:-keep] if snapshot.snapshot_id not in named]


async def forget(
    lake: Lake,
    identifier: Identifier,
    metadata: TableMetadata,
    request: Request,
    *,
    keep: int = SNAPSHOTS_KEPT,
) -> int:
    """Take old snapshots out of a table, then the files that only they named; how many files went.

    A run that dies in between leaves files that nobody names.
    """
    old = superfluous(metadata, keep=keep)
    if not old:
        return 0
    gone = {snapshot.snapshot_id for snapshot in old}
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in gone]
    needed = await _files(lake, kept)
    superfluous_files = await _files(lake, old) - needed
    commit = TableCommit(
        requirements=(AssertTableUuid(uuid=metadata.table_uuid or ""),),
        updates=(RemoveSnapshots(snapshot_ids=tuple(sorted(gone))),),
    )
    await commit_table(lake, identifier, commit, request)
    removed = 0
    for location in sorted(superfluous_files):
        removed += await lake.locations.remove(location)
    return removed


async def _files(lake: Lake, snapshots: Sequence[Snapshot]) -> set[str]:
    """Every file that the snapshots name."""
    found: set[str] = set()
    manifests: set[str] = set()
    for snapshot in snapshots:
        if snapshot.manifest_list:
            found.add(snapshot.manifest_list)
            listed = read_manifest_list(await _bytes(lake, snapshot.manifest_list))
            manifests.update(str(manifest["manifest_path"]) for manifest in listed)
    for location in manifests:
        found.update(file.path for file in read_manifest(await _bytes(lake, location)))
    return found | manifests


async def _bytes(lake: Lake, location: str) -> bytes:
    data = await lake.locations.read(location)
    if data is None:
        raise NotFound(f"file {location}: is not there", subject="file")
    return data
