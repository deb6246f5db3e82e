"""Maintenance policies of workspaces, catalogs, namespaces and tables: load, change and merge them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.events import EventSubject
from sandur.catalog.identifiers import Identifier, parse_full_name, parse_schema_name
from sandur.catalog.maintenance.policies import (
    SYSTEM,
    Field,
    MergedPolicy,
    PolicyEdit,
    PolicyRecord,
    ScopePolicy,
    Values,
    edited_policy,
    merged_policy,
)
from sandur.catalog.records import DeltaTable, Pointer, Request
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import SecurableType
from sandur.errors import Invalid
from sandur.operations.access import Security, require
from sandur.operations.caches import LruCache
from sandur.operations.containers.records import RecordChange
from sandur.operations.lake import Lake
from sandur.operations.security import current_authority
from sandur.operations.tables.documents import TABLES, load_document
from sandur.operations.transactions.resolution import effective_pointer
from sandur.operations.unity.grants import Target, find_target
from sandur.storage.cell import Cell, Versioned, gather_all, gather_in_batches
from sandur.storage.contract import list_pages

WORKSPACE: Final = "workspace"
"""The id and the name of the outermost scope."""
SYSTEM_NAMESPACE: Final = "system"
"""The namespace of the pipeline's own tables, in the default catalog."""

_READS_AT_ONCE: Final = 64

_CONTAINERS: Final = 2
"""Workspace and catalog come before the scopes of a namespace."""

_WHOLE: Final = ((WORKSPACE, WORKSPACE),)
_NAMES: Final[Mapping[SecurableType, str]] = {"catalog": "catalog", "schema": "namespace", "table": "table"}


class ScopeView(NamedTuple):
    """The policy of a scope itself, and the merged one with the origin of each value."""

    values: Values
    locked: Sequence[Field]
    merged: MergedPolicy


class Scopes(NamedTuple):
    """Every policy of the workspace, by what it applies to."""

    workspace: ScopePolicy | None
    catalogs: Mapping[str, ScopePolicy]
    namespaces: Mapping[tuple[str, str], ScopePolicy]
    tables: Mapping[str, ScopePolicy]
    default_catalog: str

    def is_system(self, row: Mapping[str, Any]) -> bool:
        return (row["catalog"], row["namespace"]) == (self.default_catalog, SYSTEM_NAMESPACE)

    def of(self, row: Mapping[str, Any]) -> Sequence[ScopePolicy]:
        """The policies of a table, from the workspace down."""
        levels = row["namespace"].split(".")
        above = [(row["catalog"], ".".join(levels[: depth + 1])) for depth in range(len(levels))]
        found = (
            self.workspace,
            self.catalogs.get(row["catalog"]),
            SYSTEM if self.is_system(row) else None,
            *(self.namespaces.get(one) for one in above),
            self.tables.get(row["uuid"]),
        )
        return [one for one in found if one]


def scopes_of(
    records: Mapping[str, PolicyRecord],
    catalogs: Iterable[tuple[str, str]],
    namespaces: Iterable[tuple[str, str, str]],
    default_catalog: str,
) -> Scopes:
    """All policies with the current names of their scopes, each of which comes with its id."""

    def policy(id_: str, name: str) -> ScopePolicy:
        return ScopePolicy(name, records[id_].values, records[id_].locked)

    return Scopes(
        policy(WORKSPACE, WORKSPACE) if WORKSPACE in records else None,
        {name: policy(id_, f"catalog {name}") for name, id_ in catalogs if id_ in records},
        {
            (catalog, namespace): policy(id_, f"namespace {catalog}.{namespace}")
            for catalog, namespace, id_ in namespaces
            if id_ in records
        },
        {id_: policy(id_, f"table {id_}") for id_ in records if id_ != WORKSPACE},
        default_catalog,
    )


async def read_policies(lake: Lake) -> Mapping[str, PolicyRecord]:
    """The policies of all scopes that decide something, by the id of the scope."""
    found: dict[str, PolicyRecord] = {}
    async for page in list_pages(lake.store, lake.layout.policies_folder()):
        found |= await _read_cells([lake.uncached(one.key, PolicyRecord) for one in page])
    return found


async def read_policies_of(lake: Lake, ids: Iterable[str]) -> Mapping[str, PolicyRecord]:
    """The policies of these scopes that decide something, by the id of the scope."""
    return await _read_cells([_cell(lake, id_) for id_ in ids])


async def _read_cells(cells: Sequence[Cell[PolicyRecord]]) -> dict[str, PolicyRecord]:
    records = await gather_in_batches(cells, lambda cell: cell.read(), at_once=_READS_AT_ONCE)
    return {held.value.scope_id: held.value for held in records if held and held.value.values}


async def load_policy(lake: Lake, type_: SecurableType, full_name: str) -> ScopeView:
    """The policy of a scope that the caller may see. NotFound if the scope does not exist."""
    authority, known = await current_authority(lake), lake.named_feature(_known_scopes)
    guess = known.get((type_, full_name), _WHOLE)
    target, records = await gather_all((_find(lake, authority, type_, full_name), _read(lake, guess)))
    scopes = (*_WHOLE, *_scopes(target, full_name))
    if scopes != guess:
        records, known[type_, full_name] = await _read(lake, scopes), scopes
    policies = [
        ScopePolicy(name, found.value.values if found else {}, found.value.locked if found else ())
        for (_, name), found in zip(scopes, records, strict=True)
    ]
    if f"{full_name}.".startswith(f"{lake.settings.default_catalog}.{SYSTEM_NAMESPACE}."):
        policies.insert(_CONTAINERS, SYSTEM)
    own = records[-1].value if records[-1] else PolicyRecord(scope_id=scopes[-1][0])
    return ScopeView(own.values, own.locked, merged_policy(policies, await _properties(lake, target)))


def _known_scopes(lake: Lake) -> LruCache[tuple[str, str], Sequence[tuple[str, str]]]:
    """The scopes of names as they were read last: their policies are read in the same round as the name."""
    return LruCache(lake.settings.cache_records_max)


async def _read(lake: Lake, scopes: Sequence[tuple[str, str]]) -> Sequence[Versioned[PolicyRecord] | None]:
    return await gather_all([_cell(lake, scope_id).read() for scope_id, _ in scopes])


async def change_policy(
    lake: Lake, type_: SecurableType, full_name: str, edit: PolicyEdit, request: Request, *, replaces: bool = False
) -> PolicyRecord:
    """Change the fields and locks of a policy; with `replaces`, what the edit does not set is removed."""
    edited_policy(
        {}, (), replace(edit, unset=(), lock=(), unlock=())
    )  # Bad fields are refused before anything is read.
    target = await _find(lake, await lake.feature(Security).read(), type_, full_name)
    scope_id = _scope_id(target)

    async def authorize(_record: PolicyRecord | None) -> None:
        current = await _find(lake, await lake.feature(Security).read(), type_, full_name)
        if _scope_id(current) != scope_id:
            raise target.missing

    def decide(found: PolicyRecord | None) -> PolicyRecord:
        record = found or PolicyRecord(scope_id=scope_id, record=target.record.removeprefix(lake.layout.root))
        before = PolicyRecord(scope_id=scope_id) if replaces else record
        values, locked = edited_policy(before.values, before.locked, edit)
        if (values, locked) == (record.values, record.locked):
            return record
        now_ms, principal = lake.clock.now_ms(), request.source.principal
        return replace(record, values=dict(values), locked=locked, updated_ms=now_ms, updated_by=principal)

    def subject(_record: PolicyRecord) -> EventSubject:
        return EventSubject("policy", scope_id, _identifier(type_, full_name))

    change = RecordChange(
        lake, _cell(lake, scope_id), request, "change-policy", decide, authorize=authorize, subject=subject
    )
    return await change.run()


async def _find(lake: Lake, authority: Authority, type_: SecurableType, full_name: str) -> Target:
    if type_ != "metastore" and type_ not in _NAMES:
        raise Invalid(
            f"A {type_.replace('_', ' ')} has no maintenance policy: only metastore, catalog, schema and table"
        )
    target = await find_target(lake, authority, type_, full_name)
    require(lake, authority, target.chain, missing=target.missing)
    if target.found and target.found.name.value.kind != "table":
        raise Invalid(f"{full_name} is not a table: it has no maintenance policy")
    return target


def _scope_id(target: Target) -> str:
    """The id that the pipeline finds, too: the uuid of a table, the id of a container."""
    if target.found:
        return target.found.uuid
    return WORKSPACE if target.chain[-1].type == "metastore" else target.id


def _scopes(target: Target, full_name: str) -> Sequence[tuple[str, str]]:
    """The ids and names of the scopes below the workspace, down to the target itself."""
    catalog = full_name.partition(".")[0]
    scopes = []
    for link in target.chain[1:]:
        name = link.name if link.type == "catalog" else f"{catalog}.{link.name}"
        scopes.append((link.id, f"{_NAMES[link.type]} {name}"))
    if target.found:
        scopes[-1] = (target.found.uuid, scopes[-1][1])
    return scopes


def _cell(lake: Lake, scope_id: str) -> Cell[PolicyRecord]:
    return lake.uncached(lake.layout.policy(scope_id), PolicyRecord)


def _identifier(type_: SecurableType, full_name: str) -> Identifier | None:
    match type_:
        case "catalog":
            return Identifier(full_name, (), "")
        case "schema":
            return Identifier(*parse_schema_name(full_name), "")
        case "table":
            return parse_full_name(full_name)
        case _:
            return None


async def _properties(lake: Lake, target: Target) -> Mapping[str, str]:
    record = target.found.pointer.value if target.found else None
    match record:
        case DeltaTable():
            return record.properties
        case Pointer() if target.found:
            pointer = await effective_pointer(lake, Versioned(record, target.found.pointer.version))
            if pointer.value.head:
                document = await load_document(lake, TABLES, pointer.value.head.metadata_location)
                return document.metadata.properties
    return {}
