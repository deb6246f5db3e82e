"""The grants on securables, in the manifest: who has them, who may change them, and what somebody may do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.credentials.registry import (
    StorageRegistry,
    credential_named,
    credential_not_found,
    location_named,
    location_not_found,
)
from sandur.catalog.identifiers import Identifier, Kind, parse_full_name, parse_schema_name
from sandur.catalog.records import NameRecord, RegistryEntry, Request
from sandur.catalog.security.grants import (
    Assignments,
    EffectivePrivilege,
    GrantChange,
    apply_changes,
    assignments_of,
    check_changes,
    effective_privileges,
    subject_id,
    subject_name,
)
from sandur.catalog.security.manifest import Authority, Caller
from sandur.catalog.security.privileges import Chain, Link, SecurableType
from sandur.catalog.security.users import user_not_found
from sandur.errors import Busy, Incomplete, Invalid, NotFound, Unavailable
from sandur.operations.access import Security, check_names, may_see, require
from sandur.operations.containers.catalogs import ensure_catalog, load_catalog
from sandur.operations.containers.records import catalog_not_found
from sandur.operations.delta.tables import table_not_found
from sandur.operations.lake import Lake
from sandur.operations.name_access import visible_chain
from sandur.operations.securable_chains import catalog_chain, name_chain
from sandur.operations.security import SecurityChange, SecurityEdit, current_authority, metastore_id
from sandur.operations.tables.names import (
    EVERY_FORMAT,
    RENAMES_MAX,
    ResolvedName,
    is_alive,
    namespace_not_found,
    pointer_cell,
    resolve_name,
)
from sandur.operations.transactions.resolution import abort_pending
from sandur.operations.unity.securables import securable_not_found
from sandur.storage.cell import Attempts

UPDATE_GRANTS: Final = "update-permissions"

_KINDS: Final[dict[SecurableType, tuple[Kind, ...]]] = {
    "table": ("table", "view"),
    "function": ("function",),
    "volume": ("volume",),
    "registered_model": ("model",),
}


class Target(NamedTuple):
    """A securable that a request names: its chain, the error of one that does not exist, and the key of its record.

    `found` is the name of a table, view, volume, function or model.
    """

    chain: Chain
    missing: NotFound
    record: str = ""
    found: ResolvedName | None = None

    @property
    def id(self) -> str:
        return self.chain[-1].id


async def load_grants(lake: Lake, securable_type: SecurableType, full_name: str) -> Assignments:
    """The grants on a securable; NotFound if it does not exist.

    Who may change the grants gets all of them, and every other caller its own ones.
    """
    authority = await current_authority(lake)
    target = await find_target(lake, authority, securable_type, full_name)
    require(lake, authority, target.chain, missing=target.missing)
    granted, access = authority.granted(target.id), lake.access
    if access is None or authority.decide(access.caller, target.chain, access.rule("all")).outcome == "allowed":
        return assignments_of(authority, granted)
    return assignments_of(authority, granted, authority.subjects(access.caller))


class LinkGrants(NamedTuple):
    """The grants on one securable of a chain. `is_whole`: all of them; otherwise only those of the caller."""

    type: SecurableType
    name: str
    owner: str
    assignments: Assignments
    is_whole: bool


async def load_grant_chain(lake: Lake, securable_type: SecurableType, full_name: str) -> Sequence[LinkGrants]:
    """The grants on a securable and on everything above it, from the metastore down: all that it inherits.

    Who may change the grants on one of them gets all of its grants, and every other caller its own ones.
    """
    authority = await current_authority(lake)
    target = await find_target(lake, authority, securable_type, full_name)
    require(lake, authority, target.chain, missing=target.missing)
    return [_link_grants(lake, authority, target.chain[: place + 1]) for place in range(len(target.chain))]


def _link_grants(lake: Lake, authority: Authority, chain: Chain) -> LinkGrants:
    link, access = chain[-1], lake.access
    granted = authority.granted(link.id)
    is_whole = access is None or authority.decide(access.caller, chain, access.rule("all")).outcome == "allowed"
    only = None if is_whole or access is None else authority.subjects(access.caller)
    owner = subject_name(authority, link.owner) if link.owner else ""
    return LinkGrants(link.type, link.name, owner, assignments_of(authority, granted, only), is_whole)


async def update_grants(
    lake: Lake,
    securable_type: SecurableType,
    full_name: str,
    changes: Sequence[GrantChange],
    request: Request,
    *,
    is_fenced: bool = False,
) -> Assignments:
    """Change the grants on a securable and return them; NotFound for a principal that does not exist.

    A fenced change of a table (A5) answers when no request that was allowed before can still change the table.
    """
    check_changes(changes)
    if is_fenced and securable_type != "table":
        raise Invalid(f"A fenced change needs a single table, not a {securable_type}")
    if securable_type == "catalog" and lake.access is None:
        await ensure_catalog(lake, full_name)
    change = _GrantsChange(lake, securable_type, full_name, changes, request)
    answer = await SecurityChange(lake, request, UPDATE_GRANTS, change.decide, change.authorize).run()
    if is_fenced and change.target and change.target.found:
        await _fence(lake, change.target.found)
    return msgspec.json.decode(answer, type=dict[str, tuple[str, ...]])


@dataclass
class _GrantsChange:
    """One request to change grants."""

    lake: Lake
    securable_type: SecurableType
    full_name: str
    changes: Sequence[GrantChange]
    request: Request
    target: Target | None = None

    async def authorize(self, authority: Authority) -> None:
        """A11, A12: decide on the manifest that is swapped, and on owners that are read after it."""
        target = await find_target(self.lake, authority, self.securable_type, self.full_name)
        require(self.lake, authority, target.chain, missing=target.missing)
        if not target.id:  # The default catalog, before anything has created it.
            raise target.missing
        self.target = target

    def decide(self, authority: Authority) -> SecurityEdit:
        if self.target is None:
            raise Unavailable("the securable was not found before its grants were changed")
        named = {change.principal for change in self.changes}
        ids = {name: subject_id(authority, name) or _own_id(self.request, name) for name in named}
        object_id, record = self.target.id, self.target.record.removeprefix(self.lake.layout.root)
        before = authority.granted(object_id)
        after = apply_changes(before, self.target.chain, self.changes, ids, record=record)
        grants = {} if after == before else {object_id: after}
        return SecurityEdit(grants=grants, answer=assignments_of(authority, after))


async def _fence(lake: Lake, found: ResolvedName) -> None:
    """A5: bump the name and the record after the manifest, so that swaps that were decided before lose.

    A drop and a rename swap the name alone. A15: an undecided transaction on the record is aborted first, because it
    commits without another swap of the record.
    """
    await _bump_name(lake, found)
    cell = pointer_cell(lake, found.name.value)
    async for _ in Attempts(lake.clock):
        held = await cell.read()
        if held is None or not is_alive(held):
            return
        settled = await abort_pending(lake, held)
        if await cell.try_swap(settled.value, expected=settled.version):
            return
    raise Busy(f"{found.identifier}: other requests keep changing it; send the same request again")


async def _bump_name(lake: Lake, found: ResolvedName) -> None:
    """Bump the name that leads to it now: a rename may have happened before the manifest was swapped."""

    def bump(held: NameRecord | None) -> NameRecord | None:
        return held if held and held.uuid == found.uuid and held.state != "moved" else None

    place: Identifier | None = found.identifier
    for _ in range(RENAMES_MAX):
        held = await lake.name(place).update(bump, is_idempotent=True) if place else None
        if held is None or held.value.uuid != found.uuid or held.value.state != "moved":
            return
        place = held.value.other
    raise Busy(f"{found.identifier}: it is renamed again and again; send the same request again")


async def load_effective_privileges(
    lake: Lake, securable_type: SecurableType, full_name: str, principal: str | None
) -> Sequence[EffectivePrivilege]:
    """What a principal, group or role may do to a securable, and why; None for the caller itself.

    Only who may change the grants sees the privileges of others. NotFound for a name that is not registered.
    """
    authority = await lake.feature(Security).read()
    target = await find_target(lake, authority, securable_type, full_name)
    access = lake.access
    require(lake, authority, target.chain, missing=target.missing)
    if access and principal in {None, "", access.caller.name}:
        return effective_privileges(authority, target.chain, authority.subjects(access.caller))
    if not principal:
        raise Incomplete("principal is missing: without authentication there is no caller")
    require(lake, authority, target.chain, missing=target.missing, situation="all")
    id_ = subject_id(authority, principal)
    if id_ is None:
        raise user_not_found(principal)
    return effective_privileges(authority, target.chain, authority.subjects(Caller(id_, principal)))


def _own_id(request: Request, name: str) -> str | None:
    """The id of the caller, if the name is its own: it need not be registered."""
    return request.source.principal_id or name if name == request.source.principal else None


async def find_target(lake: Lake, authority: Authority, securable_type: SecurableType, full_name: str) -> Target:
    """The securable of that name; NotFound for the first part of the name that is missing or hidden.

    The records are read now, so that an owner who has just changed counts (A12). Raises Renamed if the authority has
    other names of containers than the request (X1).
    """
    check_names(lake, authority)
    match securable_type:
        case "metastore":
            id_ = authority.manifest.metastore_id or await metastore_id(lake)
            missing = NotFound(f"Metastore does not exist: {full_name}", subject="metastore")
            if full_name not in {id_, "metastore"}:
                raise missing
            return Target((authority.metastore._replace(id=id_),), missing)
        case "catalog":
            catalog = await load_catalog(lake.acting_for(None), full_name)
            missing, key = catalog_not_found(full_name), lake.layout.catalog(full_name)
            return Target(catalog_chain(authority, catalog), missing, key)
        case "schema":
            namespace = parse_schema_name(full_name)
            missing, key = namespace_not_found(namespace), lake.layout.namespace(namespace)
            return Target(await visible_chain(lake, authority, namespace), missing, key)
        case "table" | "function" | "volume" | "registered_model":
            return await _find_named(lake, authority, parse_full_name(full_name), securable_type)
        case "external_location" | "credential":
            return await _find_registered(lake, authority, securable_type, full_name)


async def _find_named(lake: Lake, authority: Authority, identifier: Identifier, type_: SecurableType) -> Target:
    kinds = _KINDS[type_]
    missing = table_not_found(identifier) if type_ == "table" else securable_not_found(identifier, kinds[0])
    found = await resolve_name(lake, identifier)
    if found is None or not any(found.is_a(kind, EVERY_FORMAT) for kind in kinds):
        await visible_chain(lake, authority, identifier.namespace)
        raise missing
    chain = await name_chain(lake, authority, found, missing=missing)
    if not may_see(lake, authority, chain):
        await visible_chain(lake, authority, identifier.namespace)
    return Target(chain, missing, pointer_cell(lake, found.name.value).key, found)


async def _find_registered(lake: Lake, authority: Authority, type_: SecurableType, name: str) -> Target:
    held = await lake.storage_registry().read()
    registry = held.value if held else StorageRegistry()
    entry: RegistryEntry
    if type_ == "credential":
        missing = credential_not_found(name)
        entry = credential_named(registry, name)
    else:
        missing = location_not_found(name)
        entry = location_named(registry, name)
    chain = (authority.metastore, Link(entry.id, type_, entry.name, entry.owner_id))
    return Target(chain, missing, lake.layout.storage_registry())
