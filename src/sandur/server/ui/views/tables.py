"""The pages of a table's history and state: snapshots, timeline, differences, files, rows and health."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from markupsafe import Markup

from sandur.catalog.identifiers import Identifier
from sandur.catalog.maintenance.health import Need, TableHealth
from sandur.catalog.maintenance.measures import small_file_bytes
from sandur.catalog.maintenance.policies import Policy
from sandur.catalog.timeline import HistoryRow
from sandur.iceberg.snapshots import BRANCH, MAIN_BRANCH, Snapshot
from sandur.iceberg.table_diff import Change
from sandur.iceberg.table_summary import RefRow, TableSummary, number_in
from sandur.operations.explore.files import FileChanges, TableFiles
from sandur.operations.preview.rows import PreviewedRows
from sandur.operations.table_health import TableHealthDetail
from sandur.operations.tables.timeline import Difference, TableSnapshots, TableVersion, Timeline
from sandur.server.ui.drawing.graphs import NODES_MAX, SnapshotDot, snapshot_graph
from sandur.server.ui.drawing.plots import bar_plot, step_plot, version_plot
from sandur.server.ui.links import named_action_link, object_link
from sandur.server.ui.texts import bytes_text, count_text, duration_text, time_text
from sandur.server.ui.views.objects import ObjectView, object_head

SNAPSHOTS_SHOWN: Final = 100


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    parent: int | None
    at_ms: int
    operation: str
    rows_added: int | None
    rows_removed: int | None
    total_rows: int | None
    total_bytes: int | None
    files: int | None
    engine: str
    refs: tuple[str, ...]
    is_current: bool


class SnapshotsView(ObjectView, frozen=True, kw_only=True):
    """`is_cut`: there are older ones. `versions` are those of a Delta table, which has no snapshots."""

    snapshots: Sequence[SnapshotRow] = ()
    refs: Sequence[RefRow] = ()
    versions: Sequence[HistoryRow] = ()
    graph: Markup = Markup("")
    rows_plot: Markup = Markup("")
    bytes_plot: Markup = Markup("")
    is_cut: bool = False
    is_delta: bool = False


def snapshots_view(identifier: Identifier, found: TableSnapshots | Sequence[HistoryRow]) -> SnapshotsView:
    head = object_head(identifier, "table", "snapshots")
    if not isinstance(found, TableSnapshots):
        return SnapshotsView(
            object=head,
            versions=found[:SNAPSHOTS_SHOWN],
            bytes_plot=_plot(_delta_bytes(found), "Bytes over time", bytes_text, 2),
            is_cut=len(found) > SNAPSHOTS_SHOWN,
            is_delta=True,
        )
    refs: dict[int, list[str]] = {}
    for ref in found.refs:
        refs.setdefault(ref.snapshot_id, []).append(ref.name)
    rows = [_snapshot_row(one, refs, found.current_id) for one in found.snapshots]
    heads = sorted((ref for ref in found.refs if ref.kind == BRANCH), key=lambda ref: ref.name != MAIN_BRANCH)
    dots = [
        SnapshotDot(
            row.id,
            row.parent,
            f"#s{row.id}",
            f"{row.operation} {row.id} at {time_text(row.at_ms)}",
            row.refs,
            is_current=row.is_current,
        )
        for row in rows[-NODES_MAX:]
    ]
    return SnapshotsView(
        object=head,
        snapshots=rows[: -SNAPSHOTS_SHOWN - 1 : -1],
        refs=found.refs,
        graph=snapshot_graph(dots, [ref.snapshot_id for ref in heads], label="Snapshots with branches and tags"),
        rows_plot=_plot(_points(rows, "total_rows"), "Rows over time", count_text, 1),
        bytes_plot=_plot(_points(rows, "total_bytes"), "Bytes over time", bytes_text, 2),
        is_cut=len(rows) > SNAPSHOTS_SHOWN,
    )


def _snapshot_row(one: Snapshot, refs: Mapping[int, Sequence[str]], current_id: int | None) -> SnapshotRow:
    summary = one.summary or {}
    return SnapshotRow(
        id=one.snapshot_id,
        parent=one.parent_snapshot_id,
        at_ms=one.timestamp_ms,
        operation=summary.get("operation", ""),
        rows_added=number_in(summary, "added-records"),
        rows_removed=number_in(summary, "deleted-records"),
        total_rows=number_in(summary, "total-records"),
        total_bytes=number_in(summary, "total-files-size"),
        files=number_in(summary, "total-data-files"),
        engine=summary.get("engine-name", ""),
        refs=tuple(refs.get(one.snapshot_id, ())),
        is_current=one.snapshot_id == current_id,
    )


def _points(rows: Sequence[SnapshotRow], field: str) -> list[tuple[int, int]]:
    known = [(row.at_ms, getattr(row, field)) for row in rows]
    return [(at_ms, value) for at_ms, value in known if value is not None]


def _delta_bytes(rows: Sequence[HistoryRow]) -> list[tuple[int, int]]:
    """The size of a Delta table after each version, if its whole log is known."""
    if not rows or rows[-1].version != 0:
        return []
    points, total = [], 0
    for row in reversed(rows):
        total += (row.bytes_added or 0) - (row.bytes_removed or 0)
        points.append((row.at_ms, max(total, 0)))
    return points


def _plot(points: Sequence[tuple[int, int]], label: str, text: Any, line: int) -> Markup:  # noqa: ANN401 - a function of this module's callers
    if not points:
        return Markup("")
    first, last = points[0], points[-1]
    words = f"{label}: from {text(first[1])} on {time_text(first[0])} to {text(last[1])} on {time_text(last[0])}"
    return step_plot(points, label=words, text=text, line=line)


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A version, with what was published about it. `hole`: how many versions before it are not known."""

    row: HistoryRow
    lineage: str = ""
    quality: str = ""
    hole: int = 0
    link: str = ""
    diff_link: str = ""
    is_logged: bool = True
    is_chosen: bool = False


class TimelineView(ObjectView, frozen=True, kw_only=True):
    """`at` is the version that is shown in full; None if there is none. `is_past`: newer rows are on another page."""

    rows: Sequence[TimelineRow]
    first: int
    last: int
    at: int | None
    version: "VersionView | None"
    plot: Markup
    next_link: str
    newest_link: str
    is_past: bool
    published_ms: int
    fragment_link: str
    is_table: bool


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was at a version; or why it is not known."""

    version: int
    summary: TableSummary | None = None
    problem: str = ""
    before_link: str = ""
    after_link: str = ""
    changes_link: str = ""
    compare_link: str = ""
    restore_link: str = ""


def version_view(identifier: Identifier, version: int, found: TableVersion | str) -> VersionView:
    """The table at a version, or the reason why it is not known."""
    if isinstance(found, str):
        return VersionView(version=version, problem=found)

    def link(other: int | None) -> str:
        return "" if other is None else object_link(identifier, "table", "timeline", at=other)

    is_past = found.after is not None
    return VersionView(
        version=version,
        summary=found.summary,
        before_link=link(found.before),
        after_link=link(found.after),
        changes_link=_diff_link(identifier, version, found.before),
        compare_link=object_link(identifier, "table", "diff", **{"from": version}) if is_past else "",
        restore_link=_restore_link(identifier, found.summary) if is_past else "",
    )


def _restore_link(identifier: Identifier, past: TableSummary) -> str:
    """The form that brings the rows of a version back, with this version chosen."""
    if past.format == "delta":
        return named_action_link("restore-delta", identifier, version=past.version)
    snapshot = past.current_snapshot_id
    return named_action_link("restore", identifier, snapshot=snapshot) if snapshot is not None else ""


def timeline_view(
    identifier: Identifier, found: Timeline, *, limit: int, at: int | None, is_past: bool
) -> TimelineView:
    """`at` is the version that was asked for; None: the current one."""
    if at is None and isinstance(found.version, TableVersion):
        at = found.version.summary.version
    version = version_view(identifier, at, found.version) if at is not None and found.version else None
    rows = [*found.rows, *found.older]
    versions = [row.version for row in rows]
    is_full = len(rows) >= limit
    return TimelineView(
        object=object_head(identifier, found.kind, "timeline"),
        rows=_timeline_rows(identifier, found, at),
        first=min(versions, default=0),
        last=max(versions, default=0),
        at=at,
        version=version,
        plot=_timeline_plot(found.rows, versions, at),
        next_link=object_link(identifier, found.kind, "timeline", before=min(versions)) if is_full else "",
        newest_link=object_link(identifier, found.kind, "timeline"),
        is_past=is_past,
        published_ms=found.published_ms,
        fragment_link=object_link(identifier, found.kind, "versions"),
        is_table=found.kind == "table",
    )


def _timeline_rows(identifier: Identifier, found: Timeline, at: int | None) -> Sequence[TimelineRow]:
    rows, is_table = [*found.rows, *found.older], found.kind == "table"
    shown = []
    for place, row in enumerate(rows):
        following = rows[place + 1].version if place + 1 < len(rows) else None
        lineage, quality = found.marks.get(row.version, ("", ""))
        shown.append(
            TimelineRow(
                row=row,
                lineage=lineage,
                quality=quality,
                hole=row.version - following - 1 if following is not None and is_table else 0,
                link=object_link(identifier, found.kind, "timeline", at=row.version) if is_table else "",
                diff_link=_diff_link(identifier, row.version, following) if is_table else "",
                is_logged=place < len(found.rows),
                is_chosen=row.version == at,
            )
        )
    return shown


def _diff_link(identifier: Identifier, version: int, before: int | None) -> str:
    return "" if before is None else object_link(identifier, "table", "diff", **{"from": before, "to": version})


def _timeline_plot(rows: Sequence[HistoryRow], versions: Sequence[int], at: int | None) -> Markup:
    """Rows by version, or bytes if no rows are known, above the slider of all versions."""
    ordered = rows[::-1]
    by_rows = [(row.version, row.total_rows) for row in ordered if row.total_rows is not None]
    by_bytes = [] if by_rows else [(row.version, size) for row, (_, size) in zip(ordered, _delta_bytes(rows))]  # noqa: B905 - none if a part is not known
    points, name, text, line = (by_rows, "Rows", count_text, 1) if by_rows else (by_bytes, "Bytes", bytes_text, 2)
    if not points:
        return Markup("")
    (first, low), (last, high) = points[0], points[-1]
    label = f"{name} by version: from {text(low)} in version {first} to {text(high)} in version {last}"
    return version_plot(points, (min(versions), max(versions)), label=label, text=text, line=line, at=at)


class DiffView(ObjectView, frozen=True, kw_only=True):
    """Two versions and their differences by area; or why they cannot be compared."""

    before: int | None = None
    after: int | None = None
    areas: Sequence[tuple[str, Sequence[Change]]] = ()
    problem: str = ""
    summaries: Sequence[HistoryRow] = ()
    files: FileChanges | None = None
    files_link: str = ""
    swapped_link: str = ""


_AREAS: Final[Mapping[str, str]] = {
    "column": "Columns",
    "identifier": "Identifier columns",
    "partitioning": "Partitioning",
    "order": "Sort order",
    "property": "Properties",
    "ref": "Branches and tags",
    "location": "Location",
    "format": "Format",
    "snapshot": "Snapshots",
    "total": "Totals",
}


def diff_view(identifier: Identifier, found: Difference, files: FileChanges | None) -> DiffView:
    by_area: dict[str, list[Change]] = {}
    for change in found.changes:
        by_area.setdefault(change.area, []).append(change)
    sides: dict[str, str | int | None] = {"from": found.before, "to": found.after}
    has_files = found.snapshots != (None, None) and found.snapshots[0] != found.snapshots[1] and files is None
    return DiffView(
        object=object_head(identifier, "table", "diff"),
        before=found.before,
        after=found.after,
        areas=[(_AREAS[area], changes) for area, changes in by_area.items()],
        files=files,
        files_link=object_link(identifier, "table", "diff", **sides, files="true") if has_files else "",
        swapped_link=object_link(identifier, "table", "diff", **{"from": found.after, "to": found.before}),
    )


def no_diff_view(
    identifier: Identifier, problem: str, *, before: int | None, after: int | None, rows: Sequence[HistoryRow]
) -> DiffView:
    """The page for two versions of which one is gone: what the catalog still knows about them."""
    known = [row for row in rows if row.version in {before, after}]
    return DiffView(
        object=object_head(identifier, "table", "diff"), before=before, after=after, problem=problem, summaries=known
    )


class FilesView(ObjectView, frozen=True, kw_only=True):
    found: TableFiles
    plot: Markup


def files_view(identifier: Identifier, found: TableFiles) -> FilesView:
    names = [f"≤ {bytes_text(edge)}" for edge in found.edges]
    sizes = list(zip([*names, f"> {bytes_text(found.edges[-1])}"], found.sizes, strict=False))
    words = f"Data files by size: {', '.join(f'{count} {name}' for name, count in sizes if count)}"
    return FilesView(
        object=object_head(identifier, "table", "files"),
        found=found,
        plot=bar_plot(sizes, label=words, text=count_text),
    )


class PreviewView(ObjectView, frozen=True, kw_only=True):
    """The rows of a table. Without them, the page leads to them: they take a moment."""

    limit: int
    rows: PreviewedRows | None = None
    link: str = ""
    fragment_link: str = ""


def preview_view(identifier: Identifier, limit: int, rows: PreviewedRows | None) -> PreviewView:
    return PreviewView(
        object=object_head(identifier, "table", "preview"),
        limit=limit,
        rows=rows,
        link=object_link(identifier, "table", "preview", run="true", limit=limit),
        fragment_link=object_link(identifier, "table", "preview", run="true", limit=limit, only="rows"),
    )


class HealthRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: what was measured, the limit of the policy, and what cures it."""

    operation: str
    text: str
    measured: str
    limit: str
    need: Need | None
    cure: str


class HealthView(ObjectView, frozen=True, kw_only=True):
    detail: TableHealthDetail
    rules: Sequence[HealthRule] = ()
    numbers: Sequence[tuple[str, str]] = ()
    policy_link: str = ""
    maintain_link: str = ""


_CURES: Final[Mapping[str, str]] = {
    "compaction": "rewrite small files",
    "deletes": "merge delete files",
    "manifests": "rewrite manifests",
    "snapshots": "expire snapshots",
    "publish": "publish commits",
    "checkpoint": "write a checkpoint",
}
_BYTES: Final = frozenset(
    {"data_bytes", "small_bytes", "bytes_with_deletes", "delete_bytes", "manifest_bytes", "expirable_bytes"}
)
_HEADINGS: Final = frozenset({"uuid", "catalog", "namespace", "name", "format", "blocked", "last_commit_ms"})


def health_view(identifier: Identifier, detail: TableHealthDetail, *, policy_link: str) -> HealthView:
    health = detail.health
    rules = _rules(health, detail.policy, {need.operation: need for need in detail.needs}) if health else ()
    return HealthView(
        object=object_head(identifier, "table", "health"),
        detail=detail,
        rules=rules,
        numbers=_numbers(health) if health else (),
        policy_link=policy_link,
        maintain_link=named_action_link("maintain", identifier),
    )


def _numbers(health: TableHealth) -> Sequence[tuple[str, str]]:
    found = []
    for name in health.__struct_fields__:
        if name not in _HEADINGS:
            value = getattr(health, name)
            text = bytes_text(value) if name in _BYTES else count_text(value)
            found.append((name.replace("_", " "), text))
    return found


def _rules(health: TableHealth, policy: Policy, needs: Mapping[str, Need]) -> Sequence[HealthRule]:
    rows: list[tuple[str, str, str, str]] = [
        (
            "compaction",
            "small files that compaction can remove",
            count_text(health.excess_files),
            f"from {policy.compaction.min_input_files} files below {bytes_text(small_file_bytes(policy.compaction))}",
        )
    ]
    if health.format == "iceberg":
        rows += [
            ("deletes", "delete files", count_text(health.delete_files), f"from {policy.deletes.min_files}"),
            ("manifests", "manifests", count_text(health.manifests), f"from {policy.manifests.min_manifests}"),
            (
                "snapshots",
                f"snapshots older than {duration_text(policy.snapshots.max_age)}",
                count_text(health.expirable_snapshots),
                f"from {policy.snapshots.min_expired}",
            ),
        ]
    else:
        commits = count_text(health.commits_since_checkpoint)
        rows += [
            ("publish", "commits that are not published", count_text(health.unpublished_commits), "from 1"),
            ("checkpoint", "commits since the last checkpoint", commits, f"from {policy.delta.checkpoint_interval}"),
        ]
    return [
        HealthRule(operation=name, text=text, measured=measured, limit=limit, need=needs.get(name), cure=_CURES[name])
        for name, text, measured, limit in rows
    ]
