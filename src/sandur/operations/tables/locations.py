"""Locations of tables and views: the default, the check of a requested one, and the directories of a new one."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import checked_location, folder_name
from sandur.errors import NotFound
from sandur.iceberg.table_metadata import without_trailing_slash
from sandur.operations.lake import Lake
from sandur.operations.tables.names import catalog_exists


async def allowed_roots(lake: Lake, catalog: str) -> tuple[str, ...]:
    """Below which addresses the tables of a catalog may lie: its own root, and what the settings allow.

    The root of a catalog never changes, so what was seen of it once is good enough: one that was dropped and made again
    elsewhere lets nothing lie where it might not have lain before.
    """
    cell = lake.catalog(catalog)
    found = cell.last_seen or await cell.read()
    if found is None or not catalog_exists(found.value):
        raise NotFound(f"Catalog does not exist: {catalog}", subject="catalog")
    return (found.value.root, *lake.locations.others)


def default_location(root: str, identifier: Identifier, uuid: str) -> str:
    """A place of its own for every table ever made: a name that is used again does not find the old files."""
    folders = "/".join(folder_name(level) for level in identifier.levels)
    return f"{root.rstrip('/')}/{folders}/{folder_name(identifier.name)}-{uuid}"


def chosen_location(wanted: str | None, roots: tuple[str, ...], identifier: Identifier, uuid: str) -> str:
    """The location asked for, if it is allowed, as it was spelled; otherwise the default."""
    if not wanted:
        return default_location(roots[0], identifier, uuid)
    return checked_location(without_trailing_slash(wanted), roots)


def create_directories(lake: Lake, location: str) -> None:
    """On a file system, the folders into which engines write a table's files: some write only where there is one."""
    lake.locations.make_folders(*_rooms(location))


def remove_empty_directories(lake: Lake, location: str) -> None:
    """Take the folders away again, for a table that never came to be; where there is metadata, one did."""
    metadata, data = _rooms(location)
    if lake.locations.remove_empty_folder(metadata):
        lake.locations.remove_empty_folder(data)


def _rooms(location: str) -> tuple[str, str]:
    return f"{location}/metadata", f"{location}/data"
