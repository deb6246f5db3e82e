"""Metadata with only the referenced snapshots."""

from sandur.iceberg.table_metadata import with_referenced_snapshots_only
from tests.unit.iceberg.tables import document, snapshot, table, written


def test_only_snapshots_with_a_reference_are_kept() -> None:
    base = table(snapshots=[snapshot(1, 1), snapshot(7, 2), snapshot(2, 2, note="kept")])

    fields = written(with_referenced_snapshots_only(base))

    assert fields == document() | {"snapshots": [snapshot(1, 1), snapshot(2, 2, note="kept")]}


def test_a_table_whose_snapshots_all_have_references_is_unchanged() -> None:
    base = table()

    assert with_referenced_snapshots_only(base) is base
