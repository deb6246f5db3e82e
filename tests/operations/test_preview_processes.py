"""The processes of previews: a spare one waits for the next request, and a limit kills one for good."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandur.clock import SystemClock
from sandur.errors import BadRequest, Unavailable, Unsupported
from sandur.operations.counters import PREVIEWS, Counters
from sandur.operations.lake import Lake
from sandur.operations.preview.rows import Readers, preview_rows, query_rows
from sandur.storage.local import LocalStore
from tests.operations.lakes import make_lake
from tests.operations.requests import create, identifier_of, set_up_catalog

T = identifier_of("t")
ENDLESS = "select count(*) from range(10000000000) a, range(10000000000) b where a.range + b.range = 7"
GREEDY = "select list(repeat('x', 1000000) || range) from range(100000)"


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    lake = make_lake(LocalStore(tmp_path, fsync="never"), SystemClock(), own=tmp_path.as_uri(), preview="sql")
    await set_up_catalog(lake)
    await create(lake, "t")
    yield lake
    await lake.close()


async def _spare(readers: Readers) -> int:
    """The process that waits for a request."""
    await readers.has_spare.wait()
    assert readers._spare
    return readers._spare.pid


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_request_is_served_by_the_spare_process_which_serves_no_other(lake: Lake) -> None:
    readers = lake.feature(Readers)
    await preview_rows(lake, T)
    first = await _spare(readers)
    await preview_rows(lake, T)
    second = await _spare(readers)

    assert first != second
    assert not _exists(first)

    await lake.close()
    assert not _exists(second)


async def test_a_spare_process_that_was_killed_is_replaced(lake: Lake) -> None:
    readers = lake.feature(Readers)
    await preview_rows(lake, T)
    await _spare(readers)
    spare = readers._spare
    assert spare
    spare.kill()
    await spare.wait()

    assert (await preview_rows(lake, T)).rows == ()


@pytest.mark.parametrize(
    ("sql", "seconds", "counted"),
    [(ENDLESS, "PT1S", {"killed"}), (GREEDY, "PT1M", {"failed", "killed"})],
    ids=["time", "memory"],
)
async def test_a_query_beyond_its_limits_is_ended_and_its_process_is_gone(
    lake: Lake, sql: str, seconds: str, counted: set[str]
) -> None:
    limited = make_lake(lake.store, lake.clock, own=lake.locations.own, preview="sql", preview_timeout=seconds)
    taken: list[int] = []

    class Watched(Readers):
        async def take(self, seconds_max: int) -> asyncio.subprocess.Process:
            process = await super().take(seconds_max)
            taken.append(process.pid)
            return process

    limited._features[Readers] = Watched(limited)
    with pytest.raises(Unavailable, match="the query"):
        await query_rows(limited, [T], sql)
    await limited.close()

    assert not _exists(taken[0])
    (count,) = [one for one in limited.feature(Counters) if one.name == PREVIEWS]
    assert (count.value in counted, count.times) == (True, 1)  # The kernel may end it before DuckDB says so.


async def test_previews_are_counted_by_how_they_ended(lake: Lake) -> None:
    await preview_rows(lake, T)
    with pytest.raises(BadRequest):
        await query_rows(lake, [T], "select no_such_column from t")

    counted = {one.value: one.times for one in lake.feature(Counters) if one.name == PREVIEWS}

    assert counted == {"ok": 1, "refused": 1}


async def test_a_table_in_another_cloud_says_what_to_do(lake: Lake) -> None:
    from sandur.operations.preview.rows import _secrets, _Source  # noqa: PLC0415 - private

    source = _Source(T, "iceberg", "gs://bucket/t/metadata/v1.json", ("gs://bucket/t",))
    with pytest.raises(Unsupported, match="folders and on S3, and this one is at gs://"):
        await _secrets(lake, [source])
