"""`sandur_audit`: the records of the audit trail as rows; an object that cannot be read is a row with a `problem`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sandur.catalog.audit import AuditRecord
from sandur.errors import BadRequest
from sandur.operations.audit.search import DamagedBatch, decode_batch
from sandur.operations.feed import AUDIT_BATCHES
from sandur.operations.lake import Lake
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.sources.events import CARRIED, Slice, feed_position, slice_keys, slices
from sandur.pipeline.sources.range_reader import KeyRange, RangeSource, Row, ShapedSource, folder_ranges, shaped_batch
from sandur.pipeline.sources.receipt_rows import BODY_CHARACTERS_MAX, CORRUPT, DETAIL_CHARACTERS_MAX, MISPLACED
from sandur.pipeline.tables import AUDIT_OBJECTS
from sandur.storage.contract import Listed, get_many, portions
from sandur.storage.layout import Layout

BATCHES_PER_TASK: Final = 500
BATCHES_AT_ONCE: Final = 20
"""A batch may have thousands of records."""
MISSING: Final = "missing"

_JSON: Final = {"further_decisions": "further_decisions_json", "changes": "changes_json", "lost": "lost_json"}
_PLAIN: Final = tuple(
    name for name in AuditRecord.__struct_fields__ if name not in {*_JSON, "credentials", "time_ms", "id"}
)


class AuditFeedSource(ShapedSource):
    """The batches in the entries of the audit feed after `after` up to `upto`."""

    shape = AUDIT_OBJECTS

    def partitions(self) -> Sequence[InputPartition]:
        after, upto = (feed_position(self.options, name) for name in ("after", "upto"))
        with open_lake(self.options) as blocking:
            carried = CARRIED in self.options
            return slices(blocking, after, upto, log=AUDIT_BATCHES, size=BATCHES_PER_TASK, with_carried=carried)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        if partition is None:  # There are no entries.
            return
        with open_lake(self.options) as blocking:
            keys, _ = slice_keys(blocking, Slice(*partition.value), log=AUDIT_BATCHES)
            for some in portions(keys, BATCHES_AT_ONCE):
                yield shaped_batch(AUDIT_OBJECTS, blocking.wait(_rows(blocking.lake, some)))


class SandurAudit(RangeSource):
    """One row per record of the audit trail; an object that cannot be read is one row with a `problem`.

    A batch reads the whole trail. With the options `after` and `upto` it reads the entries of the audit feed after
    `after` up to `upto`.
    """

    source_name = "sandur_audit"
    shape = AUDIT_OBJECTS
    objects_at_once = BATCHES_AT_ONCE

    def reader(self, schema: StructType) -> DataSourceReader:
        is_feed = "after" in self.options or "upto" in self.options
        return AuditFeedSource(self.options) if is_feed else super().reader(schema)

    async def ranges(self, lake: Lake) -> Sequence[KeyRange]:
        return await folder_ranges(lake.store, lake.layout.audit_folder())

    async def rows(self, lake: Lake, listed: Sequence[Listed]) -> Sequence[Row]:
        return await _rows(lake, [one.key for one in listed])


async def _rows(lake: Lake, keys: Sequence[str]) -> Sequence[Row]:
    found = await get_many(lake.store, keys)
    return [
        row
        for key, stored in zip(keys, found, strict=True)
        for row in (audit_rows(lake.layout, key, stored.data) if stored else [_problem(key, b"", MISSING, "")])
    ]


def audit_rows(layout: Layout, key: str, data: bytes) -> Sequence[Row]:
    """The rows of an object of the trail.

    The ids of its records begin with its name. A copy under another name is misplaced, so no record counts twice.
    """
    try:
        date, batch_id = layout.parse_audit(key)
        records = decode_batch(data)
    except (DamagedBatch, BadRequest) as error:
        return [_problem(key, data, CORRUPT, str(error))]
    if any(record.id != f"{batch_id}-{place:05d}" for place, record in enumerate(records)):
        return [_problem(key, data, MISPLACED, "the ids of its records do not follow from its name")]
    return [{**_columns(record), "date": date, "key": key, "size_bytes": len(data)} for record in records]


def _columns(record: AuditRecord) -> Mapping[str, object]:
    """A record as columns; an empty text is null, and nested values are JSON."""
    row: dict[str, object] = {"id": record.id, "time": record.time_ms}
    for name in _PLAIN:
        value = getattr(record, name)
        row[name] = None if value == "" and name not in {"tenant", "workspace"} else value
    for name, column in _JSON.items():
        value = getattr(record, name)
        row[column] = msgspec.json.encode(value).decode() if value else None
    row["credentials_json"] = msgspec.json.encode(record.credentials).decode() if record.credentials else None
    return row


def _problem(key: str, data: bytes, problem: str, detail: str) -> Row:
    return {
        "key": key,
        "problem": problem,
        "problem_detail": detail[:DETAIL_CHARACTERS_MAX],
        "body": data.hex()[:BODY_CHARACTERS_MAX],
        "size_bytes": len(data),
    }
