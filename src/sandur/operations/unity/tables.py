"""Create, load and drop tables of any format through Unity Catalog's classic API."""

from typing import Final

from msgspec.structs import replace

from sandur.catalog.functions import Dependency, DependencyList
from sandur.catalog.identifiers import Identifier, parse_full_name
from sandur.catalog.infos import TableInfo, delta_table_info
from sandur.catalog.records import Pointer, Request
from sandur.errors import Busy, Hidden, Invalid, NotFound, Unsupported
from sandur.operations.access import READS_MAX, may_see, read_authority, require, versions_read
from sandur.operations.delta import tables as delta
from sandur.operations.idempotency import key_hash_of
from sandur.operations.lake import Lake
from sandur.operations.name_access import naming_missing_parent, visible_chain
from sandur.operations.securable_chains import name_chain
from sandur.operations.tables.names import ResolvedName, resolve_name
from sandur.operations.transactions.resolution import effective_record
from sandur.operations.unity.infos import info_of
from sandur.storage.cell import gather_in_batches

_READS_AT_ONCE: Final = 32
_FILES = frozenset({"DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"})
_VIEWS = frozenset({"VIEW", "METRIC_VIEW"})


async def create_table(lake: Lake, wanted: delta.NewTable, request: Request) -> TableInfo:
    """Create a table or view; NotFound with the part of the name that does not exist."""
    _check(wanted)
    if wanted.table_type in _VIEWS:
        wanted = await _with_dependencies(lake, wanted, request)
    create = delta.create_from_staging if wanted.table_type == "MANAGED" else delta.create_external
    async with naming_missing_parent(lake, wanted.identifier.namespace):
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


async def _with_dependencies(lake: Lake, wanted: delta.NewTable, request: Request) -> delta.NewTable:
    """The view with its list of dependencies, empty if it names none; raises NotFound if one does not exist."""
    given = wanted.view_dependencies
    dependencies = (given.dependencies if given else None) or ()
    if wanted.table_type == "METRIC_VIEW" and not dependencies:
        raise Invalid(f"METRIC_VIEW {wanted.identifier}: view_dependencies must name at least one table or function")
    try:
        await gather_in_batches(dependencies, lambda one: _check_dependency(lake, one), at_once=_READS_AT_ONCE)
    except NotFound:
        # An earlier attempt of this request found all of them, and may have created the view.
        key_hash = key_hash_of(request)
        if not key_hash or await lake.claim(delta.CREATE, key_hash).read() is None:
            raise
    return replace(wanted, view_dependencies=DependencyList(dependencies))


async def _check_dependency(lake: Lake, dependency: Dependency) -> None:
    if (dependency.table is None) == (dependency.function is None):
        raise Invalid("view_dependencies: an entry must have exactly one of table and function")
    if dependency.table:
        kind, full_name = "table", dependency.table.table_full_name
    else:
        kind, full_name = "function", dependency.function.function_full_name if dependency.function else ""
    identifier = parse_full_name(full_name)
    authority = await read_authority(lake)
    await visible_chain(lake, authority, identifier.namespace)
    missing = NotFound(f"View dependency {kind} does not exist: {full_name}", subject="dependency")
    found = await resolve_name(lake, identifier)
    if found is None or found.name.value.kind not in ({"table", "view"} if kind == "table" else {"function"}):
        raise missing
    if authority and not may_see(lake, authority, await name_chain(lake, authority, found, missing=missing)):
        raise Hidden(str(missing), subject="dependency")


async def load_table(lake: Lake, identifier: Identifier) -> TableInfo:
    """Load a table or view of any format; NotFound with the part of the name that does not exist."""
    for _ in range(READS_MAX):
        found = await delta.find_allowed_table(lake, identifier)
        pointer = await effective_record(lake, found.pointer)
        info = await info_of(lake, identifier, found.name.value, pointer.value)
        if not isinstance(info, TableInfo):
            raise delta.table_not_found(identifier)
        is_pending = isinstance(found.pointer.value, Pointer) and found.pointer.value.pending is not None
        # A2: a transaction that was decided after the grants were read must not add its content to an older right.
        if not is_pending or await _is_unchanged(lake, found):
            return info
    raise Busy(f"{identifier}: other requests keep changing it")


async def _is_unchanged(lake: Lake, found: ResolvedName) -> bool:
    """Whether the caller still has the right to what was found, by a read that begins now."""
    if authority := await read_authority(lake):
        missing = delta.table_not_found(found.identifier)
        require(lake, authority, await name_chain(lake, authority, found, missing=missing), missing=missing)
        return await lake.store.are_current(versions_read(lake, authority, found))
    return True


async def drop_table(lake: Lake, identifier: Identifier, request: Request) -> None:
    await delta.drop_table(lake, identifier, request=request)
