"""The verification of a store: every object of every workspace, then what several objects must say together.

It writes nothing, and runs beside servers. Its memory grows with the number of tables and of chains, not with that of
commits: a set of uuids, and the ends of chains.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from sandur.catalog.index import Scope
from sandur.catalog.verification.findings import Finding
from sandur.operations.janitors.sweep import list_layouts
from sandur.operations.lake import Lake, Lakes
from sandur.operations.verification.collections import (
    check_feed,
    check_grants,
    check_index,
    check_locations,
    check_marks,
    check_published,
    list_scopes,
)
from sandur.operations.verification.joins import Joined, settle_loose, settle_suspects
from sandur.operations.verification.objects import CHECKS_AT_ONCE, FOLDERS, Checked, check_listed, look_again
from sandur.settings import Settings
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import Listed, list_pages
from sandur.storage.layout import LOCATION_CLAIMS

Progress = Callable[[str, int], None]
"""Receives what is checked, and how many objects of it were checked."""

CheckAll = Callable[[Lake], AsyncIterator[Finding]]

COLLECTIONS: Final[tuple[CheckAll, ...]] = (check_marks, check_grants, check_feed, check_published)
"""The checks of a workspace that need more than one object."""


def no_progress(_what: str, _count: int) -> None:
    """Ignore the progress."""


async def verify(lakes: Lakes, settings: Settings, *, on_progress: Progress = no_progress) -> AsyncIterator[Finding]:
    """The findings of all workspaces that the settings allow, as they are found.

    The store of the lakes should ignore writes (`DryRunStore`): readers settle what they find, and a check must not.
    """
    await lakes.form.read()
    lake: Lake | None = None
    async for layout in list_layouts(lakes.store, settings):
        lake = lakes.fresh_lake(layout)
        async for found in verify_workspace(lake, on_progress=on_progress):
            yield found
    if lake:
        on_progress("locations", 0)
        for found in await verify_collection(lake, check_locations):
            yield found


async def verify_workspace(lake: Lake, *, on_progress: Progress = no_progress) -> AsyncIterator[Finding]:
    """The findings of one workspace."""
    joined = Joined()
    async for checked in check_objects(lake, on_progress=on_progress):
        for found in joined.add(checked):
            yield found
    async for found in settle_suspects(lake, joined.suspects):
        yield found
    async for found in settle_loose(lake, joined.chains.loose):
        yield found
    async for scope in list_scopes(lake):
        for found in await verify_index(lake, scope):
            yield found
    for check_all in COLLECTIONS:
        for found in await verify_collection(lake, check_all):
            yield found


async def check_objects(lake: Lake, *, on_progress: Progress) -> AsyncIterator[Sequence[Checked]]:
    """The findings and facts of every object, one object at a time."""
    for folder, check in FOLDERS.items():
        name, count = folder(lake.layout)[len(lake.layout.root) : -1], 0
        async for page in list_pages(lake.store, folder(lake.layout)):
            for some in await gather_in_batches(page, partial(check_listed, lake, check), at_once=CHECKS_AT_ONCE):
                yield some
            count += len(page)
            on_progress(name, count)


async def verify_index(lake: Lake, scope: Scope) -> Sequence[Finding]:
    async def look(listed: Listed | None = None) -> Sequence[Checked]:
        del listed  # It is listed in every look.
        return await check_index(lake, scope)

    return _findings(await look_again(lake, lake.layout.list_index(scope), look))


async def verify_collection(lake: Lake, check_all: CheckAll) -> Sequence[Finding]:
    async def look(listed: Listed | None = None) -> Sequence[Checked]:
        del listed
        return [found async for found in check_all(lake)]

    return _findings(
        await look_again(lake, LOCATION_CLAIMS if check_all is check_locations else lake.layout.root, look)
    )


def _findings(checked: Sequence[Checked]) -> Sequence[Finding]:
    return [one for one in checked if isinstance(one, Finding)]
