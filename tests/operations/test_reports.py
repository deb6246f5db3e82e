"""Reports of engines: they are optional, so nothing waits long for them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from sandur.errors import Unavailable
from sandur.operations.tables.reports import report_metrics
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.lakes import make_lake, put_name
from tests.operations.requests import identifier_of, request

T = TypeVar("T")


class SilentStore(WrappingStore):
    """Never answers while `is_silent`."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.is_silent = False

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        del call
        if self.is_silent:
            await asyncio.Event().wait()
        return await perform()


async def test_a_report_is_dropped_when_the_store_does_not_answer_in_time() -> None:
    store = SilentStore()
    lake = make_lake(store)
    await put_name(lake, identifier_of("t"))
    store.is_silent = True

    with pytest.raises(Unavailable, match=r"metrics report of .*t: dropped, because the store did not answer within"):
        await report_metrics(
            lake, identifier_of("t"), b'{"report-type": "scan-report"}', request("r"), within_seconds=0.01
        )
