"""The history of an object for people: who changed it when, with what, and by how much."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sandur.catalog.events import Source
from sandur.splicing import count_in

_ADDED = {"rows_added": "added-records", "files_added": "added-data-files", "bytes_added": "added-files-size"}
_REMOVED = {
    "rows_removed": "deleted-records",
    "files_removed": "deleted-data-files",
    "bytes_removed": "removed-files-size",
}
_ENGINES = ("engine-name", "spark.app.id", "trino_query_id", "app-id")


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a table or view.

    `source` is `unknown` if there is no receipt: another catalog made the version, or the receipt is gone. Counts are
    None where the version added no snapshot, or its snapshot does not say. Totals are those of its current snapshot.
    `refs` are the branches and tags that moved, with the snapshots before and after; 0 where there is no snapshot.
    """

    version: int
    at_ms: int
    source: str = "unknown"
    principal: str = ""
    engine: str = ""
    run_id: str = ""
    operation: str = ""
    snapshot_id: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    bytes_added: int | None = None
    bytes_removed: int | None = None
    refs: dict[str, tuple[int, int]] = {}
    location: str = ""
    total_rows: int | None = None
    total_bytes: int | None = None


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """A version as the catalog recorded it. `refs` and `source` are None if nothing recorded them."""

    version: int
    at_ms: int
    location: str
    operation: str = ""
    snapshot_id: int | None = None
    refs: Mapping[str, int] | None = None
    sequence_number: int = 0
    source: Source | None = None


class SnapshotFacts(NamedTuple):
    """What a snapshot says about itself; in format version 1, its sequence number is 0."""

    sequence_number: int
    summary: Mapping[str, str]


def history_rows(logged: list[Logged], snapshots: Mapping[int, SnapshotFacts], *, is_whole: bool) -> list[HistoryRow]:
    """The rows of versions, newest first, from versions in their order.

    `snapshots` are those that the table still has. Without the version before the first one, it is
    not known what the first one moved, unless the log `is_whole`.
    """
    rows: list[HistoryRow] = []
    before = Logged(version=-1, at_ms=0, location="", refs={} if is_whole else None)
    for one in logged:
        moved = moved_refs(before.refs, one.refs)
        heads = [after for _, after in moved.values()] if before.refs is not None else [one.snapshot_id or 0]
        added = next((snapshots[id_] for id_ in heads if id_ in snapshots and _adds(one, snapshots[id_], before)), None)
        current = snapshots.get(one.snapshot_id or 0)
        rows.append(_row(one, moved, added.summary if added else {}, current.summary if current else {}))
        before = one
    return rows[::-1]


def _adds(one: Logged, snapshot: SnapshotFacts, before: Logged) -> bool:
    """Whether a version added the snapshot that a reference moved to: it may also have moved back to an older one."""
    if before.refs is None or not snapshot.sequence_number:
        return bool(one.operation)
    return snapshot.sequence_number > before.sequence_number


def moved_refs(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> dict[str, tuple[int, int]]:
    """The references that differ, with their snapshots before and after; none if either side is unknown."""
    if before is None or after is None:
        return {}
    return {
        name: (before.get(name, 0), after.get(name, 0))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def _row(
    one: Logged, moved: dict[str, tuple[int, int]], summary: Mapping[str, str], totals: Mapping[str, str]
) -> HistoryRow:
    """`summary` is that of the snapshot that the version added, and `totals` that of its current one."""
    source = one.source or Source()
    counts = {field: count_in(summary.get(key)) for field, key in (*_ADDED.items(), *_REMOVED.items())}
    return HistoryRow(
        version=one.version,
        at_ms=one.at_ms,
        source=source.kind,
        principal=source.principal,
        engine=next((summary[key] for key in _ENGINES if summary.get(key)), source.client),
        run_id=source.run_id,
        operation=one.operation or summary.get("operation", ""),
        snapshot_id=one.snapshot_id,
        refs=moved,
        location=one.location,
        total_rows=count_in(totals.get("total-records")),
        total_bytes=count_in(totals.get("total-files-size")),
        **counts,
    )
