"""Locations of tables and views: the default, the check of a requested one, and the directories of a new one."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import checked_location, folder_name
from sandur.errors import NotFound
from sandur.iceberg.table_metadata import without_trailing_slash
from sandur.operations.lake import Lake
from sandur.operations.tables.names import catalog_exists


async def allowed_roots(lake: Lake, catalog: str) -> tuple[str, ...]:
    """The addresses below which the tables of a catalog may lie: its own root, and those that the settings allow.

    The root of a catalog never changes, so a cached record suffices. A catalog that was dropped and created again
    elsewhere allows nothing that was not allowed before.
    """
    cell = lake.catalog(catalog)
    found = cell.last_seen or await cell.read()
    if found is None or not catalog_exists(found.value):
        raise NotFound(f"Catalog does not exist: {catalog}", subject="catalog")
    return (found.value.root, *lake.locations.others)


def default_location(root: str, identifier: Identifier, uuid: str) -> str:
    """A location of its own for every table: a table that reuses a name does not find the old files."""
    folders = "/".join(folder_name(level) for level in identifier.levels)
    return f"{root.rstrip('/')}/{folders}/{folder_name(identifier.name)}-{uuid}"


def chosen_location(wanted: str | None, roots: tuple[str, ...], identifier: Identifier, uuid: str) -> str:
    """The requested location, if it is allowed, in the form of the request; without a request the default."""
    if not wanted:
        return default_location(roots[0], identifier, uuid)
    return checked_location(without_trailing_slash(wanted), roots)


def create_directories(lake: Lake, location: str) -> None:
    """Create the directories of a table on a file system: some engines write only into directories that exist."""
    lake.locations.make_folders(*_directories(location))


def remove_empty_directories(lake: Lake, location: str) -> None:
    """Remove the directories of a table that was never created. A table with metadata was created."""
    metadata, data = _directories(location)
    if lake.locations.remove_empty_folder(metadata):
        lake.locations.remove_empty_folder(data)


def _directories(location: str) -> tuple[str, str]:
    return f"{location}/metadata", f"{location}/data"
