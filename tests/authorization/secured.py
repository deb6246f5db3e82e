"""A catalog with the principals, owners and grants of a world, and requests that its principals send with API keys."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Request
from sandur.catalog.security.manifest import Authority, Group, ObjectGrants, Principal
from sandur.clock import SystemClock
from sandur.operations.identity.credentials import ApiKey, new_api_key, stored_api_key
from sandur.operations.index.rebuild import rebuild_all
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import object_id_of
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.names import pointer_cell, resolve_name
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.authorization import worlds
from tests.authorization.evaluator import METASTORE, Kind, Securable, World
from tests.authorization.names import UNITY_TYPES, Name, Sent
from tests.server.conftest import with_plain_names

OPEN_SETTINGS: Final = Settings(store="memory:", log_level="error", allowed_locations=("s3://bucket/landing",))
SETTINGS: Final = replace(OPEN_SETTINGS, authentication="on")


class KeptStore(MemoryStore):
    """A store in memory that keeps its objects when its catalog is closed."""

    def copy(self) -> "KeptStore":
        """Another store with the same objects, which are never changed in place."""
        other = KeptStore()
        other._objects = dict(self._objects)
        other._sorted_keys = list(self._sorted_keys)
        other._writes = self._writes
        return other

    async def close(self) -> None:
        """Nothing is released."""


@dataclass(frozen=True)
class Secured:
    """A store with principals and grants, and the API keys of the principals."""

    store: KeptStore
    keys: Mapping[str, str]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Client"]:
        """A server on a copy of the store, with authentication."""
        store = self.store.copy()
        app, catalog = build(SETTINGS, store=store)
        await catalog.lakes.start()  # Without a bootstrap, which would write.
        await catalog.authenticator.keys.refresh()
        try:
            transport = httpx.ASGITransport(with_plain_names(app))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                yield Client(client, store, self.keys)
        finally:
            await catalog.close()


@dataclass(frozen=True)
class Received:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Client:
    """A client of one server, for all principals."""

    http: httpx.AsyncClient
    store: KeptStore
    keys: Mapping[str, str]

    async def send(self, sent: Sent, principal: str, **headers: str) -> Received:
        own = {"Authorization": f"Bearer {self.keys[principal]}", "X-Request-ID": "request"}
        answer = await sent.by(self.http, {**own, **{name.replace("_", "-"): text for name, text in headers.items()}})
        return Received(answer.status_code, answer.content, answer.headers)


async def send(secured: Secured, sent: Sent, principal: str) -> tuple[Received, KeptStore]:
    """The answer to a request of a principal, and the store after it. The given store stays as it is."""
    async with secured.opened() as client:
        return await client.send(sent, principal), client.store


async def install(store: KeptStore, world: World) -> Secured:
    """A copy of the store, with the principals, groups, owners and grants of the world. Names are ids of subjects."""
    after = store.copy()
    _, catalog = build(OPEN_SETTINGS, store=after)
    await catalog.lakes.start()
    ring = await catalog.authenticator.keys.refresh()
    try:
        lake = catalog.lakes.lake("default", "default")
        keys = {name: new_api_key(ring, lake.layout) for name in (*worlds.PRINCIPALS, "root")}
        ids = {one.id: await _give(lake, one) for one in world.objects if one.kind is not Kind.METASTORE}
        async for scope, failure in rebuild_all(lake):
            assert failure is None, (scope, failure)
        await SecurityChange(lake, Request("subjects"), "install", lambda _authority: _subjects(world, keys)).run()
        await regrant(lake, world, ids)
    finally:
        await catalog.close()
    return Secured(after, {name: str(key) for name, key in keys.items()})


async def regrant(lake: Lake, world: World, ids: Mapping[str, str]) -> None:
    await SecurityChange(lake, Request("grants"), "install", lambda found: _grants(found, world, ids)).run()


async def _give(lake: Lake, one: Securable) -> str:
    """Set the owner of an object, and return its id in the catalog."""
    name, owner = Name(one.id), one.owner or ""
    levels = tuple(name.levels)
    match one.kind:
        case Kind.CATALOG:
            catalog = await lake.catalog(one.id).read()
            assert catalog
            await lake.catalog(one.id).swap(replace(catalog.value, owner_id=owner), expected=catalog.version)
            return catalog.value.id
        case Kind.NAMESPACE:
            cell = lake.namespace(Namespace(name.catalog, levels))
            namespace = await cell.read()
            assert namespace
            await cell.swap(replace(namespace.value, owner_id=owner), expected=namespace.version)
            return namespace.value.id
        case Kind.EXTERNAL_LOCATION | Kind.CREDENTIAL:
            return await _give_entry(lake, one)
        case _:
            found = await resolve_name(lake, Identifier(name.catalog, levels, name.leaf))
            assert found
            owned = replace(found.pointer.value, owner_id=owner)
            await pointer_cell(lake, found.name.value).swap(owned, expected=found.pointer.version)
            return object_id_of(owned)


async def _give_entry(lake: Lake, one: Securable) -> str:
    """The same for an external location or a storage credential."""
    registry = await lake.storage_registry().read()
    assert registry
    if one.kind is Kind.CREDENTIAL:
        credential = replace(registry.value.credentials[one.id], owner_id=one.owner or "")
        after = replace(registry.value, credentials={**registry.value.credentials, one.id: credential})
        id_ = credential.id
    else:
        location = replace(registry.value.locations[one.id], owner_id=one.owner or "")
        after = replace(registry.value, locations={**registry.value.locations, one.id: location})
        id_ = location.id
    await lake.storage_registry().swap(after, expected=registry.version)
    return id_


def _subjects(world: World, keys: Mapping[str, ApiKey]) -> SecurityEdit:
    members = {
        name: tuple(member for member, group in sorted(world.memberships) if group == name)
        for name in (*worlds.GROUPS, *worlds.ROLES)
    }
    return SecurityEdit(
        principals={
            name: Principal(id=name, name=name, api_keys=(stored_api_key(key, SystemClock()),))
            for name, key in keys.items()
        },
        groups={name: Group(id=name, name=name, members=inside) for name, inside in members.items()},
        owner=world.by_id[METASTORE].owner or "",
    )


def _grants(authority: Authority, world: World, ids: Mapping[str, str]) -> SecurityEdit:
    ids = {**ids, METASTORE: authority.manifest.metastore_id}
    grants = {}
    for one in world.objects:
        subjects: dict[str, tuple[str, ...]] = {}
        for grant in sorted(world.grants, key=str):
            if grant.object_id == one.id:
                subjects[grant.subject] = (*subjects.get(grant.subject, ()), grant.privilege)
        if subjects:
            above = tuple(ids[link.id] for link in world.chain(one.id)[1:])
            grants[ids[one.id]] = ObjectGrants(type=UNITY_TYPES[one.kind], subjects=subjects, above=above)
    return SecurityEdit(grants=grants)
