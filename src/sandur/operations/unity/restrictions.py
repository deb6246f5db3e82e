"""Row filters and column masks of a table: load, set and remove the policy, in the manifest of grants."""

from collections.abc import Sequence

import msgspec

from sandur.catalog.records import Pointer, Request
from sandur.catalog.security.grants import subject_id, subject_name
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.restrictions import ReadRestrictions, TableRestrictions, checked_restrictions
from sandur.catalog.security.users import user_not_found
from sandur.errors import BadRequest, Invalid, NotFound
from sandur.iceberg.expressions.binding import bind_filter
from sandur.operations.access import Security, require
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.transactions.resolution import effective_pointer
from sandur.operations.unity.grants import Target, find_target
from sandur.storage.cell import Versioned


async def load_restrictions(lake: Lake, full_name: str) -> tuple[ReadRestrictions, Sequence[str]]:
    """The policy of a table, and the names of those that it exempts; NotFound if the table has none."""
    authority = await lake.feature(Security).read()
    target = await _find(lake, authority, full_name)
    found = authority.policy(target.id)
    if found is None:
        raise _no_policy(full_name)
    return found.restrictions, [subject_name(authority, id_) for id_ in found.exempt]


async def set_restrictions(
    lake: Lake, full_name: str, restrictions: ReadRestrictions, exempt: Sequence[str], request: Request
) -> None:
    """Set the policy of a table, for everyone but its owner and those that are exempt."""
    checked_restrictions(restrictions)
    await _check_columns(lake, full_name, restrictions)
    change = _PolicyChange(lake, full_name)

    def decide(authority: Authority) -> SecurityEdit:
        ids = []
        for name in exempt:
            id_ = subject_id(authority, name)
            if id_ is None:
                raise user_not_found(name)
            ids.append(id_)
        policy = TableRestrictions(restrictions=restrictions, exempt=tuple(ids), record=change.record)
        return SecurityEdit(restrictions={} if authority.policy(change.id) == policy else {change.id: policy})

    await SecurityChange(lake, request, "set-restrictions", decide, change.authorize).run()


async def remove_restrictions(lake: Lake, full_name: str, request: Request) -> None:
    """Remove the policy of a table; NotFound if it has none."""
    change = _PolicyChange(lake, full_name)

    def decide(authority: Authority) -> SecurityEdit:
        if authority.policy(change.id) is None:
            raise _no_policy(full_name)
        return SecurityEdit(restrictions={change.id: None})

    await SecurityChange(lake, request, "remove-restrictions", decide, change.authorize).run()


class _PolicyChange:
    """The table of a change, found on the manifest that is swapped (A11, A12)."""

    def __init__(self, lake: Lake, full_name: str) -> None:
        self._lake = lake
        self._full_name = full_name
        self.id = ""
        self.record = ""

    async def authorize(self, authority: Authority) -> None:
        target = await _find(self._lake, authority, self._full_name)
        self.id, self.record = target.id, target.record.removeprefix(self._lake.layout.root)


async def _find(lake: Lake, authority: Authority, full_name: str) -> Target:
    target = await find_target(lake, authority, "table", full_name)
    require(lake, authority, target.chain, missing=target.missing)
    return target


async def _check_columns(lake: Lake, full_name: str, restrictions: ReadRestrictions) -> None:
    """Raise Invalid for a filter that does not fit an Iceberg table, and for a column that it does not have."""
    authority = await lake.feature(Security).read()
    found = (await _find(lake, authority, full_name)).found
    record = found.pointer.value if found else None
    if found is None or not isinstance(record, Pointer):
        return
    head = (await effective_pointer(lake, Versioned(record, found.pointer.version))).value.head
    if head is None or found.name.value.kind != "table":
        raise Invalid(f"{full_name} is not a table: only tables have row filters and column masks")
    schema = (await load_document(lake, TABLES, head.metadata_location)).metadata.current_schema
    if restrictions.required_row_filter is not None:
        try:
            bind_filter(msgspec.json.decode(msgspec.json.encode(restrictions.required_row_filter)), schema)
        except BadRequest as error:
            raise Invalid(f"Invalid required-row-filter: {error}") from error
    for mask in restrictions.required_column_projections:
        if mask.field_id not in schema.columns:
            raise Invalid(f"Table {full_name} has no column with the field id {mask.field_id}")


def _no_policy(full_name: str) -> NotFound:
    return NotFound(f"Table has no row filters and no column masks: {full_name}", subject="table")
