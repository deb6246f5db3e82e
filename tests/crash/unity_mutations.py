"""Every mutation of Unity Catalog's API as a repeatable request, with a check of its effect."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sandur.catalog.credentials.registry import AwsIamRole
from sandur.catalog.functions import FunctionDefinition, FunctionParameters
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Catalog, Request
from sandur.catalog.security.grants import PermissionsChange
from sandur.catalog.security.users import Email, UserResource, user_not_found
from sandur.errors import NotFound
from sandur.operations.access import Security
from sandur.operations.containers.catalogs import create_catalog, load_catalog, update_catalog
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.delta.tables import NewTable
from sandur.operations.lake import Lake, complete_new_store
from sandur.operations.unity import access, grants, model_versions, registry, schemas, securables, tables
from sandur.operations.unity.lists import ListRequest
from sandur.operations.unity.owners import change_owner
from sandur.storage.contract import ObjectStore
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.requests import copy_store, request

SCHEMA: Final = Namespace("main", ("s",))
NEW: Final = Namespace("main", ("new",))
FUNCTION: Final = FunctionDefinition(
    input_params=FunctionParameters(),
    data_type="INT",
    full_data_type="INT",
    routine_body="SQL",
    routine_definition="1",
    parameter_style="S",
    is_deterministic=True,
    sql_data_access="NO_SQL",
    is_null_call=False,
    security_type="DEFINER",
    specific_name="f",
)
ROLE: Final = AwsIamRole("arn:aws:iam::123456789012:role/reader")


def identifier_of(name: str) -> Identifier:
    return Identifier(*SCHEMA, name)


@dataclass
class World:
    """A store and a clock."""

    store: MemoryStore
    clock: FixedClock

    def server(self, store: ObjectStore | None = None) -> Lake:
        """A server that has just started, with empty caches."""
        return make_lake(store or self.store, self.clock)

    def copy(self) -> "World":
        return World(*copy_store(self.store, self.clock))


async def make_world() -> World:
    """Two catalogs beside the default one, and a schema with one securable of each kind."""
    clock = FixedClock()
    world = World(MemoryStore(clock=clock), clock)
    server = world.server()
    await complete_new_store(world.store, clock)
    await create_catalog(server, "main", root=None, properties={}, request=request("main"))
    await create_catalog(server, "empty", root=None, properties={}, request=request("empty"))
    await create_catalog(server, "full", root=None, properties={}, request=request("full"))
    for namespace in (SCHEMA, Namespace("main", ("bare",)), Namespace("full", ("x",))):
        await _create_schema(server, namespace, request(f"schema {namespace}"))
    await _create_volume(server, identifier_of("v"), request("v"))
    await _create_volume(server, Identifier("full", ("x",), "v"), request("full v"))
    await securables.create_model(server, identifier_of("m"), comment=None, request=request("m"))
    await _create_version(server, request("version"))
    await _create_table(server, identifier_of("t"), request("t"))
    await registry.create_credential(server, "k", role=ROLE, comment=None, request=request("k"))
    await _create_location(server, "l", request("l"))
    await access.create_user(server, UserResource(emails=(Email("old@x.org"),)), request("old"))
    await server.background.drain()
    clock.advance(1_000)
    return world


Send = Callable[[Lake, Request], Awaitable[object]]
Seen = Callable[[Lake], Awaitable[object]]


@dataclass(frozen=True)
class Mutation:
    """A request and its effect: `seen` returns `expected` if and only if the request was applied."""

    name: str
    send: Send
    seen: Seen
    expected: object
    # The number of events that it leaves, of its own and of what it drops with it.
    events: int = 1
    # A later request of another client, and the expected state after it.
    undone: Send | None = None
    undone_as: object = None

    def __str__(self) -> str:
        return self.name


async def _create_schema(server: Lake, namespace: Namespace, sent: Request) -> object:
    return await schemas.create_schema(server, namespace, comment="c", properties={}, storage_root=None, request=sent)


async def _create_volume(server: Lake, identifier: Identifier, sent: Request) -> object:
    return await securables.create_volume(
        server, identifier, volume_type="MANAGED", location=None, comment=None, request=sent
    )


async def _create_version(server: Lake, sent: Request) -> object:
    return await model_versions.create_version(
        server, identifier_of("m"), model_versions.NewVersion("source", None, None), sent
    )


async def _create_table(server: Lake, identifier: Identifier, sent: Request) -> object:
    location = f"{server.area}/main/{identifier.name}"
    wanted = NewTable(identifier=identifier, table_type="EXTERNAL", data_source_format="CSV", location=location)
    return await tables.create_table(server, wanted, sent)


async def _create_location(server: Lake, name: str, sent: Request) -> object:
    return await registry.create_location(
        server, name, url=f"s3://b/{name}", credential_name="k", comment=None, request=sent
    )


async def _user_id(server: Lake, email: str) -> str:
    found = [user.id for user in await access.list_users(server) if user.name == email]
    if not found:
        raise user_not_found(email)
    return found[0]


async def _drop_user(server: Lake, email: str, sent: Request) -> None:
    """A retry after the drop finds no id, and sends the same request again."""
    known = _ids.setdefault(email, "")
    try:
        known = _ids[email] = await _user_id(server, email)
    except NotFound:
        if not known:
            raise
    await access.drop_user(server, known, sent)


_ids: dict[str, str] = {}


async def _exists(work: Awaitable[object]) -> bool:
    try:
        await work
    except NotFound:
        return False
    return True


async def _versions(server: Lake) -> list[int]:
    found = await model_versions.list_versions(server, identifier_of("m"), ListRequest(None, None))
    return [version.version for version in found.versions]


async def _catalog_comment(server: Lake) -> str | None:
    found: Catalog = await load_catalog(server, "empty")
    return found.comment


async def _volume_names(server: Lake) -> dict[str, str | None]:
    names: dict[str, str | None] = {}
    for name in ("v", "w"):
        if await _exists(securables.load_securable(server, identifier_of(name), "volume")):
            names[name] = (await securables.load_securable(server, identifier_of(name), "volume")).comment
    return names


async def model_names(server: Lake) -> dict[str, bool]:
    """The names that lead to the model, each with whether its info shows a change after the creation."""
    names: dict[str, bool] = {}
    for name in ("m", "n", "o"):
        if await _exists(securables.load_securable(server, identifier_of(name), "model")):
            model = await securables.load_securable(server, identifier_of(name), "model")
            names[name] = model.changed_ms > model.created_ms
    return names


async def _rename_model(server: Lake, name: str, new_name: str, sent: Request) -> object:
    return await securables.update_securable(
        server, identifier_of(name), "model", comment=None, new_name=new_name, request=sent
    )


RENAME_MODEL: Final = Mutation(
    "rename model",
    lambda server, sent: _rename_model(server, "m", "n", sent),
    model_names,
    {"n": True},
    undone=lambda server, sent: _rename_model(server, "n", "o", sent),
    undone_as={"o": True},
)


async def _grants(server: Lake) -> object:
    return await grants.load_grants(server, "catalog", "main")


async def _catalog_owner(server: Lake) -> tuple[str, bool]:
    """The owner of the catalog, and whether the manifest exists: the change of an owner bumps it (A12)."""
    return (await load_catalog(server, "main")).owner, bool((await server.feature(Security).read()).manifest.number)


async def _registered(server: Lake) -> list[str]:
    """The names of all credentials and external locations."""
    found = await registry.load_registry(server)
    return [*found.credentials, *found.locations]


async def _schema_comment(server: Lake) -> str | None:
    return (await schemas.load_schema(server, SCHEMA)).comment


MUTATIONS: Final = (
    Mutation(
        "create catalog",
        lambda server, sent: create_catalog(server, "new", root=None, properties={}, request=sent),
        lambda server: _exists(load_catalog(server, "new")),
        expected=True,
        undone=lambda server, sent: drop_catalog(server, "new", force=False, request=sent),
        undone_as=False,
    ),
    Mutation(
        "update catalog",
        lambda server, sent: update_catalog(server, "empty", comment="new", properties=None, request=sent),
        _catalog_comment,
        "new",
        undone=lambda server, sent: update_catalog(server, "empty", comment="later", properties=None, request=sent),
        undone_as="later",
    ),
    Mutation(
        "drop catalog",
        lambda server, sent: drop_catalog(server, "empty", force=False, request=sent),
        lambda server: _exists(load_catalog(server, "empty")),
        expected=False,
    ),
    Mutation(
        "drop catalog by force",
        lambda server, sent: drop_catalog(server, "full", force=True, request=sent),
        lambda server: _exists(load_catalog(server, "full")),
        expected=False,
        events=3,
    ),
    Mutation(
        "create schema",
        lambda server, sent: _create_schema(server, NEW, sent),
        lambda server: _exists(schemas.load_schema(server, NEW)),
        expected=True,
        undone=lambda server, sent: schemas.drop_schema(server, NEW, force=False, request=sent),
        undone_as=False,
    ),
    Mutation(
        "update schema",
        lambda server, sent: schemas.update_schema(server, SCHEMA, comment="new", properties=None, request=sent),
        _schema_comment,
        "new",
        undone=lambda server, sent: schemas.update_schema(
            server, SCHEMA, comment="later", properties=None, request=sent
        ),
        undone_as="later",
    ),
    Mutation(
        "drop schema by force",
        lambda server, sent: schemas.drop_schema(server, SCHEMA, force=True, request=sent),
        lambda server: _exists(schemas.load_schema(server, SCHEMA)),
        expected=False,
        events=4,
    ),
    Mutation(
        "create volume",
        lambda server, sent: _create_volume(server, identifier_of("new"), sent),
        lambda server: _exists(securables.load_securable(server, identifier_of("new"), "volume")),
        expected=True,
        undone=lambda server, sent: securables.drop_securable(server, identifier_of("new"), "volume", sent),
        undone_as=False,
    ),
    Mutation(
        "create function",
        lambda server, sent: securables.create_function(
            server, identifier_of("new"), FUNCTION, comment=None, request=sent
        ),
        lambda server: _exists(securables.load_securable(server, identifier_of("new"), "function")),
        expected=True,
    ),
    Mutation(
        "change and rename volume",
        lambda server, sent: securables.update_securable(
            server, identifier_of("v"), "volume", comment="new", new_name="w", request=sent
        ),
        _volume_names,
        {"w": "new"},
        events=2,
    ),
    RENAME_MODEL,
    Mutation(
        "drop volume",
        lambda server, sent: securables.drop_securable(server, identifier_of("v"), "volume", sent),
        lambda server: _exists(securables.load_securable(server, identifier_of("v"), "volume")),
        expected=False,
    ),
    Mutation("create model version", _create_version, _versions, [1, 2]),
    Mutation(
        "drop model version",
        lambda server, sent: model_versions.drop_version(server, identifier_of("m"), 1, sent),
        _versions,
        [],
    ),
    Mutation(
        "create table",
        lambda server, sent: _create_table(server, identifier_of("new"), sent),
        lambda server: _exists(tables.load_table(server, identifier_of("new"))),
        expected=True,
    ),
    Mutation(
        "drop table",
        lambda server, sent: tables.drop_table(server, identifier_of("t"), sent),
        lambda server: _exists(tables.load_table(server, identifier_of("t"))),
        expected=False,
    ),
    Mutation(
        "update grants",
        lambda server, sent: grants.update_grants(
            server, "catalog", "main", (PermissionsChange("old@x.org", ("SELECT",), ()),), sent
        ),
        _grants,
        {"old@x.org": ("SELECT",)},
        undone=lambda server, sent: grants.update_grants(
            server, "catalog", "main", (PermissionsChange("old@x.org", (), ("SELECT",)),), sent
        ),
        undone_as={},
    ),
    Mutation(
        "change owner of a catalog",
        lambda server, sent: change_owner(server, "catalog", "main", "new@x.org", sent),
        _catalog_owner,
        ("new@x.org", True),
        undone=lambda server, sent: change_owner(server, "catalog", "main", "later@x.org", sent),
        undone_as=("later@x.org", True),
    ),
    Mutation(
        "create location",
        lambda server, sent: _create_location(server, "new", sent),
        lambda server: _has_location(server, "new"),
        expected=True,
        undone=lambda server, sent: registry.drop_location(server, "new", force=False, request=sent),
        undone_as=False,
    ),
    Mutation(
        "drop location",
        lambda server, sent: registry.drop_location(server, "l", force=False, request=sent),
        lambda server: _has_location(server, "l"),
        expected=False,
    ),
    Mutation(
        "drop credential by force",
        lambda server, sent: registry.drop_credential(server, "k", force=True, request=sent),
        _registered,
        expected=["l"],
    ),
    Mutation(
        "create user",
        lambda server, sent: access.create_user(server, UserResource(emails=(Email("new@x.org"),)), sent),
        lambda server: _exists(_user_id(server, "new@x.org")),
        expected=True,
        undone=lambda server, sent: _drop_user(server, "new@x.org", sent),
        undone_as=False,
    ),
    Mutation(
        "drop user",
        lambda server, sent: _drop_user(server, "old@x.org", sent),
        lambda server: _exists(_user_id(server, "old@x.org")),
        expected=False,
    ),
)


async def _has_location(server: Lake, name: str) -> bool:
    return name in (await registry.load_registry(server)).locations
