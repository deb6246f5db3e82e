"""The queue of tables whose files are to be deleted: durable, and worked off behind everybody's back."""

import contextlib

from sandur.catalog.records import PurgeOrder
from sandur.errors import Busy, SwapLost
from sandur.operations.lake import Lake
from sandur.operations.names import Found
from sandur.operations.together import together


async def queue_purge(lake: Lake, found: Found, *, drop: str) -> None:
    """Order that the files of a table be deleted, before `drop` drops it; it counts only if that drop happens.

    Before, and not after: a drop that happened and died would otherwise be told as done to its retry, with nothing
    queued. Every drop has an order of its own, so that one which does not happen cannot speak for another.
    """
    table_uuid = found.pointer.value.table_uuid
    order = PurgeOrder(
        uuid=found.uuid,
        table_uuid=table_uuid,
        drop=drop,
        kind=found.name.value.kind,
        format=found.name.value.format,
        identifier=found.identifier,
        ordered_ms=lake.clock.now_ms(),
    )
    with contextlib.suppress(SwapLost):  # Queued by an earlier attempt.
        await lake.purge_order(table_uuid, drop).create(order)


async def check_not_purged(lake: Lake, table_uuid: str) -> None:
    """Busy while the files of a table with that uuid wait to be deleted: nobody may begin to rely on them.

    Whoever asks this and goes on has `purge_delay` to show a pointer: only after that does a purge look for other
    tables that need the files.
    """
    layout = lake.layout
    listed = await lake.store.list(layout.purge_orders_of(table_uuid))
    orders = (layout.parse_purge_order(entry.key) for entry in listed)
    if any(await together(_is_due(lake, *order) for order in orders)):
        raise Busy(f"table {table_uuid}: it was dropped, and its files are being purged")


async def _is_due(lake: Lake, table_uuid: str, drop: str) -> bool:
    order = await lake.purge_order(table_uuid, drop).read()
    return order is not None and not order.value.blocked and await is_ordered(lake, order.value)


async def is_ordered(lake: Lake, order: PurgeOrder) -> bool:
    """Whether the drop that the order belongs to is the one that happened."""
    pointer = await lake.pointer(order.uuid, order.format).read()
    return pointer is not None and (pointer.value.state, pointer.value.by) == ("dropped", order.drop)
