"""Generated views and commits: files keep every field, and every rule holds after every commit."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandur.errors import BadRequest
from sandur.iceberg.validation import decode_foreign_view_metadata
from sandur.iceberg.view_commit import decode_create_view, decode_view_commit
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata, dialects_of, encode_view_metadata
from tests.unit.iceberg.views import (
    NOW_MS,
    Json,
    add_schema,
    column,
    committed,
    creation,
    document,
    log_entry,
    query,
    read,
    schema,
    set_current,
    version,
    written,
)

DIALECTS = ("spark", "trino", "Spark", "duckdb")
UPDATES_MAX = 4
COMMITS_MAX = 8

# No deadlines: other work on the machine must not fail a test.
some = settings(deadline=None)
many = settings(deadline=None, max_examples=300)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(
    texts.map(lambda text: "x-" + text), values.filter(lambda value: value is not None), max_size=2
)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    """A valid file with unknown fields everywhere."""
    version_ids = draw(st.lists(st.integers(0, 2**31 - 2), min_size=1, max_size=5, unique=True))
    schema_ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True))
    schemas = [schema(column(at, "a"), **{"schema-id": each}, **draw(unknown)) for at, each in enumerate(schema_ids)]
    versions = [
        version(
            each,
            query(draw(st.sampled_from(DIALECTS)), draw(texts), **draw(unknown)),
            schema_id=draw(st.sampled_from(schema_ids)),
            **{"default-namespace": draw(st.lists(texts, max_size=2)), "timestamp-ms": draw(st.integers(0, 2**63 - 1))},
            **draw(unknown),
        )
        for each in version_ids
    ]
    return document(
        *versions,
        schemas=schemas,
        properties=draw(st.dictionaries(texts, texts, min_size=1, max_size=3)),
        **{
            "current-version-id": draw(st.sampled_from(version_ids)),
            "version-log": [log_entry(each) | draw(unknown) for each in draw(st.lists(st.sampled_from(version_ids)))],
        },
        **draw(unknown),
    )


@some
@given(documents())
def test_a_written_file_has_every_field_that_was_read(fields: Json) -> None:
    assert written(read(fields)) == fields


@some
@given(documents())
def test_a_file_that_is_read_and_written_twice_is_unchanged(fields: Json) -> None:
    text = encode_view_metadata(read(fields))

    assert encode_view_metadata(decode_view_metadata(text)) == text


@some
@given(documents(), st.sampled_from(("owner", "comment")))
def test_a_commit_keeps_every_field_that_it_does_not_name(fields: Json, key: str) -> None:
    changed = written(committed(read(fields), {"action": "set-properties", "updates": {key: "v"}}))

    assert changed == fields | {"properties": fields["properties"] | {key: "v"}}


@some
@given(documents())
def test_a_new_version_keeps_everything_that_was_stored(fields: Json) -> None:
    limit = {"action": "set-properties", "updates": {"version.history.num-entries": "100"}}
    added = {
        "action": "add-view-version",
        "view-version": version(1, query("spark"), schema_id=fields["schemas"][0]["schema-id"], summary={"new": "1"}),
    }

    changed = written(committed(read(fields), limit, added))

    kept = {name: value for name, value in fields.items() if name not in {"versions", "properties"}}
    assert changed | kept == changed
    assert changed["versions"][:-1] == fields["versions"]


@st.composite
def updates(draw: st.DrawFn) -> Json:
    """One update, valid for most views; ids are small so that they collide."""
    some_id = draw(st.integers(-1, 8))
    dialects = draw(st.lists(st.sampled_from(DIALECTS), min_size=1, max_size=2, unique_by=str.lower))
    representations = [query(dialect, f"SELECT {draw(st.integers(0, 2))}") for dialect in dialects]
    sizes = {"version.history.num-entries": draw(st.sampled_from(("1", "2", "3", "0")))}
    drops = {"replace.drop-dialect.allowed": draw(st.sampled_from(("true", "false")))}
    choices: list[Json] = [
        add_schema(column(draw(st.integers(1, 3)), draw(st.sampled_from("abc")))),
        {
            "action": "add-view-version",
            "view-version": version(some_id, *representations, schema_id=draw(st.integers(-1, 2))),
        },
        set_current(some_id),
        {"action": "set-properties", "updates": draw(st.sampled_from((sizes, drops)))},
        {"action": "remove-properties", "removals": draw(st.sampled_from(([*sizes], [*drops])))},
        {"action": "set-location", "location": draw(st.sampled_from(("s3://a", "s3://b/")))},
    ]
    return draw(st.sampled_from(choices))


@st.composite
def replacing_commits(draw: st.DrawFn) -> list[Json]:
    """A commit that makes a version and sets it current, beside other updates."""
    dialects = draw(st.sampled_from((("spark",), ("Spark", "trino"), ("trino",), ("spark", "trino", "duckdb"))))
    representations = [query(dialect, f"SELECT {draw(st.integers(0, 9))}") for dialect in dialects]
    added = {"action": "add-view-version", "view-version": version(1, *representations, schema_id=0)}
    return [*draw(st.lists(updates(), max_size=1)), added, set_current(-1), *draw(st.lists(updates(), max_size=1))]


def check_invariants(before: ViewMetadata, after: ViewMetadata, sent: list[Json]) -> None:
    """Invariants after every commit on a view that only this engine wrote."""
    decode_foreign_view_metadata(encode_view_metadata(after))
    version_ids = {each.version_id for each in after.versions}
    assert after.view_uuid == before.view_uuid
    assert all(len(dialects_of(each)) == len(each.representations) for each in after.versions)
    assert after.version_log[-1].version_id == after.current_version_id
    assert {entry.version_id for entry in after.version_log} <= version_ids
    assert len(after.version_log) <= len(before.version_log) + 1
    # Schemas are never lost; a version that stays is never changed.
    assert after.schemas[: len(before.schemas)] == before.schemas.items
    assert all(each == before.versions_by_id.get(each.version_id, each) for each in after.versions)
    touched = [each for each in sent if each["action"] in {"add-view-version", "set-current-view-version"}]
    if not touched:
        assert (after.versions.items, after.version_log.items) == (before.versions.items, before.version_log.items)
    if before.version_log.items != after.version_log.items:
        limit = int(after.properties.get("version.history.num-entries", "10"))
        assert len(after.versions) <= max(limit, len(touched) + 1)
    if after.properties.get("replace.drop-dialect.allowed") != "true":
        assert dialects_of(before.current_version) <= dialects_of(after.current_version)


@many
@given(st.lists(replacing_commits() | st.lists(updates(), max_size=UPDATES_MAX), min_size=2, max_size=COMMITS_MAX))
def test_every_rule_holds_after_every_commit(commits: list[list[Json]]) -> None:
    current = committed(None, *creation())
    for number, sent in enumerate(commits):
        try:
            following = committed(current, *sent, now_ms=NOW_MS + number)
        except BadRequest:
            continue
        check_invariants(current, following, sent)
        # A commit on the decoded file equals a commit on the value in memory.
        stored = decode_foreign_view_metadata(encode_view_metadata(current))
        assert written(committed(stored, *sent, now_ms=NOW_MS + number)) == written(following)
        current = following


@st.composite
def replacements(draw: st.DrawFn) -> list[Json]:
    """A client's request to replace a view; it never drops a dialect."""
    queries = [query(dialect, f"SELECT {draw(st.integers(0, 5))}") for dialect in ("spark", "trino", "duckdb")]
    return [
        add_schema(column(draw(st.integers(1, 3)), draw(st.sampled_from("abc")))),
        {"action": "add-view-version", "view-version": version(1, *queries, schema_id=-1)},
        set_current(-1),
    ]


@some
@given(st.lists(replacements(), min_size=1, max_size=15))
def test_a_replacement_sent_twice_changes_nothing_the_second_time(commits: list[list[Json]]) -> None:
    current = committed(None, *creation())
    for sent in commits:
        current = committed(current, *sent)

        assert committed(current, *sent) is current


@some
@given(values)
def test_any_json_is_accepted_or_raises_one_kind_of_error(value: object) -> None:
    data = json.dumps(value).encode()
    for decode in (decode_view_commit, decode_create_view, decode_foreign_view_metadata):
        with pytest.raises(BadRequest):
            decode(data)


@some
@given(documents(), st.data())
def test_a_damaged_file_is_refused_or_valid(fields: Json, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(fields)))
    broken = json.dumps(fields | {name: data.draw(values)}).encode()

    try:
        metadata = decode_foreign_view_metadata(broken)
    except BadRequest:
        return

    assert committed(metadata, {"action": "set-location", "location": "s3://moved"}).location == "s3://moved"
