"""The audit trail of one process: records wait in memory and are written in batches, one object each.

No request waits for the trail. Memory is bounded: without room for a new record, one of a lower priority gives way.
Every lost record is counted, and the next batch of the workspace says how many are missing.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from typing import Final

from sandur.catalog.audit import (
    LEVELS,
    PRIORITIES,
    PRIORITY_COUNT,
    AuditedChange,
    AuditKind,
    AuditRecord,
    LineEncoder,
    UnbuiltRead,
    WaitingRecord,
    weight_of,
)
from sandur.clock import Clock
from sandur.errors import SandurError, SwapLost
from sandur.operations.counters import AUDIT_LOST, AUDIT_WRITES, AUDIT_WRITTEN, Counters
from sandur.operations.incidents import LOGGED, Incidents
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout

FLUSH_SECONDS: Final = 1.0
FLUSH_SECONDS_MAX: Final = 30.0
"""The wait between two tries while the store does not answer doubles up to this."""
BATCH_RECORDS_MAX: Final = 2_000
BATCH_SPAN_MS: Final = 60_000
"""A batch holds the records of at most this time, also while it cannot be written; searches rely on it."""
WORKSPACE_RECORDS_MAX: Final = 10_000
PROCESS_RECORDS_MAX: Final = 50_000
UNAUTHENTICATED_PER_SECOND_MAX: Final = 20
READS_AT_ONCE: Final = 250
"""As many reads may wait beyond the bounds."""
CLOSE_SECONDS_MAX: Final = 10.0
_WORKSPACES_AT_ONCE: Final = 16
_RECORDS_AT_ONCE: Final = 100
"""Other requests run after as many records have been encoded."""
_GZIP: Final = 31
_LAYOUTS_MAX: Final = 1_024
_COMPRESSION: Final = 1  # At most a sixth of the bytes, for 2 µs per record; higher levels cost more than they save.

_FIRST_DAY: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_MS: Final = 253_402_300_799_999

OnLoss = Callable[[Layout, Mapping[str, int], str], None]
"""Receives the number of lost records by kind, and the reason; at most once per workspace and write."""


class Batch:
    """Records that become one object. `id` is made when the first record arrives, so names sort by time."""

    def __init__(self, batch_id: str, began_ms: int) -> None:
        self.id = batch_id
        self.began_ms = began_ms
        self.weight = 0
        self._by_priority: tuple[list[WaitingRecord], ...] = tuple([] for _ in range(PRIORITY_COUNT))

    def add(self, records: Sequence[WaitingRecord], priority: int, weight: int) -> None:
        self.weight += weight
        self._by_priority[priority].extend(records)

    def pop(self, priority: int) -> WaitingRecord | None:
        """Remove a record of that priority; None if no such record waits."""
        records = self._by_priority[priority]
        if not records:
            return None
        record = records.pop()
        self.weight -= weight_of(record)
        return record

    def records(self) -> Sequence[WaitingRecord]:
        every = [record for records in self._by_priority for record in records]
        return sorted(every, key=lambda record: record.time_ms)


class _Waiting:
    """What waits to be written for one workspace: full batches, then the open one."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.full: deque[Batch] = deque()
        self.open: Batch | None = None
        self.weight = 0
        self.lost: Counter[str] = Counter()
        self.unreported: Counter[str] = Counter()

    def batches(self) -> Sequence[Batch]:
        return [*self.full, *([self.open] if self.open else [])]

    def close_batch(self) -> None:
        if self.open:
            self.full.append(self.open)
            self.open = None


class AuditTrail:
    """The trail of one process. `add` never waits; a task writes what was added, about once per second."""

    def __init__(
        self, settings: Settings, clock: Clock, store: ObjectStore, on_loss: OnLoss, incidents: Incidents = LOGGED
    ) -> None:
        level = settings.audit
        if level == "auto":
            level = "off" if settings.authentication == "off" else "all"
        self._lowest_priority = LEVELS[level]
        self.is_on = self._lowest_priority < PRIORITY_COUNT
        self.has_reads = self._lowest_priority == 0
        self.sampled = settings.audit_reads_sampled
        self.counters = Counters()
        self._clock = clock
        self._store = store
        self._on_loss = on_loss
        self._incidents = incidents
        self._waiting: dict[Layout, _Waiting] = {}
        self._reads: list[UnbuiltRead] = []
        self._weight = 0
        self._second = 0
        self._unauthenticated = 0
        self._is_full = asyncio.Event()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def wants(self, layout: Layout, kind: AuditKind, now_ms: int) -> bool:
        """Whether a record of that kind is kept: by the settings, reads by chance, bad tokens by rate."""
        if PRIORITIES[kind] < self._lowest_priority:
            return False
        if kind == "read":
            return self.sampled >= 1.0 or self._clock.chance() < self.sampled
        if kind == "unauthenticated":
            second = now_ms // 1_000
            if second != self._second:
                self._second, self._unauthenticated = second, 0
            self._unauthenticated += 1
            if self._unauthenticated > UNAUTHENTICATED_PER_SECOND_MAX:
                self._lose(self._waiting_of(layout), kind)
                return False
        return True

    def add(self, layout: Layout, record: WaitingRecord) -> None:
        """Keep a record until it is written; it is lost if there is no room and no record that matters less."""
        waiting, priority = self._waiting_of(layout), PRIORITIES[record.kind]
        is_full = waiting.weight >= WORKSPACE_RECORDS_MAX or self._weight >= PROCESS_RECORDS_MAX
        if is_full and not self._make_room(waiting, priority):
            self._lose(waiting, record.kind)
            return
        if self._append(waiting, record, priority).weight >= BATCH_RECORDS_MAX:
            waiting.close_batch()
            self._is_full.set()

    def add_read(self, read: UnbuiltRead) -> None:
        """Keep an allowed read as `wants` and `add` do, together with others: one by one costs four times as much."""
        reads = self._reads
        reads.append(read)
        count = len(reads)
        if count == 1:
            self._start()
        elif count >= READS_AT_ONCE:
            self._add_reads()

    def _add_reads(self) -> None:
        reads, self._reads = self._reads, []
        by_workspace: dict[tuple[str, str], list[UnbuiltRead]] = {}
        for read in reads:
            by_workspace.setdefault((read.tenant, read.workspace), []).append(read)
        for (tenant, workspace), added in by_workspace.items():
            layout = layout_of_workspace(tenant, workspace)
            if self.sampled < 1 or not self._add_together(layout, added):
                for read in added:
                    if self.wants(layout, read.kind, read.time_ms):
                        self.add(layout, read)

    def _add_together(self, layout: Layout, reads: Sequence[UnbuiltRead]) -> bool:
        """Keep reads in the open batch; False if they do not fit into it, or into the buffer."""
        waiting, count = self._waiting_of(layout), len(reads)
        batch = waiting.open
        if batch is None or batch.weight + count >= BATCH_RECORDS_MAX:
            return False
        if waiting.weight + count > WORKSPACE_RECORDS_MAX or self._weight + count > PROCESS_RECORDS_MAX:
            return False
        batch.add(reads, PRIORITIES["read"], count)
        waiting.weight += count
        self._weight += count
        return True

    async def flush(self) -> bool:
        """Write everything that waits; False if something could not be written and waits on."""
        self._add_reads()
        async with self._writing:
            done = await gather_in_batches(list(self._waiting.values()), self._write, at_once=_WORKSPACES_AT_ONCE)
        for waiting in tuple(self._waiting.values()):
            if not waiting.weight and not waiting.lost:
                del self._waiting[waiting.layout]
        return all(done)

    async def close(self) -> None:
        """Write everything that waits, within a few seconds; what is left after that is lost."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                while (self._waiting or self._reads) and await self.flush():
                    pass
        for waiting in self._waiting.values():
            for record in (record for batch in waiting.batches() for record in batch.records()):
                self._lose(waiting, record.kind)
            self._report_loss(waiting, "the server stopped before the records could be written")

    def _waiting_of(self, layout: Layout) -> _Waiting:
        waiting = self._waiting.get(layout)
        if waiting is None:
            waiting = self._waiting[layout] = _Waiting(layout)
        self._start()
        return waiting

    def _start(self) -> None:
        """Start the task that writes, unless it runs."""
        if self._task is None or self._task.done():
            # A context of its own: its store calls belong to no request.
            self._task = asyncio.create_task(self._write_until_empty(), name="audit", context=Context())
            self._task.add_done_callback(self._ended)

    def _append(self, waiting: _Waiting, record: WaitingRecord, priority: int) -> Batch:
        """Add the record to the open batch, which is returned."""
        batch, weight = waiting.open, weight_of(record)
        if batch is None:
            batch = waiting.open = Batch(self._clock.new_id(), record.time_ms)
        batch.add((record,), priority, weight)
        waiting.weight += weight
        self._weight += weight
        return batch

    def _make_room(self, waiting: _Waiting, priority: int) -> bool:
        """Give up a waiting record of a lower priority, the lowest first; False if no such record waits."""
        if waiting.weight < WORKSPACE_RECORDS_MAX:
            waiting = max(self._waiting.values(), key=lambda one: one.weight)
        for lower in range(priority):
            for batch in reversed(waiting.batches()):
                if record := batch.pop(lower):
                    waiting.weight -= weight_of(record)
                    self._weight -= weight_of(record)
                    self._lose(waiting, record.kind)
                    return True
        return False

    def _lose(self, waiting: _Waiting, kind: str) -> None:
        self.counters.add(AUDIT_LOST, kind)
        waiting.lost[kind] += 1
        waiting.unreported[kind] += 1

    def _report_loss(self, waiting: _Waiting, reason: str) -> None:
        if waiting.unreported:
            self._on_loss(waiting.layout, waiting.unreported, reason)
            waiting.unreported = Counter()

    async def _write_until_empty(self) -> None:
        pause_seconds, is_done = FLUSH_SECONDS, True
        while self._waiting or self._reads:
            # A full batch is written at once, but not while the store fails.
            awake = self._is_full if is_done else asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await awake.wait()
            self._is_full.clear()
            is_done = await self.flush()
            pause_seconds = FLUSH_SECONDS if is_done else min(2 * pause_seconds, FLUSH_SECONDS_MAX)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Report a mistake in the program. The next record starts another task."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._incidents.work_failed("write the audit trail", error)

    async def _write(self, waiting: _Waiting) -> bool:
        """Write the batches of one workspace, oldest first; False if the store fails."""
        self._add_loss(waiting)
        is_old = waiting.open and self._clock.now_ms() - waiting.open.began_ms >= BATCH_SPAN_MS
        if is_old or not waiting.full:
            waiting.close_batch()  # What is added from now on belongs to the next batch.
        reason = "the buffer was full, or too many requests had no valid token"
        try:
            for batch in tuple(waiting.full):
                await self._write_batch(waiting, batch)
        except SandurError as error:
            self.counters.add(AUDIT_WRITES, "failed")
            self._incidents.work_failed("write the audit trail", error)
            reason = f"the buffer was full while the store failed: {error}"
            return False
        finally:
            self._report_loss(waiting, reason)
        return True

    async def _write_batch(self, waiting: _Waiting, batch: Batch) -> None:
        records = batch.records()
        parts: list[bytes] = []
        # In the event loop: in a thread, the records would move from one processor's cache to another's.
        for part in _encoded(batch.id, records):
            parts.append(part)
            await asyncio.sleep(0)
        data = b"".join(parts)
        if records:
            key = waiting.layout.audit(date_of(batch.began_ms), batch.id)
            # Lost: an earlier try under this unique name was applied after all.
            with contextlib.suppress(SwapLost):
                await self._store.put(key, data, expected=ABSENT)
        self.counters.add(AUDIT_WRITES, "done")
        for kind, times in Counter(record.kind for record in records).items():
            self.counters.add(AUDIT_WRITTEN, kind, times=times)
        waiting.full.popleft()
        waiting.weight -= batch.weight
        self._weight -= batch.weight

    def _add_loss(self, waiting: _Waiting) -> None:
        """Add a record that says how many records are missing since the last one that said it."""
        if not waiting.lost:
            return
        lost, waiting.lost = dict(waiting.lost), Counter()
        record = AuditRecord(
            time_ms=self._clock.now_ms(),
            kind="loss",
            tenant=waiting.layout.tenant,
            workspace=waiting.layout.workspace,
            operation="auditLoss",
            decision="none",
            status=0,
            outcome="failed",
            lost=lost,
        )
        self._append(waiting, record, PRIORITIES[record.kind])


async def record_own_change(lake: Lake, operation: str, user: str, changes: Sequence[AuditedChange]) -> None:
    """Write a record of a change that an operator, `user`, made on the store itself, without a server.

    The change is in force whatever happens here, so a store that fails now does not fail the command.
    """
    now_ms, layout = lake.clock.now_ms(), lake.layout
    record = AuditRecord(
        time_ms=now_ms,
        kind="security",
        operation=operation,
        decision="none",
        status=0,
        outcome="done",
        tenant=layout.tenant,
        workspace=layout.workspace,
        principal=user,
        protocol="store",
        changes=tuple(changes),
    )
    if lake.settings.audit != "off":
        batch_id = lake.clock.new_id()
        try:
            data = encode_batch(batch_id, [record])
            await lake.store.put(layout.audit(date_of(now_ms), batch_id), data, expected=ABSENT)
        except SandurError as error:
            lake.incidents.work_failed("write an audit record", error)


def encode_batch(batch_id: str, records: Sequence[WaitingRecord]) -> bytes:
    """The object of a batch: one line of JSON per record."""
    return b"".join(_encoded(batch_id, records))


def _encoded(batch_id: str, records: Sequence[WaitingRecord]) -> Iterator[bytes]:
    """The object of a batch in parts, each of which takes a fraction of a millisecond."""
    compressor, encoder = zlib.compressobj(_COMPRESSION, wbits=_GZIP), LineEncoder(batch_id)
    for start in range(0, len(records), _RECORDS_AT_ONCE):
        part = enumerate(records[start : start + _RECORDS_AT_ONCE], start)
        yield compressor.compress(b"".join([encoder.line(place, record) for place, record in part]))
    yield compressor.flush()


@functools.lru_cache(_LAYOUTS_MAX)
def layout_of_workspace(tenant: str, workspace: str) -> Layout:
    """The layout of a workspace; most requests are for one of a few workspaces."""
    return Layout(tenant, workspace)


def date_of(time_ms: int) -> str:
    """The day of a time, in UTC, as the folders of the trail are named."""
    return (_FIRST_DAY + dt.timedelta(milliseconds=min(max(time_ms, 0), _LAST_MS))).date().isoformat()


def is_day_over(date: str, now_ms: int, settings: Settings) -> bool:
    """Whether the retention of a day has passed; False for a folder that is not named after a day."""
    try:
        began = dt.datetime.fromisoformat(date).replace(tzinfo=dt.UTC)
    except ValueError:
        return False
    ended = began + dt.timedelta(days=1, seconds=seconds_of(settings.audit_retention))
    return (ended - _FIRST_DAY).total_seconds() * 1_000 <= now_ms
