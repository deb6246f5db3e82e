"""The names of metadata files: as the table specification asks, and still the proof of who wrote them (C3, C9)."""

import uuid

import pytest
from pyiceberg.catalog import MetastoreCatalog

from sandur.catalog.garbage import written_version
from sandur.catalog.records import Request
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import TABLES, Document, LoadedTable, current_document
from sandur.operations.tables.drafts import is_written_by
from sandur.operations.tables.views import create_view
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    commit,
    identifier_of,
    request,
    set_property,
    set_up_catalog,
    table,
    view,
)

T = identifier_of("t")
GZIP = {"write.metadata.compression-codec": "gzip"}


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


async def changed(lake: Lake, value: str, asked: Request) -> LoadedTable:
    return await commit_table(lake, T, commit(set_property("k", value)), asked)


def uuid_of(location: str | None) -> uuid.UUID:
    assert location is not None
    return uuid.UUID(location.rpartition("/")[2].partition("-")[2].partition(".")[0])


async def test_metadata_files_of_tables_and_views_are_named_by_version_and_uuid(lake: Lake) -> None:
    created = await create_table(lake, NAMESPACE, table("t"), request("create"))
    committed = await changed(lake, "1", request("commit"))
    compressed = await create_table(lake, NAMESPACE, table("z", properties=GZIP), request("create z"))
    made = await create_view(lake, NAMESPACE, view("v"), request("create v"))

    locations = [one.metadata_location or "" for one in (created, committed, compressed, made)]
    assert [MetastoreCatalog._parse_metadata_version(location) for location in locations] == [0, 1, 0, 0]
    assert [written_version(location) for location in locations] == [0, 1, 0, 0]
    for location in locations:
        assert (uuid_of(location).version, uuid_of(location).variant) == (8, uuid.RFC_4122)


async def test_every_attempt_has_another_uuid_and_names_its_request(lake: Lake) -> None:
    await create_table(lake, NAMESPACE, table("t"), request("create"))
    locations = [(await changed(lake, value, request("same"))).metadata_location for value in "12"]

    first, second = map(uuid_of, locations)

    assert first != second
    assert is_written_by(TABLES, await current_document(lake, T), (), request("same"))
    assert not is_written_by(TABLES, await current_document(lake, T), (), request("other"))


async def test_the_names_that_earlier_releases_gave_still_prove_their_request(lake: Lake) -> None:
    await create_table(lake, NAMESPACE, table("t"), request("create"))
    document = await current_document(lake, T)
    asked = request("commit")
    old = Document(
        f"memory://store/t/metadata/00007-{asked.hash[:32]}-0123456789ab.metadata.json", b"", document.metadata
    )
    foreign = Document(
        f"memory://store/t/metadata/00007-{uuid.UUID(int=7, version=4)}.metadata.json", b"", document.metadata
    )

    assert is_written_by(TABLES, old, (), asked)
    assert not is_written_by(TABLES, old, (), request("other"))
    assert not is_written_by(TABLES, foreign, (), asked)
