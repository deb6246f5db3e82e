"""What the operations of the Unity Catalog and Delta APIs need: allowed, forbidden, or hidden like a missing thing."""

from typing import Final

import pytest
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import names_scope, place_of
from sandur.catalog.security.grants import GrantChange
from sandur.errors import Forbidden, Hidden, NotFound, SandurError
from sandur.operations.access import Security
from sandur.operations.delta import commit, load
from sandur.operations.delta import tables as delta
from sandur.operations.index.lists import read_page
from sandur.operations.index.truth import list_written_names, read_entries
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX
from sandur.operations.tables.names import EVERY_FORMAT
from sandur.operations.unity import credentials, lists, registry, securables, tables
from sandur.operations.unity.grants import update_grants
from sandur.operations.unity.lists import ListRequest
from sandur.storage.contract import list_all
from tests.fakes.spy_store import SpyStore
from tests.operations.delta_requests import add_change
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake
from tests.operations.principals import ADMIN, acting, grant, id_of, request_of, revoke
from tests.operations.requests import NAMESPACE, identifier_of, request
from tests.operations.unity_cases import (
    ALL,
    CASES,
    DELTA_API,
    EXTERNAL,
    ME,
    ME_SENT,
    TABLE,
    UNITY,
    USE,
    VISIBLE_ONLY,
    Case,
    D,
    Right,
    V,
    World,
    change,
    create_volume,
    make_world,
    on,
)

IN_CATALOG: Final = [
    case
    for case in CASES
    if str(case) not in VISIBLE_ONLY
    and any(type_ not in {"credential", "external_location"} for type_, *_ in case.rights)
]


@pytest.fixture
async def world() -> World:
    return await make_world()


async def give(world: World, rights: tuple[Right, ...], to: str = ME) -> None:
    for type_, name, privilege in rights:
        await grant(world.lake, to, type_, name, privilege)
    await world.lake.background.drain()


async def stored(world: World) -> dict[str, str]:
    """The version of every object that a refused request must not change.

    Marks in the index repair themselves, and the test of a stage makes the stage.
    """
    listed = await list_all(world.lake.store, "")
    ignored = ("/index/", "/delta_staged/")
    return {one.key: one.version for one in listed if not any(part in one.key for part in ignored)}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_caller_with_the_privilege_is_allowed(world: World, case: Case) -> None:
    await give(world, (*USE, *case.rights))
    lake = world.acting(case.needs)

    await case.run(lake, world.ids)
    await lake.background.drain()

    assert lake.access
    assert [decision.verdict.outcome for decision in lake.access.decisions][-1] == "allowed"


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_group_gives_its_members_the_privilege(world: World, case: Case) -> None:
    await give(world, (*USE, *case.rights), to="team")

    await case.run(world.acting(case.needs), world.ids)


@pytest.mark.parametrize("case", [case for case in CASES if str(case) not in VISIBLE_ONLY], ids=str)
async def test_a_caller_who_sees_it_without_the_privilege_is_forbidden(world: World, case: Case) -> None:
    await give(world, (*USE, *case.shows))
    before = await stored(world)
    lake = world.acting(case.needs)

    with pytest.raises(Forbidden, match="it needs"):
        await case.run(lake, world.ids)

    await lake.background.drain()
    assert await stored(world) == before


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_caller_without_any_right_gets_the_answer_for_a_missing_thing(world: World, case: Case) -> None:
    before = await stored(world)
    lake = world.acting(case.needs)

    with pytest.raises(NotFound) as hidden:
        await case.run(lake, world.ids)

    await lake.background.drain()
    assert await stored(world) == before
    assert isinstance(hidden.value, Hidden)
    assert hidden.value.subject in {"catalog", "table", "volume", "credential", "external location", "namespace"}


@pytest.mark.parametrize("case", IN_CATALOG, ids=str)
async def test_without_the_use_of_the_catalog_a_privilege_is_worth_nothing(world: World, case: Case) -> None:
    await give(world, (*USE[1:], *case.rights))

    with pytest.raises(Forbidden, match="USE CATALOG on catalog main"):
        await case.run(world.acting(case.needs), world.ids)


DATA: Final = [case for case in CASES if "credentials" in str(case) or str(case).startswith("commit")]
# The stage of a managed table belongs to its principal.
MANAGED: Final = [case for case in CASES if case not in DATA and str(case) != "create managed table"]


@pytest.mark.parametrize("case", MANAGED, ids=str)
async def test_the_owner_of_the_metastore_manages_everything(world: World, case: Case) -> None:
    await case.run(world.acting(case.needs, ADMIN), world.ids)


async def give_everything_away(world: World) -> None:
    """Make another principal the owner of every table, volume and model."""
    layout, lake = world.lake.layout, world.lake
    for folder in (layout.pointers_folder(), layout.delta_tables_folder(), layout.securables_folder()):
        for listed in await list_all(lake.store, folder):
            uuid = listed.key.removeprefix(folder).removesuffix(".json")
            for one in EVERY_FORMAT:
                cell = lake.bound_record(uuid, one)
                if cell.key == listed.key and (found := await cell.read()):
                    await cell.swap(replace(found.value, owner_id=id_of("other")), expected=found.version)


@pytest.mark.parametrize("case", DATA, ids=str)
async def test_the_owner_of_the_metastore_reaches_no_data_of_others_without_a_grant(world: World, case: Case) -> None:
    await give_everything_away(world)

    with pytest.raises(Forbidden):
        await case.run(world.acting(case.needs, ADMIN), world.ids)


async def test_hidden_parts_of_a_name_read_as_missing(world: World) -> None:
    """The first part that is hidden is the one that the answer names, whether the rest exists or not."""
    await grant(world.lake, "other", "schema", "main.b", "BROWSE")

    async def text(name: str, catalog: str = "main", schema: str = "a") -> tuple[str, str]:
        identifier = identifier_of(name, Namespace(catalog, (schema,)))
        with pytest.raises(NotFound) as raised:
            await tables.load_table(world.acting(UNITY["getTable"], "other"), identifier)
        return str(raised.value).rpartition(" ")[0], raised.value.subject

    assert await text("d") == await text("none") == await text("d", schema="none")
    await grant(world.lake, "other", "schema", "main.a", "USE SCHEMA")
    assert await text("d") == await text("none")
    assert (await text("d", catalog="none"))[1] == "catalog"


async def test_lists_contain_what_the_caller_may_see(world: World) -> None:
    await give(world, (("volume", "main.a.v", "READ VOLUME"), ("credential", "k", "BROWSE")))
    catalogs = await lists.list_catalogs(world.acting(UNITY["listCatalogs"]), ALL)
    found = await lists.list_in_schema(
        world.acting(UNITY["listTables"]), NAMESPACE, ("table", "volume", "model", "function"), "tables", ALL
    )
    models = await lists.list_everywhere(world.acting(UNITY["listRegisteredModels"]), None, "model", "models", ALL)
    credentials, _ = await registry.list_credentials(world.acting(UNITY["listCredentials"]), ALL)
    _, locations, _ = await registry.list_locations(world.acting(UNITY["listExternalLocations"]), ALL)
    schemas_found = await lists.list_schemas(world.acting(UNITY["listSchemas"]), "main", ALL)

    assert (len(catalogs.infos), len(found.infos), len(models.infos), len(schemas_found.infos)) == (1, 1, 0, 1)
    assert b'"volume_id"' in bytes(found.infos[0])
    assert [one.name for one in credentials] == ["k"]
    assert locations == []


async def test_pages_are_full_after_filtering(world: World) -> None:
    for number in range(12):
        name = f"n{number:02d}"
        await securables.create_model(world.lake, identifier_of(name), comment=None, request=request(name))
        if number % 3 == 0:
            await grant(world.lake, ME, "registered_model", f"main.a.{name}", "EXECUTE")
    await world.lake.background.drain()
    needs, sizes, token = UNITY["listRegisteredModels"], [], None

    for _ in range(4):
        page = await lists.list_in_schema(world.acting(needs), NAMESPACE, ("model",), "models", ListRequest(token, 2))
        everywhere = await lists.list_everywhere(world.acting(needs), None, "model", "m", ListRequest(None, 2))
        assert len(everywhere.infos) == 2
        sizes.append(len(page.infos))
        token = page.next_token
        if token is None:
            break

    assert sizes == [2, 2]


async def test_a_stage_belongs_to_the_principal_that_made_it(world: World) -> None:
    needs = UNITY["generateTemporaryTableCredentials"]
    for name in (ME, "other"):
        await give(world, (*USE, ("schema", "main.a", "CREATE TABLE")), to=name)
    stage = await delta.stage_table(
        world.acting(UNITY["createStagingTable"]), D._replace(name="n"), source=ME_SENT.source
    )

    mine = await credentials.table_locations(world.acting(needs), stage.uuid, ME_SENT.source, writes=True)
    texts = []
    for uuid in (stage.uuid, world.lake.clock.new_uuid()):
        with pytest.raises(NotFound) as raised:
            await credentials.table_locations(
                world.acting(needs, "other"), uuid, request_of("other", "sent").source, writes=True
            )
        texts.append(str(raised.value).replace(uuid, "_"))

    assert mine == (stage.location,)
    assert texts[0] == texts[1]
    await revoke(world.lake, ME, "schema", "main.a", "CREATE TABLE")
    with pytest.raises(SandurError):
        await credentials.table_locations(world.acting(needs), stage.uuid, ME_SENT.source, writes=True)


@pytest.mark.parametrize(
    ("operation", "rights"),
    [
        ("", on("external_location", "l", "READ FILES")),
        ("write", on("external_location", "l", "READ FILES", "WRITE FILES")),
        ("create", on("external_location", "l", "CREATE EXTERNAL TABLE")),
    ],
)
async def test_credentials_for_a_path_need_the_right_on_the_location_that_covers_it(
    world: World, operation: str, rights: tuple[Right, ...]
) -> None:
    needs = UNITY["generateTemporaryPathCredentials"]
    with pytest.raises(Forbidden, match="on metastore"):
        await credentials.path_location(world.acting(needs), f"{EXTERNAL}/free", situation=operation)
    await give(world, rights)

    assert await credentials.path_location(world.acting(needs), f"{EXTERNAL}/free", situation=operation)
    for place in (f"{EXTERNAL}/x", f"{EXTERNAL}/x/part", EXTERNAL):
        with pytest.raises(Forbidden, match="overlaps data of others"):
            await credentials.path_location(world.acting(needs), place, situation=operation)
    with pytest.raises(Forbidden, match="on metastore"):
        await credentials.path_location(world.acting(needs), "s3://bucket/elsewhere", situation=operation)
    await give(world, (*USE, *on("table", "main.a.x", "SELECT", "MODIFY")))
    assert await credentials.path_location(world.acting(needs), f"{EXTERNAL}/x", situation=operation)


async def test_an_external_table_outside_of_every_external_location_needs_the_metastore(world: World) -> None:
    await give(world, (*USE, ("schema", "main.a", "CREATE TABLE"), ("external_location", "l", "CREATE EXTERNAL TABLE")))
    wanted = delta.NewTable(
        identifier=identifier_of("new"), table_type="EXTERNAL", data_source_format="CSV", location="s3://bucket/other/t"
    )

    with pytest.raises(Forbidden, match="CREATE EXTERNAL TABLE on metastore"):
        await tables.create_table(world.acting(UNITY["createTable"]), wanted, ME_SENT)
    made = await tables.create_table(world.acting(UNITY["createTable"], ADMIN), wanted, request_of(ADMIN, "made"))
    assert made.storage_location == "s3://bucket/other/t"


async def test_what_is_created_belongs_to_its_creator(world: World) -> None:
    await give(world, (*USE, ("schema", "main.a", "CREATE TABLE"), ("schema", "main.a", "CREATE VOLUME")))
    await grant(world.lake, ME, "metastore", "metastore", "CREATE STORAGE CREDENTIAL")
    await create_volume(world.acting(UNITY["createVolume"]), None)
    await registry.create_credential(
        world.acting(UNITY["createCredential"]), "mine", role=None, comment=None, request=request_of(ME, "credential")
    )

    volume = await securables.load_securable(world.lake, identifier_of("new"), "volume")
    credential = (await registry.load_registry(world.lake)).credentials["mine"]
    assert {volume.owner_id, credential.owner_id} == {id_of(ME)}
    await securables.drop_securable(
        world.acting(UNITY["deleteVolume"]), identifier_of("new"), "volume", request_of(ME, "drop")
    )


async def test_the_same_name_created_again_inherits_no_grant(world: World) -> None:
    await give(world, (*USE, ("volume", "main.a.v", "READ VOLUME")))
    await securables.drop_securable(world.lake, V, "volume", request("drop"))
    await securables.create_volume(
        world.lake, V, volume_type="MANAGED", location=None, comment=None, request=request("again")
    )

    with pytest.raises(Hidden):
        await securables.load_securable(world.acting(UNITY["getVolume"]), V, "volume")  # A3


async def test_a_commit_that_was_allowed_before_a_revocation_is_refused_after_it(world: World) -> None:
    await give(world, (*USE, *on(*TABLE, "MODIFY")))
    lake = world.acting(DELTA_API["updateTable"])
    await change(lake, world.ids)
    await revoke(world.lake, ME, "table", "main.a.d", "MODIFY")

    with pytest.raises(Hidden):
        await change(lake, world.ids)  # A replay is authorized like the first request.
    assert (await delta.find_by_id(world.lake, world.ids["d"])).value.last_version == 1


async def test_the_grants_are_read_for_every_request(world: World) -> None:
    """A1: a server that remembers the grants still asks the store."""
    await give(world, (*USE, *on(*TABLE, "SELECT")))
    lake = world.acting(UNITY["getTable"])
    await tables.load_table(lake, D)
    number = (await lake.feature(Security).read()).manifest.number

    await revoke(world.lake, ME, "table", "main.a.d", "SELECT")

    with pytest.raises(Hidden):
        await tables.load_table(lake, D)
    assert (await lake.feature(Security).read()).manifest.number == number + 1


@pytest.mark.parametrize(("is_checked", "rounds"), [(False, 1), (True, 2)])
async def test_a_warm_delta_commit_reads_the_grants_before_its_one_swap(
    world: World, *, is_checked: bool, rounds: int
) -> None:
    """A6: the swap is the only round of a Delta commit, so the right to make it costs one more on a bucket."""
    await give(world, (*USE, *on(*TABLE, "MODIFY")))
    table = (await delta.find_by_id(world.lake, world.ids["d"])).value
    spy = SpyStore(world.lake.store)
    server = make_lake(spy, world.lake.clock)
    lake = acting(server, ME, DELTA_API["updateTable"]) if is_checked else server
    await commit.update_table(lake, D, add_change(table, 1), ME_SENT)
    await lake.background.drain()
    spy.reset()

    await commit.update_table(lake, D, add_change(table, 2), ME_SENT)

    assert spy.rounds == rounds


@pytest.mark.parametrize("is_checked", [False, True])
async def test_a_warm_delta_load_is_one_round_with_and_without_grants(world: World, *, is_checked: bool) -> None:
    await give(world, (*USE, *on(*TABLE, "SELECT")))
    spy = SpyStore(world.lake.store)
    server = make_lake(spy, world.lake.clock)
    lake = acting(server, ME, DELTA_API["loadTable"]) if is_checked else server
    await load.load_table(lake, D)
    await load.load_table(lake, D)
    spy.reset()

    await load.load_table(lake, D)

    assert spy.rounds == 1


async def test_a_revocation_right_before_a_commit_is_seen(world: World) -> None:
    """A6: the read of the grants begins after the request, also on a server that remembers everything."""
    await give(world, (*USE, *on(*TABLE, "MODIFY")))
    table = (await delta.find_by_id(world.lake, world.ids["d"])).value
    store = HookedStore(world.lake.store)
    lake = acting(make_lake(store, world.lake.clock), ME, DELTA_API["updateTable"])
    await commit.update_table(lake, D, add_change(table, 1), ME_SENT)

    async def revoked() -> None:
        await revoke(world.lake, ME, "table", "main.a.d", "MODIFY")

    store.before("get", world.lake.layout.security_manifest(), revoked)
    with pytest.raises(Hidden):
        await commit.update_table(lake, D, add_change(table, 2), ME_SENT)

    assert (await delta.find_by_id(world.lake, world.ids["d"])).value.last_version == 1


async def test_a_commit_that_takes_too_long_after_it_was_allowed_is_decided_again(world: World) -> None:
    await give(world, (*USE, *on(*TABLE, "MODIFY")))
    table = (await delta.find_by_id(world.lake, world.ids["d"])).value
    store = HookedStore(world.lake.store)
    lake = acting(make_lake(store, world.lake.clock), ME, DELTA_API["updateTable"])

    async def slow() -> None:
        await world.lake.clock.sleep(SWAP_DELAY_MS_MAX / 1_000 + 1)

    async def revoked() -> None:
        await revoke(world.lake, ME, "table", "main.a.d", "MODIFY")

    store.before("get", world.lake.layout.security_manifest(), slow)
    store.before("get", world.lake.layout.security_manifest(), revoked)
    with pytest.raises(Hidden):
        await commit.update_table(lake, D, add_change(table, 1), ME_SENT)

    assert (await delta.find_by_id(world.lake, world.ids["d"])).value.last_version == 0


async def test_a_fenced_revocation_stops_a_delta_commit_that_was_allowed_before(world: World) -> None:
    """A5: without the bump, a commit that read the grants before would be applied after the answer."""
    await give(world, (*USE, *on(*TABLE, "MODIFY", "BROWSE")))
    table = (await delta.find_by_id(world.lake, world.ids["d"])).value
    store = HookedStore(world.lake.store)
    lake = acting(make_lake(store, world.lake.clock), ME, DELTA_API["updateTable"])

    async def revoked() -> None:
        removal = (GrantChange(ME, remove=("MODIFY",)),)
        await update_grants(world.lake, "table", "main.a.d", removal, request("fenced"), is_fenced=True)

    store.before("put", world.lake.layout.delta_table(table.uuid), revoked)
    with pytest.raises(Forbidden):
        await commit.update_table(lake, D, add_change(table, 1), ME_SENT)

    assert (await delta.find_by_id(world.lake, world.ids["d"])).value.last_version == 0


async def test_a_load_never_combines_a_new_right_with_older_content(world: World) -> None:
    """A2: secret content is removed, then the right is granted. A load that began before must not see the secret."""
    await give(world, USE)
    table = (await delta.find_by_id(world.lake, world.ids["d"])).value
    store = HookedStore(world.lake.store)
    lake = acting(make_lake(store, world.lake.clock), ME, DELTA_API["loadTable"])

    async def granted() -> None:
        await commit.update_table(world.lake, D, add_change(table, 1), request("removes the secret"))
        await grant(world.lake, ME, "table", "main.a.d", "SELECT")

    for key in (lake.layout.security_manifest(), lake.layout.name(D)):
        await lake.store.get(key)
    store.before("get", lake.layout.security_manifest(), granted)
    found = await load.load_table(lake, D)

    assert found.last_version == 1


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_server_that_has_just_started_lists_and_reads_what_a_request_left(world: World, case: Case) -> None:
    """The index has what the records say, and every record can be decoded."""
    await case.run(world.lake, world.ids)
    await world.lake.background.drain()

    reader = make_lake(world.lake.store, world.lake.clock, allowed_locations=("s3://bucket",))
    for scope in (names_scope(NAMESPACE), place_of(NAMESPACE).scope):
        page = await read_page(reader, scope, last=None, wanted=None)
        names = {*(entry.name for entry in page.entries), *await list_written_names(reader, scope)}
        expected = await read_entries(reader, scope, names)
        assert {entry.name: entry for entry in page.entries} == {name: one for name, one in expected.items() if one}
