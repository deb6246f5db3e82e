"""Names and namespaces that are over (N9): deleted a day after they were written, the one place that leans on time.

Nothing that expects such a name absent, and was sent before it was used, can still be on its way by then.
"""

from msgspec.structs import replace

from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import help_predecessor
from sandur.operations.tables.names import active_record, settle_name
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

_OVER = ("free", "dropped", "moved")
_UNCONFIRMED = ("new", "pending")


async def visit_name(lake: Lake, listed: Listed) -> Outcome:
    """Delete a name that is over; free one that never came to be, for the next time."""
    identifier = lake.layout.parse_name(listed.key)
    cell = lake.name(identifier)
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state == "active":
        return "kept"
    # G6: the pointer of a dropped name is dropped, the other side of a moved one is active and its claim done; what
    # was under way for a day is decided, and the pointer of what came to be is bound.
    spot = await settle_name(lake, identifier)
    if spot.live:
        if spot.live.name.value.state in _UNCONFIRMED:  # Confirmed and bound: nothing is left to confirm.
            await cell.swap(active_record(spot.live.name.value), expected=spot.live.name.version)
        return "settled"
    if found.value.state in _OVER:
        await cell.empty(expected=found.version)
        return "removed"
    free = replace(found.value, state="free", updated_ms=lake.clock.now_ms())
    await cell.swap(free, expected=found.version)
    return "settled"


async def visit_namespace(lake: Lake, listed: Listed) -> Outcome:
    cell = lake.namespace(lake.layout.parse_namespace(listed.key))
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(lake, found.value)  # G6: whoever dropped it is told.
    await cell.empty(expected=found.version)
    return "removed"


def _age_ms(settings: Settings) -> int:
    return seconds_of(settings.name_retention) * 1_000


NAMES = Janitor("names", Layout.all_names_folder, _age_ms, visit_name)
NAMESPACES = Janitor("namespaces", Layout.all_namespaces_folder, _age_ms, visit_namespace)
