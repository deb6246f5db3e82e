"""Requests for maintenance in the store: made by callers who may change the table, taken up by the next run."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.requests import MaintenanceRequest
from sandur.catalog.records import Request
from sandur.errors import Invalid
from sandur.operations.access import resolve_authorized
from sandur.operations.containers.records import RecordChange
from sandur.operations.lake import Lake
from sandur.operations.tables.names import ResolvedName, name_not_found
from sandur.storage.cell import Cell, gather_in_batches
from sandur.storage.contract import list_all

REQUESTS_MAX: Final = 1_000
"""The most requests that a run takes up and that a page shows."""

_AT_ONCE: Final = 32


async def request_maintenance(lake: Lake, identifier: Identifier, request: Request) -> MaintenanceRequest:
    """Let the next run maintain a table that the caller may change. A request that is open stays as it is."""
    missing = name_not_found(identifier, "table")

    async def find() -> ResolvedName:
        return await resolve_authorized(
            lake, identifier, lambda found: found.name.value.kind == "table", missing=missing
        )

    found = await find()
    uuid, format_ = found.uuid, found.pointer.value.format
    if (identifier.catalog, str(identifier.namespace)) == (lake.settings.default_catalog, "system"):
        raise Invalid(f"{identifier} is a system table: the pipeline maintains it itself")

    async def authorize(_record: MaintenanceRequest | None) -> None:
        if (await find()).uuid != uuid:
            raise missing

    def decide(record: MaintenanceRequest | None) -> MaintenanceRequest:
        if record is not None and record.is_open:
            return record
        return MaintenanceRequest(
            uuid=uuid,
            catalog=identifier.catalog,
            namespace=str(identifier.namespace),
            name=identifier.name,
            format=format_,
            requested_ms=lake.clock.now_ms(),
            requested_by=request.source.principal,
        )

    return await RecordChange(
        lake, request_cell(lake, uuid), request, "request-maintenance", decide, authorize=authorize
    ).run()


def request_cell(lake: Lake, uuid: str) -> Cell[MaintenanceRequest]:
    """The latest request for a table."""
    return lake.uncached(lake.layout.maintenance_request(uuid), MaintenanceRequest)


async def list_requests(lake: Lake) -> Sequence[MaintenanceRequest]:
    """The latest request of each table, newest first."""
    listed = await list_all(lake.store, lake.layout.maintenance_requests_folder())
    cells = [lake.uncached(one.key, MaintenanceRequest) for one in listed]
    found = await gather_in_batches(cells, lambda cell: cell.read(), at_once=_AT_ONCE)
    newest = sorted((held.value for held in found if held), key=lambda one: (-one.requested_ms, one.uuid))
    opened = [one for one in newest if one.is_open]
    return [*opened[-REQUESTS_MAX:], *(one for one in newest if not one.is_open)][:REQUESTS_MAX]


async def change_requests(
    lake: Lake,
    requests: Iterable[MaintenanceRequest],
    change: Callable[[MaintenanceRequest], MaintenanceRequest],
) -> None:
    """Change requests that are still open, and as old as they were when the caller read them."""

    async def change_one(request: MaintenanceRequest) -> None:
        def decide(found: MaintenanceRequest | None) -> MaintenanceRequest | None:
            if found is None or not found.is_open or found.requested_ms != request.requested_ms:
                return None
            after = change(found)
            return after if after != found else None

        await request_cell(lake, request.uuid).update(decide, is_idempotent=True)

    await gather_in_batches(tuple(requests), change_one, at_once=_AT_ONCE)
