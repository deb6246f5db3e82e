"""`sandur_events`: receipts, in a batch or as a stream; the stream is the catalog's change feed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sandur.errors import BadRequest
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.feed import Feed, key_of_receipt
from sandur.pipeline.sources.range_reader import (
    OBJECTS_AT_ONCE,
    KeyRange,
    RangeReader,
    Row,
    ShapedSource,
    batch_of,
    folder_ranges,
    portions,
)
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.pipeline.tables import EVENTS
from sandur.storage.contract import Listed, get_many

RECEIPTS_PER_TASK: Final = 5_000
_SEQUENCE: Final = "sequence"
_PENDING: Final = "/pending/"


class SandurEvents(ShapedSource):
    """One row for every receipt; one that is not understood has a `problem` and its `body`.

    A batch reads what is there. With the options `after` and `upto` it reads the entries of the feed behind the one and
    up to the other, and rows have a `position`. A stream begins with the option `start`: `earliest`, or `latest` for
    what comes from now on. Its offsets are entries of the feed, which never change, so that a batch that is read again
    is the same batch.
    """

    shape = EVENTS

    @classmethod
    def name(cls) -> str:
        return "sandur_events"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema  # It is declared.
        if "after" in self.options or "upto" in self.options:
            return FeedReader(self.options)
        return EventsReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        return FeedStreamReader(self.options)


class EventsReader(RangeReader):
    """All that lies below the folder of events, whether or not it has a position."""

    shape = EVENTS

    async def ranges(self, open_store: BlockingLake) -> Sequence[KeyRange]:
        return await folder_ranges(open_store.store, open_store.layout.events_folder())

    async def rows(self, open_store: BlockingLake, listed: Sequence[Listed]) -> Sequence[Row]:
        return await _rows(open_store, [one.key for one in listed if _PENDING not in one.key], None)


class Slice(NamedTuple):
    """Some of the receipts of an entry of the feed."""

    sequence: int
    start: int
    stop: int


class FeedReader(DataSourceReader):
    """The entries of the feed behind `after` and up to `upto`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        after, upto = (_number(self.options, name) for name in ("after", "upto"))
        with open_lake(self.options) as open_store:
            return slices(open_store, after, upto)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return read_slice(self.options, Slice(*partition.value)) if partition else iter(())


class FeedStreamReader(DataSourceStreamReader):
    """The feed as a stream. The store stays open on the driver between batches; executors open their own."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self._open_store: BlockingLake | None = None
        self._feed: Feed | None = None
        if self.options.get("start", "earliest") not in {"earliest", "latest"}:
            raise BadRequest(f"option start: earliest or latest is expected, found {self.options['start']!r}")

    def __getstate__(self) -> Mapping[str, object]:
        return {"options": self.options, "_open_store": None, "_feed": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {_SEQUENCE: 0} if self.options.get("start", "earliest") == "earliest" else self.latestOffset()

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """As far as everything goes that is there now; what is new gets its position here."""
        open_store = self._opened()
        self._feed = self._feed or Feed(open_store.lake)
        return {_SEQUENCE: open_store.wait(self._feed.advance()).sequence}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return slices(self._opened(), start[_SEQUENCE], end[_SEQUENCE])

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return read_slice(self.options, Slice(*partition.value)) if partition else iter(())

    def stop(self) -> None:
        if self._open_store:
            self._open_store.close()

    def _opened(self) -> BlockingLake:
        self._open_store = self._open_store or open_lake(self.options)
        return self._open_store


def slices(open_store: BlockingLake, after: int, upto: int) -> Sequence[InputPartition]:
    """The tasks that read the entries behind `after`, up to `upto`."""
    feed = Feed(open_store.lake)
    found: list[InputPartition] = []
    for sequence in range(after + 1, upto + 1):
        count = len(open_store.wait(feed.receipts_of(sequence)).receipts)
        starts = range(0, count, RECEIPTS_PER_TASK)
        found += [InputPartition(tuple(Slice(sequence, start, start + RECEIPTS_PER_TASK))) for start in starts]
    return found


def read_slice(options: Mapping[str, str], some: Slice) -> Iterator[Any]:
    """The rows of a part of an entry; a receipt that was collected since has none."""
    with open_lake(options) as open_store:
        entry = open_store.wait(Feed(open_store.lake).receipts_of(some.sequence))
        keys = [key_of_receipt(open_store.layout, receipt) for receipt in entry.receipts[some.start : some.stop]]
        position = entry.first_position + some.start
        for portion in portions(keys, OBJECTS_AT_ONCE):
            yield batch_of(EVENTS, open_store.wait(_rows(open_store, portion, position)))
            position += len(portion)


async def _rows(open_store: BlockingLake, keys: Sequence[str], first_position: int | None) -> Sequence[Row]:
    found = await get_many(open_store.store, keys)
    return [
        {
            **row_of(open_store.layout, key, stored.data),
            "position": None if first_position is None else first_position + number,
        }
        for number, (key, stored) in enumerate(zip(keys, found, strict=True))
        if stored
    ]


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "")
    if not text.isascii() or not text.isdecimal():
        raise BadRequest(f"option {name}: an entry of the feed is expected, found {text!r}")
    return int(text)
