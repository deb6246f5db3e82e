"""A catalog with the principals, owners and grants of a world, and requests that act as one of its principals."""

import copy
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Request
from sandur.catalog.security import Access, Authority, Caller, Group, ObjectGrants, Principal
from sandur.operations.access import object_id_of
from sandur.operations.index.rebuild import rebuild_all
from sandur.operations.lake import Lake
from sandur.operations.security import SecurityChange, SecurityEdit
from sandur.operations.tables.names import pointer_cell, resolve_name
from sandur.server.app import App
from sandur.server.context import Call
from sandur.server.http import HttpRequest
from sandur.server.identity import Identity
from sandur.server.process import RunningCatalog
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.authorization import worlds
from tests.authorization.evaluator import METASTORE, Kind, Securable, World
from tests.authorization.scene import UNITY_TYPES, Name, Sent

OPEN_SETTINGS: Final = Settings(store="memory:", log_level="error", allowed_locations=("s3://bucket/landing",))
SETTINGS: Final = replace(OPEN_SETTINGS, authentication="on")


class KeptStore(MemoryStore):
    """A store in memory that keeps its objects when its catalog is closed."""

    async def close(self) -> None:
        """Nothing is released."""


@dataclass(frozen=True)
class Received:
    status: int
    body: bytes


async def send(store: KeptStore, sent: Sent, principal: str) -> tuple[Received, KeptStore]:
    """The answer to a request of a principal, and the store after it. The given store stays as it is."""
    after = copy.deepcopy(store)
    app, catalog = build(SETTINGS, store=after)
    await catalog.lakes.start()  # Without a bootstrap, which would write.
    try:
        return await _answer(app, catalog, sent, Caller(principal, principal)), after
    finally:
        await catalog.close()


async def _answer(app: App, catalog: RunningCatalog, sent: Sent, caller: Caller) -> Received:
    """Route and handle a request as the server does after it has checked the token."""
    path, _, query = sent.path.partition("?")
    raw = path.encode()
    mount, dialect = next((mount, dialect) for mount, dialect in app._mounts if raw.startswith(mount))
    route, values = dialect.router.match(sent.method, raw, mount=mount)
    body = b"" if sent.body is None else msgspec.json.encode(sent.body)
    http = HttpRequest(sent.method, raw, query.encode(), {}, body, "request")
    identity = Identity("default", "default", caller.name, caller)
    access = Access(caller, route.needs)
    call = Call(catalog.lakes, catalog.authenticator, SETTINGS, route.operation, values, http, identity, access)
    try:
        answer = await route.handler(call)
    except Exception as error:  # noqa: BLE001 -- as the server does
        answer = dialect.errors.answer(error, route.operation, "request", is_public=True)
    return Received(answer.status, answer.body)


async def install(store: KeptStore, world: World) -> KeptStore:
    """A copy of the store, with the principals, groups, owners and grants of the world. Names are ids of subjects."""
    after = copy.deepcopy(store)
    _, catalog = build(OPEN_SETTINGS, store=after)
    await catalog.start()
    try:
        lake = catalog.lakes.lake("default", "default")
        ids = {one.id: await _give(lake, one) for one in world.objects if one.kind is not Kind.METASTORE}
        async for scope, failure in rebuild_all(lake):
            assert failure is None, (scope, failure)
        await SecurityChange(lake, Request("subjects"), "install", lambda _authority: _subjects(world)).run()
        await SecurityChange(lake, Request("grants"), "install", lambda found: _grants(found, world, ids)).run()
    finally:
        await catalog.close()
    return after


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
        case Kind.EXTERNAL_LOCATION:
            registry = await lake.storage_registry().read()
            assert registry
            location = replace(registry.value.locations[one.id], owner_id=owner)
            locations = {**registry.value.locations, one.id: location}
            await lake.storage_registry().swap(replace(registry.value, locations=locations), expected=registry.version)
            return location.id
        case _:
            found = await resolve_name(lake, Identifier(name.catalog, levels, name.leaf))
            assert found
            owned = replace(found.pointer.value, owner_id=owner)
            await pointer_cell(lake, found.name.value).swap(owned, expected=found.pointer.version)
            return object_id_of(owned)


def _subjects(world: World) -> SecurityEdit:
    members = {
        name: tuple(member for member, group in sorted(world.memberships) if group == name)
        for name in (*worlds.GROUPS, *worlds.ROLES)
    }
    return SecurityEdit(
        principals={name: Principal(id=name, name=name) for name in (*worlds.PRINCIPALS, "root")},
        groups={name: Group(id=name, name=name, members=inside) for name, inside in members.items()},
        owner=world.by_id[METASTORE].owner or "",
    )


def _grants(authority: Authority, world: World, ids: dict[str, str]) -> SecurityEdit:
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
