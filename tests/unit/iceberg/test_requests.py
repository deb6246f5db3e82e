"""Request bodies: valid ones are parsed, all others get one clear error."""

import json

import pytest

from sandur.errors import BadRequest, SandurError
from sandur.iceberg.requests import (
    CHANGES_MAX,
    DEFINITIONS_MAX,
    AssertRefSnapshotId,
    decode_create_table,
    decode_register_table,
    decode_table_commit,
    decode_transaction,
)
from sandur.iceberg.updates import SetProperties, tag_of
from tests.unit.iceberg.tables import COLUMNS, Json, add_snapshot, column, schema

ONE_OF_EACH: list[Json] = [
    {"action": "assign-uuid", "uuid": "x"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": schema(*COLUMNS)},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    add_snapshot(1, 1),
    {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1, "type": "branch"},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {"action": "set-location", "location": "x"},
    {"action": "set-properties", "updates": {"a": "b"}},
    {"action": "remove-properties", "removals": ["a"]},
    {
        "action": "set-statistics",
        "statistics": {
            "snapshot-id": 1,
            "statistics-path": "x",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        },
    },
    {"action": "remove-statistics", "snapshot-id": 1},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {"snapshot-id": 1, "statistics-path": "x", "file-size-in-bytes": 1},
    },
    {"action": "remove-partition-statistics", "snapshot-id": 1},
    {"action": "remove-partition-specs", "spec-ids": [1]},
    {"action": "remove-schemas", "schema-ids": [1]},
    {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "eA=="}},
    {"action": "remove-encryption-key", "key-id": "k"},
    {
        "action": "add-view-version",
        "view-version": {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": -1,
            "summary": {},
            "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
            "default-namespace": ["a"],
        },
    },
    {"action": "set-current-view-version", "view-version-id": -1},
]


def body(*updates: object, **more: object) -> bytes:
    return json.dumps({"updates": list(updates), **more}).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(BadRequest) as refused:
        decode_table_commit(data)
    return str(refused.value)


def test_all_25_actions_are_known_in_any_case() -> None:
    assert len({update["action"] for update in ONE_OF_EACH}) == 25

    lower = decode_table_commit(body(*ONE_OF_EACH))
    upper = decode_table_commit(body(*({**update, "action": update["action"].upper()} for update in ONE_OF_EACH)))

    assert [tag_of(update) for update in lower.updates] == [update["action"] for update in ONE_OF_EACH]
    assert upper == lower


REQUIREMENTS: list[Json] = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "x"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1},
    {"type": "assert-current-schema-id", "current-schema-id": 1},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1},
    {"type": "assert-default-spec-id", "default-spec-id": 1},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
    {"type": "assert-view-uuid", "uuid": "x"},
]


def test_the_strict_form_and_the_form_of_clients_are_the_same_commit() -> None:
    strict = decode_table_commit(body(*ONE_OF_EACH, requirements=REQUIREMENTS))
    as_clients_do = decode_table_commit(
        body(
            *({**update, "action": update["action"].upper(), "extra": None} for update in ONE_OF_EACH),
            requirements=[{**one, "type": one["type"].title(), "extra": None} for one in REQUIREMENTS],
        )
    )

    assert as_clients_do == strict


@pytest.mark.parametrize("update", ONE_OF_EACH, ids=lambda update: str(update["action"]))
def test_every_field_of_an_update_is_required_unless_it_is_optional(update: Json) -> None:
    for name in update.keys() - {"action"}:
        for broken in ({key: value for key, value in update.items() if key != name}, {**update, name: None}):
            assert f"update {update['action']} is malformed" in refusal(body(broken))


@pytest.mark.parametrize("update", ONE_OF_EACH, ids=lambda update: str(update["action"]))
@pytest.mark.parametrize("wrong", [True, -1.5, [[]], {"a": {}}, "\u0000", 2**70])
def test_a_value_of_the_wrong_type_is_one_clear_error(update: Json, wrong: object) -> None:
    for name in update.keys() - {"action"}:
        if isinstance(wrong, str) and isinstance(update[name], str):
            continue
        assert "malformed" in refusal(body({**update, name: wrong}))


def test_unknown_actions_and_requirements_are_all_named() -> None:
    text = refusal(
        body({"action": "fly"}, {"action": "set-location", "location": "x"}, {"action": "swim"}, {"action": "fly"})
    )
    assert text == "commit is malformed: unknown update actions: fly, swim"

    both = refusal(body({"action": "fly"}, requirements=[{"type": "assert-moon"}, {"type": "assert-sun"}]))
    assert both == (
        "commit is malformed: unknown update actions: fly; unknown requirement types: assert-moon, assert-sun"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "commit is malformed: Input data was truncated"),
        (b"[]", "commit is malformed: Expected `object`, got `array`"),
        (b"{}", "commit is malformed: missing updates"),
        (b'{"updates":null}', "commit is malformed: missing updates"),
        (b'{"updates":[1]}', "update is malformed: Expected `object`, got `int`"),
        (b'{"updates":[{}]}', "update is malformed: missing action"),
        (b'{"updates":[{"action":null}]}', "update is malformed: missing action"),
        (b'{"updates":[{"action":1}]}', "update action is malformed: Expected `str`, got `int`"),
        (b'{"updates":[],"requirements":[{}]}', "requirement is malformed: missing type"),
        (b'{"updates":[],"x":NaN}', "commit is malformed: invalid character (byte 18)"),
        (b'{"updates":[],"x":"\xff"}', "commit is malformed: not valid UTF-8"),
        (b"\xef\xbb\xbf{}", "commit is malformed: invalid character (byte 0)"),
        (b'{"updates":' + b"[" * 100_000, "commit is malformed: nested too deeply"),
        (b'{"updates":[]} x', "commit is malformed: trailing characters (byte 16)"),
    ],
)
def test_a_body_that_is_not_a_commit_is_one_clear_error(data: bytes, text: str) -> None:
    assert refusal(data) == text


def test_numbers_beyond_64_bits_are_refused() -> None:
    assert "malformed" in refusal(body(add_snapshot(2**63, 1)))
    assert "malformed" in refusal(body({"action": "remove-snapshots", "snapshot-ids": [10**400]}))
    assert "malformed" in refusal(b'{"updates":[{"action":"set-current-schema","schema-id":1e999}]}')


def test_the_last_of_repeated_keys_counts() -> None:
    commit = decode_table_commit(b'{"updates":[],"updates":[{"action":"set-properties","updates":{"a":"1","a":"2"}}]}')

    assert commit.updates == (SetProperties(updates={"a": "2"}),)


def test_a_missing_snapshot_id_means_that_the_reference_must_not_exist() -> None:
    commit = decode_table_commit(body(requirements=[{"type": "assert-ref-snapshot-id", "ref": "main"}]))

    assert commit.requirements == (AssertRefSnapshotId(ref="main", snapshot_id=None),)


def test_missing_requirements_are_an_empty_list() -> None:
    assert decode_table_commit(body()).requirements == ()
    assert decode_table_commit(body(requirements=None)).requirements == ()


def test_a_commit_may_carry_its_identifier() -> None:
    commit = decode_table_commit(body(identifier={"namespace": ["a", "b"], "name": "t"}))

    assert commit.identifier is not None
    assert (commit.identifier.namespace, commit.identifier.name) == (("a", "b"), "t")


def test_deeply_nested_types_are_refused_quickly() -> None:
    kind: object = "int"
    for depth in range(200):
        kind = {"type": "list", "element-id": 10 + depth, "element": kind, "element-required": False}
    deep = body({"action": "add-schema", "schema": schema(column(1, "a", kind))})

    assert len(decode_table_commit(deep).updates) == 1

    open_list = b'{"type":"list","element-id":1,"element-required":true,"element":'
    start = b'{"updates":[{"action":"add-schema","schema":{"fields":[{"id":1,"name":"a","required":true,"type":'
    assert refusal(start + open_list * 50_000) == "commit is malformed: nested too deeply"


def test_the_size_of_a_commit_is_bounded() -> None:
    too_many: list[Json] = [{"action": "set-location", "location": "x"}] * (CHANGES_MAX + 1)
    assert refusal(body(*too_many)) == f"commit is malformed: more than {CHANGES_MAX} updates and requirements"

    too_many = [{"action": "add-schema", "schema": schema()}] * (DEFINITIONS_MAX + 1)
    assert refusal(body(*too_many)) == (
        f"commit is malformed: more than {DEFINITIONS_MAX} schemas, partition specs and sort orders"
    )


class TestTransactions:
    def test_each_change_needs_an_identifier(self) -> None:
        change = {"identifier": {"namespace": ["a"], "name": "t"}, "requirements": [], "updates": []}

        assert len(decode_transaction(json.dumps({"table-changes": [change, change]}).encode())) == 2
        with pytest.raises(BadRequest, match="every change needs an identifier"):
            decode_transaction(json.dumps({"table-changes": [change, {"updates": []}]}).encode())

    def test_a_transaction_without_changes_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="empty"):
            decode_transaction(b'{"table-changes":[]}')


class TestCreateAndRegister:
    def test_explicit_nulls_of_java_clients_are_accepted(self) -> None:
        nulls = dict.fromkeys(["location", "partition-spec", "write-order", "properties", "stage-create"])

        request = decode_create_table(json.dumps({"name": "t", "schema": schema(*COLUMNS), **nulls}).encode())

        assert (request.name, request.location, request.partition_spec, request.stage_create) == ("t", None, None, None)

    @pytest.mark.parametrize("data", [b"{}", b'{"name":"t"}', b'{"name":1,"schema":{}}', b"\xff", b'{"name":"\xff"}'])
    def test_an_invalid_request_is_one_clear_error(self, data: bytes) -> None:
        for decode in (decode_create_table, decode_register_table):
            with pytest.raises(BadRequest, match="malformed"):
                decode(data)

    def test_a_registration_is_parsed(self) -> None:
        request = decode_register_table(b'{"name":"t","metadata-location":"s3://x","overwrite":true}')

        assert (request.name, request.metadata_location, request.overwrite) == ("t", "s3://x", True)


def test_all_errors_are_sandur_errors() -> None:
    assert issubclass(BadRequest, SandurError)
