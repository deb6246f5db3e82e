"""Marks of operations that died between a name and its index (I1): the index is put right, then the mark goes."""

import contextlib
from typing import Final

import msgspec

from sandur.catalog.index import Mark
from sandur.operations import indexing
from sandur.operations.janitors.sweeping import Janitor, Outcome, is_older
from sandur.operations.lake import Lake
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout

OVERDUE_MS: Final = 60_000
"""An operation that runs takes its mark away much sooner."""

ABANDONED_MS: Final = 3_600_000
"""A mark is kept so long, for its operation may still be about to change the name."""


async def visit(lake: Lake, listed: Listed) -> Outcome:
    found = await lake.store.get(listed.key)
    if found is None:
        return "changed"
    with contextlib.suppress(msgspec.DecodeError):  # One that says nothing can only be taken away.
        await indexing.put_right(lake, msgspec.json.decode(found.data, type=Mark).place)
    if not is_older(lake, listed, ABANDONED_MS):
        return "settled"
    await lake.store.delete(listed.key, expected=found.version)
    return "removed"


MARKS = Janitor("marks", Layout.marks_folder, lambda _: OVERDUE_MS, visit)
