"""O5: a commit must not add a file that maintenance deletes or has deleted.

A writer that takes longer than the minimum age of orphans may commit a file that was taken for an orphan. Maintenance
lists the files of a table that it deletes, then marks the pointer, then deletes. A commit on a marked pointer reads
that list, after the version of the pointer that it swaps was known. Tables that were never cleaned pay nothing.
"""

from collections.abc import Sequence

from sandur.catalog.maintenance.orphans import SweptFile, swept_among
from sandur.catalog.records import BoundRecord, Pointer
from sandur.errors import Invalid, NotFound
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import Lake
from sandur.operations.tables.manifest_files import added_manifests, content_of
from sandur.storage.cell import gather_all


async def check_not_swept(
    lake: Lake, pointer: Pointer, before: TableMetadata | ViewMetadata, after: TableMetadata | ViewMetadata
) -> None:
    """Raise Invalid if the table after a change refers to a file that was deleted, and did not before."""
    if not pointer.swept or not isinstance(after, TableMetadata) or not isinstance(before, TableMetadata):
        return
    listed = await swept_files(lake, pointer)
    if not listed:
        return
    known = {one.snapshot_id for one in before.snapshots}
    await check_files(lake, listed, sorted(_statistics(after) - _statistics(before)))
    for snapshot in after.snapshots:
        if snapshot.snapshot_id in known:
            continue
        try:
            manifests = await added_manifests(lake, snapshot, known)
            lists = [snapshot.manifest_list] if snapshot.manifest_list else []
            await check_files(lake, listed, [*lists, *manifests])
            for manifest in manifests:
                async for batch in content_of(lake, manifest):
                    await check_files(lake, listed, batch)
        except NotFound as error:
            raise Invalid(f"Invalid snapshot {snapshot.snapshot_id}: {error}") from error


async def swept_files(lake: Lake, record: BoundRecord) -> Sequence[SweptFile]:
    """The files of a table that were deleted, or are about to be."""
    found = await lake.swept_files(record.swept).read() if record.swept else None
    return found.value.files if found else ()


def _statistics(metadata: TableMetadata) -> set[str]:
    tables, partitions = metadata.statistics, metadata.partition_statistics
    return {one.statistics_path for one in tables} | {one.statistics_path for one in partitions}


async def swept_list_of(lake: Lake, table_uuid: str | None) -> str:
    """The id of the list that a table begins with if it is registered again; empty if nothing was deleted from it."""
    found = await lake.swept_files(table_uuid).read() if table_uuid else None
    return table_uuid or "" if found else ""


async def check_files(lake: Lake, listed: Sequence[SweptFile], locations: Sequence[str]) -> None:
    """Raise Invalid if one of the files is on the list, unless another version of it was written since (O6)."""
    swept = swept_among(listed, locations)
    if not swept:
        return
    holders = {location: lake.locations.holder(location) for location in swept}
    heads = await gather_all(store.head(key) for store, key in holders.values())
    for (location, versions), head in zip(swept.items(), heads, strict=True):
        if head is None or str(head.version) in versions:
            raise Invalid(
                f"Invalid snapshot: the file {location} was written long before this commit, and was deleted as an "
                "orphan; write the data again"
            )
