"""View files of other programs: every fault is found before anything uses them."""

import json

import pytest

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.validation import decode_foreign_view_metadata
from tests.unit.iceberg.views import (
    BASE_FILE,
    COLUMNS,
    Json,
    add_version,
    after,
    column,
    document,
    log_entry,
    query,
    schema,
    version,
)


def refusal(fields: Json) -> str:
    with pytest.raises(BadRequest) as refused:
        decode_foreign_view_metadata(json.dumps(fields).encode())
    return str(refused.value)


def test_a_sound_file_is_read() -> None:
    metadata = decode_foreign_view_metadata(json.dumps(document()).encode(), metadata_location=BASE_FILE)

    assert metadata.current_version_id == 2
    assert metadata.metadata_location == BASE_FILE


def test_valid_files_of_other_engines_are_accepted() -> None:
    foreign = document(
        *(version(number) for number in range(1, 30)),
        version(30, {"type": "dataframe"}, query("spark"), query("Spark")),
        **{"version-log": [log_entry(77), log_entry(30)], "properties": {"version.history.num-entries": "0"}},
    )

    assert decode_foreign_view_metadata(json.dumps(foreign).encode()).current_version_id == 30


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (document(**{"view-uuid": ""}), "Invalid view metadata: view-uuid is empty"),
        (document(location="/"), "Invalid view metadata: location is empty"),
        (document(version(1), version(1)), "Invalid view metadata: multiple entries for version 1"),
        (
            document(schemas=[schema(*COLUMNS), schema(column(1, "a"), **{"schema-id": 0})]),
            "Invalid view metadata: multiple entries for schema 0",
        ),
        (
            document(version(1, schema_id=3), version(2)),
            "Invalid view metadata: version 1 has unknown schema 3",
        ),
        (document(**{"current-version-id": 3}), "Cannot find current version 3 in view versions: [1, 2]"),
        (document(versions=[]), "Cannot find current version 2 in view versions: []"),
        (
            document(schemas=[schema(column(1, "a"), column(1, "b"), **{"schema-id": 0})]),
            "Invalid schema: multiple fields for id 1: a and b",
        ),
    ],
)
def test_contradictions_are_refused(fields: Json, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        decode_foreign_view_metadata(json.dumps(fields).encode())

    assert str(refused.value) == text


@pytest.mark.parametrize(
    "fields",
    [
        document(**{"version-log": [{"version-id": 1}]}),
        document(**{"version-log": [7]}),
        document(schemas=[{"type": "list"}]),
        document(version(1, summary=None)),
        document(version(1) | {"representations": [{}]}),
    ],
)
def test_malformed_elements_are_refused(fields: Json) -> None:
    assert refusal(fields).startswith("array of ")


def test_a_valid_file_can_be_committed_to() -> None:
    metadata = decode_foreign_view_metadata(json.dumps(document()).encode())

    assert after(metadata, add_version(3))["versions"][-1]["version-id"] == 3
