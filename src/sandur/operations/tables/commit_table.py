"""Commit to a table that exists, or create it by the commit."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.sources import Request
from sandur.iceberg.requests import TableCommit
from sandur.operations.lake import Lake
from sandur.operations.tables.changes import table_change
from sandur.operations.tables.commit import Commit
from sandur.operations.tables.create import create_by_commit
from sandur.operations.tables.documents import TABLES
from sandur.operations.tables.load import LoadedTable, loaded_table


async def commit_table(lake: Lake, identifier: Identifier, commit: TableCommit, request: Request) -> LoadedTable:
    """The table after the commit. A commit that asserts create makes the table; it needs no stage."""
    change = await table_change(lake, identifier, commit)
    if change.creates:
        return await create_by_commit(lake, identifier, change, request)
    document = await Commit(lake, TABLES, identifier, change, request).run()
    return loaded_table(lake, document)
