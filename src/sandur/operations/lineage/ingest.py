"""Store OpenLineage events. An event is acknowledged after its object was written, so none that was is lost.

A request that arrives alone is written at once. While others arrive, their events are gathered into one object.
"""

import asyncio
import contextlib
import hashlib
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.events import Source
from sandur.catalog.lineage.events import EVENT_BYTES_MAX, LineageRecord, check_event, record_id
from sandur.errors import BadRequest, Busy, SwapLost
from sandur.operations.access import authorize_metastore
from sandur.operations.audit.trail import date_of
from sandur.operations.counters import LINEAGE_EVENTS, Counters
from sandur.operations.lake import Lake
from sandur.splicing import NOT_JSON
from sandur.storage.contract import ABSENT

GATHER_SECONDS_MAX: Final = 0.1
QUIET_SECONDS: Final = 0.01
"""Gathering ends when no event has arrived for this time."""
GATHER_BYTES_MAX: Final = 1 << 20
WAITING_BYTES_MAX: Final = 32 << 20
"""Events of one worker and workspace that may wait to be written. More are refused."""
BATCH_BYTES_MAX: Final = 256 << 20
"""No batch is larger; a damaged one must not fill the memory of its reader."""
_IN_THREAD_BYTES: Final = 64 << 10
_GZIP: Final = 31
_COMPRESSION: Final = 1  # Higher levels cost more than they save.

_batch_decoder: Final = msgspec.json.Decoder(tuple[LineageRecord, ...])


class DamagedLineage(ValueError):
    """An object of the lineage log is not what was written there."""


class _Waiting(NamedTuple):
    records: Sequence[LineageRecord]
    size_bytes: int
    is_written: asyncio.Future[None]


class LineageLog:
    """The events of one workspace that this process is about to write."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def add(self, records: Sequence[LineageRecord]) -> None:
        """Return after the records were written. Raises Busy if too much is waiting, and what the store raises."""
        counters = self._lake.feature(Counters)
        size = sum(len(bytes(record.event)) for record in records)
        if self._bytes and self._bytes + size > WAITING_BYTES_MAX:
            counters.add(LINEAGE_EVENTS, "refused", times=len(records))
            raise Busy("Too many lineage events are waiting to be written; send them again")
        waiting = _Waiting(records, size, asyncio.get_running_loop().create_future())
        self._bytes += size
        self._waiting.append(waiting)
        self._arrived.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        await waiting.is_written
        counters.add(LINEAGE_EVENTS, "kept", times=len(records))

    async def _write_all(self) -> None:
        is_alone = True
        while self._waiting:
            if not is_alone:
                await self._gather()
            is_alone = False
            batch = self._next_batch()
            try:
                await write_batch(self._lake, [record for one in batch for record in one.records])
            except Exception as error:  # noqa: BLE001 - every request of the batch gets the error
                _settle(batch, error)
            else:
                _settle(batch, None)
            self._bytes -= sum(one.size_bytes for one in batch)

    async def _gather(self) -> None:
        """Wait while events arrive: until the batch is full or old enough, or nothing has arrived for a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS_MAX):
                while self._bytes < GATHER_BYTES_MAX:  # Nothing is being written now.
                    self._arrived.clear()
                    async with asyncio.timeout(QUIET_SECONDS):
                        await self._arrived.wait()

    def _next_batch(self) -> Sequence[_Waiting]:
        """The next requests of at most GATHER_BYTES_MAX, or one that is larger."""
        size = count = 0
        for one in self._waiting:
            if count and size + one.size_bytes > GATHER_BYTES_MAX:
                break
            size, count = size + one.size_bytes, count + 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch


def _settle(batch: Sequence[_Waiting], error: Exception | None) -> None:
    for one in batch:
        if one.is_written.done():
            continue  # Its client has gone.
        if error is None:
            one.is_written.set_result(None)
        else:
            one.is_written.set_exception(error)


async def ingest_lineage(lake: Lake, events: Sequence[bytes], *, source: Source, host: str) -> None:
    """Store OpenLineage events of a caller that may write lineage; an event that is already stored stays as it is.

    Raises BadRequest, and stores nothing, if one of them is not a RunEvent, a JobEvent or a DatasetEvent. `host` is the
    address under which the client knows this server.
    """
    await authorize_metastore(lake)
    for number, event in enumerate(events):
        try:
            check_event(event)
        except BadRequest as error:
            raise error if len(events) == 1 else BadRequest(f"Event {number}: {error}") from None
    now_ms = lake.clock.now_ms()
    records = [
        LineageRecord(
            id=record_id(source.principal_id, event),
            received_ms=now_ms,
            principal=source.principal,
            principal_id=source.principal_id,
            host=host,
            is_trusted=source.kind == "pipeline" or lake.access is None,
            event=msgspec.Raw(event),
        )
        for event in events
    ]
    await lake.feature(LineageLog).add(records)


async def write_batch(lake: Lake, records: Sequence[LineageRecord]) -> None:
    """Write records as one object, named after their ids: the same events are never stored twice in a day."""
    if not records:
        return
    once = {record.id: record for record in records}
    name = hashlib.sha256("".join(sorted(once)).encode()).hexdigest()
    size = sum(len(bytes(record.event)) for record in once.values())
    encode = asyncio.to_thread(encode_batch, list(once.values())) if size > _IN_THREAD_BYTES else None
    data = await encode if encode else encode_batch(list(once.values()))
    key = lake.layout.lineage(date_of(lake.clock.now_ms()), name)
    with contextlib.suppress(SwapLost):  # These events are stored, or an earlier try was applied after all.
        await lake.store.put(key, data, expected=ABSENT)


def encode_batch(records: Sequence[LineageRecord]) -> bytes:
    compressor = zlib.compressobj(_COMPRESSION, wbits=_GZIP)
    return compressor.compress(msgspec.json.encode(records)) + compressor.flush()


def decode_batch(data: bytes) -> Sequence[LineageRecord]:
    """The records of an object. Raises DamagedLineage if it cannot be decoded, or is larger than any batch."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(data, BATCH_BYTES_MAX)
        if not unpacker.eof:
            raise DamagedLineage("it is cut off, or larger than any batch")
        return _batch_decoder.decode(text)
    except (zlib.error, *NOT_JSON) as error:
        raise DamagedLineage(str(error)) from error


def inflated(body: bytes) -> bytes | None:
    """A gzip body; None if it becomes larger than EVENT_BYTES_MAX. Raises BadRequest if it is not gzip."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(body, EVENT_BYTES_MAX + 1)
    except zlib.error as error:
        raise BadRequest(f"Invalid body: it is not gzip, as its Content-Encoding says: {error}") from None
    if len(data) > EVENT_BYTES_MAX:
        return None
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequest("Invalid body: it is cut off, or more than one gzip member")
    return data
