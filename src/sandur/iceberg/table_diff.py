"""The difference between two versions of a table: columns by field id, and everything else that people ask about."""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from sandur.iceberg.snapshots import MAIN_BRANCH
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.table_summary import ColumnRow, RefRow, TableSummary, summarize_table
from sandur.iceberg.types import primitive

Area = Literal[
    "column", "identifier", "partitioning", "order", "property", "ref", "location", "format", "snapshot", "total"
]
Kind = Literal[
    "added",
    "removed",
    "renamed",
    "moved",
    "widened",
    "retyped",
    "required",
    "optional",
    "doc",
    "default",
    "changed",
    "expired",
    "rolled-back",
]

_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp", "timestamp_ns"}),
}
_UNKNOWN: Final = "unknown"
_ANCESTORS_MAX: Final = 100_000


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference. `before` and `after` are empty where there was or is nothing."""

    area: Area
    kind: Kind
    name: str = ""
    before: str = ""
    after: str = ""


def diff_tables(before: TableMetadata, after: TableMetadata) -> tuple[Change, ...]:
    """The differences between two metadata files of one table, by area; none if they are equal."""
    return (*diff_summaries(summarize_table(before), summarize_table(after)), *_snapshot_changes(before, after))


def diff_summaries(before: TableSummary, after: TableSummary) -> tuple[Change, ...]:
    """The differences between two summaries of one table, without those of single snapshots."""
    return (
        *_column_changes(before.columns, after.columns),
        *_list_change("identifier", _identifiers(before), _identifiers(after)),
        *_list_change("partitioning", before.partitions, after.partitions),
        *_list_change("order", before.order, after.order),
        *_mapping_changes("property", before.properties, after.properties),
        *_mapping_changes("ref", _ref_texts(before.refs), _ref_texts(after.refs)),
        *_list_change("location", (before.location,), (after.location,)),
        *_list_change("format", _format(before), _format(after)),
        *_mapping_changes("total", _total_texts(before), _total_texts(after)),
    )


def _column_changes(before: Sequence[ColumnRow], after: Sequence[ColumnRow]) -> Iterator[Change]:
    known, current = {_key(row): row for row in before}, {_key(row): row for row in after}
    moved = _moved(before, after)
    for row in before:
        if _key(row) not in current:
            yield Change(area="column", kind="removed", name=row.path, before=_described(row))
    for row in after:
        old = known.get(_key(row))
        if old is None:
            yield Change(area="column", kind="added", name=row.path, after=_described(row))
        else:
            yield from _row_changes(old, row, is_moved=_key(row) in moved)


def _key(row: ColumnRow) -> int | str:
    """What identifies a column in every version: its field id or, in a format without ids, its path."""
    return row.id or row.path


def _row_changes(old: ColumnRow, row: ColumnRow, *, is_moved: bool) -> Iterator[Change]:
    if old.name != row.name:
        yield Change(area="column", kind="renamed", name=row.path, before=old.name, after=row.name)
    if is_moved:
        yield Change(area="column", kind="moved", name=row.path, before=old.path, after=row.path)
    if old.type != row.type:
        kind: Kind = "widened" if is_wider(old.type, row.type) else "retyped"
        yield Change(area="column", kind=kind, name=row.path, before=old.type, after=row.type)
    if old.required != row.required:
        yield Change(area="column", kind="required" if row.required else "optional", name=row.path)
    if old.doc != row.doc:
        yield Change(area="column", kind="doc", name=row.path, before=old.doc, after=row.doc)
    if old.default != row.default:
        yield Change(area="column", kind="default", name=row.path, before=old.default, after=row.default)


def is_wider(old: str, new: str) -> bool:
    """Whether Iceberg allows a column of the type `old` to get the type `new`."""
    if not _is_primitive(old) or not _is_primitive(new):
        return False
    before, after = primitive(old), primitive(new)
    if before.name == after.name == "decimal":
        return before.scale == after.scale and before.precision < after.precision
    return before.name == _UNKNOWN or after.name in _WIDER.get(before.name, ())


def _is_primitive(text: str) -> bool:
    return text not in {"struct", "list", "map"}


def _moved(before: Sequence[ColumnRow], after: Sequence[ColumnRow]) -> frozenset[int | str]:
    """The columns in both that changed their place: the parent, or the order among the columns that stay.

    Of several explanations, the one that moves the fewest columns.
    """
    known = {_key(row): (row.parent, place) for place, row in enumerate(before)}
    moved = {_key(row) for row in after if _key(row) in known and known[_key(row)][0] != row.parent}
    by_parent: dict[int, list[int | str]] = {}
    for row in after:
        if _key(row) in known and _key(row) not in moved:
            by_parent.setdefault(row.parent, []).append(_key(row))
    for keys in by_parent.values():
        places = [known[one][1] for one in keys]
        moved |= {one for one, stays in zip(keys, longest_rise(places), strict=True) if not stays}
    return frozenset(moved)


def longest_rise(numbers: Sequence[int]) -> list[bool]:
    """Which of the numbers, all different, belong to a longest rising subsequence."""
    ends: list[int] = []  # Of the rises of each length, the smallest last number, and where it is.
    places: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect.bisect_left(ends, number)
        ends[length : length + 1] = [number]
        places[length : length + 1] = [place]
        before.append(places[length - 1] if length else -1)
    chosen = [False] * len(numbers)
    place = places[-1] if places else -1
    while place >= 0:
        chosen[place] = True
        place = before[place]
    return chosen


def _described(row: ColumnRow) -> str:
    return f"{row.type} required" if row.required else row.type


def _identifiers(summary: TableSummary) -> tuple[str, ...]:
    return tuple(row.path for row in summary.columns if row.is_identifier)


def _format(summary: TableSummary) -> tuple[str, ...]:
    return () if summary.format_version is None else (f"version {summary.format_version}",)


def _ref_texts(refs: Sequence[RefRow]) -> Mapping[str, str]:
    return {ref.name: _ref_text(ref) for ref in refs}


def _ref_text(ref: RefRow) -> str:
    ages = {
        "max-ref-age-ms": ref.max_ref_age_ms,
        "max-snapshot-age-ms": ref.max_snapshot_age_ms,
        "min-snapshots-to-keep": ref.min_snapshots_to_keep,
    }
    kept = " ".join(f"{key}={value}" for key, value in ages.items() if value is not None)
    return f"{ref.kind} {ref.snapshot_id} {kept}".rstrip()


def _total_texts(summary: TableSummary) -> Mapping[str, str]:
    totals: Mapping[str, int | None] = msgspec.structs.asdict(summary.totals)
    return {name.replace("_", " "): str(value) for name, value in totals.items() if value is not None}


def _list_change(area: Area, before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    if tuple(before) != tuple(after):
        kind: Kind = "added" if not before else "removed" if not after else "changed"
        yield Change(area=area, kind=kind, before=", ".join(before), after=", ".join(after))


def _mapping_changes(area: Area, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted({*before, *after}):
        if name not in after:
            yield Change(area=area, kind="removed", name=name, before=before[name])
        elif name not in before:
            yield Change(area=area, kind="added", name=name, after=after[name])
        elif before[name] != after[name]:
            yield Change(area=area, kind="changed", name=name, before=before[name], after=after[name])


def _snapshot_changes(before: TableMetadata, after: TableMetadata) -> Iterator[Change]:
    operations = {one.snapshot_id: (one.summary or {}).get("operation", "") for one in after.snapshots}
    for id_ in after.snapshot_id_list:
        if id_ not in before.snapshot_ids:
            yield Change(area="snapshot", kind="added", name=str(id_), after=operations.get(id_, ""))
    for id_ in before.snapshot_id_list:
        if id_ not in after.snapshot_ids:
            yield Change(area="snapshot", kind="expired", name=str(id_))
    old, new = before.current_snapshot_id, after.current_snapshot_id
    if old is not None and new is not None and old != new and new in _ancestors(before, old):
        yield Change(area="snapshot", kind="rolled-back", name=MAIN_BRANCH, before=str(old), after=str(new))


def _ancestors(metadata: TableMetadata, snapshot_id: int) -> frozenset[int]:
    """The snapshots that this one is based on, as far as the metadata still has them."""
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    found: set[int] = set()
    parent = parents.get(snapshot_id)
    while parent is not None and parent not in found and len(found) < _ANCESTORS_MAX:
        found.add(parent)
        parent = parents.get(parent)
    return frozenset(found)
