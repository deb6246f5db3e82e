"""The queue of tables whose files are to be deleted: durable, and worked off behind everybody's back."""

import contextlib

from sandur.catalog.records import PurgeOrder
from sandur.errors import SwapLost
from sandur.operations.names import Found
from sandur.operations.workspace import Workspace


async def queue_purge(workspace: Workspace, found: Found) -> None:
    """Put a table that is being dropped into the queue; it is worked on only once its pointer says dropped."""
    order = PurgeOrder(
        uuid=found.uuid, kind=found.name.value.kind, identifier=found.identifier, ordered_ms=workspace.clock.now_ms()
    )
    with contextlib.suppress(SwapLost):  # Queued by an earlier attempt.
        await workspace.purge_order(found.uuid).create(order)
