"""Change principals, groups and grants: write new segments aside, then swap the manifest that names them (A11)."""

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.aliases import Aliases
from sandur.catalog.audit import AuditedChange, ChangedObject, principal_json, record_json
from sandur.catalog.events import CatalogEvent
from sandur.catalog.record_versions import Record
from sandur.catalog.records import Request
from sandur.catalog.security.manifest import (
    GROUPS,
    Authority,
    Group,
    ObjectGrants,
    Principal,
    SecurityManifest,
    SecuritySegment,
    grants_shard,
    principals_shard,
    shard_of,
)
from sandur.catalog.security.restrictions import TableRestrictions
from sandur.errors import OutcomeUnknown, Renamed
from sandur.operations.access import NO_AUTHORITY, Security
from sandur.operations.audit.notes import note_changes
from sandur.operations.containers.records import RecordChange, is_signed_by
from sandur.operations.events import grants_subject
from sandur.operations.identity.legacy import imported_segments
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.storage.cell import Versioned, gather_all
from sandur.storage.contract import ABSENT, Version

_NO_SEGMENT: Final = SecuritySegment()


@dataclass(frozen=True)
class SecurityEdit:
    """What a change does to the content of the manifest, by id; None removes an entry. `owner` of None stays.

    An edit that `bumps` swaps the manifest even if it changes nothing. `aliases` are those after a rename of a catalog
    or namespace, and `rename` is its event; None keeps them.
    """

    principals: Mapping[str, Principal | None] = field(default_factory=dict)
    groups: Mapping[str, Group | None] = field(default_factory=dict)
    grants: Mapping[str, ObjectGrants | None] = field(default_factory=dict)
    restrictions: Mapping[str, TableRestrictions | None] = field(default_factory=dict)
    owner: str | None = None
    answer: object = None
    bumps: bool = False
    aliases: Aliases | None = None
    rename: CatalogEvent | None = None


class Metastore(Record, frozen=True, kw_only=True):
    """The id of a lake as a metastore, as releases without a manifest stored it."""

    id: str


async def metastore_id(lake: Lake) -> str:
    """The id of the lake as a metastore: that of the manifest, or a stored one, or else one made of its address."""
    authority = await lake.feature(Security).read()
    return authority.manifest.metastore_id or await _first_metastore_id(lake)


async def _first_metastore_id(lake: Lake) -> str:
    """The id while there is no manifest: every request finds the same one."""
    stored = await lake.uncached(lake.layout.metastore(), Metastore).read()
    return stored.value.id if stored else str(uuid.uuid5(uuid.NAMESPACE_URL, lake.area))


async def current_authority(lake: Lake) -> Authority:
    """The authority (A1); without a manifest that of the records of older releases, which the first manifest takes."""
    security = lake.feature(Security)
    if security.last:  # There is a manifest, and it stays.
        return await security.read()
    found, metastore, segments = await gather_all((security.read(), _first_metastore_id(lake), imported_segments(lake)))
    if found.version:
        return found
    shards = {name: shard_of(segment) for name, segment in segments.items()}
    return Authority(SecurityManifest(number=0, metastore_id=metastore), "", shards)


async def bump_manifest(lake: Lake) -> None:
    """X4: make a rename lose its swap that has fenced the key of a name. Raises Renamed if it was faster."""

    def decide(authority: Authority) -> SecurityEdit:
        if lake.names and authority.manifest.renames != lake.layout.aliases.renames:
            raise Renamed("a catalog or namespace was renamed; try again")
        return SecurityEdit(bumps=True)

    await SecurityChange(lake.acting_for(None), Request(hash=""), "bump", decide).run()


async def look_again(lake: Lake, *, is_fenced: bool) -> None:
    """X4: check the names after the record was read that a creation replaces, and end a rename that has fenced it."""
    if lake.names:
        authority = await lake.feature(Security).read()
        if authority.manifest.renames != lake.layout.aliases.renames:
            raise Renamed("a catalog or namespace was renamed; try again")
    if is_fenced:
        await bump_manifest(lake)


class SecurityChange:
    """One request to change the manifest.

    `decide` gets the authority that the swap will replace, and decides on it (A11). `authorize` decides on the same
    authority whether the caller may make the change, and reads owners for it: after the manifest, before the swap
    (A12). It also runs before an earlier answer is returned (A9). After a lost swap both run again.
    """

    def __init__(
        self,
        lake: Lake,
        request: Request,
        operation: str,
        decide: Callable[[Authority], SecurityEdit],
        authorize: Callable[[Authority], Awaitable[None]] | None = None,
    ) -> None:
        self._lake = lake
        self._decide = decide
        self._authorize = authorize
        self._authority = NO_AUTHORITY
        self._segments: dict[str, SecuritySegment] = {}
        self.edit = SecurityEdit()
        self._decided_on: Authority | None = None
        self._change = RecordChange(
            lake,
            lake.security(),
            request,
            operation,
            self._next_manifest,
            read=self._read,
            answer=lambda _manifest: msgspec.json.encode(self.edit.answer),
            write_aside=self._write_segments,
            subject=grants_subject,
            details=lambda _before, _after: self._details(),
        )

    async def run(self) -> bytes:
        """Make the change; returns the answer of the edit as JSON, for a replay that of the first attempt."""
        try:
            answer = await self._change.run_for_answer()
        except OutcomeUnknown:
            self._note()
            raise
        self._note()
        return answer.encode()

    def _note(self) -> None:
        """Note the change for the audit trail, also if it may have been applied. A replay changes nothing."""
        if self._decided_on:
            note_changes(audited_changes(self._decided_on, self.edit))

    def _details(self) -> Iterable[str]:
        """What the edit changes, as the audit trail names it; nothing for a bump (E4)."""
        changes = audited_changes(self._authority, self.edit)
        if changes:
            return [f"{change.object}.{change.name or change.id}" for change in changes]
        held = [shard.segment for shard in self._authority.shards.values()]
        return ["secrets"] if any(segment not in held for segment in self._segments.values()) else []

    async def _read(self) -> Versioned[SecurityManifest] | None:
        self._authority = await current_authority(self._lake)
        if self._authorize:
            await self._authorize(self._authority)
        if not self._authority.version:
            return None
        return Versioned(self._authority.manifest, Version(self._authority.version))

    def _next_manifest(self, found: SecurityManifest | None) -> SecurityManifest:
        self.edit = self._decide(self._authority)
        self._decided_on = self._authority
        before = found or self._authority.manifest
        self._segments = {}
        named = dict(before.segments)
        for shard, segment in self._edited_segments().items():
            segment_id = self._lake.clock.new_id()
            self._segments[segment_id] = segment
            named[shard] = segment_id
        owner = before.owner if self.edit.owner is None else self.edit.owner
        if not self._segments and owner == before.owner and not self.edit.bumps and self.edit.aliases is None:
            return before
        wanted = replace(before, number=before.number + 1, segments=named, owner=owner)
        if self.edit.aliases is None:
            return wanted
        aliases = self.edit.aliases
        return replace(wanted, aliases=aliases.listed, renames=aliases.renames, last_rename=self.edit.rename)

    def has_made(self, manifest: SecurityManifest) -> bool:
        """Whether this request, or an earlier attempt of it, made the last change of the manifest."""
        return is_signed_by(manifest, self._change.signature)

    def _edited_segments(self) -> Mapping[str, SecuritySegment]:
        """The new segment of every shard that the edit touches; for the first manifest, of every shard."""
        edited: dict[str, SecuritySegment] = {}
        if not self._authority.version:
            edited.update({name: shard.segment for name, shard in self._authority.shards.items()})

        def segment(shard: str) -> SecuritySegment:
            held = self._authority.shards.get(shard)
            return edited.get(shard) or (held.segment if held else _NO_SEGMENT)

        for id_, principal in self.edit.principals.items():
            shard = principals_shard(id_)
            edited[shard] = replace(segment(shard), principals=_with(segment(shard).principals, id_, principal))
        for id_, group in self.edit.groups.items():
            edited[GROUPS] = replace(segment(GROUPS), groups=_with(segment(GROUPS).groups, id_, group))
        for id_, grants in self.edit.grants.items():
            shard = grants_shard(id_)
            edited[shard] = replace(segment(shard), grants=_with(segment(shard).grants, id_, grants))
        for id_, policy in self.edit.restrictions.items():
            shard = grants_shard(id_)
            edited[shard] = replace(segment(shard), restrictions=_with(segment(shard).restrictions, id_, policy))
        return edited

    async def _write_segments(self, _manifest: SecurityManifest) -> None:
        layout = self._lake.layout
        if self.edit.aliases is not None:  # E2: this swap replaces the event of the last rename.
            await self._lake.feature(CatalogReceipts).ensure(self._authority.manifest.last_rename)
        await gather_all(
            self._lake.store.put(layout.security_segment(id_), msgspec.json.encode(segment), expected=ABSENT)
            for id_, segment in self._segments.items()
        )


def audited_changes(before: Authority, edit: SecurityEdit) -> Sequence[AuditedChange]:
    """What an edit changes, for the audit trail: everything before and after, without the hashes of secrets."""
    changes: list[AuditedChange] = []

    def add(kind: ChangedObject, id_: str, name: str, old: msgspec.Raw, new: msgspec.Raw) -> None:
        if bytes(old) != bytes(new):
            changes.append(AuditedChange(object=kind, id=id_, name=name, before=old, after=new))

    for id_, principal in edit.principals.items():
        held = before.principal(id_)
        named = principal or held
        add("principal", id_, named.name if named else "", principal_json(held), principal_json(principal))
    for id_, group in edit.groups.items():
        group_held = before.groups.get(id_)
        group_named = group or group_held
        add("group", id_, group_named.name if group_named else "", record_json(group_held), record_json(group))
    for id_, grants in edit.grants.items():
        add("grants", id_, "", record_json(before.granted(id_)), record_json(grants))
    for id_, policy in edit.restrictions.items():
        add("restrictions", id_, "", record_json(before.policy(id_)), record_json(policy))
    if edit.owner is not None:
        add("owner", before.metastore.id, "metastore", record_json(before.manifest.owner), record_json(edit.owner))
    return changes


V = TypeVar("V", Principal, Group, ObjectGrants, TableRestrictions)


def _with(entries: Mapping[str, V], id_: str, value: V | None) -> dict[str, V]:
    kept = {key: held for key, held in entries.items() if key != id_}
    return kept if value is None else {**kept, id_: value}


def without_subject(authority: Authority, id_: str) -> SecurityEdit:
    """The edit that takes all grants and memberships of a principal, group or role: they go in one swap with it."""
    grants: dict[str, ObjectGrants | None] = {}
    for shard in authority.shards.values():
        for object_id, granted in shard.segment.grants.items():
            if id_ in granted.subjects:
                left = {subject: held for subject, held in granted.subjects.items() if subject != id_}
                grants[object_id] = replace(granted, subjects=left) if left else None
    groups: dict[str, Group | None] = {
        group.id: replace(group, members=tuple(member for member in group.members if member != id_))
        for group in authority.groups.values()
        if id_ in group.members
    }
    if id_ in authority.groups:
        groups[id_] = None
    principals: dict[str, Principal | None] = {id_: None} if authority.principal(id_) else {}
    return SecurityEdit(principals=principals, groups=groups, grants=grants)
