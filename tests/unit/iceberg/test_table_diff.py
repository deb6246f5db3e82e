"""The difference between two versions of a table: columns by field id, and everything else."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.iceberg.table_diff import Change, diff_summaries, diff_tables, is_wider, longest_rise
from sandur.iceberg.table_metadata import decode_table_metadata
from sandur.iceberg.table_summary import ColumnRow, RefRow, TableSummary, Totals, summarize_table, table_ddl
from tests.unit.iceberg.tables import COLUMNS, Json, column, document, schema, snapshot

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
TYPES = st.sampled_from(["int", "long", "string", "decimal(9, 2)", "decimal(12, 2)"])
TEXTS = st.dictionaries(st.sampled_from(["k", "l", "m"]), st.sampled_from(["1", "2"]))


@st.composite
def summaries(draw: st.DrawFn) -> TableSummary:
    ids = draw(st.lists(st.integers(1, 6), unique=True, max_size=6))
    columns = [
        ColumnRow(
            id=id_,
            path=(name := draw(NAMES)),
            name=name,
            type=draw(TYPES),
            required=draw(st.booleans()),
            doc=draw(st.sampled_from(["", "x", "y"])),
            is_identifier=draw(st.booleans()),
        )
        for id_ in ids
    ]
    refs = [RefRow(name=name, kind="tag", snapshot_id=draw(st.integers(1, 3))) for name in sorted(draw(TEXTS))]
    return TableSummary(
        format="iceberg",
        format_version=draw(st.integers(1, 3)),
        table_id="t",
        location=draw(st.sampled_from(["s3://a", "s3://b"])),
        columns=tuple(columns),
        partitions=tuple(draw(st.lists(NAMES, max_size=2))),
        order=tuple(draw(st.lists(NAMES, max_size=2))),
        properties=draw(TEXTS),
        refs=tuple(refs),
        version=0,
        totals=Totals(rows=draw(st.none() | st.integers(0, 3))),
    )


def mirrored(change: Change) -> tuple[str, str, str, str]:
    """What a change is when it is undone, without the name, which may be the new or the old one."""
    kinds = {"added": "removed", "removed": "added", "required": "optional", "optional": "required"}
    kind = "type" if change.kind in {"widened", "retyped"} else kinds.get(change.kind, change.kind)
    return change.area, kind, change.after, change.before


def plain(change: Change) -> tuple[str, str, str, str]:
    kind = "type" if change.kind in {"widened", "retyped"} else change.kind
    return change.area, kind, change.before, change.after


@given(summaries())
def test_a_version_does_not_differ_from_itself(summary: TableSummary) -> None:
    assert diff_summaries(summary, summary) == ()


@given(summaries(), summaries())
def test_the_difference_backwards_undoes_the_difference(one: TableSummary, other: TableSummary) -> None:
    forward, back = diff_summaries(one, other), diff_summaries(other, one)

    # Which of two swapped columns moved is a choice.
    assert sorted(mirrored(change) for change in forward if change.kind != "moved") == sorted(
        plain(change) for change in back if change.kind != "moved"
    )


@given(summaries(), summaries())
def test_the_changes_of_columns_lead_from_one_version_to_the_other(one: TableSummary, other: TableSummary) -> None:
    before = {row.id: row for row in one.columns}
    after = {row.id: row for row in other.columns}

    changes = diff_summaries(one, other)

    found = [change for change in changes if change.area == "column"]
    assert sum(change.kind == "added" for change in found) == len(after.keys() - before.keys())
    assert sum(change.kind == "removed" for change in found) == len(before.keys() - after.keys())
    kept = [(before[id_], after[id_]) for id_ in before.keys() & after.keys()]
    assert sum(change.kind == "renamed" for change in found) == sum(old.name != new.name for old, new in kept)
    assert sum(change.kind in {"widened", "retyped"} for change in found) == sum(o.type != n.type for o, n in kept)
    assert sum(change.kind == "doc" for change in found) == sum(old.doc != new.doc for old, new in kept)
    # The columns that stay without a move are in the same order in both versions.
    moved = sum(change.kind == "moved" for change in found)
    assert moved == len(kept) - _common(
        [row.id for row in one.columns if row.id in after], [row.id for row in other.columns if row.id in before]
    )


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the longest common subsequence."""
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for row, left in enumerate(one):
        for place, right in enumerate(other):
            best = max(lengths[row][place + 1], lengths[row + 1][place])
            lengths[row + 1][place + 1] = lengths[row][place] + 1 if left == right else best
    return lengths[-1][-1]


@given(st.permutations(range(7)))
def test_a_longest_rise_rises(numbers: list[int]) -> None:
    chosen = [number for number, is_chosen in zip(numbers, longest_rise(numbers), strict=True) if is_chosen]

    assert chosen == sorted(chosen)
    assert len(chosen) == _common(numbers, sorted(numbers))


def changes_of(before: Json, after: Json) -> set[tuple[str, str, str]]:
    old, new = (decode_table_metadata(msgspec.json.encode(one)) for one in (before, after))
    return {(change.area, change.kind, change.name) for change in diff_tables(old, new)}


def evolved(*fields: Json) -> Json:
    new = document()
    new["schemas"] = [schema(*fields, **{"schema-id": 7})]
    new["current-schema-id"] = 7
    return new


def test_a_renamed_widened_and_moved_column_is_one_column() -> None:
    base = evolved(*COLUMNS, column(9, "n", "int"))
    identifier, time, place, tags = COLUMNS

    found = changes_of(base, evolved(column(9, "count", "long"), identifier, time, place, tags))

    assert found == {("column", "renamed", "count"), ("column", "moved", "count"), ("column", "widened", "count")}


def test_a_change_inside_a_struct_names_the_whole_path() -> None:
    identifier, time, _place, tags = COLUMNS
    place = column(3, "place", schema(column(4, "town", "string", doc="where")))

    found = changes_of(evolved(*COLUMNS), evolved(identifier, time, place, tags))

    assert found == {("column", "renamed", "place.town"), ("column", "doc", "place.town")}


def test_snapshots_that_come_and_go_and_a_rollback_are_told() -> None:
    base = document()
    longer = document(**{"current-snapshot-id": 3, "last-sequence-number": 3})
    longer["snapshots"] = [*base["snapshots"][1:], snapshot(3, 3, parent=2)]
    longer["refs"] = {"main": {"snapshot-id": 3, "type": "branch"}}

    assert {("snapshot", "added", "3"), ("snapshot", "expired", "1")} <= changes_of(base, longer)
    assert ("snapshot", "rolled-back", "main") in changes_of(longer, {**longer, "current-snapshot-id": 2})
    assert ("snapshot", "rolled-back", "main") not in changes_of(base, longer)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int", "long", True),
        ("long", "int", False),
        ("float", "double", True),
        ("decimal(9, 2)", "decimal(12, 2)", True),
        ("decimal(9, 2)", "decimal(12, 3)", False),
        ("string", "binary", False),
        ("struct", "long", False),
    ],
)
def test_widening_is_what_iceberg_allows(old: str, new: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert is_wider(old, new) is expected


def test_a_summary_shows_columns_as_a_tree_and_the_statement_that_creates_the_table() -> None:
    metadata = decode_table_metadata(msgspec.json.encode(document(properties={"k": "it's"})))

    summary = summarize_table(metadata, version=3)

    assert [(row.path, row.depth) for row in summary.columns][2:6] == [
        ("place", 0),
        ("place.city", 1),
        ("tags", 0),
        ("tags.element", 1),
    ]
    ddl = table_ddl("main.sales.orders", metadata)
    assert ddl.startswith("CREATE TABLE main.sales.orders (\n  id bigint NOT NULL,\n  ts timestamp,")
    assert "  place struct<city: string>,\n  tags array<string>" in ddl
    assert "'k' = 'it\\'s'" in ddl
