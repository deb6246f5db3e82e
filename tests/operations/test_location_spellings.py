"""Locations of a folder: new tables get Hadoop's spelling, and `file:/` and `file:///` name the same file."""

import json
from collections.abc import Mapping

import pytest

from sandur.catalog.locations import hadoop_form, normalize_location, spellings
from sandur.delta.coordination import check_uniform
from sandur.delta.requests import Uniform, UniformIceberg
from sandur.errors import Invalid
from sandur.operations.containers.namespaces import load_namespace, update_namespace_properties
from sandur.operations.delta.tables import stage_table
from sandur.operations.janitors import metadata
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table
from sandur.operations.tables.views import create_view
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.securables import create_volume
from tests.operations.collection import collect, folders
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.requests import (
    NAMESPACE,
    commit,
    content,
    create,
    create_commit,
    identifier_of,
    load,
    request,
    set_property,
    table,
    view,
)
from tests.operations.table_files import (
    add_snapshot,
    create_table_with_files,
    files_below,
    manifest,
    manifest_list,
    older_copy,
)

OWN = "file:///lake"
ROOT = "file:/lake/tables/default/default/main"
UUID = "5b6b2b4e-0000-4000-8000-00000000000a"
OTHER_UUID = "5b6b2b4e-0000-4000-8000-00000000000b"
T, U = identifier_of("t"), identifier_of("u")


async def on_a_folder() -> Cluster:
    return await Cluster.with_catalog(own=OWN)


def other_spelling(location: str) -> str:
    """`file:/` for `file:///`, and the other way round."""
    plain = normalize_location(location)
    return hadoop_form(plain) if location == plain else plain


async def metadata_location(lake: Lake, name: str = "t") -> str:
    return (await load(lake, identifier_of(name))).metadata_location or ""


@pytest.mark.parametrize("location", ["file:///a/b", "file:/a/b", "file://localhost/a/b", "/a/b", "FILE:///a/b/"])
def test_every_spelling_of_a_folder_has_one_hadoop_form(location: str) -> None:
    assert hadoop_form(location) == "file:/a/b"
    assert {"file:///a/b", "file:/a/b", "/a/b"} <= set(spellings(location))


@pytest.mark.parametrize("location", ["s3a://b/c", "gs://b/c", "abfss://c@a/b", "memory://store/t"])
def test_other_locations_keep_their_text(location: str) -> None:
    assert hadoop_form(location) == location
    assert spellings(location)[0] == location
    assert len({normalize_location(text) for text in spellings(location)}) == 1


def test_a_bucket_has_the_spellings_of_its_clients() -> None:
    assert spellings("s3://b/c") == ("s3://b/c", "s3a://b/c", "s3n://b/c")


async def test_every_new_table_and_view_on_a_folder_has_the_spelling_of_hadoop() -> None:
    lake = (await on_a_folder()).server()
    staged = await create_table(lake, NAMESPACE, table("staged", stage_create=True), request("stage"))
    by_commit = await commit_table(lake, identifier_of("u"), create_commit(UUID), request("by commit"))
    changes = [(identifier_of("v"), create_commit(OTHER_UUID))]
    await commit_transaction(lake, "main", changes, request("transaction"))
    made = [await create(lake, "t"), staged, by_commit, await load(lake, identifier_of("v"))]
    made_view = await create_view(lake, NAMESPACE, view("w"), request("view"))
    shown = await load_namespace(lake, NAMESPACE)

    placed = [*map(content, made), json.loads(made_view.metadata)]
    assert [one["location"].rpartition("/")[0] for one in placed] == [f"{ROOT}/__unitystorage/a"] * 5
    assert (await metadata_location(lake)).startswith(f"{ROOT}/__unitystorage/a/t-")
    assert shown.properties["location"] == f"{ROOT}/a"


@pytest.mark.parametrize("parent", [f"{OWN}/tables/default/default/main/p", f"{ROOT}/p"])
async def test_a_location_that_a_client_chose_keeps_its_text(parent: str) -> None:
    lake = (await on_a_folder()).server()
    await update_namespace_properties(
        lake, NAMESPACE, removals=(), updates={"location": parent}, request=request("place")
    )
    default = content(await create(lake, "t"))["location"]
    chosen = content(await create(lake, "u", location=f"{parent}/u"))["location"]

    assert default.startswith(f"{ROOT}/p/__unitystorage/a/t-")
    assert chosen == f"{parent}/u"
    assert (await load_namespace(lake, NAMESPACE)).properties["location"] == parent


async def test_delta_tables_and_volumes_keep_the_spelling_of_unity_catalog() -> None:
    lake = (await on_a_folder()).server()
    stage = await stage_table(lake, T)
    volume = await create_volume(lake, U, volume_type="MANAGED", location=None, comment=None, request=request("volume"))

    assert stage.location.startswith(f"{OWN}/")
    assert volume.location.startswith(f"{OWN}/")


@pytest.mark.parametrize("text", ["file:/lake/t", "file:///lake/t"])
def test_the_iceberg_metadata_of_a_delta_table_is_below_it_in_either_spelling(text: str) -> None:
    iceberg = UniformIceberg(
        metadata_location=f"{text}/metadata/v1.metadata.json", converted_delta_version=0, converted_delta_timestamp=1
    )
    uniform = Uniform(iceberg=iceberg)
    properties = {"delta.universalFormat.enabledFormats": "iceberg"}

    check_uniform(properties, uniform, location="file:///lake/t", version=None)
    with pytest.raises(Invalid, match="is not below"):
        check_uniform(properties, uniform, location="file:///lake/u", version=None)


@pytest.mark.parametrize("old", [False, True])
async def test_a_table_in_one_spelling_occupies_its_place_in_the_other(*, old: bool) -> None:
    lake = (await on_a_folder()).server()
    place = f"{OWN}/tables/default/default/main/here" if old else f"{ROOT}/here"
    await create(lake, "t", location=place)

    for text in (place, other_spelling(place)):
        with pytest.raises(Invalid, match="overlaps"):
            await create_volume(
                lake, U, volume_type="EXTERNAL", location=f"{text}/below", comment=None, request=request(text)
            )


async def test_a_table_is_registered_in_either_spelling() -> None:
    lake = (await on_a_folder()).server()
    await create(lake, "t")
    location = await metadata_location(lake)
    await drop_name(lake, T, kind="table", request=request("drop"))
    await register_table(lake, NAMESPACE, "u", other_spelling(location), request=request("register"))
    await commit_table(lake, U, commit(set_property("k", "v")), request("commit"))

    assert content(await load(lake, U))["properties"]["k"] == "v"


@pytest.mark.parametrize("old", [False, True])
async def test_the_garbage_collection_finds_a_receipt_in_either_spelling(*, old: bool) -> None:
    """The listing says `file:///…`. A committed file must not look like that of a creation that died."""
    cluster = await on_a_folder()
    server = cluster.server()
    await create(server, "t", location=f"{OWN}/tables/default/default/main/t" if old else None)
    location = await metadata_location(server)
    await drop_name(server, T, kind="table", purge=False, request=request("drop"))
    await server.background.drain()
    for _ in range(3):
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()

    for text in (location, other_spelling(location)):
        assert (await metadata.garbage_without_owner(cluster.server(), text)).reason == "the file was committed"


async def test_two_names_in_two_spellings_keep_the_files_of_both() -> None:
    cluster = await on_a_folder()
    server = cluster.server()
    await create(server, "t", properties={"write.metadata.previous-versions-max": "1"})
    await older_copy(server, "t", "u", other_spelling(await metadata_location(server)))
    for number in range(6):
        name = "tu"[number % 2]
        await commit_table(server, identifier_of(name), commit(set_property(str(number), "v")), request(str(number)))
    await server.background.drain()
    before = await files(server)
    cluster.clock.advance(LONG_MS)
    ((_, folder),) = (await folders(server)).items()

    assert len(folder.uuids) == 2
    for text in (folder.location, other_spelling(folder.location)):
        assert (await metadata.garbage_in_folder(cluster.server(), text, folder.uuids)).files == ()
    assert await collect(cluster.server()) == []
    assert await files(server) == before


async def files(lake: Lake) -> list[str]:
    return [listed.key for listed in await lake.store.list("tables/")]


async def test_a_commit_that_deletes_old_files_keeps_those_that_the_log_spells_differently() -> None:
    cluster = await on_a_folder()
    server = cluster.server()
    await create(server, "t", properties={"write.metadata.delete-after-commit.enabled": "true"})
    location = other_spelling(await metadata_location(server))
    await register_table(server, NAMESPACE, "t", location, overwrite=True, request=request("again"))
    for number in range(3):
        await commit_table(server, T, commit(set_property(str(number), "v")), request(str(number)))
        await server.background.drain()

    assert len(await files(server)) == 4
    assert await table_exists(cluster.server(), T)


@pytest.mark.parametrize("old", [False, True])
async def test_a_purge_deletes_the_files_in_both_spellings_and_no_others(*, old: bool) -> None:
    cluster = await on_a_folder()
    server = cluster.server()
    place = f"{OWN}/tables/default/default/main" if old else ROOT
    purged, kept = [await create_table_with_files(server, name, location=f"{place}/{name}") for name in ("t", "u")]
    data = [purged.at("data/9-a.parquet"), other_spelling(purged.at("data/9-b.parquet"))]
    of_others = [other_spelling(path) for path in kept.files]
    for path in data:
        await purged.write(server, path)
    listed = await purged.write(server, other_spelling(purged.at("metadata/m9.avro")), manifest(*data, *of_others))
    snapshot = await purged.write(server, other_spelling(purged.at("metadata/snap-9.avro")), manifest_list(listed))
    await add_snapshot(server, purged, 3, snapshot)
    before = await files_below(server, kept)

    await drop_name(server, T, kind="table", purge=True, request=request("drop"))
    await server.background.drain()
    cluster.clock.advance(LONG_MS)
    swept: Mapping[str, int] = await cluster.sweep()

    assert swept["purge_removed"] == 1
    assert await files_below(server, purged) == []
    assert await files_below(server, kept) == before
