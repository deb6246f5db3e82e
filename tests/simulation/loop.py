"""An event loop with virtual time: nothing really waits, and a seed decides which process runs next.

A simulated process is a context with a name. Within a process callbacks run in the order in which they were scheduled,
as asyncio promises; between processes any order is possible, and the seed chooses one.
"""

import asyncio
import contextvars
import heapq
import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

WORLD: Final = "world"
PROCESS: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("process", default=WORLD)
_PRUNE_AT: Final = 64


def context_of(process: str) -> contextvars.Context:
    """A context whose tasks and callbacks belong to that process."""
    context = contextvars.Context()
    context.run(PROCESS.set, process)
    return context


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one callback at a time. When nothing can run, the time jumps to the next timer."""

    # What asyncio.BaseEventLoop has and does not declare.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(f"{seed} loop")
        self._now = 0.0
        self._queues: dict[str, deque[asyncio.Handle]] = {}
        self._tasks: dict[str, dict[asyncio.Task[Any], None]] = {}
        self.steps = 0
        self.unexpected: list[dict[str, Any]] = []
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]  # the protocol has more general types
        self.set_exception_handler(lambda _loop, what: self.unexpected.append(what))

    def time(self) -> float:
        return self._now

    def start(self, process: contextvars.Context, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task of a process, which every task that it starts belongs to as well."""
        return self.create_task(work, context=process.copy())

    def kill(self, process: str) -> None:
        """Cancel every task of a process, in the order in which they began."""
        for task in tuple(self._tasks.pop(process, ())):
            task.cancel()

    def run_in_executor(self, _executor: object, _work: Callable[..., object], *_arguments: object) -> Any:
        raise AssertionError("a thread would make the run unrepeatable")

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        context = options.get("context") or contextvars.copy_context()
        tasks = self._tasks.setdefault(context.get(PROCESS, WORLD), {})
        if len(tasks) > _PRUNE_AT and len(tasks) % _PRUNE_AT == 0:
            for done in [one for one in tasks if one.done()]:
                del tasks[done]
        tasks[task] = None
        return task

    def _run_once(self) -> None:
        """Run one callback. BaseEventLoop calls this until it is stopped."""
        self._sort_ready()
        if not self._queues:
            self._advance()
            self._sort_ready()
        names = list(self._queues)
        if not names:
            if self._stopping:
                return
            raise AssertionError("nothing is left to run: every task waits for another")
        name = names[int(self._chance.random() * len(names))]
        queue = self._queues[name]
        handle = queue.popleft()
        if not queue:
            del self._queues[name]
        self.steps += 1
        if not handle._cancelled:
            handle._run()

    def _sort_ready(self) -> None:
        while self._ready:
            self._enqueue(self._ready.popleft())

    def _enqueue(self, handle: asyncio.Handle) -> None:
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]  # asyncio does not declare it
        self._queues.setdefault(context.get(PROCESS, WORLD), deque()).append(handle)

    def _advance(self) -> None:
        """Go to the time of the next timer."""
        timers = self._scheduled
        while timers and (timers[0]._cancelled or timers[0].when() <= self._now):
            self._fire(heapq.heappop(timers))
        if not self._queues and timers:
            self._now = timers[0].when()
            self._advance()

    def _fire(self, timer: asyncio.TimerHandle) -> None:
        timer._scheduled = False  # type: ignore[attr-defined]  # asyncio does not declare it
        if not timer._cancelled:
            self._enqueue(timer)

    def _process_events(self, _events: object) -> None:
        """Called by BaseEventLoop for events of a selector, which this loop does not have."""

    def _write_to_self(self) -> None:
        """Called to wake the loop from another thread; there is none."""
