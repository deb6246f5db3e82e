"""Work behind the answers: bounded, and never in its own way."""

import asyncio

from sandur.errors import Busy, SandurError
from sandur.operations.lake import AT_ONCE_MAX, Background


async def test_work_that_holds_what_the_rest_waits_for_may_begin_more_work() -> None:
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


async def test_an_answer_waits_when_too_much_is_under_way() -> None:
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


async def test_what_fails_is_told_and_does_not_come_back() -> None:
    failures: list[tuple[str, SandurError]] = []
    background = Background(lambda what, error: failures.append((what, error)))

    async def fails() -> None:
        raise Busy("too much")

    await background.run("a task", fails())
    await background.drain()

    assert [(what, str(error)) for what, error in failures] == [("a task", "too much")]


async def test_what_never_ends_is_given_up_when_the_time_is_over() -> None:
    background = Background()
    await background.run("for ever", asyncio.Event().wait())

    await asyncio.wait_for(background.drain(within_seconds=0.01), timeout=30)
    await asyncio.wait_for(background.drain(), timeout=30)
