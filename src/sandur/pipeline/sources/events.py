"""`sandur_events`: receipts as a batch or as a stream; the stream is the catalog's change feed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sandur.errors import BadRequest
from sandur.operations.feed import RECEIPTS, Feed, Log
from sandur.operations.feed_readers import FeedReaders
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.sources.range_reader import (
    OBJECTS_AT_ONCE,
    KeyRange,
    RangeSource,
    Row,
    ShapedSource,
    folder_ranges,
    shaped_batch,
)
from sandur.pipeline.sources.receipt_rows import row_of
from sandur.pipeline.tables import EVENTS
from sandur.storage.contract import Listed, get_many, portions
from sandur.storage.layout import COMMITTED

RECEIPTS_PER_TASK: Final = 5_000
CARRIED: Final = "carried"
_SEQUENCE: Final = "sequence"
_CATALOG: Final = "catalog"


class Slice(NamedTuple):
    """Some receipts of one feed entry."""

    sequence: int
    start: int
    stop: int


class FeedSource(ShapedSource):
    """The feed's entries after `after` up to `upto`.

    With the option `carried`, also the receipts of removed entries that still exist.
    """

    shape = EVENTS

    def partitions(self) -> Sequence[InputPartition]:
        after, upto = (feed_position(self.options, name) for name in ("after", "upto"))
        with open_lake(self.options) as blocking:
            return slices(blocking, after, upto, with_carried=CARRIED in self.options)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return read_slice(self.options, Slice(*partition.value)) if partition else iter(())


class FeedStreamReader(DataSourceStreamReader):
    """A feed as a stream. The driver keeps its lake open between batches; executors open their own.

    With the option `reader`, the stream is registered under that name, and the feed waits for it.
    """

    log = RECEIPTS
    receipts_per_task = RECEIPTS_PER_TASK

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self._reader = self.options.get("reader", "")
        self._blocking: BlockingLake | None = None
        self._feed: Feed | None = None
        if self.options.get("start", "earliest") not in {"earliest", "latest"}:
            raise BadRequest(f"option start: expected earliest or latest, found {self.options['start']!r}")

    def __getstate__(self) -> Mapping[str, object]:
        return {"options": self.options, "_reader": self._reader, "_blocking": None, "_feed": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The oldest entry that is kept, or the newest one. A stream without a checkpoint starts here."""
        blocking, feed = self._open()
        is_latest = self.options.get("start", "earliest") == "latest"
        position = blocking.wait(feed.advance()).sequence if is_latest else blocking.wait(feed.start())
        if self._reader:
            blocking.wait(self._readers.register(self._reader, after=position))
        return {_SEQUENCE: position}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Give new receipts a position, and return the newest entry."""
        blocking, feed = self._open()
        if self._reader:
            blocking.wait(self._readers.touch(self._reader))
        return {_SEQUENCE: blocking.wait(feed.advance()).sequence}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """The entries of a batch. A damaged one is empty, and the next batch has its receipts."""
        blocking, feed = self._open()
        if self._reader:
            blocking.wait(self._readers.report(self._reader, start[_SEQUENCE]))
        blocking.wait(feed.recover(start[_SEQUENCE]))
        return slices(blocking, start[_SEQUENCE], end[_SEQUENCE], log=self.log, size=self.receipts_per_task)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return read_slice(self.options, Slice(*partition.value)) if partition else iter(())

    def commit(self, end: Mapping[str, int]) -> None:
        """Spark will not read the entries up to `end` again."""
        if self._reader:
            blocking, _ = self._open()
            blocking.wait(self._readers.report(self._reader, end[_SEQUENCE]))

    def stop(self) -> None:
        if self._blocking:
            self._blocking.close()

    @property
    def _readers(self) -> FeedReaders:
        blocking, _ = self._open()
        return FeedReaders(blocking.lake, self.log)

    def _open(self) -> tuple[BlockingLake, Feed]:
        self._blocking = self._blocking or open_lake(self.options)
        self._feed = self._feed or Feed(self._blocking.lake, self.log)
        return self._blocking, self._feed


class SandurEvents(RangeSource):
    """One row per receipt; one that cannot be decoded has a `problem` and its `body`.

    A batch reads all receipts. With the options `after` and `upto` it reads the feed's entries after `after` up to
    `upto`, and rows have a `position`. A stream starts at the option `start`: `earliest`, or `latest` for new receipts
    only. Its offsets are entries of the feed. Entries never change, so a batch that is read again is the same batch.
    Old entries are removed; the feed waits for a stream with the option `reader`, its name among the readers.
    """

    source_name = "sandur_events"
    shape = EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        is_feed = "after" in self.options or "upto" in self.options
        return FeedSource(self.options) if is_feed else super().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema  # The source declares its own.
        return FeedStreamReader(self.options)

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return await folder_ranges(lake.store, lake.layout.events_folder())

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        return await _rows(lake, [one.key for one in listed], None)


class CatalogEvents(SandurEvents):
    """The rows of changes of the catalog only."""

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        keys = [one.key for one in listed if f"/{_CATALOG}/{COMMITTED}/" in one.key]
        return await _rows(lake, keys, None)


def slices(
    blocking: BlockingLake,
    after: int,
    upto: int,
    *,
    log: Log = RECEIPTS,
    size: int = RECEIPTS_PER_TASK,
    with_carried: bool = False,
) -> Sequence[InputPartition]:
    """The feed's entries after `after` up to `upto`, cut into slices of at most `size` receipts.

    Raises Trimmed if some of them were removed.
    """
    feed = Feed(blocking.lake, log)
    blocking.wait(feed.check_kept(after))
    found: list[InputPartition] = []
    for sequence in range(after + 1, upto + 1):
        entry = blocking.wait(feed.receipts_of(sequence))
        starts = range(0, len(entry.receipts if with_carried else entry.news), size)
        found += [InputPartition(tuple(Slice(sequence, start, start + size))) for start in starts]
    return found


def slice_keys(blocking: BlockingLake, some: Slice, *, log: Log = RECEIPTS) -> tuple[Sequence[str], int]:
    """The keys of a slice, and the position of the first."""
    entry = blocking.wait(Feed(blocking.lake, log).receipts_of(some.sequence))
    folder = log.folder(blocking.lake.layout)
    keys = [f"{folder}{receipt}" for receipt in entry.receipts[some.start : some.stop]]
    return keys, entry.first_position + some.start


def read_slice(options: Mapping[str, str], some: Slice) -> Iterator[Any]:
    """The rows of a slice; a receipt that was collected in the meantime has none."""
    with open_lake(options) as blocking:
        keys, position = slice_keys(blocking, some)
        for portion in portions(keys, OBJECTS_AT_ONCE):
            yield shaped_batch(EVENTS, blocking.wait(_rows(blocking.lake, portion, position)))
            position += len(portion)


async def _rows(lake: Lake, keys: Sequence[str], first_position: int | None) -> Sequence[Row]:
    found = await get_many(lake.store, keys)
    return [
        {
            **row_of(lake.layout, key, stored.data),
            "position": None if first_position is None else first_position + number,
        }
        for number, (key, stored) in enumerate(zip(keys, found, strict=True))
        if stored
    ]


class UnreadEntries(NamedTuple):
    """The entries that a job has to read, as options of its source, and a warning if some were removed unread."""

    options: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def unread_entries(blocking: BlockingLake, feed: Feed, after: int, upto: int, *, is_new: bool) -> UnreadEntries:
    """The entries after `after` up to `upto`.

    A job that starts behind removed entries reads the rest. If it has published nothing (`is_new`), it also reads the
    receipts of removed entries that still exist.
    """
    trimmed = blocking.wait(feed.trimmed())
    options = {"after": str(max(after, trimmed)), "upto": str(max(upto, trimmed))}
    if after >= trimmed:
        return UnreadEntries(options)
    warning = (
        f"feed: entries {after + 1} to {trimmed} were removed before this job read them; "
        "what they named is published only if it still exists and nothing was published before"
    )
    return UnreadEntries(options | ({CARRIED: "true"} if is_new else {}), (warning,))


def feed_position(options: Mapping[str, str], name: str) -> int:
    """The number of a feed entry in an option; raises BadRequest if it is not one."""
    text = options.get(name, "")
    if not text.isascii() or not text.isdecimal():
        raise BadRequest(f"option {name}: expected the number of a feed entry, found {text!r}")
    return int(text)
