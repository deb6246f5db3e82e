"""Listing anew what commits changed of a table (I1–I3): commits that follow each other closely share a mark.

A commit that changes what lists show calls `begin` before its swap and `end` after it. The first of them writes the
mark; the others find it written and only join. The index is put right a moment later, once for all of them, so that a
table which is changed a hundred times in a second is listed anew once. Who never says how it ended, because it does not
know, leaves the mark to the janitor.
"""

import asyncio
from typing import Final

from sandur.catalog.identifiers import Identifier
from sandur.catalog.index import Place, place_of
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations import indexing
from sandur.operations.lake import Lake

PAUSE_SECONDS: Final = 1.0
"""The pauses of all tables end at the same moments, so that one swap of the index serves all of a namespace."""

LATE_SECONDS: Final = 5.0
"""How long after the pause a user may say how it ended; then the mark is left to the janitor."""


def changes_list(before: TableMetadata | ViewMetadata, after: TableMetadata | ViewMetadata) -> bool:
    """Whether an entry made of `after` would differ from one made of `before`, but for the time of the change."""
    if isinstance(before, TableMetadata) and isinstance(after, TableMetadata):
        return _shown(before) != _shown(after)
    return True


def _shown(metadata: TableMetadata) -> tuple[object, ...]:
    return (metadata.current_schema_id, metadata.default_spec_id, metadata.location, metadata.properties)


class Relisting:
    """A mark that several commits share, from the first of them until the index is right."""

    def __init__(self, place: Place, mark: str) -> None:
        self.place = place
        self.mark = mark
        self.users = 1
        self.is_marked = asyncio.Event()
        self.is_unused = asyncio.Event()

    def end(self) -> None:
        """A commit that shares the mark has ended, one way or the other."""
        self.users -= 1
        if not self.users:
            self.is_unused.set()


async def begin(lake: Lake, identifier: Identifier) -> Relisting:
    """I1: when this returns the mark is there, and stays until this user has ended too.

    The index is put right behind the answers, whatever becomes of the users: nobody joins a mark that is old.
    """
    place, shared = place_of(identifier), lake.index_memory.relistings
    while joined := shared.get(place):
        await joined.is_marked.wait()
        if shared.get(place) is joined:
            joined.users += 1
            return joined
    relisting = shared[place] = Relisting(place, lake.clock.new_id())
    try:
        await indexing.mark_place(lake, place, relisting.mark)
    except BaseException:
        del shared[place]  # Whoever waits for this mark writes another.
        raise
    finally:
        relisting.is_marked.set()
    await lake.background.run("index a change", _put_right(lake, relisting))
    return relisting


async def _put_right(lake: Lake, relisting: Relisting) -> None:
    now = asyncio.get_running_loop().time()
    await lake.background.pause(PAUSE_SECONDS - now % PAUSE_SECONDS, asyncio.Event())
    # From here on a commit writes a mark of its own: this one goes when those who share it have ended.
    del lake.index_memory.relistings[relisting.place]
    if relisting.users:
        relisting.is_unused.clear()
        await lake.background.pause(LATE_SECONDS, relisting.is_unused)
    if not relisting.users:
        await indexing.finish_place(lake, relisting.place, relisting.mark)
