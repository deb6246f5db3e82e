"""The invariants of names, of what they lead to, and of namespaces, decided on records that were read together."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sandur.catalog.records import (
    BoundRecord,
    Catalog,
    DeltaTable,
    Head,
    NameRecord,
    NamespaceRecord,
    Pointer,
)
from sandur.catalog.verification.findings import Finding, finding, in_flight

_DEAD: Final = frozenset({"dropped", "purging", "killed"})


def name_findings(
    key: str,
    name: NameRecord,
    record: BoundRecord | None,
    namespace: NamespaceRecord | None,
    *,
    is_stale: bool,
) -> Iterator[Finding]:
    """A name, the record that it leads to, and its namespace; None if they do not exist."""
    match name.state:
        case "new" | "moving" | "pending":
            yield in_flight(key, f"the name is {name.state}", is_stale=is_stale)
        case "dropped":
            if record is not None and record.state not in _DEAD and record.life == name.life:  # D3
                yield in_flight(key, f"the name is dropped, its record is {record.state}", is_stale=is_stale)
        case "active":
            yield from _active_findings(key, name, record)
            yield from _place_findings(key, name, namespace)
        case "moved" | "free":
            return


def _active_findings(key: str, name: NameRecord, record: BoundRecord | None) -> Iterator[Finding]:
    expected = f"a live {name.kind} {name.uuid}"
    if record is None:
        yield finding("name-without-record", key, expected=expected, found="no record")
    elif record.state in _DEAD:  # D3: a drop happens at the name first.
        yield finding("name-of-dead-record", key, expected=expected, found=f"its record is {record.state}")
    elif record.life != name.life:  # U1
        found = f"the record is in the life {record.life or 'first'}, the name in {name.life or 'first'}"
        yield finding("name-of-dead-record", key, expected=expected, found=found)
    elif record.kind != name.kind:
        yield finding("name-of-another-kind", key, expected=expected, found=f"a {record.kind}")


def _place_findings(key: str, name: NameRecord, namespace: NamespaceRecord | None) -> Iterator[Finding]:
    """N4, N6: what exists has a namespace, with the id that the name records; older names record none."""
    expected = f"a namespace with the id {name.namespace_id}" if name.namespace_id else "a namespace"
    if namespace is None or namespace.state == "dropped":
        found = "no namespace" if namespace is None else "the namespace is dropped"
        yield finding("name-without-namespace", key, expected=expected, found=found)
    elif name.namespace_id and namespace.id != name.namespace_id:
        yield finding("name-without-namespace", key, expected=expected, found=f"the id {namespace.id}")


def namespace_findings(
    key: str, namespace: NamespaceRecord, parent: NamespaceRecord | Catalog | None, *, is_stale: bool
) -> Iterator[Finding]:
    """A namespace and its parent, a namespace or the catalog."""
    match namespace.state:
        case "new":
            yield in_flight(key, "the namespace is new", is_stale=is_stale)
        case "dropping":
            yield in_flight(key, "a drop of the namespace is not finished", is_stale=False)  # It reads as active.
        case "dropped":
            return
        case "active":
            pass
    if namespace.state != "new" and (parent is None or parent.state == "dropped"):
        found = "none" if parent is None else "it is dropped"
        yield finding("namespace-without-parent", key, expected="a catalog or namespace above it", found=found)


def bound_findings(key: str, uuid: str, record: BoundRecord, *, is_stale: bool) -> Iterator[Finding]:
    """A record that names lead to, by itself; `uuid` is the one in its key."""
    if record.uuid != uuid:
        yield finding("misplaced-record", key, expected=f"the record of {uuid}", found=f"that of {record.uuid}")
    if record.state in {"unbound", "condemned"}:
        yield in_flight(key, f"the record is {record.state}", is_stale=is_stale)
    if isinstance(record, Pointer):
        if record.head is None and record.state in {"live", "dropped"}:
            yield finding("record-without-head", key, expected="a current metadata file", found="none")
        if record.pending is not None:
            found = f"a pending change of the transaction {record.pending.transaction}"
            yield in_flight(key, found, is_stale=is_stale)
    if isinstance(record, DeltaTable) and record.state == "live":
        yield from _delta_findings(key, record)


def _delta_findings(key: str, table: DeltaTable) -> Iterator[Finding]:
    """L1, L4: the tracked commits have no gap, end at the newest version, and begin behind what is published."""
    versions = [commit.version for commit in table.commits]
    if not versions:
        return
    expected = list(range(versions[0], table.last_version + 1))
    if versions != expected:
        found = f"versions {_ranges(versions)}"
        yield finding("delta-gap", key, expected=f"versions {_ranges(expected)}", found=found)
    elif versions[0] > table.published + 1:
        found = f"published up to {table.published}, tracked from {versions[0]}"
        yield finding("delta-gap", key, expected="every version published or tracked", found=found)


def _ranges(versions: Sequence[int]) -> str:
    """Such as `3-5, 7`."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], version]
        else:
            parts.append([version])
    return ", ".join("-".join(map(str, part)) for part in parts) or "none"


class HeadFacts(NamedTuple):
    """What a metadata file says; None if it does not say it, as an old table without a uuid, or a view."""

    uuid: str | None
    snapshot_id: int | None
    updated_ms: int | None


def head_findings(key: str, pointer: Pointer, head: Head, says: HeadFacts) -> Iterator[Finding]:
    """A head and what its metadata file says."""
    place = head.metadata_location
    if says.uuid is not None and says.uuid != pointer.table_uuid:
        expected = f"the {pointer.kind} {pointer.table_uuid} in {place}"
        yield finding("metadata-of-another-table", key, expected=expected, found=f"that of {says.uuid}")
    elif pointer.kind == "table" and says.snapshot_id != head.snapshot_id:
        expected = f"snapshot {head.snapshot_id} in {place}"
        yield finding("metadata-differs", key, expected=expected, found=f"snapshot {says.snapshot_id}")
    elif pointer.kind == "table" and says.updated_ms not in {None, head.last_updated_ms}:
        expected = f"last updated at {head.last_updated_ms} in {place}"
        yield finding("metadata-differs", key, expected=expected, found=f"at {says.updated_ms}")
