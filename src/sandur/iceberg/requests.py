"""Request bodies of the Iceberg REST protocol and the requirements of a commit, decoded before use."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import UnionType
from typing import TypeVar, assert_never, get_args

import msgspec

from sandur.errors import BadRequest, Conflict, Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.partitioning import PartitionSpec
from sandur.iceberg.schema import Schema
from sandur.iceberg.snapshots import check_snapshot
from sandur.iceberg.sort_order import SortOrder
from sandur.iceberg.table_metadata import TableMetadata
from sandur.splicing import Int32, Int64, check_utf8, decode, decode_body, decode_fields, encode, join_object, shorten


class _Requirement(msgspec.Struct, frozen=True, rename="kebab", tag_field="type"):
    pass


class AssertCreate(_Requirement, frozen=True, tag="assert-create"):
    pass


class AssertTableUuid(_Requirement, frozen=True, tag="assert-table-uuid"):
    uuid: str


class AssertRefSnapshotId(_Requirement, frozen=True, tag="assert-ref-snapshot-id"):
    """A missing or null `snapshot_id` means that the reference must not exist."""

    ref: str
    snapshot_id: Int64 | None = None


class AssertLastAssignedFieldId(_Requirement, frozen=True, tag="assert-last-assigned-field-id"):
    last_assigned_field_id: Int32


class AssertCurrentSchemaId(_Requirement, frozen=True, tag="assert-current-schema-id"):
    current_schema_id: Int32


class AssertLastAssignedPartitionId(_Requirement, frozen=True, tag="assert-last-assigned-partition-id"):
    last_assigned_partition_id: Int32


class AssertDefaultSpecId(_Requirement, frozen=True, tag="assert-default-spec-id"):
    default_spec_id: Int32


class AssertDefaultSortOrderId(_Requirement, frozen=True, tag="assert-default-sort-order-id"):
    default_sort_order_id: Int32


class AssertViewUuid(_Requirement, frozen=True, tag="assert-view-uuid"):
    uuid: str


Requirement = (
    AssertCreate
    | AssertTableUuid
    | AssertRefSnapshotId
    | AssertLastAssignedFieldId
    | AssertCurrentSchemaId
    | AssertLastAssignedPartitionId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
    | AssertViewUuid
)


def check_create_requirements(requirements: Sequence[Requirement]) -> None:
    """Raise `Invalid` for assert-create together with any other requirement."""
    others = [u.tag_of(requirement) for requirement in requirements if not isinstance(requirement, AssertCreate)]
    if others:
        raise Invalid(f"Invalid create requirements: assert-create together with {', '.join(others)}")


def check_requirements(base: TableMetadata | None, requirements: Sequence[Requirement]) -> None:
    """Raise `Conflict` for the first requirement that fails; no `base` means that the table does not exist."""
    if base is None and not requirements:
        raise Invalid("Invalid create requirements: a table that does not exist needs assert-create")
    if base is None or any(isinstance(requirement, AssertCreate) for requirement in requirements):
        check_create_requirements(requirements)
        if base is not None:
            raise _failed("table already exists")
        return
    for requirement in requirements:
        _check(base, requirement)


def _check(base: TableMetadata, requirement: Requirement) -> None:
    match requirement:
        case AssertTableUuid(uuid=uuid):
            if (base.table_uuid or "").lower() != uuid.lower():
                raise _failed(f"UUID does not match: expected {base.table_uuid} != {shorten(uuid)}")
        case AssertRefSnapshotId(ref=name, snapshot_id=expected):
            _check_ref(base, name, expected)
        case AssertLastAssignedFieldId(last_assigned_field_id=expected):
            _check_id("last assigned field id", expected, base.last_column_id)
        case AssertCurrentSchemaId(current_schema_id=expected):
            _check_id("current schema", expected, base.current_schema_id)
        case AssertLastAssignedPartitionId(last_assigned_partition_id=expected):
            _check_id("last assigned partition id", expected, base.last_partition_id)
        case AssertDefaultSpecId(default_spec_id=expected):
            _check_id("default partition spec", expected, base.default_spec_id)
        case AssertDefaultSortOrderId(default_sort_order_id=expected):
            _check_id("default sort order", expected, base.default_sort_order_id)
        case AssertCreate() | AssertViewUuid():
            raise Invalid(f"Cannot validate {u.tag_of(requirement)} against a table")
        case _:
            assert_never(requirement)


def _check_id(what: str, expected: int, found: int) -> None:
    if expected != found:
        raise _failed(f"{what} changed: expected id {expected} != {found}")


def _check_ref(base: TableMetadata, name: str, expected: int | None) -> None:
    found = base.ref(name)
    short_name = shorten(name)
    if found is None and expected is not None:
        raise _failed(f"branch or tag {short_name} is missing, expected {expected}")
    if found is not None and expected is None:
        raise _failed(f"{found.type} {short_name} was created concurrently")
    if found is not None and expected != found.snapshot_id:
        raise _failed(f"{found.type} {short_name} has changed: expected id {expected} != {found.snapshot_id}")


def _failed(text: str) -> Conflict:
    return Conflict(f"Requirement failed: {text}")


# Far beyond what any client sends; it bounds the work that a hostile commit causes.
CHANGES_MAX = 10_000
# Each of these is compared with all others of its kind.
DEFINITIONS_MAX = 1_000

S = TypeVar("S", bound=msgspec.Struct)

_DEFINITIONS = frozenset({u.AddSchema, u.AddPartitionSpec, u.AddSortOrder})
_LEGACY_NAMES = {"updated": "updates", "removed": "removals"}


class TableIdentifier(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    name: str


class TableCommit(msgspec.Struct, frozen=True):
    """A commit request; `identifier` is absent outside transactions."""

    requirements: tuple[Requirement, ...]
    updates: tuple[u.Update, ...]
    identifier: TableIdentifier | None = None


class CreateTable(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    schema: Schema
    location: str | None = None
    partition_spec: PartitionSpec | None = None
    write_order: SortOrder | None = None
    stage_create: bool | None = None
    properties: dict[str, str] | None = None


class RegisterTable(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    metadata_location: str
    overwrite: bool | None = None


class _CommitBody(msgspec.Struct, frozen=True):
    requirements: list[msgspec.Raw] | None = None
    updates: list[msgspec.Raw] | None = None
    identifier: TableIdentifier | None = None


class _TransactionBody(msgspec.Struct, frozen=True, rename="kebab"):
    table_changes: list[msgspec.Raw]


def _by_tag(union: UnionType) -> dict[str, type[msgspec.Struct]]:
    return {str(struct.__struct_config__.tag): struct for struct in get_args(union)}


_UPDATES = _by_tag(u.Update)
_REQUIREMENTS = _by_tag(Requirement)


def decode_table_commit(body: bytes) -> TableCommit:
    """Decode a commit; raises `BadRequest` that lists every unknown action and requirement type."""
    check_utf8(body, "commit")
    return _commit_of(body, "commit")


def decode_transaction(body: bytes) -> tuple[TableCommit, ...]:
    """Decode the commits of a transaction, each with its identifier; raises `BadRequest`."""
    changes = decode_body(body, _TransactionBody, "transaction").table_changes
    if not changes:
        raise BadRequest("Invalid table changes: empty")
    commits = tuple(_commit_of(change, "table change") for change in changes)
    if any(commit.identifier is None for commit in commits):
        raise BadRequest("Invalid table changes: every change needs an identifier")
    return commits


decode_create_table = partial(decode_body, wanted=CreateTable, what="create table request")
decode_register_table = partial(decode_body, wanted=RegisterTable, what="register table request")


def _commit_of(body: bytes | msgspec.Raw, what: str) -> TableCommit:
    try:
        # Nearly every commit follows the specification, and is then decoded in one pass.
        commit = decode(body, TableCommit, what)
    except BadRequest:
        commit = _decode_leniently(decode(body, _CommitBody, what))
    _check_changes(len(commit.requirements) + len(commit.updates))
    if sum(type(update) in _DEFINITIONS for update in commit.updates) > DEFINITIONS_MAX:
        raise BadRequest(f"commit is malformed: more than {DEFINITIONS_MAX} schemas, partition specs and sort orders")
    for update in commit.updates:
        if isinstance(update, u.AddSnapshot):
            check_snapshot(update.snapshot)
    return commit


def _check_changes(count: int) -> None:
    if count > CHANGES_MAX:
        raise BadRequest(f"commit is malformed: more than {CHANGES_MAX} updates and requirements")


def _decode_leniently(body: _CommitBody) -> TableCommit:
    """Decode a commit that deviates from the specification: nulls for absent fields, old names, tags in upper case."""
    if body.updates is None:
        raise BadRequest("commit is malformed: missing updates")
    _check_changes(len(body.updates) + len(body.requirements or ()))
    requirements = [_fields_of(raw, "requirement", "type") for raw in body.requirements or ()]
    updates = [_fields_of(raw, "update", "action") for raw in body.updates]
    _check_known(requirements, updates)
    return TableCommit(
        requirements=tuple(_tagged(_REQUIREMENTS[tag], fields, f"requirement {tag}") for tag, fields in requirements),  # type: ignore[misc] # The table maps to members of the union.
        updates=tuple(_update_of(tag, fields) for tag, fields in updates),
        identifier=body.identifier,
    )


_Tagged = tuple[str, dict[str, msgspec.Raw]]


def _fields_of(raw: msgspec.Raw, what: str, tag_field: str) -> _Tagged:
    """The tag in lower case, and the fields that are not null: Java clients send null for an absent field."""
    fields = decode_fields(raw, what)
    if tag_field not in fields:
        raise BadRequest(f"{what} is malformed: missing {tag_field}")
    tag = decode(fields.pop(tag_field), str, f"{what} {tag_field}").lower()
    return tag, fields


def _check_known(requirements: list[_Tagged], updates: list[_Tagged]) -> None:
    problems = []
    if unknown := [shorten(tag) for tag, _ in updates if tag not in _UPDATES]:
        problems.append(f"unknown update actions: {', '.join(dict.fromkeys(unknown))}")
    if unknown := [shorten(tag) for tag, _ in requirements if tag not in _REQUIREMENTS]:
        problems.append(f"unknown requirement types: {', '.join(dict.fromkeys(unknown))}")
    if problems:
        raise BadRequest("commit is malformed: " + "; ".join(problems))


def _update_of(tag: str, fields: Mapping[str, msgspec.Raw]) -> u.Update:
    wanted = _UPDATES[tag]
    if wanted in {u.SetProperties, u.RemoveProperties}:
        fields = {_LEGACY_NAMES.get(name, name): value for name, value in fields.items()} | {
            name: value for name, value in fields.items() if name in _LEGACY_NAMES.values()
        }
    return _tagged(wanted, fields, f"update {tag}")  # type: ignore[return-value] # The table maps to members of the union.


def _tagged(wanted: type[S], fields: Mapping[str, msgspec.Raw], what: str) -> S:
    config = wanted.__struct_config__
    kept = [(name, value) for name, value in fields.items() if name in wanted.__struct_encode_fields__]
    return decode(join_object([(str(config.tag_field), encode(config.tag)), *kept]), wanted, what)
