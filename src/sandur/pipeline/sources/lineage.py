"""`sandur_lineage`: OpenLineage events as rows, as a batch or a stream; and the facts that new events state."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sandur.catalog.lineage.events import Facts, LineageRecord, facts_of, merge_facts
from sandur.catalog.lineage.runs import OWN_NAMESPACE
from sandur.errors import BadRequest
from sandur.operations.feed import LINEAGE_BATCHES
from sandur.operations.lake import Lake
from sandur.operations.lineage.ingest import DamagedLineage, decode_batch
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.sources.events import FeedStreamReader, Slice, feed_position, slice_keys, slices
from sandur.pipeline.sources.range_reader import KeyRange, RangeSource, Row, ShapedSource, folder_ranges, shaped_batch
from sandur.pipeline.sources.receipt_rows import BODY_CHARACTERS_MAX, CORRUPT, DETAIL_CHARACTERS_MAX
from sandur.pipeline.tables import LINEAGE_FACTS, LINEAGE_OBJECTS
from sandur.storage.contract import Listed, get_many, portions
from sandur.storage.layout import Layout

BATCHES_PER_TASK: Final = 500
BATCHES_AT_ONCE: Final = 20
RUNS_PER_BATCH: Final = 1_000
MISSING: Final = "missing"
OWN_JOB: Final = "pipeline.lineage"
"""The name of the job `lineage` in its own lineage."""


class _Job(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Run(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str = ""


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    event_time: str = ""
    event_type: str | None = None
    run: _Run | None = None
    job: _Job | None = None


class LineageFacts(ShapedSource):
    """The facts of the events in the entries of the lineage feed after `after` up to `upto`."""

    shape = LINEAGE_FACTS

    def partitions(self) -> Sequence[InputPartition]:
        after, upto = (feed_position(self.options, name) for name in ("after", "upto"))
        with open_lake(self.options) as blocking:
            return slices(blocking, after, upto, log=LINEAGE_BATCHES, size=BATCHES_PER_TASK)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no entries.
            return
        runs: dict[str, _Gathered] = {}
        with open_lake(self.options) as blocking:
            keys, _ = slice_keys(blocking, Slice(*partition.value), log=LINEAGE_BATCHES)
            for some in portions(keys, BATCHES_AT_ONCE):
                problems: list[Row] = []
                for key, stored in zip(some, blocking.wait(get_many(blocking.lake.store, some)), strict=True):
                    problem = _gather(blocking.lake.layout, key, stored.data if stored else None, runs)
                    problems += [problem] if problem else []
                yield shaped_batch(LINEAGE_FACTS, problems)
        for part in portions(list(runs.items()), RUNS_PER_BATCH):
            yield shaped_batch(LINEAGE_FACTS, [gathered.row(run_key) for run_key, gathered in part])


class _Gathered:
    """What the events of one task state about a run."""

    def __init__(self) -> None:
        self.facts: Facts = {}
        self.received_ms = 0
        self.events = 0
        self.is_news = False

    def add(self, record: LineageRecord, facts: Facts) -> None:
        self.facts = merge_facts((self.facts, facts))
        self.received_ms = max(self.received_ms, record.received_ms)
        self.events += 1
        # If what the job wrote about itself were news, every run of it would cause the next one.
        self.is_news |= not (record.is_own and facts["job"][1] == [OWN_NAMESPACE, OWN_JOB])

    def row(self, run_key: str) -> Row:
        return {
            "key": "",
            "run_key": run_key,
            "received_at": self.received_ms,
            "facts_json": msgspec.json.encode(self.facts).decode(),
            "events": self.events,
            "is_news": self.is_news,
        }


def _gather(layout: Layout, key: str, data: bytes | None, runs: dict[str, _Gathered]) -> Row | None:
    """Add the events of an object to the runs; returns a row if there is a problem with it."""
    if data is None:
        return _problem(key, b"", MISSING, "it was removed before it was read", "detail")
    try:
        layout.parse_lineage(key)
        found = [(record, *facts_of(record)) for record in decode_batch(data)]
    except (DamagedLineage, BadRequest) as error:
        return _problem(key, data, CORRUPT, str(error), "detail")
    for record, run_key, facts in found:
        runs.setdefault(run_key, _Gathered()).add(record, facts)
    return None


class _LineageStream(FeedStreamReader):
    """The lineage feed as a stream."""

    log = LINEAGE_BATCHES
    receipts_per_task = BATCHES_PER_TASK

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return _read_slice(self.options, Slice(*partition.value)) if partition else iter(())


class SandurLineage(RangeSource):
    """One row per OpenLineage event, as it was sent; an object that cannot be read is one row with a `problem`.

    A batch reads all events that are kept. A stream starts at the option `start`: `earliest`, or `latest` for new
    events only. An event that was sent twice may be two rows with the same `id`.
    """

    source_name = "sandur_lineage"
    shape = LINEAGE_OBJECTS
    objects_at_once = BATCHES_AT_ONCE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema  # The source declares its own.
        return _LineageStream(self.options)

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return await folder_ranges(lake.store, lake.layout.lineage_folder())

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        return await _rows(lake, [one.key for one in listed], None)


def _read_slice(options: Mapping[str, str], some: Slice) -> Iterator[Any]:
    with open_lake(options) as blocking:
        keys, position = slice_keys(blocking, some, log=LINEAGE_BATCHES)
        for portion in portions(keys, BATCHES_AT_ONCE):
            yield shaped_batch(LINEAGE_OBJECTS, blocking.wait(_rows(blocking.lake, portion, position)))
            position += len(portion)


async def _rows(lake: Lake, keys: Sequence[str], first_position: int | None) -> Sequence[Row]:
    found = await get_many(lake.store, keys)
    return [
        {**row, "key": key, "position": None if first_position is None else first_position + number}
        for number, (key, stored) in enumerate(zip(keys, found, strict=True))
        if stored
        for row in event_rows(key, stored.data)
    ]


def event_rows(key: str, data: bytes) -> Sequence[Row]:
    """The rows of an object: its events, or its problem."""
    try:
        return [_event_row(record) for record in decode_batch(data)]
    except DamagedLineage as error:
        return [_problem(key, data, CORRUPT, str(error), "problem_detail")]


def _event_row(record: LineageRecord) -> Row:
    head = msgspec.json.decode(record.event, type=_Head)
    return {
        "id": record.id,
        "received_at": record.received_ms,
        "principal": record.principal,
        "principal_id": record.principal_id,
        "host": record.host,
        "is_own": record.is_own,
        "run_id": head.run.run_id if head.run else None,
        "event_type": head.event_type,
        "event_time": head.event_time,
        "job_namespace": head.job.namespace if head.job else None,
        "job_name": head.job.name if head.job else None,
        "event": bytes(record.event).decode(),
        "size_bytes": len(bytes(record.event)),
    }


def _problem(key: str, data: bytes, problem: str, detail: str, detail_column: str) -> Row:
    return {
        "key": key,
        "problem": problem,
        detail_column: detail[:DETAIL_CHARACTERS_MAX],
        "body": data.hex()[:BODY_CHARACTERS_MAX],
        "size_bytes": len(data),
    }
