"""Attacks by locations, over HTTP: no caller gets a place, files or credentials that belong to another table."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from sandur.clock import SystemClock
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lakes
from sandur.settings import Settings
from sandur.storage.layout import Layout
from sandur.storage.locations import open_store
from tests.fakes.fixed_clock import FixedClock
from tests.operations.janitor_runs import HOUR_MS, ReportedErrors
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, create_view, set_properties
from tests.server.unity.client import UNITY

Json = dict[str, Any]

VICTIM: Final = {"X-Sandur-Tenant": "victim"}
ATTACKER: Final = {"X-Sandur-Tenant": "attacker"}
TABLES: Final = "/v1/main/namespaces/s/tables"
REGISTER: Final = "/v1/main/namespaces/s/register"
WHERE: Final = {"catalog_name": "main", "schema_name": "s"}


class Server:
    """A server on a folder, and a second folder that the settings allow to every tenant."""

    def __init__(self, client: httpx.AsyncClient, folder: Path) -> None:
        self.client = client
        self.store = folder / "store"
        self.shared = f"file://{folder}/shared"

    async def post(self, path: str, body: Json, who: dict[str, str] = ATTACKER) -> httpx.Response:
        return await self.client.post(path, json=body, headers=who)

    async def made(self, path: str, body: Json, who: dict[str, str] = ATTACKER) -> Json:
        answer = await self.post(path, body, who)
        assert answer.status_code == 200, answer.text
        made: Json = answer.json()
        return made

    async def table(self, name: str, who: dict[str, str] = ATTACKER, **fields: object) -> Json:
        return await self.made(TABLES, create_table(name, **fields), who)

    async def refused(self, path: str, body: Json, who: dict[str, str] = ATTACKER) -> str:
        """The text of the refusal, which does not say whose the place is."""
        answer = await self.post(path, body, who)
        assert answer.status_code == 400, f"{answer.status_code} {answer.text}"
        assert "main.s.t" not in answer.text
        return answer.text


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "shared").mkdir()
    return Settings(
        store=str(tmp_path / "store"),
        fsync="never",
        log_level="error",
        janitors=False,
        allowed_locations=(f"file://{tmp_path}/shared",),
    )


@pytest.fixture
async def server(catalogs: Catalogs, settings: Settings, tmp_path: Path) -> Server:
    server = Server(await catalogs.open_with(settings), tmp_path)
    for who in (VICTIM, ATTACKER):
        await server.made("/v1/main/namespaces", {"namespace": ["s"], "properties": {}}, who)
    return server


@pytest.fixture
async def later(settings: Settings) -> AsyncIterator[Lakes]:
    """The lakes of the server as janitors see them an hour later."""
    lakes = Lakes(settings, FixedClock(SystemClock().now_ms() + HOUR_MS), open_store(settings.store, settings))
    yield lakes
    await lakes.close()


def path_of(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def changed_file(loaded: Json, name: str, to: str | None = None, **changes: Any) -> str:
    """A copy of a table's metadata file with some changes, in the table's folder or elsewhere; its location."""
    file = path_of(loaded["metadata-location"])
    body = json.loads(file.read_bytes()) | {key.replace("_", "-"): value for key, value in changes.items()}
    copy = (path_of(to) if to else file.parent) / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(json.dumps(body))
    return f"file:{copy}"


async def unregister(server: Server, name: str, who: dict[str, str] = ATTACKER, *, purge: bool = False) -> None:
    dropped = await server.client.delete(f"{TABLES}/{name}", params={"purgeRequested": str(purge).lower()}, headers=who)
    assert dropped.status_code == 204, dropped.text


@pytest.mark.parametrize("path", ["tenant=victim/workspace=default/_catalog/names", "tables/victim/default/main/x"])
async def test_metadata_whose_paths_lead_to_another_tenant_is_not_registered(server: Server, path: str) -> None:
    """Line 1: the next commit would write there."""
    outside = f"file:{server.store}/{path}"
    own = await server.table("t")
    view = await server.made("/v1/main/namespaces/s/views", create_view("v"))
    await unregister(server, "t")
    table_file = changed_file(own, "00009-x.metadata.json", properties={"write.metadata.path": outside})
    view_file = changed_file(view, "00009-x.metadata.json", properties={"write.metadata.path": outside})

    await server.refused(REGISTER, {"name": "u", "metadata-location": table_file})
    await server.refused(REGISTER, {"name": "u", "metadata-location": table_file, "overwrite": True})
    register_view = "/v1/main/namespaces/s/register-view"
    await server.refused(register_view, {"name": "w", "metadata-location": view_file})
    moved = changed_file(own, "00010-x.metadata.json", location=outside)
    await server.refused(REGISTER, {"name": "u", "metadata-location": moved})


@pytest.mark.parametrize("inside", ["lake/t", "lake"])
async def test_a_table_of_another_tenant_is_neither_registered_nor_purged(
    server: Server, later: Lakes, inside: str
) -> None:
    """Line 2: both tenants may use the folder, and the attacker knows the path of the file."""
    victim = await server.table("t", VICTIM, location=f"{server.shared}/lake/t")
    copied = changed_file(
        victim, "00009-x.metadata.json", to=f"{server.shared}/mine", location=f"{server.shared}/{inside}"
    )

    for location in (victim["metadata-location"], copied):
        await server.refused(REGISTER, {"name": "stolen", "metadata-location": location})
    await server.client.delete(f"{TABLES}/stolen", params={"purgeRequested": "true"}, headers=ATTACKER)
    await run_janitors(later.fresh_lake(Layout("attacker")), {}, on_error=ReportedErrors())

    assert path_of(victim["metadata-location"]).exists()
    assert (await server.client.get(f"{TABLES}/t", headers=VICTIM)).status_code == 200


@pytest.mark.parametrize("who", [ATTACKER, VICTIM], ids=["another tenant", "the same tenant"])
@pytest.mark.parametrize("place", ["lake/t", "lake/t/below", "lake"])
async def test_nothing_is_created_at_below_or_above_the_place_of_another_table(
    server: Server, place: str, who: dict[str, str]
) -> None:
    """Line 3: tables, views, stages, volumes, Delta tables, roots of catalogs and schemas, external locations."""
    await server.table("t", VICTIM, location=f"{server.shared}/lake/t")
    location = f"{server.shared}/{place}"
    delta = {**WHERE, "name": "d", "table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": []}
    view = create_view("w") | {"location": location}
    answers = [
        await server.post(TABLES, create_table("u", location=location), who),
        await server.post(TABLES, create_table("u", location=location, stage_create=True), who),
        await server.post(TABLES, create_table("u", properties={"write.data.path": location}), who),
        await server.post("/v1/main/namespaces/s/views", view, who),
        await server.post(
            f"{UNITY}/volumes", {**WHERE, "name": "v", "volume_type": "EXTERNAL", "storage_location": location}, who
        ),
        await server.post(f"{UNITY}/tables", {**delta, "storage_location": location}, who),
        await server.post(f"{UNITY}/catalogs", {"name": "over", "storage_root": location}, who),
    ]
    root = await server.post("/v1/main/namespaces", {"namespace": ["n"], "properties": {"location": location}}, who)

    assert [answer.status_code for answer in answers] == [400] * len(answers), [answer.text for answer in answers]
    # P5: a schema may have its root above tables of its own catalog.
    assert root.status_code == (200 if who == VICTIM and place == "lake" else 400), root.text
    if who == ATTACKER:
        assert not [answer.text for answer in (*answers, root) if "main.s.t" in answer.text]
    free = await server.post(TABLES, create_table("u", location=f"{server.shared}/free"), who)
    assert free.status_code == 200, free.text


async def test_an_external_location_does_not_cover_another_tenants_table(server: Server) -> None:
    """Line 3, through the registry of storage credentials."""
    await server.table("t", VICTIM, location=f"{server.shared}/lake/t")
    await server.made(f"{UNITY}/credentials", {"name": "k", "purpose": "STORAGE"})
    over = {"name": "l", "credential_name": "k", "url": f"{server.shared}/lake"}

    await server.refused(f"{UNITY}/external-locations", over)
    await server.refused(f"{UNITY}/external-locations", {**over, "url": f"file://{server.store}"})
    await server.refused(f"{UNITY}/external-locations", {**over, "url": f"file://{server.store}/tables"})
    await server.made(f"{UNITY}/external-locations", {**over, "url": f"{server.shared}/mine"})


@pytest.mark.parametrize(
    "path", ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"]
)
async def test_a_commit_moves_no_files_to_the_place_of_another_table(server: Server, path: str) -> None:
    """Lines 3 and 4, by a commit, by `set-location` and by a transaction."""
    victim = await server.table("t", VICTIM, location=f"{server.shared}/lake/t")
    generated = (await server.table("default", VICTIM))["metadata"]["location"]
    own = (await server.table("u"))["metadata"]["table-uuid"]

    for place in (victim["metadata"]["location"], f"{server.shared}/lake", generated, f"{generated}/data"):
        await server.refused(f"{TABLES}/u", set_properties(**{path: place}))
        move = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
        await server.refused(f"{TABLES}/u", move)
        change = {"identifier": {"namespace": ["s"], "name": "u"}, **set_properties(**{path: place})}
        await server.refused("/v1/main/transactions/commit", {"table-changes": [change]})

    loaded = (await server.client.get(f"{TABLES}/u", headers=ATTACKER)).json()["metadata"]
    assert (loaded["table-uuid"], path in loaded["properties"]) == (own, False)


async def test_a_purge_leaves_the_files_of_others_alone(server: Server, later: Lakes) -> None:
    """Line 4: a table drops with a purge after it tried to call another's folder its own."""
    victim = await server.table("t", VICTIM, location=f"{server.shared}/lake/t")
    data = path_of(victim["metadata"]["location"]) / "data" / "file.parquet"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_bytes(b"x")
    await server.table("u", location=f"{server.shared}/mine")
    await server.post(f"{TABLES}/u", set_properties(**{"write.data.path": f"{server.shared}/lake/t"}))

    await unregister(server, "u", purge=True)
    swept = await run_janitors(later.fresh_lake(Layout("attacker")), {}, on_error=ReportedErrors())

    assert swept.counts["purge_removed"] == 1
    assert data.exists()
    assert path_of(victim["metadata-location"]).exists()


async def test_credentials_for_a_table_are_for_its_location_and_not_for_a_folder_above(server: Server) -> None:
    """Line 6: the metadata file lies right in a root."""
    own = await server.table("t", location=f"{server.shared}/lake/t")
    await unregister(server, "t")
    file = changed_file(own, "x.metadata.json", to=server.shared)
    registered = await server.made(REGISTER, {"name": "u", "metadata-location": file})

    table_id = registered["metadata"]["table-uuid"]
    infos = await server.client.get(f"{UNITY}/tables/main.s.u", headers=ATTACKER)
    answer = await server.made(
        f"{UNITY}/temporary-table-credentials", {"table_id": infos.json()["table_id"], "operation": "READ"}
    )

    assert table_id
    assert answer["url"] == f"{server.shared}/lake/t"


@pytest.mark.parametrize("location", ["/etc", "file:///etc/passwd", "s3://elsewhere/x", "{store}/tables/victim/x"])
async def test_there_are_no_credentials_for_a_path_outside(server: Server, location: str) -> None:
    """Line 7, in both APIs."""
    place = location.format(store=f"file://{server.store}")
    query = {"location": place, "operation": "PATH_READ"}

    delta = await server.client.get(f"{UNITY}/delta/v1/temporary-path-credentials", params=query, headers=ATTACKER)
    classic = await server.post(f"{UNITY}/temporary-path-credentials", {"url": place, "operation": "PATH_READ"})

    assert (delta.status_code, classic.status_code) == (400, 400), (delta.text, classic.text)


async def test_there_are_no_credentials_for_the_path_of_another_tenants_table(server: Server) -> None:
    """Line 7, in a folder that all tenants may use."""
    await server.table("t", VICTIM, location=f"{server.shared}/lake/t")

    for place in ("lake/t", "lake/t/data", "lake"):
        query = {"location": f"{server.shared}/{place}", "operation": "PATH_READ"}
        delta = await server.client.get(f"{UNITY}/delta/v1/temporary-path-credentials", params=query, headers=ATTACKER)
        assert delta.status_code == 400, delta.text
    own = {"location": f"{server.shared}/mine", "operation": "PATH_READ"}
    answer = await server.client.get(f"{UNITY}/delta/v1/temporary-path-credentials", params=own, headers=ATTACKER)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        *("a#b", "a;b", "a$b", "a'b", 'a"b', "a%23b", "a%27b", "a*b", "a?b", "a\nb", "a%00b"),
        *("../b", "a//b", "%2e%2e/b", "a/%2e/b", "%252e%252e/b", "a%2F%2E%2E%2Fb"),
        *("__unitystorage/x", "%5F_unitystorage/x", "a/" * 70, "x" * 900),
    ],
)
async def test_odd_locations_are_refused(server: Server, name: str) -> None:
    """Line 17."""
    location = f"{server.shared}/{name}"

    await server.refused(TABLES, create_table("t", location=location))
    volume = {**WHERE, "name": "v", "volume_type": "EXTERNAL", "storage_location": location}
    await server.refused(f"{UNITY}/volumes", volume)
    await server.refused(TABLES, create_table("t", properties={"write.data.path": location}))


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/x", "s3://key:secret@b/x", "s3://b:9000/x", "ftp://b/x", "file://host/x"]
)
async def test_odd_schemes_and_hosts_are_refused(server: Server, location: str) -> None:
    """Line 17; line 22: a staged creation outside the roots."""
    await server.refused(TABLES, create_table("t", location=location))
    await server.refused(TABLES, create_table("t", location=location, stage_create=True))
    await server.refused(TABLES, create_table("t", location=f"file://{server.store}/x", stage_create=True))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("abfss://c@account.dfs.core.windows.net/lake/x", "wasbs://C@Account.blob.core.windows.net/lake/x"),
        ("s3://bucket/lake/x", "s3a://bucket/lake/x/"),
        ("s3://bucket/lake/x", "s3n://BUCKET/lake/%78"),
        ("s3://bucket/lake/é", "s3://bucket/lake/e\u0301"),
        ("gs://bucket/lake/x", "gcs://bucket/lake/x/below"),
    ],
)
async def test_two_spellings_of_one_place_are_one_place(catalogs: Catalogs, first: str, second: str) -> None:
    """Line 17."""
    roots = [text[: text.index("/lake")] + "/lake" for text in (first, second)]
    server = Server(await catalogs.open(allowed_locations=tuple(roots)), Path("/"))
    await server.made("/v1/main/namespaces", {"namespace": ["s"], "properties": {}})
    volume = {**WHERE, "volume_type": "EXTERNAL"}

    await server.made(f"{UNITY}/volumes", {**volume, "name": "one", "storage_location": first})

    assert "overlaps" in await server.refused(f"{UNITY}/volumes", {**volume, "name": "two", "storage_location": second})


async def test_generated_places_never_nest(server: Server) -> None:
    """A level of a namespace may have the name of another table's folder."""
    outer = (await server.table("t"))["metadata"]["location"]
    folder = outer.rpartition("/")[2]
    places = [outer]
    for levels in (["s", folder], [folder], ["__unitystorage"], ["s", "__unitystorage", "s", folder]):
        await server.made("/v1/main/namespaces", {"namespace": levels, "properties": {}})
        tables = f"/v1/main/namespaces/{'%1F'.join(levels)}/tables"
        made = [await server.made(tables, create_table(name)) for name in ("x", folder)]
        places += [one["metadata"]["location"] for one in made]

    for place in places:
        assert [other for other in places if f"{other}/".startswith(f"{place}/")] == [place]


async def test_a_uuid_does_not_give_the_place_of_something_else(server: Server) -> None:
    """A client chooses the uuid of a table that it creates by a commit, and could name that of a volume."""
    volume = await server.made(f"{UNITY}/volumes", {**WHERE, "name": "v", "volume_type": "MANAGED"})
    staged = await server.made(f"{UNITY}/staging-tables", {**WHERE, "name": "d"})
    table = await server.table("t")

    for uuid, location in (
        (volume["volume_id"], volume["storage_location"]),
        (staged["id"], staged["staging_location"]),
        (table["metadata"]["table-uuid"], table["metadata"]["location"]),
    ):
        metadata = table["metadata"]
        commit = {
            "requirements": [{"type": "assert-create"}],
            "updates": [
                {"action": "assign-uuid", "uuid": uuid},
                {"action": "add-schema", "schema": metadata["schemas"][0]},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "set-location", "location": location},
            ],
        }
        await server.refused(f"{TABLES}/u", commit)
