"""After every sequence of commits all invariants hold, and values kept as bytes equal fully decoded ones."""

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandur.errors import BadRequest, Conflict, Invalid
from sandur.iceberg.requests import decode_table_commit
from sandur.iceberg.table_commit import deletes_old_files, next_metadata
from sandur.iceberg.table_metadata import (
    TableMetadata,
    decode_table_metadata,
    encode_table_metadata,
    with_referenced_snapshots_only,
)
from sandur.iceberg.validation import decode_foreign_table_metadata
from tests.unit.iceberg.tables import (
    BASE_FILE,
    COLUMNS,
    NOW_MS,
    Json,
    column,
    document,
    schema,
    set_ref,
    snapshot,
    sort_field,
    spec_field,
)

UNKNOWN = {"deep": [1, {"x": None, "text": 'a ] "quoted" } b'}], "big": 2**62}
SOME_IDS = st.integers(1, 8)
REFS = st.sampled_from(["main", "first", "side"])


def base_document(version: int) -> Json:
    """A table with unknown fields at the top level and inside every part."""
    fields = document(version, future=UNKNOWN)
    fields["schemas"][0]["future"] = UNKNOWN
    for name in ("snapshots", "partition-specs", "sort-orders", "snapshot-log"):
        for item in fields[name]:
            item["future"] = UNKNOWN
    for ref in fields["refs"].values():
        ref["future"] = UNKNOWN
    return fields


def add_snapshot(snapshot_id: int, sequence_number: int, parent: int | None, rows: int, *, has_rows: bool) -> Json:
    lineage = {"first-row-id": rows, "added-rows": 5} if has_rows else {}
    times = {"timestamp-ms": NOW_MS + sequence_number}
    return {"action": "add-snapshot", "snapshot": snapshot(snapshot_id, sequence_number, parent, **lineage, **times)}


def named(action: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {"action": st.just(action), **{key.replace("_", "-"): value for key, value in fields.items()}}
    )


COLUMN_SETS = st.lists(st.sampled_from([*COLUMNS, column(7, "more", "date"), column(8, "v", "variant")]), max_size=5)
SPEC_FIELDS = st.builds(
    spec_field,
    st.integers(1, 8),
    st.sampled_from(["a", "b", "id"]),
    st.sampled_from(["identity", "bucket[4]", "day", "void", "odd"]),
)
SORT_FIELDS = st.builds(sort_field, st.integers(1, 8), st.sampled_from(["identity", "year"]))
FILES = st.fixed_dictionaries(
    {"snapshot-id": SOME_IDS, "statistics-path": st.just("p"), "file-size-in-bytes": st.just(1)}
)

UPDATES = st.one_of(
    named("upgrade-format-version", format_version=st.integers(1, 5)),
    named("add-schema", schema=st.builds(lambda fields: schema(*fields), COLUMN_SETS)),
    named("set-current-schema", schema_id=st.integers(-1, 3)),
    named("add-spec", spec=st.fixed_dictionaries({"fields": st.lists(SPEC_FIELDS, max_size=2)})),
    named("set-default-spec", spec_id=st.integers(-1, 3)),
    named("add-sort-order", sort_order=st.fixed_dictionaries({"fields": st.lists(SORT_FIELDS, max_size=2)})),
    named("set-default-sort-order", sort_order_id=st.integers(-1, 3)),
    st.builds(
        add_snapshot, SOME_IDS, st.integers(0, 9), st.none() | SOME_IDS, st.integers(0, 60), has_rows=st.booleans()
    ),
    st.builds(set_ref, REFS, SOME_IDS, st.sampled_from(["branch", "branch", "tag"])),
    named("remove-snapshot-ref", ref_name=REFS),
    named("remove-snapshots", snapshot_ids=st.lists(SOME_IDS, max_size=3)),
    named("set-location", location=st.sampled_from(["s3://bucket/table", "s3://other/"])),
    named("set-properties", updates=st.dictionaries(st.sampled_from(["a", "uuid"]), st.text(max_size=3), max_size=2)),
    named("remove-properties", removals=st.lists(st.sampled_from(["a", "owner"]), max_size=2)),
    named("set-partition-statistics", partition_statistics=FILES),
    named("remove-partition-statistics", snapshot_id=SOME_IDS),
    named("remove-partition-specs", spec_ids=st.lists(st.integers(0, 3), max_size=2)),
    named("remove-schemas", schema_ids=st.lists(st.integers(0, 3), max_size=2)),
    named(
        "add-encryption-key",
        encryption_key=st.fixed_dictionaries(
            {"key-id": st.sampled_from("kl"), "encrypted-key-metadata": st.just("eA==")}
        ),
    ),
    named("remove-encryption-key", key_id=st.sampled_from("kl")),
)
COMMITS = st.lists(st.lists(UPDATES, min_size=1, max_size=4), min_size=1, max_size=6)


def applied(base: TableMetadata, updates: list[Json], now_ms: int) -> TableMetadata | None:
    """The next metadata, or None if the commit is refused; any other error fails the test."""
    commit = decode_table_commit(json.dumps({"updates": updates}).encode())
    try:
        return next_metadata(base, commit.requirements, commit.updates, now_ms=now_ms)
    except (Conflict, Invalid):
        return None


def history(version: int, commits: list[list[Json]]) -> list[TableMetadata]:
    """The metadata after each commit that was not refused, each read from the bytes of the one before."""
    found = [decode_table_metadata(json.dumps(base_document(version)).encode(), metadata_location=BASE_FILE)]
    for number, updates in enumerate(commits):
        following = applied(found[-1], updates, NOW_MS + number)
        if following is not None and following is not found[-1]:
            data = encode_table_metadata(following)
            found.append(decode_table_metadata(data, metadata_location=f"{BASE_FILE}.{number}"))
    return found


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), COMMITS)
def test_every_invariant_holds_after_every_commit(version: int, commits: list[list[Json]]) -> None:
    tables = history(version, commits)

    for metadata in tables:
        decode_foreign_table_metadata(encode_table_metadata(metadata))
    for before, after in pairwise(tables):
        assert after.last_column_id >= before.last_column_id
        assert after.last_partition_id >= before.last_partition_id
        assert after.last_sequence_number >= before.last_sequence_number
        assert after.next_row_id >= before.next_row_id
        assert after.format_version >= before.format_version
        assert after.metadata_log[-1].metadata_file == before.metadata_location


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), COMMITS)
def test_writing_and_reading_again_gives_the_same_metadata(version: int, commits: list[list[Json]]) -> None:
    for metadata in history(version, commits):
        data = encode_table_metadata(metadata)

        assert encode_table_metadata(decode_table_metadata(data)) == data
        assert encode_table_metadata(decode_foreign_table_metadata(data)) == data


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), st.lists(UPDATES, min_size=1, max_size=6))
def test_a_spliced_result_equals_full_decoding(version: int, updates: list[Json]) -> None:
    text = json.dumps(base_document(version))
    compact = json.dumps(base_document(version), separators=(",", ":"))
    spread = json.dumps(base_document(version), indent=3)

    results = [
        applied(decode_table_metadata(data.encode(), metadata_location=BASE_FILE), updates, NOW_MS)
        for data in (text, compact, spread)
    ]

    first = results[0]
    if first is None:
        assert results == [None, None, None]
        return
    documents = [json.loads(encode_table_metadata(result)) for result in results if result is not None]
    assert documents == [documents[0]] * 3
    read_again = decode_table_metadata(encode_table_metadata(first))
    for name in (
        "schemas",
        "specs",
        "sort_orders",
        "snapshots",
        "snapshot_log",
        "metadata_log",
        "encryption_keys",
    ):
        assert getattr(first, name).items == getattr(read_again, name).items
    assert first.refs == read_again.refs
    assert first.snapshot_id_list == tuple(item.snapshot_id for item in read_again.snapshots)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), COMMITS)
def test_unknown_fields_survive_with_their_object(version: int, commits: list[list[Json]]) -> None:
    original = base_document(version)
    for metadata in history(version, commits):
        fields = json.loads(encode_table_metadata(metadata))

        assert fields["future"] == UNKNOWN
        for name, key in (("schemas", "schema-id"), ("partition-specs", "spec-id"), ("sort-orders", "order-id")):
            known = {item[key]: item for item in original[name]}
            for item in fields[name]:
                assert (
                    item["schema-id" if name == "schemas" else key] not in known
                    or item == known[item[key]]
                    or _is_new(item)
                )
        old = {item["snapshot-id"]: item for item in original["snapshots"]}
        for item in fields["snapshots"]:
            assert item == old.get(item["snapshot-id"], item) or _is_new(item)


def _is_new(item: Json) -> bool:
    # An id may be used again after its object was removed; an object without unknown fields came with a commit.
    return "future" not in item


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), COMMITS)
def test_the_refs_representation_differs_only_in_the_snapshots(version: int, commits: list[list[Json]]) -> None:
    metadata = history(version, commits)[-1]

    all_of_it = json.loads(encode_table_metadata(metadata))
    filtered = json.loads(encode_table_metadata(with_referenced_snapshots_only(metadata)))

    referenced = {ref["snapshot-id"] for ref in all_of_it["refs"].values()}
    kept = [item for item in all_of_it["snapshots"] if item["snapshot-id"] in referenced]
    assert filtered == all_of_it | {"snapshots": kept}


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["updates", "requirements", "action", "type", "schema", "snapshot", "fields"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_document_causes_any_other_error(value: object) -> None:
    data = json.dumps(value).encode()

    for read in (decode_table_commit, decode_table_metadata, decode_foreign_table_metadata):
        with suppress(BadRequest):
            read(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2000))
def test_no_damage_causes_any_other_error(noise: bytes, position: int) -> None:
    data = json.dumps(base_document(3)).encode()
    damaged = data[:position] + noise + data[position + len(noise) :]

    for read in (decode_table_metadata, decode_foreign_table_metadata):
        with suppress(BadRequest):
            read(damaged)


@pytest.mark.parametrize(
    ("properties", "deletes"),
    [
        ({}, False),
        ({"write.metadata.delete-after-commit.enabled": "TRUE"}, True),
        ({"metadata.delete-after-commit.enabled": "true"}, True),
        ({"metadata.delete-after-commit": "true"}, True),
        ({"write.metadata.delete-after-commit.enabled": "false", "metadata.delete-after-commit": "true"}, False),
    ],
)
def test_old_metadata_files_are_deleted_under_either_name_of_the_property(
    properties: dict[str, str], *, deletes: bool
) -> None:
    assert deletes_old_files(properties) is deletes
