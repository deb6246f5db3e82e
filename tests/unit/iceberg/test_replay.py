"""Natural replay: a commit that was applied before is recognized, anything else is not."""

from typing import Any

from sandur.iceberg.table_commit import is_replay
from sandur.iceberg.table_metadata import TableMetadata, decode_table_metadata, encode_table_metadata
from tests.unit.iceberg.tables import (
    OTHER_UUID,
    Json,
    add_snapshot,
    commit,
    committed,
    created,
    creation,
    set_main,
    table,
)


def replayed(current: TableMetadata, *updates: Json, requirements: Any = ()) -> bool:
    parsed = commit(updates, requirements)
    return is_replay(current, parsed.requirements, parsed.updates)


def stored(metadata: TableMetadata) -> TableMetadata:
    return decode_table_metadata(encode_table_metadata(metadata))


APPEND = (add_snapshot(3, 3, parent=2), set_main(3))


def test_an_applied_append_is_recognized_after_later_commits() -> None:
    once = stored(committed(table(), *APPEND))
    later = stored(committed(once, add_snapshot(4, 4, parent=3), set_main(4)))

    assert replayed(once, *APPEND)
    assert replayed(later, *APPEND)
    assert not replayed(table(), *APPEND)


def test_the_same_id_with_other_content_is_not_a_replay() -> None:
    once = committed(table(), *APPEND)

    assert not replayed(once, add_snapshot(3, 3, parent=2, summary={"operation": "delete"}), set_main(3))


def test_a_replay_needs_all_added_snapshots() -> None:
    once = committed(table(), *APPEND)

    assert not replayed(once, *APPEND, add_snapshot(4, 4, parent=3))


def test_a_commit_without_a_snapshot_is_never_recognized() -> None:
    assert not replayed(table(), {"action": "set-properties", "updates": {"owner": "ada"}})


def test_a_created_table_is_recognized_by_its_uuid() -> None:
    requirements = [{"type": "assert-create"}]

    assert replayed(created(), *creation(), requirements=requirements)
    assert not replayed(created(), {"action": "assign-uuid", "uuid": OTHER_UUID}, requirements=requirements)
    assert not replayed(created(), requirements=requirements)
