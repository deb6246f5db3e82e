"""Who may see an event: the name of its object now, the chain of securables that leads there, and the decision.

An event is visible to a caller who may see its object. An object that no longer exists is judged where it was last,
and only by containers that are older than the event. Events of grants, storage and policies need MANAGE on the
metastore.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from sandur.catalog.event_feed.events import Event
from sandur.catalog.identifiers import Format, Identifier, Namespace
from sandur.catalog.index import CATALOGS, Scope
from sandur.catalog.records import BoundRecord
from sandur.catalog.security.manifest import Authority, Caller
from sandur.catalog.security.privileges import MANAGED, Chain, Link, SecurableType
from sandur.errors import Damaged, NotFound
from sandur.operations.caches import LruCache
from sandur.operations.index.lists import read_page
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import TYPES, catalog_chain, name_chain, namespace_chain, object_id_of
from sandur.operations.tables.names import ResolvedName, is_alive, resolve_name
from sandur.storage.cell import Versioned

_MOVES_MAX: Final = 16
_NAMES_MAX: Final = 100_000
_SCAN_PAUSE_MS: Final = 60_000
_SCAN_SCOPES_MAX: Final = 100_000
_ABSENT: Final = NotFound("It does not exist", subject="object")  # Never shown: a chain without it is judged instead.
_OF_METASTORE: Final = frozenset({"grants", "storage", "policy"})
_CLOCK_SKEW_MS: Final = 60_000


class ObjectNames:
    """The names of objects by uuid, as this process found them last; each one is confirmed before it is used."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._names: LruCache[str, Identifier] = LruCache(_NAMES_MAX)
        self._scanned_ms = 0

    async def find(self, uuid: str, record: BoundRecord) -> ResolvedName | None:
        """The name that an object has now; None if it has none, or only one that nothing leads to."""
        for identifier in self._candidates(uuid, record):
            if found := await self._follow(uuid, identifier):
                return found
        now_ms = self._lake.clock.now_ms()
        if now_ms >= self._scanned_ms + _SCAN_PAUSE_MS:
            self._scanned_ms = now_ms
            await self._scan()
            if uuid in self._names:
                return await self._follow(uuid, self._names[uuid])
        return None

    def learn(self, uuid: str, identifier: Identifier) -> None:
        """A rename or creation says that the object has, or had, this name."""
        self._names[uuid] = identifier

    def _candidates(self, uuid: str, record: BoundRecord) -> Iterator[Identifier]:
        if uuid in self._names:
            yield self._names[uuid]
        if record.made_for:
            yield record.made_for

    async def _follow(self, uuid: str, identifier: Identifier) -> ResolvedName | None:
        """The object under a name, or under the name that renames lead to from there."""
        for _ in range(_MOVES_MAX):
            found = await resolve_name(self._lake, identifier)
            if found and found.uuid == uuid:
                self._names[uuid] = identifier
                return found
            name = await self._lake.name(identifier).read()
            if name is None or name.value.state != "moved" or name.value.uuid != uuid or name.value.other is None:
                return None
            identifier = name.value.other
        return None

    async def _scan(self) -> None:
        """Learn every name from the list indexes: a rename long ago leaves no trace at the old name."""
        scopes = [CATALOGS]
        for number in range(_SCAN_SCOPES_MAX):
            if number >= len(scopes):
                return
            scope = scopes[number]
            for entry in (await read_page(self._lake, scope, last=None, wanted=None, has_info=False)).entries:
                match scope.collection:
                    case "catalogs":
                        scopes.append(Scope("schemas", entry.name))
                    case "schemas":
                        levels = (*scope.levels, entry.name)
                        scopes += [Scope("schemas", scope.catalog, levels), Scope("tables", scope.catalog, levels)]
                    case "tables":
                        self._names[entry.uuid] = Identifier(scope.catalog, scope.levels, entry.name)


class EventJudge:
    """Decides about the events of one page, on one authority. Without an authority, every event is visible.

    `see` returns the event as the caller may see it; None if it may not.
    """

    def __init__(self, lake: Lake, authority: Authority | None, caller: Caller | None) -> None:
        self._lake = lake.by_known_names()
        self._authority = authority
        self._caller = caller
        self._found: dict[tuple[str, Format], tuple[Versioned[BoundRecord] | None, ResolvedName | None]] = {}

    async def see(self, event: Event) -> Event | None:
        try:
            return await self._see(event)
        except Damaged as error:  # Until it is repaired, the caller might not be allowed to see it.
            self._lake.incidents.object_damaged(error.key, error.reason)
            return None

    async def _see(self, event: Event) -> Event | None:
        if event.object_type in _OF_METASTORE:
            return event if self._manages() else None
        if event.object_type in {"catalog", "namespace"}:
            return event if await self._sees_container(event) else None
        named, chain = await self._object(event)
        if not self._sees(chain):
            return None
        if named.renamed_from and not await self._sees_former_name(named):
            return replace(named, renamed_from=None)
        return named

    async def _object(self, event: Event) -> tuple[Event, Chain]:
        """The event with its object's name and type, and the chain of the object."""
        record, found = await self._lookup(event)
        if event.kind == "committed":
            named = found.identifier if found else (record.value.dropped_as if record else None)
            kind = record.value.kind if record else event.object_type
            event = replace(event, identifier=named, object_type="view" if kind == "view" else event.object_type)
        if self._authority is None:
            return event, ()
        if found:
            try:
                return event, await name_chain(self._lake, self._authority, found, missing=_ABSENT)
            except NotFound:
                pass  # Its namespace has been dropped since.
        above = await self._chain_above(event.identifier.namespace if event.identifier else None, event.time_ms)
        owner = record.value.owner_id if record else ""
        id_ = object_id_of(record.value) if record else event.object_id
        type_ = TYPES.get(event.object_type, "registered_model")
        return event, (*above, Link(id_, type_, str(event.identifier or event.object_id), owner))

    async def _lookup(self, event: Event) -> tuple[Versioned[BoundRecord] | None, ResolvedName | None]:
        """The record of an object and the name that it has now."""
        format_: Format = event.format or ("iceberg" if event.object_type in {"table", "view"} else "unity")
        key = (event.object_id, format_)
        if key not in self._found:
            names = self._lake.named_feature(ObjectNames)
            if event.identifier and event.kind in {"created", "renamed", "undropped"}:
                names.learn(event.object_id, event.identifier)
            self._found[key] = (None, None)
            try:
                record = await self._lake.bound_record(event.object_id, format_).read()
                found = await names.find(event.object_id, record.value) if record and is_alive(record) else None
                self._found[key] = (record, found)
            except Damaged as error:  # Its events have no name then, and are judged as those of a lost object.
                self._lake.incidents.object_damaged(error.key, error.reason)
        return self._found[key]

    async def _sees_container(self, event: Event) -> bool:
        named, authority = event.identifier, self._authority
        if authority is None or named is None:
            return self._manages()
        type_: SecurableType = "catalog" if event.object_type == "catalog" else "schema"
        if type_ == "catalog":
            catalog = await self._lake.catalog(named.catalog).read()
            if catalog and catalog.value.id == event.object_id:
                return self._sees(catalog_chain(authority, catalog.value))
            return self._sees((authority.metastore, Link(event.object_id, type_, named.catalog)))
        try:
            return self._sees(
                await namespace_chain(self._lake, authority, named.namespace, event.object_id, missing=_ABSENT)
            )
        except NotFound:
            parent = named.namespace.parent or Namespace(named.catalog, ())
            above = await self._chain_above(parent, event.time_ms)
            return self._sees((*above, Link(event.object_id, type_, str(named.namespace))))

    async def _sees_former_name(self, event: Event) -> bool:
        """Whether the caller may know the name before a rename: it sees that namespace, or nothing is hidden."""
        former = event.renamed_from
        if self._authority is None or former is None or (event.identifier and event.identifier[:2] == former[:2]):
            return True
        try:
            return self._sees(await namespace_chain(self._lake, self._authority, former.namespace, missing=_ABSENT))
        except NotFound:
            return self._manages()

    async def _chain_above(self, container: Namespace | None, time_ms: int) -> Chain:
        """The chain of the container in which something was, if it is the one of that time; else the metastore's."""
        authority = self._authority
        if authority is None:
            return ()
        catalog = await self._lake.catalog(container.catalog).read() if container else None
        if container is None or catalog is None or catalog.value.created_ms > time_ms + _CLOCK_SKEW_MS:
            return (authority.metastore,)
        if not container.levels:
            return (
                (authority.metastore,) if catalog.value.state == "dropped" else catalog_chain(authority, catalog.value)
            )
        record = await self._lake.namespace(container).read()
        if record is None or record.value.created_ms > time_ms + _CLOCK_SKEW_MS:
            return (authority.metastore,)
        try:
            return await namespace_chain(self._lake, authority, container, missing=_ABSENT)
        except NotFound:
            return (authority.metastore,)

    def _sees(self, chain: Chain) -> bool:
        return self._authority is None or self._caller is None or self._authority.sees(self._caller, chain)

    def _manages(self) -> bool:
        if self._authority is None or self._caller is None:
            return True
        return self._authority.decide(self._caller, (self._authority.metastore,), MANAGED).outcome == "allowed"
