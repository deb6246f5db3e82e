"""Background tasks: bounded in number, without deadlocks."""

import asyncio

from sandur.errors import Busy, SandurError
from sandur.operations.lake import AT_ONCE_MAX, Background


async def test_a_task_that_holds_a_lock_can_start_another_task_without_a_deadlock() -> None:
    background = Background()
    lock = asyncio.Lock()
    done: list[str] = []

    async def small() -> None:
        done.append("small")

    async def large() -> None:
        async with lock:
            await asyncio.sleep(0)
            await asyncio.gather(background.run("small", small()))
            done.append("large")

    for _ in range(AT_ONCE_MAX):
        await background.run("large", large())
    await asyncio.wait_for(background.drain(), timeout=30)

    assert (done.count("small"), done.count("large")) == (AT_ONCE_MAX, AT_ONCE_MAX)


async def test_a_new_task_waits_while_the_maximum_is_running() -> None:
    background = Background()
    gate = asyncio.Event()
    for _ in range(AT_ONCE_MAX):
        await background.run("held", gate.wait())

    one_more = asyncio.create_task(background.run("one more", asyncio.sleep(0)))
    await asyncio.sleep(0.01)
    waited = not one_more.done()
    gate.set()
    await one_more
    await background.drain()

    assert waited


async def test_a_failed_task_is_reported_once() -> None:
    failures: list[tuple[str, SandurError]] = []
    background = Background(lambda what, error: failures.append((what, error)))

    async def fails() -> None:
        raise Busy("too much")

    await background.run("a task", fails())
    await background.drain()

    assert [(what, str(error)) for what, error in failures] == [("a task", "too much")]


async def test_drain_cancels_tasks_that_exceed_its_time_limit() -> None:
    background = Background()
    await background.run("for ever", asyncio.Event().wait())

    await asyncio.wait_for(background.drain(within_seconds=0.01), timeout=30)
    await asyncio.wait_for(background.drain(), timeout=30)
