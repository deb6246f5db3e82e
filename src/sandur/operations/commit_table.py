"""Commit to a table: an existing one, or one that the commit creates."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.sources import Request
from sandur.iceberg.requests import TableCommit
from sandur.operations.commit import Commit
from sandur.operations.create_table import create_by_commit
from sandur.operations.documents import TABLES
from sandur.operations.lake import Lake
from sandur.operations.load_table import loaded
from sandur.operations.results import LoadedTable
from sandur.operations.table_changes import table_change


async def commit_table(lake: Lake, identifier: Identifier, commit: TableCommit, request: Request) -> LoadedTable:
    """The table after the commit. A commit that asserts create makes the table; it needs no stage."""
    change = await table_change(lake, identifier, commit)
    if change.creates:
        return await create_by_commit(lake, identifier, change, request)
    document = await Commit(lake, TABLES, identifier, change, request).run()
    return loaded(lake, document)
