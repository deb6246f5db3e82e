"""Create, load and drop tables of any format through Unity Catalog's classic API."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.infos import TableInfo, delta_table_info
from sandur.catalog.records import Request
from sandur.errors import Invalid, Unsupported
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.delta import tables as delta
from sandur.operations.delta.load import check_parents_exist, naming_missing_parent
from sandur.operations.delta.tables import load_stage
from sandur.operations.lake import Lake
from sandur.operations.transactions.resolution import effective_pointer, effective_record
from sandur.operations.unity.infos import info_of
from sandur.storage.cell import gather_all

_FILES = frozenset({"DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"})
_VIEWS = frozenset({"VIEW", "METRIC_VIEW"})


async def create_table(lake: Lake, wanted: delta.NewTable, request: Request) -> TableInfo:
    """Create a table or view; NotFound with the part of the name that does not exist."""
    _check(wanted)
    create = delta.create_from_staging if wanted.table_type == "MANAGED" else delta.create_external
    async with naming_missing_parent(lake, wanted.identifier):
        return delta_table_info(wanted.identifier, await create(lake, wanted, request=request))


def _check(wanted: delta.NewTable) -> None:
    """Raise Invalid or Unsupported for a table that cannot be created."""
    identifier = wanted.identifier
    if wanted.table_type in _VIEWS:
        if not wanted.view_definition:
            raise Invalid(f"{wanted.table_type} {identifier}: view_definition is missing")
        return
    if wanted.table_type not in {"MANAGED", "EXTERNAL"}:
        raise Unsupported(f"Table {identifier}: the table type {wanted.table_type} is not supported")
    if wanted.data_source_format == "ICEBERG":
        raise Invalid(f"Table {identifier}: create Iceberg tables with the Iceberg REST API")
    if wanted.data_source_format not in _FILES:
        raise Invalid(f"Table {identifier}: data_source_format is missing, or not one of {', '.join(sorted(_FILES))}")
    if not wanted.location:
        raise Invalid(f"Table {identifier}: storage_location is missing")


async def load_table(lake: Lake, identifier: Identifier) -> TableInfo:
    """Load a table or view of any format; NotFound with the part of the name that does not exist."""
    found = await delta.find_table(lake, identifier)
    if found is None:
        await check_parents_exist(lake, identifier)
        raise delta.table_not_found(identifier)
    pointer = await effective_record(lake, found.pointer)
    info = await info_of(lake, identifier, found.name.value, pointer.value)
    if not isinstance(info, TableInfo):
        raise delta.table_not_found(identifier)
    return info


async def drop_table(lake: Lake, identifier: Identifier, request: Request) -> None:
    await load_catalog(lake, identifier.catalog)
    await delta.drop_table(lake, identifier, request=request)


async def location_of(lake: Lake, table_id: str) -> str:
    """The location of a table, or of a stage, by its id; NotFound if neither exists."""
    pointer, table = await gather_all((lake.pointer(table_id).read(), lake.delta_table(table_id).read()))
    if table and table.value.state not in {"dropped", "killed"}:
        return table.value.location
    if pointer and pointer.value.kind == "table" and pointer.value.state not in {"dropped", "killed"}:
        head = (await effective_pointer(lake, pointer)).value.head
        # The metadata files of an Iceberg table are in a folder of its location.
        return head.metadata_location.rpartition("/")[0].rpartition("/")[0] if head else ""
    return (await load_stage(lake, table_id)).location
