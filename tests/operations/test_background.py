"""Work behind the answers: bounded, and never in its own way."""

import asyncio

from sandur.operations.background import AT_ONCE_MAX, Background


async def test_with_too_much_under_way_the_next_waits() -> None:
    background, is_free = Background(), asyncio.Event()
    for _ in range(AT_ONCE_MAX):
        await background.run("wait", is_free.wait())

    one_more = asyncio.create_task(background.run("one more", is_free.wait()))
    await asyncio.sleep(0.01)

    assert not one_more.done()
    is_free.set()
    await asyncio.wait_for(one_more, 1)
    await background.drain()


async def test_work_that_the_rest_waits_for_can_begin_other_work() -> None:
    """As an index that is split while creates queue up for it: what the split leaves is taken away behind it."""
    background, lock, done = Background(), asyncio.Lock(), []

    async def finish(number: int) -> None:
        async with lock:
            # In a task of its own, as calls of one round are.
            await asyncio.create_task(background.run("behind it", asyncio.sleep(0)))
        done.append(number)

    for number in range(AT_ONCE_MAX):
        await background.run("finish", finish(number))
    await asyncio.wait_for(background.drain(), 10)

    assert len(done) == AT_ONCE_MAX
