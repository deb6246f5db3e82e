"""The rows of a history, from recorded versions and the snapshots that a table still has."""

from sandur.catalog.events import Source
from sandur.catalog.timeline import Logged, SnapshotFacts, history_rows
from sandur.splicing import INT64_MAX, count_in

APPEND = {"operation": "append", "added-records": "2", "added-data-files": "1", "added-files-size": "77"}


def logged(version: int, refs: dict[str, int] | None, *, sequence: int, operation: str = "") -> Logged:
    main = (refs or {}).get("main")
    return Logged(
        version=version,
        at_ms=1_000 + version,
        location=f"f{version}",
        operation=operation,
        snapshot_id=main,
        refs=refs,
        sequence_number=sequence,
        source=Source(kind="rest", principal="ann", client="engine/1"),
    )


SNAPSHOTS = {
    5: SnapshotFacts(1, APPEND),
    6: SnapshotFacts(2, {**APPEND, "added-records": "nine", "engine-name": "spark", "deleted-records": "4"}),
}


def test_a_version_shows_what_its_snapshot_added_and_which_references_moved() -> None:
    versions = [
        logged(0, {}, sequence=0, operation="create"),
        logged(1, {"main": 5}, sequence=1, operation="append"),
        logged(2, {"main": 6}, sequence=2, operation="overwrite"),
    ]

    newest, middle, oldest = history_rows(versions, SNAPSHOTS, is_whole=True)

    assert (oldest.version, oldest.operation, oldest.rows_added) == (0, "create", None)
    assert (middle.rows_added, middle.files_added, middle.bytes_added, middle.refs) == (2, 1, 77, {"main": (0, 5)})
    assert (newest.rows_added, newest.rows_removed, newest.engine) == (None, 4, "spark")
    assert (middle.principal, middle.engine, middle.source) == ("ann", "engine/1", "rest")


def test_a_reference_that_moves_to_an_older_snapshot_adds_nothing() -> None:
    versions = [logged(7, {"main": 6}, sequence=2), logged(8, {"main": 5, "v1": 5}, sequence=2)]

    rolled_back, _ = history_rows(versions, SNAPSHOTS, is_whole=False)

    assert (rolled_back.rows_added, rolled_back.operation) == (None, "")
    assert rolled_back.refs == {"main": (6, 5), "v1": (0, 5)}


def test_a_commit_to_a_branch_counts_although_main_stays() -> None:
    versions = [logged(7, {"main": 5}, sequence=1), logged(8, {"main": 5, "audit": 6}, sequence=2)]

    branch, _ = history_rows(versions, SNAPSHOTS, is_whole=False)

    assert (branch.operation, branch.rows_removed) == ("append", 4)


def test_a_version_without_a_receipt_is_shown_as_unknown() -> None:
    (row,) = history_rows([Logged(version=4, at_ms=9, location="f")], {}, is_whole=False)

    assert (row.source, row.principal, row.refs) == ("unknown", "", {})


def test_a_count_has_at_most_64_bits() -> None:
    texts = ("0", "12", str(INT64_MAX), str(INT64_MAX + 1), "9" * 19, "9" * 5_000, "-1", "1.5", "\u0663", "", None)

    assert [count_in(text) for text in texts] == [0, 12, INT64_MAX, *[None] * 8]
