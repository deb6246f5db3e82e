"""`sandur delta`: create and rename Delta tables directly on the store, without an engine."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Console

from sandur.catalog.identifiers import checked_new_name, parse_full_name
from sandur.catalog.records import Request
from sandur.cli.change import pairs_of
from sandur.cli.store_admin import StoreFlags, run_on_store
from sandur.delta.create_plan import PartitionTransform, TableDefinition, parse_columns
from sandur.operations.delta import create
from sandur.operations.delta.create import Created
from sandur.operations.delta.tables import rename_table
from sandur.operations.lake import Lake

_PATH: Final = "delta."


class DeltaTableOptions(NamedTuple):
    """The flags of `sandur delta create`."""

    name: str
    columns: str
    location: str | None = None
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    properties: Sequence[str] = ()
    comment: str | None = None
    if_not_exists: bool = False


def create_delta_table(options: DeltaTableOptions, flags: StoreFlags, *, as_json: bool) -> None:
    table = TableDefinition(
        fields=parse_columns(options.columns),
        partitioning=[PartitionTransform("identity", column) for column in options.partition_by],
        clustering=options.cluster_by,
        properties=pairs_of(options.properties),
        comment=options.comment,
    )
    made = run_on_store(lambda lake: _create(lake, options, table, _request(lake, flags)), flags, access="create")
    if as_json:
        row = {
            "name": options.name,
            "location": made.location,
            "table_id": made.table.uuid if made.table else None,
            "table_type": made.table.table_type if made.table else None,
            "is_new": made.is_new,
        }
        print(json.dumps(row))  # noqa: T201 - output for machines
        return
    state = "created" if made.is_new else "exists already"
    Console().print(f"Delta table [bold]{options.name}[/] {state} at {made.location}", soft_wrap=True)


def rename_delta_table(name: str, new_name: str, flags: StoreFlags, *, as_json: bool) -> None:
    """Rename a table within its schema, which engines cannot do for a managed Delta table."""
    source = parse_full_name(name)
    checked_new_name("table", new_name)
    run_on_store(
        lambda lake: rename_table(lake, source, new_name, request=_request(lake, flags)), flags, access="change"
    )
    now = ".".join((source.catalog, *source.levels, new_name))
    if as_json:
        print(json.dumps({"name": now}))  # noqa: T201 - output for machines
        return
    Console().print(f"Renamed table [bold]{name}[/] to [bold]{now}[/]", soft_wrap=True)


def _request(lake: Lake, flags: StoreFlags) -> Request:
    return Request(hash=lake.clock.new_uuid(), source=flags.source())


async def _create(lake: Lake, options: DeltaTableOptions, table: TableDefinition, request: Request) -> Created:
    if path := path_in(options.name):
        if options.if_not_exists and await create.has_first_commit(lake, path):
            return Created(path, None, is_new=False)
        catalog = lake.settings.default_catalog
        return await create.create_at_path(lake, path, table, catalog=catalog)
    identifier = parse_full_name(options.name)
    if options.if_not_exists and (found := await create.find_existing(lake, identifier)):
        return found
    if options.location:
        return await create.create_external_at(lake, identifier, options.location, table, request=request)
    return await create.create_managed(lake, identifier, table, request=request)


def path_in(name: str) -> str | None:
    """The path in a name such as ``delta.`/data/t` ``; None for a table name."""
    if not name.lower().startswith(_PATH):
        return None
    path = name[len(_PATH) :]
    is_quoted = path.startswith("`") and path.endswith("`")
    return path[1:-1] if is_quoted else path if "/" in path else None
