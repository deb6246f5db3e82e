"""A driver process that kills itself, or its worker, at a step of its job, like `kill -9`."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandur.clock import SystemClock
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import JobContext
from sandur.pipeline.jobs import JOBS
from sandur.pipeline.runs import create_session
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.pipeline.conftest import OPTIONS

T = TypeVar("T")

KILLED_AT = "KILLED_AT"


class KillingStore(WrappingStore):
    """Kills its process before or after the first write to a key with the text."""

    def __init__(self, inner: ObjectStore, step: str, *, after: bool) -> None:
        super().__init__(inner)
        self._step = step
        self._after = after

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if not call.is_write or self._step not in call.key:
            return await perform()
        if self._after:
            await perform()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it lives")


def main() -> None:
    folder, job, who, when, step = sys.argv[1:]
    settings = Settings(store=folder, fsync="never")
    store: ObjectStore = connect(settings, SystemClock())
    options = dict(OPTIONS)
    if who == "driver":
        store = KillingStore(store, step, after=when == "after")
    else:
        os.environ[KILLED_AT] = f"{when} {step}"  # Workers inherit it.
        options["spark.python.daemon.module"] = "tests.pipeline.killing_workers"
    spark = create_session("local[2]", name="killed", options=options)
    with JobContext(spark=spark, blocking=BlockingLake(settings, store=store), run_id="killed") as context:
        JOBS[job].run(context)


if __name__ == "__main__":
    main()
