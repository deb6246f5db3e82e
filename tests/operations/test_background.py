"""Background tasks: bounded in number, without deadlocks."""

import asyncio

import pytest

from sandur.errors import Busy
from sandur.operations.background import AT_ONCE_MAX, Background
from sandur.operations.incidents import LOGGED, LoggedIncidents, reason_of
from sandur.storage.cell import gather_all


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


class Recorded(LoggedIncidents):
    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []

    def work_failed(self, work: str, error: Exception) -> None:
        self.failures.append((work, reason_of(error)))


async def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [Busy("too much"), RuntimeError("a mistake")])
async def test_a_failed_task_is_reported_once(error: Exception) -> None:
    recorded = Recorded()
    background = Background(recorded)

    await background.run("a task", fail(error))
    await background.drain()

    assert recorded.failures == [("a task", f"{type(error).__name__}: {error}")]


async def test_a_report_names_every_part_that_failed() -> None:
    recorded = Recorded()
    background = Background(recorded)

    await background.run("a task", gather_all([fail(Busy("the receipt")), fail(KeyError("the claim"))]))
    await background.drain()

    assert recorded.failures == [("a task", "Busy: the receipt; beside it: KeyError: 'the claim'")]


def test_without_a_server_a_failure_is_a_line_and_a_mistake_has_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    LOGGED.work_failed("a task", Busy("too much"))
    LOGGED.work_failed("a task", KeyError("a mistake"))
    LOGGED.object_damaged("a/key", "is not a Pointer")

    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("WARNING", "a task failed: Busy: too much"),
        ("ERROR", "a task failed: KeyError: 'a mistake'"),
        ("WARNING", "object a/key is damaged: is not a Pointer"),
    ]
    assert [line.exc_info is not None for line in caplog.records] == [False, True, False]


async def test_drain_cancels_tasks_that_exceed_its_time_limit() -> None:
    background = Background()
    await background.run("for ever", asyncio.Event().wait())

    await asyncio.wait_for(background.drain(within_seconds=0.01), timeout=30)
    await asyncio.wait_for(background.drain(), timeout=30)
