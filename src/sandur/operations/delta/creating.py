"""Create a Delta table whose first commit is written, as the Delta API asks for it."""

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import normalized
from sandur.catalog.records import DeltaTable
from sandur.catalog.sources import Request
from sandur.delta.columns import columns_of, encoded
from sandur.delta.contract import check_contract
from sandur.delta.properties import stored_properties
from sandur.delta.requests import CreateTable
from sandur.delta.uniform import check_uniform
from sandur.errors import Invalid, NotFound
from sandur.operations.delta.commit import uniform_record
from sandur.operations.delta.loading import check_home
from sandur.operations.delta.tables import NewTable, create_external, create_from_staging
from sandur.operations.lake import Lake


async def create_table(
    lake: Lake,
    identifier: Identifier,
    create: CreateTable,
    *,
    request: Request,
    external_roots: tuple[str, ...] = (),
) -> DeltaTable:
    """The table; a managed one has to keep the contract that its staged place was given out with.

    NotFound with the part of the name that is not there, or when nothing was staged at the location.
    """
    try:
        return await _created(lake, identifier, create, request=request, external_roots=external_roots)
    except NotFound:
        await check_home(lake, identifier)  # Asked only now: a creation that succeeds has seen both.
        raise


async def _created(
    lake: Lake,
    identifier: Identifier,
    create: CreateTable,
    *,
    request: Request,
    external_roots: tuple[str, ...],
) -> DeltaTable:
    is_managed = create.table_type == "MANAGED"
    if not create.location.strip():
        raise Invalid("location is required")
    columns = encoded(columns_of(create.columns, create.partition_columns))
    domains = create.domain_metadata.names if create.domain_metadata else ()
    if is_managed:
        waives = lake.settings.delta_waive_deletion_vectors
        check_contract(create.protocol, domains, create.properties, waives_deletion_vectors=waives)
    check_uniform(create.properties, create.uniform, location=normalized(create.location), version=None)
    wanted = NewTable(
        identifier=identifier,
        table_type=create.table_type,
        location=create.location,
        columns=columns,
        properties=stored_properties(
            create.properties, create.protocol, create.domain_metadata, create.last_commit_timestamp_ms
        ),
        comment=create.comment,
        last_commit_ms=create.last_commit_timestamp_ms,
        uniform=uniform_record(create.uniform) if create.uniform else None,
    )
    if is_managed:
        return await create_from_staging(lake, wanted, request=request)
    return await create_external(lake, wanted, request=request, external_roots=external_roots)
