"""Principals, groups and grants of a workspace: one manifest names immutable segments, and one swap changes them all.

`Authority` is the manifest with its segments in memory. It decides what a caller may do.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.aliases import Alias
from sandur.catalog.events import CatalogEvent
from sandur.catalog.record_versions import Record
from sandur.catalog.records import LastChange
from sandur.catalog.security.privileges import (
    VISIBLE,
    Bits,
    Chain,
    Link,
    Needs,
    Rule,
    SecurableType,
    Verdict,
    bits_of,
    is_visible,
    judge,
    rights_on,
    shows,
)
from sandur.catalog.security.restrictions import ReadRestrictions, TableRestrictions, restricts

EVERYONE: Final = "everyone"
"""The subject that every authenticated caller is. Its name is reserved."""

GRANT_SHARDS: Final = 64
PRINCIPAL_SHARDS: Final = 16
GROUPS: Final = "groups"

_SUBJECTS_MAX: Final = 10_000
_DECISIONS_MAX: Final = 20_000
_GROUP_LEVELS_MAX: Final = 16


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hash of a client secret or an API key. `expires_ms` is 0 if it does not expire."""

    id: str
    hash: str
    created_ms: int
    expires_ms: int = 0


class Principal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user or a service principal. `id` is new at every creation, so that a name made again inherits nothing (A3).

    Tokens issued for an earlier `token_epoch` are no longer valid, nor are those of identity providers that were issued
    before `revoked_ms`. A principal has at most two live client secrets. `is_pipeline`: an administrator trusts it with
    the sources that it declares, so that its changes count as verified.
    """

    id: str
    name: str
    kind: Literal["user", "service"] = "service"
    disabled: bool = False
    is_pipeline: bool = False
    token_epoch: int = 0
    revoked_ms: int = 0
    secrets: tuple[StoredSecret, ...] = ()
    api_keys: tuple[StoredSecret, ...] = ()
    display_name: str = ""
    external_id: str | None = None
    photo: str | None = None
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group or a role. Members are ids of principals, groups and roles."""

    id: str
    name: str
    kind: Literal["group", "role"] = "group"
    members: tuple[str, ...] = ()
    external_id: str | None = None
    created_ms: int = 0
    changed_ms: int = 0


class ObjectGrants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The privileges on one securable, by the id of the subject.

    `above` are the ids of the containers that the securable was in when the grant was made: a right inside a container
    makes that container visible. `record` is the key of the securable's record, which the janitor looks for.
    """

    type: SecurableType
    subjects: dict[str, tuple[str, ...]]
    above: tuple[str, ...] = ()
    record: str = ""


class SecuritySegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One immutable part of the manifest's content."""

    principals: dict[str, Principal] = {}
    groups: dict[str, Group] = {}
    grants: dict[str, ObjectGrants] = {}
    restrictions: dict[str, TableRestrictions] = {}


class SecurityManifest(Record, frozen=True, kw_only=True):
    """The one cell that every change of principals, groups and grants swaps.

    `number` grows with every swap. `segments` gives the id of each shard's segment. `metastore_id` is the id of the
    workspace as a securable, and `owner` the id of the principal that administers it. `last_event` is the last change
    of its content; a bump keeps it (E4). `aliases` are the catalogs and namespaces whose key is not their name, and
    `renames` grows with every rename of one: every request reads this cell, so none reads anything else for its names.
    `last_rename` is the event of the last one.
    """

    number: int
    metastore_id: str
    owner: str = ""
    segments: dict[str, str] = msgspec.field(default_factory=dict)
    change: LastChange | None = None
    last_event: CatalogEvent | None = None
    aliases: tuple[Alias, ...] = ()
    renames: int = 0
    last_rename: CatalogEvent | None = None


def folded(name: str) -> str:
    """The form in which names of principals and groups are compared: `Ann@x.org` is `ann@x.org`."""
    return name.strip().casefold()


_GRANT_SHARD_NAMES: Final = tuple(f"grants-{number:02d}" for number in range(GRANT_SHARDS))


def grants_shard(object_id: str) -> str:
    return _GRANT_SHARD_NAMES[zlib.crc32(object_id.encode()) % GRANT_SHARDS]


def principals_shard(principal_id: str) -> str:
    return f"principals-{zlib.crc32(principal_id.encode()) % PRINCIPAL_SHARDS:02d}"


class Actor(NamedTuple):
    """A registered principal that acts for the caller, such as an engine for its user."""

    id: str
    name: str
    token_epoch: int


class Caller(NamedTuple):
    """Who makes a request, as the token says it. The manifest says what that is worth.

    `id` is the id of a registered principal, or of a principal that only its identity provider knows. `groups` are the
    names of groups that the provider claims. `token_epoch` is None if the token does not depend on it. `key_id` is the
    id of the API key that was sent instead of a token. `issued_ms` is when the provider issued its token.
    `is_pipeline`: the principal was marked as a pipeline when the token was issued; the token counts only while it is.
    """

    id: str
    name: str
    groups: tuple[str, ...] = ()
    token_epoch: int | None = None
    is_external: bool = False
    key_id: str = ""
    actor: Actor | None = None
    issued_ms: int = 0
    is_pipeline: bool = False


ANONYMOUS: Final = Caller("anonymous", "anonymous")


class Decision(NamedTuple):
    """One decision about a request, for its audit record. `catalog` is the name of the catalog that the link is in.

    `restrictions` are what the caller must apply to a table that it may use; None without restrictions.
    """

    link: Link
    rule: Rule
    verdict: Verdict
    manifest_number: int
    catalog: str = ""
    restrictions: ReadRestrictions | None = None


class Access(msgspec.Struct, eq=False):
    """What one request may do: its caller, what its route needs, and the decisions made so far."""

    caller: Caller
    needs: Needs
    decisions: list[Decision] = []
    capabilities: frozenset[str] = frozenset()
    """What the client declares that it can do."""
    restrictions: ReadRestrictions | None = None
    """What the client must apply to the table that it reads; None if it may read everything."""

    def rule(self, situation: str = "") -> Rule:
        """The rule that the route declares, or the further one that it declares for a situation."""
        return self.needs.further[situation] if situation else self.needs.rule


class Shard(NamedTuple):
    """A segment, its principals by name and by API key, its grants as bits, and who holds a grant in each container.

    `objects` are the ids of the securables on which each subject holds a grant.
    """

    segment: SecuritySegment
    names: Mapping[str, Principal]
    keys: Mapping[str, Principal]
    grants: Mapping[str, Mapping[str, Bits]]
    below: Mapping[str, frozenset[str]]
    objects: Mapping[str, Sequence[str]]


def shard_of(segment: SecuritySegment) -> Shard:
    grants: dict[str, dict[str, Bits]] = {}
    below: dict[str, set[str]] = {}
    objects: dict[str, list[str]] = {}
    for object_id, granted in segment.grants.items():
        grants[object_id] = {subject: bits_of(privileges) for subject, privileges in granted.subjects.items()}
        for subject in granted.subjects:
            objects.setdefault(subject, []).append(object_id)
        for container in granted.above:
            below.setdefault(container, set()).update(granted.subjects)
    names = {folded(principal.name): principal for principal in segment.principals.values()}
    keys = {key.id: principal for principal in segment.principals.values() for key in principal.api_keys}
    held = {container: frozenset(subjects) for container, subjects in below.items()}
    return Shard(segment, names, keys, grants, held, objects)


_NO_SHARD: Final = shard_of(SecuritySegment())


@dataclass(frozen=True, eq=False)
class Authority:
    """The manifest of one version with all its segments; every decision about a request is made on one authority."""

    manifest: SecurityManifest
    version: str
    shards: Mapping[str, Shard]
    _subjects: dict[tuple[str, str, tuple[str, ...]], frozenset[str]] = field(default_factory=dict)
    _decisions: dict[tuple[Caller, Chain, Rule], Decision | None] = field(default_factory=dict)

    @property
    def metastore(self) -> Link:
        return Link(self.manifest.metastore_id, "metastore", "metastore", self.manifest.owner)

    def principal(self, principal_id: str) -> Principal | None:
        return self._shard(principals_shard(principal_id)).segment.principals.get(principal_id)

    def principals(self) -> Sequence[Principal]:
        """All principals, sorted by name."""
        found = [principal for shard in self.shards.values() for principal in shard.segment.principals.values()]
        return sorted(found, key=lambda principal: principal.name)

    def principal_named(self, name: str) -> Principal | None:
        """The principal with that name, in any case."""
        key = folded(name)
        return next((shard.names[key] for shard in self.shards.values() if key in shard.names), None)

    def principal_with_key(self, key_id: str) -> Principal | None:
        """The principal that has the API key."""
        return next((shard.keys[key_id] for shard in self.shards.values() if key_id in shard.keys), None)

    def user_of(self, caller: Caller) -> Principal | None:
        """The registered user whom an identity provider authenticated; None if the user is not registered.

        Only users are found by a name that a provider claims, never a service principal such as `admin`.
        """
        found = self.principal_named(caller.name) if caller.is_external else None
        return found if found and found.kind == "user" else None

    def accepts(self, caller: Caller) -> bool:
        """Whether the caller's token still counts: nothing that it depends on was removed, disabled or revoked."""
        if caller.actor and not self._is_current(self.principal(caller.actor.id), caller.actor.token_epoch):
            return False
        if caller.is_external:
            user = self.user_of(caller)
            return user is None or (not user.disabled and caller.issued_ms >= user.revoked_ms)
        principal = self.principal(caller.id)
        if caller.key_id and not (principal and any(key.id == caller.key_id for key in principal.api_keys)):
            return False
        if caller.is_pipeline and not (principal and principal.is_pipeline):
            return False
        return self._is_current(principal, caller.token_epoch)

    def _is_current(self, principal: Principal | None, token_epoch: int | None) -> bool:
        return principal is not None and not principal.disabled and token_epoch in {None, principal.token_epoch}

    def group_named(self, name: str) -> Group | None:
        """The group or role with that name, in any case."""
        key = folded(name)
        return next((group for group in self.groups.values() if folded(group.name) == key), None)

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._shard(GROUPS).segment.groups

    def granted(self, object_id: str) -> ObjectGrants | None:
        """The grants on a securable as they are stored; None if it has no grants."""
        return self._shard(grants_shard(object_id)).segment.grants.get(object_id)

    def policy(self, object_id: str) -> TableRestrictions | None:
        """The row filters and column masks of a table; None if it has none."""
        return self._shard(grants_shard(object_id)).segment.restrictions.get(object_id)

    def restrictions_for(self, caller: Caller, table: Link) -> ReadRestrictions | None:
        """What restricts the caller when it reads a table; None if nothing does."""
        policy = self.policy(table.id)
        is_restricted = policy is not None and restricts(
            policy, table.owner or self.manifest.owner, self.subjects(caller)
        )
        return policy.restrictions if policy and is_restricted else None

    def subjects(self, caller: Caller) -> frozenset[str]:
        """The ids that grants and owners may name for this caller: itself, its groups and roles, and everyone."""
        key = (caller.id, caller.name if caller.is_external else "", caller.groups)
        found = self._subjects.get(key)
        if found is None:
            user = self.user_of(caller)
            own = (caller.id, EVERYONE, *((user.id,) if user else ()))
            # A provider claims groups; roles are given here only.
            claimed = [
                group.id for group in self.groups.values() if group.kind == "group" and group.name in caller.groups
            ]
            found = frozenset((*own, *self._containing((*own, *claimed)), *claimed))
            if len(self._subjects) >= _SUBJECTS_MAX:
                self._subjects.clear()
            self._subjects[key] = found
        return found

    def decision(self, caller: Caller, chain: Chain, rule: Rule) -> Decision | None:
        """The decision about a request, made once per authority; None if the caller's token no longer counts."""
        key = (caller, chain, rule)
        try:
            return self._decisions[key]
        except KeyError:
            found = None
            if self.accepts(caller):
                link, verdict = chain[-1], self.decide(caller, chain, rule)
                # Below a catalog, its name belongs to the name of the securable.
                catalog = next((above.name for above in chain[:-1] if above.type == "catalog"), "")
                restrictions = self.restrictions_for(caller, link) if link.type == "table" else None
                found = Decision(link, rule, verdict, self.manifest.number, catalog, restrictions)
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = found
            return found

    def decide(self, caller: Caller, chain: Chain, rule: Rule) -> Verdict:
        """Whether the caller may do what the rule guards to the last link of the chain."""
        subjects = self.subjects(caller)
        rights = rights_on(chain, [self._shard(grants_shard(link.id)).grants.get(link.id) for link in chain], subjects)
        if not is_visible(chain, rights) and not self.has_grant_below(chain[-1], subjects):
            return Verdict("hidden", link=chain[-1])
        return judge(rule, chain, rights)

    def sees(self, caller: Caller, chain: Chain) -> bool:
        """Whether the caller may know that the last link of the chain exists."""
        return self.decide(caller, chain, VISIBLE).outcome == "allowed"

    def viewer(self, caller: Caller, container: Chain) -> "Viewer":
        """Which of the things inside a container the caller may see."""
        subjects = self.subjects(caller)
        rights = rights_on(
            container, [self._shard(grants_shard(link.id)).grants.get(link.id) for link in container], subjects
        )
        held = {id_ for shard in self.shards.values() for subject in subjects for id_ in shard.objects.get(subject, ())}
        return Viewer(self, subjects, held, rights.held[-1], is_owner=rights.owned[-1])

    def bits_on(self, object_id: str, subjects: Collection[str]) -> Bits:
        """The privileges that the subjects hold directly on a securable."""
        assigned = self._shard(grants_shard(object_id)).grants.get(object_id)
        if not assigned:
            return 0
        bits = 0
        for subject in assigned.keys() & subjects:
            bits |= assigned[subject]
        return bits

    def has_grant_below(self, link: Link, subjects: Collection[str]) -> bool:
        """Whether the subjects hold a grant on something inside a container."""
        if link.type not in _CONTAINERS:
            return False
        return any(not shard.below.get(link.id, _NO_SUBJECTS).isdisjoint(subjects) for shard in self.shards.values())

    def _containing(self, members: Iterable[str]) -> frozenset[str]:
        """The groups and roles that contain one of the members, directly or through others."""
        found: set[str] = set()
        level = set(members)
        for _ in range(_GROUP_LEVELS_MAX):
            level = {group.id for group in self.groups.values() if not level.isdisjoint(group.members)} - found
            if not level:
                break
            found |= level
        return frozenset(found)

    def _shard(self, name: str) -> Shard:
        return self.shards.get(name, _NO_SHARD)


_NO_SUBJECTS: Final[frozenset[str]] = frozenset()
_CONTAINERS: Final = frozenset({"catalog", "schema"})


class Viewer(NamedTuple):
    """What a caller may see inside one container, on which its rights are known. `objects` are those with a grant."""

    authority: Authority
    subjects: frozenset[str]
    objects: Collection[str]
    held: Bits
    is_owner: bool

    def sees_all(self, kind: SecurableType) -> bool:
        """Whether the rights on the container show every child of that type."""
        return self.is_owner or shows(kind, self.held)

    def hides(self, kind: SecurableType) -> bool:
        """Whether nothing shows a child of that type that has no grant in `objects` and no owner in `subjects`.

        A container may be shown by what is inside it.
        """
        return kind not in _CONTAINERS and not self.sees_all(kind)

    def sees(self, child: Link) -> bool:
        if self.sees_all(child.type) or child.owner in self.subjects:
            return True
        if child.id in self.objects and shows(child.type, self.authority.bits_on(child.id, self.subjects)):
            return True
        return self.authority.has_grant_below(child, self.subjects)
