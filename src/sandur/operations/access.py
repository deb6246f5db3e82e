"""Authorization: read the manifest of grants, find the chain of a securable, decide (rules A1–A6).

A lake without an access acts for the program itself, and nothing is checked. Otherwise every operation calls one of the
`authorize_…` functions, or, where the manifest is read in the same round as other objects, `read_authority` and
`require`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeVar

from sandur.catalog.aliases import NO_ALIASES, Aliases
from sandur.catalog.credentials.registry import location_covering
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Entry, Place, entry_named, place_of, segment_at
from sandur.catalog.records import Catalog
from sandur.catalog.security.manifest import (
    Access,
    Authority,
    SecurityManifest,
    SecuritySegment,
    Shard,
    Viewer,
    shard_of,
)
from sandur.catalog.security.privileges import READ_DATA, WRITE_DATA, Chain, Link, Rule
from sandur.catalog.security.restrictions import refusal
from sandur.errors import (
    BadRequest,
    Busy,
    Forbidden,
    Hidden,
    NotFound,
    OutcomeUnknown,
    Renamed,
    SandurError,
    Unauthenticated,
    Unavailable,
)
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import catalog_chain, name_chain, namespace_chain
from sandur.operations.tables.names import ResolvedName, pointer_cell, resolve_name
from sandur.storage.cell import gather_all, gather_in_batches
from sandur.storage.contract import Version
from sandur.storage.record_form import decode_record
from sandur.storage.shared_reads import SharedReads

_SEGMENT_READS_AT_ONCE: Final = 64
_SEGMENTS_MAX: Final = 1_000
_MANIFEST_READS_MAX: Final = 8
_METASTORE: Final = NotFound("Metastore does not exist", subject="metastore")  # Never raised: every caller sees it.
_RENAMES_MAX: Final = 8
READS_MAX: Final = 8

T = TypeVar("T")
Versions = tuple[tuple[str, Version], ...]


class Security:
    """The authority of one workspace, as this process read it last."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.last: Authority | None = None
        """The authority that was read last; it may be stale, so it never decides about a request."""
        self._shards: LruCache[str, Shard] = LruCache(_SEGMENTS_MAX)
        self._shared = SharedReads(self._read)

    async def read(self) -> Authority:
        """A1: the authority, by a read that begins now. Unavailable if it cannot be read, never "no grants".

        Every request needs it, so concurrent ones share a read that has not begun (SR1), unless reads are instant.
        """
        return await (self._read() if self._lake.store.has_instant_reads else self._shared.get())

    async def _read(self) -> Authority:
        for _ in range(_MANIFEST_READS_MAX):
            cell, seen = self._lake.security(), self.last.manifest.number if self.last else 0
            found = None if cell.is_known_absent else await cell.read()
            if found is None:
                self._lake.learn_aliases(NO_ALIASES)
                return NO_AUTHORITY
            if found.value.number < seen:  # Reads overlap, so only what was known before this one counts.
                raise Unavailable(
                    f"the grants have the number {found.value.number}, and this server has seen {seen}: an older copy "
                    "was written over them; use `sandur restore`, or restart the servers to accept it"
                )
            if self.last is None or self.last.version != found.version:
                shards = await self._read_shards(found.value)
                if shards is None:
                    continue  # A14: the segment was replaced and removed, so the manifest has changed.
                self.last = Authority(found.value, found.version, shards)
                if self._lake.known_aliases is None or self._lake.known_aliases.renames != found.value.renames:
                    self._lake.learn_aliases(Aliases(found.value.aliases, found.value.renames))
            return self.last
        raise Unavailable("the grants keep changing, or a segment of them is missing")

    async def _read_shards(self, manifest: SecurityManifest) -> Mapping[str, Shard] | None:
        """The segments that the manifest names; None if one is missing."""
        names = list(manifest.segments)
        found = await gather_in_batches(
            [manifest.segments[name] for name in names], self._read_shard, at_once=_SEGMENT_READS_AT_ONCE
        )
        shards = {name: shard for name, shard in zip(names, found, strict=True) if shard is not None}
        return shards if len(shards) == len(names) else None

    async def _read_shard(self, segment_id: str) -> Shard | None:
        shard = self._shards.get(segment_id)
        if shard is None:
            key = self._lake.layout.security_segment(segment_id)
            stored = await self._lake.store.get(key)
            if stored is None:
                return None
            shard = self._shards[segment_id] = shard_of(decode_record(key, stored.data, SecuritySegment))
        return shard


NO_AUTHORITY: Final = Authority(SecurityManifest(number=0, metastore_id=""), "", {})
"""A workspace without a manifest has no principals and no grants."""


async def read_authority(lake: Lake) -> Authority | None:
    """A1: the authority for a request, by a read that begins now; None if nothing is checked.

    Raises Renamed if a container was renamed since the request resolved its names, unless it is a change that has
    checked them before.
    """
    if lake.names is None:
        return await lake.feature(Security).read() if lake.access else None
    if lake.access is None and lake.names.is_done and not lake.names.is_read:
        return None
    authority = await lake.feature(Security).read()
    check_names(lake, authority)
    return authority if lake.access else None


async def check_names_early(lake: Lake) -> None:
    """X1 beside the first reads of a change. If it needs grants, they are read later (A6), with the names."""
    if lake.access is None and not lake.store.has_instant_reads:
        await read_authority(lake)


async def with_current_names(
    lake: Lake, access: Access | None, work: Callable[[Lake], Awaitable[T]], *, is_read: bool
) -> T:
    """What the work of a request returns or raises, by the names of containers at a moment within the request.

    It starts over if the names that this process knew are stale: before it has changed anything.
    """
    if lake.known_aliases is None:
        await lake.feature(Security).read()
    for _ in range(_RENAMES_MAX):
        acting = lake.for_request(access, read_authority, is_read=is_read)
        try:
            return await work(acting)
        except Renamed:
            await lake.feature(Security).read()
        except (BadRequest, OutcomeUnknown):  # Whatever the names are; and what may have happened is not sent again.
            raise
        except SandurError:
            if await has_current_names(acting):
                raise
    raise Busy("catalogs or namespaces are being renamed; try again")


async def has_current_names(lake: Lake) -> bool:
    """Whether a refusal counts: the names were current when the request checked them; a read checks them again."""
    if lake.names and (lake.names.is_read or not lake.names.is_done):
        try:
            await read_authority(lake)
        except Renamed:
            return False
    return True


async def by_current_names(lake: Lake) -> Lake:
    """The lake by the names of containers as they are now, for work without a request."""
    await lake.feature(Security).read()
    return lake.by_known_names()


def check_names(lake: Lake, authority: Authority) -> None:
    """Raise Renamed if the authority has other names than the request."""
    names = lake.names
    if names is None or (names.is_done and not names.is_read):
        return
    if authority.manifest.renames != lake.layout.aliases.renames:
        raise Renamed("a catalog or namespace was renamed; try again")
    names.is_done = True


Missing = NotFound | Callable[[], NotFound]
"""The error of a securable that does not exist, or the function that makes it where it is hardly ever needed."""


def require(lake: Lake, authority: Authority | None, chain: Chain, *, missing: Missing, situation: str = "") -> None:
    """Raise unless the request may do what its route declares to the last link of the chain.

    Raises Hidden with the text of `missing` if the caller must not know that the securable exists.
    """
    access = lake.access
    if access is None or authority is None:
        return
    rule = access.rule(situation) if situation else access.needs.rule
    decision = authority.decision(access.caller, chain, rule)
    if decision is None:
        raise Unauthenticated(f"The token of {access.caller.name} has been revoked; log in again")
    access.decisions.append(decision)
    verdict = decision.verdict
    if verdict.outcome == "hidden":
        error = missing if isinstance(missing, NotFound) else missing()
        raise Hidden(str(error), subject=error.subject)
    if verdict.outcome == "forbidden":
        raise Forbidden(f"{access.caller.name} may not do this: it needs {verdict.missing}")
    if decision.link.type == "table":
        # Row filters and column masks: the client must apply them, or they stand in the way.
        access.restrictions = decision.restrictions
        if decision.restrictions and (reason := refusal(rule, decision.link.name, access.capabilities)):
            raise Forbidden(f"{access.caller.name} may not do this: {reason}")


def forget_refusals(lake: Lake) -> None:
    """G4: what was decided on a record that this server remembers is decided again, on the record as it is now."""
    if lake.access:
        lake.access.decisions[:] = [one for one in lake.access.decisions if one.verdict.outcome == "allowed"]


DataRights = Literal["none", "read", "write"]
"""What a caller may do with the files of a table."""


def data_rights(lake: Lake, authority: Authority | None, chain: Chain) -> DataRights:
    """What the caller may do with the files of the table that is last in the chain. Nothing is raised or noted.

    Row filters and column masks cannot be applied to files: a caller whom they restrict may do nothing with them.
    """
    access = lake.access
    if access is None or authority is None:
        return "write"
    if authority.restrictions_for(access.caller, chain[-1]):
        return "none"
    for rule, rights in _DATA_RIGHTS:
        decision = authority.decision(access.caller, chain, rule)
        if decision and decision.verdict.outcome == "allowed":
            return rights
    return "none"


_DATA_RIGHTS: Final[tuple[tuple[Rule, DataRights], ...]] = ((WRITE_DATA, "write"), (READ_DATA, "read"))


def viewer_of(lake: Lake, authority: Authority | None, container: Chain) -> Viewer | None:
    """What the caller may see inside a container; None if it is everything."""
    return authority.viewer(lake.access.caller, container) if lake.access and authority else None


def may_see(lake: Lake, authority: Authority | None, chain: Chain) -> bool:
    """Whether the caller may know that the last link of the chain exists."""
    return lake.access is None or authority is None or authority.sees(lake.access.caller, chain)


async def authorize_caller(lake: Lake) -> None:
    """Check that the caller is still valid, for a route that every authenticated caller may use."""
    await authorize_metastore(lake)


async def authorize_metastore(lake: Lake, *, situation: str = "") -> Authority | None:
    """Check what the route declares on the metastore, by a read of the grants that begins now, which it returns."""
    authority = await read_authority(lake)
    require_metastore(lake, authority, situation=situation)
    return authority


def require_metastore(lake: Lake, authority: Authority | None, *, situation: str = "") -> None:
    """Raise unless the request may do what its route declares to the metastore."""
    if authority:
        require(lake, authority, (authority.metastore,), missing=_METASTORE, situation=situation)


async def authorize_catalog(lake: Lake, catalog: Catalog, *, missing: NotFound, situation: str = "") -> None:
    """Check what the route declares on a catalog that the caller has read."""
    if authority := await read_authority(lake):
        require(lake, authority, catalog_chain(authority, catalog), missing=missing, situation=situation)


async def authorize_namespace(
    lake: Lake, namespace: Namespace, *, missing: NotFound, namespace_id: str = "", situation: str = ""
) -> None:
    """Check what the route declares on a namespace; `missing` is raised if it does not exist, too."""
    if authority := await read_authority(lake):
        chain = await namespace_chain(lake, authority, namespace, namespace_id, missing=missing)
        require(lake, authority, chain, missing=missing, situation=situation)


def manifest_versions(lake: Lake, authority: Authority) -> Versions:
    """The one object that a decision rests on, besides what it is about."""
    return ((lake.layout.security_manifest(), Version(authority.version)),) if authority.version else ()


Wanted = Callable[[ResolvedName], bool]
Situation = str | Callable[[ResolvedName], str]
"""A situation that the route declares, or the function that finds it out from what a name refers to."""


async def resolve_authorized(
    lake: Lake, identifier: Identifier, is_wanted: Wanted, *, missing: NotFound, situation: Situation = ""
) -> ResolvedName:
    """What a name refers to, if the request may do what its route declares to it; otherwise raises (A2, A4)."""
    found, _ = await resolve_with_authority(lake, identifier, is_wanted, missing=missing, situation=situation)
    return found


async def resolve_with_authority(
    lake: Lake, identifier: Identifier, is_wanted: Wanted, *, missing: NotFound, situation: Situation = ""
) -> tuple[ResolvedName, Authority | None]:
    """As `resolve_authorized`, with the grants that it read, for further decisions about the same request."""
    for _ in range(READS_MAX):
        before = remembered_versions(lake, identifier)
        if lake.store.has_instant_reads:  # There is no round to save, and tasks would cost more than the reads.
            authority, found = await read_authority(lake), await resolve_name(lake, identifier)
        else:
            authority, found = await gather_all((read_authority(lake), resolve_name(lake, identifier)))
        if found is None or not is_wanted(found):
            raise missing
        if authority is None:
            return found, None
        chain = await name_chain(lake, authority, found, missing=missing)
        stated = situation if isinstance(situation, str) else situation(found)
        require(lake, authority, chain, missing=missing, situation=stated)
        now = versions_read(lake, authority, found)
        if now == before or await lake.store.are_current(now):
            return found, authority
    raise Busy(f"{identifier}: it or the grants keep changing")


def versions_read(lake: Lake, authority: Authority, found: ResolvedName) -> Versions:
    """The objects that a decision about a name rests on.

    A2: if all of them were at these versions before the request, or are still at them afterwards, the right and what
    was read were valid at one moment.
    """
    name, record = found.name, found.pointer
    return (
        (lake.layout.security_manifest(), Version(authority.version)),
        (lake.layout.name(found.identifier), name.version),
        (pointer_cell(lake, name.value).key, record.version),
    )


def remembered_versions(lake: Lake, identifier: Identifier) -> Versions | None:
    """The same objects as this process saw them last; None if it has not seen all of them."""
    if lake.access is None:
        return None
    manifest, name = lake.security().last_seen, lake.name(identifier).last_seen
    record = pointer_cell(lake, name.value).last_seen if name else None
    if manifest is None or name is None or record is None:
        return None
    return (
        (lake.layout.security_manifest(), manifest.version),
        (lake.layout.name(identifier), name.version),
        (pointer_cell(lake, name.value).key, record.version),
    )


async def read_both(lake: Lake, identifier: Identifier) -> None:
    """Read a name that this process has not read, and the record that the list index has for it, in one round.

    The index is only a hint: what follows reads both again, as it does for a name that this process knows.
    """
    name = lake.name(identifier)
    if lake.store.has_instant_reads or name.last_seen is not None:
        return
    if entry := _indexed(lake.by_keys, lake.layout.aliases.place_by_keys(place_of(identifier))):
        with suppress(SandurError):  # The read that follows gets the error.
            await gather_all((name.read(), lake.bound_record(entry.uuid, entry.format or "iceberg").read()))


def is_unlisted(lake: Lake, identifier: Identifier) -> bool:
    """Whether a name was free in the list index when this process read it last."""
    place = lake.layout.aliases.place_by_keys(place_of(identifier))
    entries = _entries(lake.by_keys, place)
    return entries is not None and entry_named(entries, place.name) is None


def _indexed(lake: Lake, place: Place) -> Entry | None:
    """The entry of a name in the index as this process read it last; None if it has not read it."""
    return entry_named(_entries(lake, place) or (), place.name)


def _entries(lake: Lake, place: Place) -> Sequence[Entry] | None:
    manifest = lake.index(place.scope).last_seen
    if manifest is None or not (refs := manifest.value.segments):
        return manifest.value.entries if manifest else None
    segment = lake.index_segment(place.scope, refs[segment_at(refs, place.name)].id).last_seen
    return segment.value.entries if segment else None


async def authorize_name(lake: Lake, found: ResolvedName, *, missing: NotFound, situation: str = "") -> None:
    """Check what the route declares on the object under a name (A4)."""
    if authority := await read_authority(lake):
        chain = await name_chain(lake, authority, found, missing=missing)
        require(lake, authority, chain, missing=missing, situation=situation)


async def authorize_location(lake: Lake, location: str, *, situation: str = "") -> None:
    """Check what the route declares for a location that the client named, on the external location that covers it.

    Where no external location covers it, or only one that the caller must not see, the right on the metastore counts.
    """
    authority = await read_authority(lake)
    if authority is None:
        return
    found = await lake.storage_registry().read()
    covering = location_covering(found.value, location) if found else None
    chain: Chain = (authority.metastore,)
    if covering:
        below = (*chain, Link(covering.id, "external_location", covering.name, covering.owner_id))
        chain = below if may_see(lake, authority, below) else chain
    require(lake, authority, chain, missing=_METASTORE, situation=situation)
