"""Where the manifest lists and manifests of a table lie (M1–M3).

Clients write their paths into commits, into registered files and into manifest lists, and the server opens them to plan
a scan. A path into another table would show its files and the bounds of their columns.

M1: a commit adds a snapshot only if its manifest list lies below a place of the table: its location or a write path,
before or after the commit. A list that the table names already may come back.
M2: a registered file may name lists and earlier metadata files elsewhere, where the table was before, but not in the
folder of another table. The caller may read the files there.
M3: the server opens a manifest list or manifest only below a place of the table, or directly in the folder of a
manifest list that the metadata names. M1 and M2 have checked those.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import checked_location, is_within, normalize_location
from sandur.errors import Invalid
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.updates import AddSnapshot, Update
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import check_not_anothers, locations_of
from sandur.operations.name_access import authorize_files
from sandur.operations.tables.names import resolve_name


def check_added_manifests(updates: Sequence[Update], base: TableMetadata | None, after: TableMetadata) -> None:
    """M1: raise Invalid if a new snapshot names a manifest list or manifest outside of the table's places."""
    added = [path for update in updates if isinstance(update, AddSnapshot) for path in _files_of(update.snapshot)]
    if not added:
        return
    places = (*places_of(after), *(places_of(base) if base else ()))
    for path in added:
        try:
            checked_location(path, places)
        except Invalid:
            if base is None or normalize_location(path) not in _named_files(base):
                raise Invalid(
                    f"Invalid snapshot: {path} is not below the table's location {after.location} or a write path; the "
                    "manifest lists of a table lie in its own folders"
                ) from None


class ReadableManifests:
    """M3: the manifest lists and manifests that the server may open for a table."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._places = places_of(metadata)

    def check(self, location: str) -> None:
        """Raise Invalid if the file may belong to another table."""
        plain = normalize_location(location)
        if not any(is_within(plain, place) for place in self._places) and _folder(plain) not in self._folders:
            raise Invalid(
                f"manifest {location}: it is not in a folder of the table, so the server does not read it; plan the "
                "scan in the client, or rewrite the manifests of the table"
            )

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(map(_folder, _named_files(self._metadata)))


async def check_registered_files(lake: Lake, identifier: Identifier, metadata: TableMetadata) -> None:
    """M2: raise Invalid if a file to register names files in the folder of another table, view or volume.

    Only files outside of the table's own places cost anything.
    """
    folders = elsewhere_folders(metadata, (lake.locations.own, *lake.locations.others))
    if not folders:
        return
    found = await resolve_name(lake, identifier)
    for folder in folders:
        try:
            await check_not_anothers(lake, identifier.catalog, folder, found.uuid if found else None)
        except Invalid as error:
            raise Invalid(
                f"Invalid metadata file {metadata.metadata_location}: it names files in {folder}: {error}",
                public_text=f"Invalid metadata file: it names files in {folder}, a folder in use",
            ) from error
    await authorize_files(lake, identifier.catalog, folders)


def places_of(metadata: TableMetadata) -> tuple[str, ...]:
    """The folders of a table: its location, and the paths in its properties; normalized, without duplicates."""
    return tuple(dict.fromkeys(map(normalize_location, locations_of(metadata))))


def elsewhere_folders(metadata: TableMetadata, roots: Sequence[str]) -> tuple[str, ...]:
    """The folders of manifest lists and earlier metadata files outside of the table's places, as far as the server may
    read there at all.
    """
    places = places_of(metadata)
    logged = {normalize_location(entry.metadata_file) for entry in metadata.metadata_log}
    folders = sorted({_folder(file) for file in _named_files(metadata) | logged})
    allowed = [normalize_location(root) for root in roots]
    return tuple(
        folder
        for folder in folders
        if any(is_within(folder, root) for root in allowed) and not any(is_within(folder, place) for place in places)
    )


def _named_files(metadata: TableMetadata) -> set[str]:
    return {normalize_location(path) for snapshot in metadata.snapshots for path in _files_of(snapshot)}


def _files_of(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.manifest_list is not None:
        yield snapshot.manifest_list
    yield from snapshot.manifests or ()


def _folder(plain: str) -> str:
    return plain.rpartition("/")[0]
