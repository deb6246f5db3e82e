"""The older commit API of Unity Catalog, in terms of the one commit engine."""

from typing import NamedTuple

from sandur.catalog.locations import normalized
from sandur.catalog.records import DeltaCommit, DeltaTable
from sandur.catalog.sources import Request
from sandur.delta.requests import Change
from sandur.errors import Invalid, WrongFormat
from sandur.operations.delta.commit import commit_by_id
from sandur.operations.delta.publishing import shown_commits
from sandur.operations.delta.tables import DELTA, load_by_id
from sandur.operations.lake import Lake


class CommitsAsked(NamedTuple):
    """Which commits of a table are wanted; without `end_version` up to the newest."""

    table_id: str
    start_version: int
    end_version: int | None
    table_uri: str | None = None


class Commits(NamedTuple):
    """Some commits that are not published, newest first, and the newest version there is."""

    commits: tuple[DeltaCommit, ...]
    latest_table_version: int


async def list_commits(lake: Lake, asked: CommitsAsked) -> Commits:
    """At most as many versions as may be unpublished, counted from the first one wanted."""
    if asked.start_version < 0:
        raise Invalid(f"start_version must be at least 0, found {asked.start_version}")
    if asked.end_version is not None and asked.end_version < asked.start_version:
        raise Invalid(f"end_version {asked.end_version} is before start_version {asked.start_version}")
    table = _checked(await load_by_id(lake, asked.table_id.lower()), asked.table_uri)
    oldest = table.commits[0].version if table.commits else 0
    last = max(asked.start_version, oldest) + lake.settings.delta_unpublished_max - 1
    if asked.end_version is not None:
        last = min(last, asked.end_version)
    rows = tuple(row for row in shown_commits(lake, table) if asked.start_version <= row.version <= last)
    return Commits(rows, table.last_version)


async def post_commit(lake: Lake, change: Change, table_uri: str, request: Request) -> None:
    """As the engine has it; the address of the table must be that under which the catalog knows it."""
    _checked(await load_by_id(lake, change.asserted_uuid), table_uri)
    await commit_by_id(lake, change, request)


def _checked(table: DeltaTable, table_uri: str | None) -> DeltaTable:
    if table.data_source_format != DELTA or table.kind != "table":
        raise WrongFormat(f"table {table.uuid} is not a Delta table")
    if table.table_type != "MANAGED":
        raise Invalid(f"table {table.uuid}: only a managed table takes commits, this is {table.table_type}")
    if table_uri is not None and normalized(table_uri) != normalized(table.location):
        raise Invalid(f"table {table.uuid}: table_uri {table_uri} is not where it lies: {table.location}")
    return table
