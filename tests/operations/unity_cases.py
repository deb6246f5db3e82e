"""One request for each operation of the Unity Catalog and Delta APIs, with the privileges that it needs."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from sandur.catalog.credentials.registry import CredentialUpdate, LocationUpdate
from sandur.catalog.security.privileges import Needs, Privilege, SecurableType
from sandur.operations.delta import commit, load
from sandur.operations.delta import tables as delta
from sandur.operations.lake import Lake
from sandur.operations.unity import credentials, lists, model_versions, registry, schemas, securables, tables
from sandur.operations.unity.lists import ListRequest
from sandur.server.delta_rest.routes import ROUTES as DELTA
from sandur.server.unity_rest.routes import CLASSIC_ROUTES
from sandur.storage.memory import MemoryStore
from tests.crash.unity_mutations import FUNCTION
from tests.fakes.fixed_clock import FixedClock
from tests.operations.delta_requests import add_change, create_managed, new_delta_table
from tests.operations.lakes import make_lake
from tests.operations.principals import acting, add_principals, request_of
from tests.operations.requests import NAMESPACE, create, identifier_of, request, set_up_catalog

UNITY: Final[dict[str, Needs]] = {route.operation: route.needs for route in CLASSIC_ROUTES}
DELTA_API: Final[dict[str, Needs]] = {route.operation: route.needs for route in DELTA}
ME: Final = "me"
EXTERNAL: Final = "s3://bucket/ext"
ALL: Final = ListRequest(None, None)


class World(NamedTuple):
    """A store with one securable of each kind, which the administrator owns."""

    lake: Lake
    ids: dict[str, str]

    def acting(self, needs: Needs, name: str = ME) -> Lake:
        return acting(make_lake(self.lake.store, self.lake.clock, allowed_locations=("s3://bucket",)), name, needs)


async def make_world() -> World:
    clock = FixedClock()
    lake = make_lake(MemoryStore(clock=clock), clock, allowed_locations=("s3://bucket",))
    await set_up_catalog(lake)
    table = await create_managed(lake)
    await create(lake, "t")
    csv = delta.NewTable(
        identifier=identifier_of("x"), table_type="EXTERNAL", data_source_format="CSV", location=f"{EXTERNAL}/x"
    )
    await tables.create_table(lake, csv, request("x"))
    volume = await securables.create_volume(
        lake, identifier_of("v"), volume_type="MANAGED", location=None, comment=None, request=request("v")
    )
    await securables.create_function(lake, identifier_of("f"), FUNCTION, comment=None, request=request("f"))
    await securables.create_model(lake, identifier_of("m"), comment=None, request=request("m"))
    version = model_versions.NewVersion("source", None, None)
    await model_versions.create_version(lake, identifier_of("m"), version, request("version"))
    await registry.create_credential(lake, "k", role=None, comment=None, request=request("k"))
    await registry.create_location(lake, "l", url=EXTERNAL, credential_name="k", comment=None, request=request("l"))
    await add_principals(lake, ME, "other", team=(ME,))
    await lake.background.drain()
    pointer = await lake.name(identifier_of("t")).read()
    assert pointer
    return World(lake, {"d": table.uuid, "v": volume.uuid, "t": pointer.value.uuid})


Run = Callable[[Lake, dict[str, str]], Awaitable[object]]
Right = tuple[SecurableType, str, Privilege]

USE: Final[tuple[Right, ...]] = (("catalog", "main", "USE CATALOG"), ("schema", "main.a", "USE SCHEMA"))


class Case(NamedTuple):
    """An operation, what makes its securable visible, and what it needs beside the use of the containers."""

    name: str
    needs: Needs
    run: Run
    shows: tuple[Right, ...]
    rights: tuple[Right, ...]

    def __str__(self) -> str:
        return self.name


def on(type_: SecurableType, name: str, *privileges: Privilege) -> tuple[Right, ...]:
    return tuple((type_, name, privilege) for privilege in privileges)


TABLE: Final[tuple[SecurableType, str]] = ("table", "main.a.d")
MODEL: Final[tuple[SecurableType, str]] = ("registered_model", "main.a.m")
VOLUME: Final[tuple[SecurableType, str]] = ("volume", "main.a.v")
BROWSE_TABLE: Final = on("table", "main.a.d", "BROWSE")
BROWSE_VOLUME: Final = on("volume", "main.a.v", "BROWSE")
BROWSE_MODEL: Final = on("registered_model", "main.a.m", "BROWSE")
BROWSE_SCHEMA: Final = on("schema", "main.a", "BROWSE")
D, V, M, F = (identifier_of(name) for name in "dvmf")
ME_SENT: Final = request_of(ME, "sent")
NEW_VERSION: Final = model_versions.NewVersion("source", None, None)


async def change(lake: Lake, ids: dict[str, str]) -> object:
    table = (await delta.find_by_id(lake.acting_for(None), ids["d"])).value
    return await commit.update_table(lake, D, add_change(table, 1), ME_SENT)


async def _older_change(lake: Lake, ids: dict[str, str]) -> object:
    table = (await delta.find_by_id(lake.acting_for(None), ids["d"])).value
    await commit.post_commit(lake, add_change(table, 1), table.location, ME_SENT)
    return table


async def _create_managed(lake: Lake, _ids: object) -> object:
    """The stage was made while this principal had the right: a stage is not a permission."""
    stage = await delta.stage_table(lake.acting_for(None), identifier_of("new"), source=ME_SENT.source)
    wanted = new_delta_table(stage.location, stage.uuid, identifier_of("new"))
    return await delta.create_from_staging(lake, wanted, request=ME_SENT)


async def _create_external(lake: Lake, _ids: object) -> object:
    wanted = delta.NewTable(
        identifier=identifier_of("new"), table_type="EXTERNAL", data_source_format="CSV", location=f"{EXTERNAL}/new"
    )
    return await tables.create_table(lake, wanted, ME_SENT)


async def _create_view(lake: Lake, _ids: object) -> object:
    wanted = delta.NewTable(
        identifier=identifier_of("new"), table_type="VIEW", data_source_format="", view_definition="select 1"
    )
    return await tables.create_table(lake, wanted, ME_SENT)


async def create_volume(lake: Lake, location: str | None) -> object:
    return await securables.create_volume(
        lake,
        identifier_of("new"),
        volume_type="EXTERNAL" if location else "MANAGED",
        location=location,
        comment=None,
        request=ME_SENT,
    )


async def _update(lake: Lake, name: str, kind: str, **changes: str | None) -> object:
    return await securables.update_securable(
        lake,
        identifier_of(name),
        "volume" if kind == "volume" else "model",
        comment=changes.get("comment"),
        new_name=changes.get("new_name"),
        request=ME_SENT,
    )


async def _list(lake: Lake, kind: str) -> object:
    return await lists.list_in_schema(lake, NAMESPACE, (kind,), kind, ALL)


CASES: Final = (
    Case(
        "load table",
        UNITY["getTable"],
        lambda lake, _: tables.load_table(lake, D),
        BROWSE_TABLE,
        on(*TABLE, "SELECT"),
    ),
    Case(
        "load Delta table",
        DELTA_API["loadTable"],
        lambda lake, _: load.load_table(lake, D),
        BROWSE_TABLE,
        on(*TABLE, "MODIFY"),
    ),
    Case(
        "Delta table exists",
        DELTA_API["tableExists"],
        lambda lake, _: load.check_table_exists(lake, D),
        BROWSE_TABLE,
        on(*TABLE, "SELECT"),
    ),
    Case("commit to a Delta table", DELTA_API["updateTable"], change, BROWSE_TABLE, on(*TABLE, "MODIFY")),
    Case("commit by the older API", UNITY["commit"], _older_change, BROWSE_TABLE, on(*TABLE, "MODIFY")),
    Case(
        "list commits by the older API",
        UNITY["getCommits"],
        lambda lake, ids: load.list_commits(lake, ids["d"], 0, None, None),
        BROWSE_TABLE,
        on(*TABLE, "SELECT"),
    ),
    Case(
        "drop table",
        UNITY["deleteTable"],
        lambda lake, _: tables.drop_table(lake, D, ME_SENT),
        BROWSE_TABLE,
        on(*TABLE, "MANAGE"),
    ),
    Case(
        "rename table",
        DELTA_API["renameTable"],
        lambda lake, _: delta.rename_table(lake, D, "renamed", request=ME_SENT),
        BROWSE_TABLE,
        (*on(*TABLE, "MANAGE"), *on("schema", "main.a", "CREATE TABLE")),
    ),
    Case(
        "credentials to read a table",
        UNITY["generateTemporaryTableCredentials"],
        lambda lake, ids: credentials.table_locations(lake, ids["d"], ME_SENT.source, writes=False),
        BROWSE_TABLE,
        on(*TABLE, "SELECT"),
    ),
    Case(
        "credentials to write an Iceberg table",
        UNITY["generateTemporaryTableCredentials"],
        lambda lake, ids: credentials.table_locations(lake, ids["t"], ME_SENT.source, writes=True),
        on("table", "main.a.t", "SELECT"),
        on("table", "main.a.t", "SELECT", "MODIFY"),
    ),
    Case(
        "stage table",
        UNITY["createStagingTable"],
        lambda lake, _: delta.stage_table(lake, identifier_of("new"), source=ME_SENT.source),
        BROWSE_SCHEMA,
        on("schema", "main.a", "CREATE TABLE"),
    ),
    Case(
        "create managed table",
        DELTA_API["createTable"],
        _create_managed,
        BROWSE_SCHEMA,
        on("schema", "main.a", "CREATE TABLE"),
    ),
    Case(
        "create external table",
        UNITY["createTable"],
        _create_external,
        (*BROWSE_SCHEMA, *on("schema", "main.a", "CREATE TABLE"), *on("external_location", "l", "READ FILES")),
        (*on("schema", "main.a", "CREATE TABLE"), *on("external_location", "l", "CREATE EXTERNAL TABLE")),
    ),
    Case("create view", UNITY["createTable"], _create_view, BROWSE_SCHEMA, on("schema", "main.a", "CREATE VIEW")),
    Case(
        "create volume",
        UNITY["createVolume"],
        lambda lake, _: create_volume(lake, None),
        BROWSE_SCHEMA,
        on("schema", "main.a", "CREATE VOLUME"),
    ),
    Case(
        "create external volume",
        UNITY["createVolume"],
        lambda lake, _: create_volume(lake, f"{EXTERNAL}/volume"),
        (*BROWSE_SCHEMA, *on("schema", "main.a", "CREATE VOLUME")),
        (*on("schema", "main.a", "CREATE VOLUME"), *on("external_location", "l", "CREATE EXTERNAL VOLUME")),
    ),
    Case(
        "load volume",
        UNITY["getVolume"],
        lambda lake, _: securables.load_securable(lake, V, "volume"),
        BROWSE_VOLUME,
        on(*VOLUME, "READ VOLUME"),
    ),
    Case(
        "update volume",
        UNITY["updateVolume"],
        lambda lake, _: _update(lake, "v", "volume", comment="new"),
        BROWSE_VOLUME,
        on(*VOLUME, "MANAGE"),
    ),
    Case(
        "rename volume",
        UNITY["updateVolume"],
        lambda lake, _: _update(lake, "v", "volume", new_name="renamed"),
        BROWSE_VOLUME,
        (*on(*VOLUME, "MANAGE"), *on("schema", "main.a", "CREATE VOLUME")),
    ),
    Case(
        "drop volume",
        UNITY["deleteVolume"],
        lambda lake, _: securables.drop_securable(lake, V, "volume", ME_SENT),
        BROWSE_VOLUME,
        on(*VOLUME, "MANAGE"),
    ),
    Case(
        "credentials to read a volume",
        UNITY["generateTemporaryVolumeCredentials"],
        lambda lake, ids: credentials.volume_location(lake, ids["v"], writes=False),
        BROWSE_VOLUME,
        on(*VOLUME, "READ VOLUME"),
    ),
    Case(
        "credentials to write a volume",
        UNITY["generateTemporaryVolumeCredentials"],
        lambda lake, ids: credentials.volume_location(lake, ids["v"], writes=True),
        on(*VOLUME, "READ VOLUME"),
        on(*VOLUME, "READ VOLUME", "WRITE VOLUME"),
    ),
    Case(
        "create function",
        UNITY["createFunction"],
        lambda lake, _: securables.create_function(lake, identifier_of("new"), FUNCTION, comment=None, request=ME_SENT),
        BROWSE_SCHEMA,
        on("schema", "main.a", "CREATE FUNCTION"),
    ),
    Case(
        "load function",
        UNITY["getFunction"],
        lambda lake, _: securables.load_securable(lake, F, "function"),
        on("function", "main.a.f", "BROWSE"),
        on("function", "main.a.f", "EXECUTE"),
    ),
    Case(
        "drop function",
        UNITY["deleteFunction"],
        lambda lake, _: securables.drop_securable(lake, F, "function", ME_SENT),
        on("function", "main.a.f", "EXECUTE"),
        on("function", "main.a.f", "MANAGE"),
    ),
    Case(
        "create model",
        UNITY["createRegisteredModel"],
        lambda lake, _: securables.create_model(lake, identifier_of("new"), comment=None, request=ME_SENT),
        BROWSE_SCHEMA,
        on("schema", "main.a", "CREATE MODEL"),
    ),
    Case(
        "load model",
        UNITY["getRegisteredModel"],
        lambda lake, _: securables.load_securable(lake, M, "model"),
        BROWSE_MODEL,
        on(*MODEL, "EXECUTE"),
    ),
    Case(
        "create model version",
        UNITY["createModelVersion"],
        lambda lake, _: model_versions.create_version(lake, M, NEW_VERSION, ME_SENT),
        on(*MODEL, "EXECUTE"),
        on(*MODEL, "MANAGE"),
    ),
    Case(
        "load model version",
        UNITY["getModelVersion"],
        lambda lake, _: model_versions.load_version(lake, M, 1),
        BROWSE_MODEL,
        on(*MODEL, "EXECUTE"),
    ),
    Case(
        "list model versions",
        UNITY["listModelVersions"],
        lambda lake, _: model_versions.list_versions(lake, M, ALL),
        BROWSE_MODEL,
        on(*MODEL, "EXECUTE"),
    ),
    Case(
        "update model version",
        UNITY["updateModelVersion"],
        lambda lake, _: model_versions.update_version(lake, M, 1, comment="new", request=ME_SENT),
        on(*MODEL, "EXECUTE"),
        on(*MODEL, "MANAGE"),
    ),
    Case(
        "finalize model version",
        UNITY["finalizeModelVersion"],
        lambda lake, _: model_versions.finalize_version(lake, M, 1, ME_SENT),
        on(*MODEL, "EXECUTE"),
        on(*MODEL, "MANAGE"),
    ),
    Case(
        "drop model version",
        UNITY["deleteModelVersion"],
        lambda lake, _: model_versions.drop_version(lake, M, 1, ME_SENT),
        on(*MODEL, "EXECUTE"),
        on(*MODEL, "MANAGE"),
    ),
    Case(
        "drop model",
        UNITY["deleteRegisteredModel"],
        lambda lake, _: model_versions.drop_model(lake, M, force=True, request=ME_SENT),
        on(*MODEL, "EXECUTE"),
        on(*MODEL, "MANAGE"),
    ),
    Case(
        "credentials to read a model version",
        UNITY["generateTemporaryModelVersionCredentials"],
        lambda lake, _: model_versions.load_version(lake, M, 1),
        BROWSE_MODEL,
        on(*MODEL, "EXECUTE"),
    ),
    Case(
        "load credential",
        UNITY["getCredential"],
        lambda lake, _: registry.load_credential(lake, "k"),
        (),
        on("credential", "k", "BROWSE"),
    ),
    Case(
        "update credential",
        UNITY["updateCredential"],
        lambda lake, _: registry.update_credential(lake, "k", CredentialUpdate(comment="new"), ME_SENT),
        on("credential", "k", "BROWSE"),
        on("credential", "k", "MANAGE"),
    ),
    Case(
        "drop credential",
        UNITY["deleteCredential"],
        lambda lake, _: registry.drop_credential(lake, "k", force=True, request=ME_SENT),
        on("credential", "k", "BROWSE"),
        on("credential", "k", "MANAGE"),
    ),
    Case(
        "load external location",
        UNITY["getExternalLocation"],
        lambda lake, _: registry.load_location(lake, "l"),
        (),
        on("external_location", "l", "READ FILES"),
    ),
    Case(
        "update external location",
        UNITY["updateExternalLocation"],
        lambda lake, _: registry.update_location(lake, "l", LocationUpdate(comment="new"), ME_SENT),
        on("external_location", "l", "READ FILES"),
        on("external_location", "l", "MANAGE"),
    ),
    Case(
        "drop external location",
        UNITY["deleteExternalLocation"],
        lambda lake, _: registry.drop_location(lake, "l", force=True, request=ME_SENT),
        on("external_location", "l", "READ FILES"),
        on("external_location", "l", "MANAGE"),
    ),
    Case(
        "load schema",
        UNITY["getSchema"],
        lambda lake, _: schemas.load_schema(lake, NAMESPACE),
        (),
        BROWSE_SCHEMA,
    ),
    Case("list volumes", UNITY["listVolumes"], lambda lake, _: _list(lake, "volume"), (), BROWSE_SCHEMA),
)
VISIBLE_ONLY: Final = {"load credential", "load external location", "load schema", "list volumes"}
