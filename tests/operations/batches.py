"""Commits that are sent together, so that one server makes them by one swap."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Pointer
from sandur.operations.commit_queues import CommitQueues
from sandur.operations.lake import Lake
from sandur.operations.receipts import receipt_key, tried_of
from tests.operations.requests import load

_YIELDS_MAX = 10_000


async def warm(lake: Lake, identifier: Identifier) -> None:
    """Let the server see the table: a batch is drafted on what a server remembers."""
    await load(lake, identifier)
    await lake.background.drain()


async def together(
    lake: Lake, identifier: Identifier, calls: Sequence[Coroutine[Any, Any, object]]
) -> list[object | BaseException]:
    """What each call returns or raises. All of them wait in the queue of the table before the first one begins."""
    return list(await asyncio.gather(*await queued(lake, identifier, calls), return_exceptions=True))


async def queued(
    lake: Lake, identifier: Identifier, calls: Sequence[Coroutine[Any, Any, object]]
) -> Sequence["asyncio.Task[object]"]:
    """The calls as tasks: all of them wait in the queue of the table, and the first one is about to begin."""
    async with lake.feature(CommitQueues).turn(identifier) as queue:
        tasks = [asyncio.create_task(call) for call in calls]
        for _ in range(_YIELDS_MAX):
            if len(queue.waiting) == len(tasks):
                break
            await asyncio.sleep(0)
        assert len(queue.waiting) == len(tasks)
    return tasks


async def pointer_of(lake: Lake, uuid: str) -> Pointer:
    found = await lake.pointer(uuid).read()
    assert found is not None
    return found.value


async def remove_receipts(lake: Lake, pointer: Pointer) -> None:
    """Leave the receipts as after a crash right after the swap of a batch: none of its members has one."""
    for head in (*pointer.passed, *([pointer.head] if pointer.head else [])):
        key = receipt_key(lake.layout, tried_of(head))
        if found := await lake.store.head(key):
            await lake.store.delete(key, expected=found.version)
