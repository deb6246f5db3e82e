"""The 9 requirements of a commit on a table or view, and their check against table metadata."""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from sandur.errors import Conflict, Invalid
from sandur.iceberg.table_metadata import TableMetadata
from sandur.splicing import Int32, Int64, shorten


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


def requirement_type(requirement: Requirement) -> str:
    """The name of the requirement in the protocol."""
    return str(requirement.__struct_config__.tag)


def check_create_requirements(requirements: Sequence[Requirement]) -> None:
    """Raise `Invalid` for assert-create together with any other requirement."""
    others = [
        requirement_type(requirement) for requirement in requirements if not isinstance(requirement, AssertCreate)
    ]
    if others:
        raise Invalid(f"Invalid create requirements: assert-create together with {', '.join(others)}")


def check_requirements(base: TableMetadata | None, requirements: Sequence[Requirement]) -> None:
    """Raise `Conflict` for the first requirement that fails; no `base` means that the table does not exist."""
    if any(isinstance(requirement, AssertCreate) for requirement in requirements):
        check_create_requirements(requirements)
    if base is None:
        if not requirements:
            raise Invalid("Invalid create requirements: a table that does not exist needs assert-create")
        check_create_requirements(requirements)
        return
    for requirement in requirements:
        _check(base, requirement)


def _check(base: TableMetadata, requirement: Requirement) -> None:
    match requirement:
        case AssertCreate():
            raise _failed("table already exists")
        case AssertTableUuid(uuid=uuid):
            _check_uuid(base, uuid)
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
        case AssertViewUuid():
            raise Invalid("Cannot validate assert-view-uuid against a table")
        case _:
            assert_never(requirement)


def _check_uuid(base: TableMetadata, expected: str) -> None:
    if (base.table_uuid or "").lower() != expected.lower():
        raise _failed(f"UUID does not match: expected {base.table_uuid} != {shorten(expected)}")


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
