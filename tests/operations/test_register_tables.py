"""Registration of existing metadata files, under a free name or over an existing table."""

import gzip

import pytest

from sandur.errors import AlreadyExists, BadRequest, Invalid, NotFound, SandurError
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import LoadedTable, table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.register import register_table, register_view
from sandur.operations.tables.views import create_view, load_view
from tests.operations.invariants import all_receipts, check_invariants
from tests.operations.lakes import make_lake
from tests.operations.requests import (
    NAMESPACE,
    append,
    commit,
    content,
    create,
    identifier_of,
    keyed_request,
    load,
    request,
    set_property,
    set_up_catalog,
    view,
)

T = identifier_of("t")


@pytest.fixture
async def lake() -> Lake:
    lake = make_lake()
    await set_up_catalog(lake)
    return lake


def restarted(lake: Lake) -> Lake:
    return make_lake(lake.store, lake.clock)


async def dropped_table(lake: Lake, name: str = "t") -> LoadedTable:
    """A dropped table with a snapshot; its files still exist."""
    await create(lake, name)
    last = await commit_table(lake, identifier_of(name), append(1), request(f"commit {name}"))
    await lake.background.drain()
    await drop_name(lake, identifier_of(name), kind="table", request=request(f"drop {name}"))
    await lake.background.drain()
    return last


async def test_a_dropped_table_can_be_registered_again_and_committed_to(lake: Lake) -> None:
    last = await dropped_table(lake)
    location = last.metadata_location or ""

    for number in range(2):  # Twice: the second time its uuid is in use, and the table keeps it.
        registered = await register_table(lake, NAMESPACE, "t", location, request=request(f"register {number}"))
        assert registered == last
        after = await commit_table(lake, T, append(2, 1, uuid=last.table_uuid), request(f"again {number}"))
        assert "/metadata/00002-" in (after.metadata_location or "")
        await lake.background.drain()
        await drop_name(lake, T, kind="table", request=request(f"drop again {number}"))

    await lake.background.drain()
    await check_invariants(restarted(lake))


async def test_each_registration_has_its_own_receipt(lake: Lake) -> None:
    last = await dropped_table(lake)
    before = await all_receipts(lake)

    await register_table(lake, NAMESPACE, "t", last.metadata_location or "", request=request("register"))
    await lake.background.drain()

    added = [receipt for key, receipt in (await all_receipts(lake)).items() if key not in before]
    assert [(receipt.operation, receipt.metadata_location) for receipt in added] == [
        ("register", last.metadata_location)
    ]


async def test_a_registration_under_a_taken_name_is_refused(lake: Lake) -> None:
    last = await dropped_table(lake, "r")
    location = last.metadata_location or ""
    await create(lake, "t")
    await create_view(lake, NAMESPACE, view("v"), request("view"))

    with pytest.raises(AlreadyExists, match=r"^Table already exists: a\.t$"):
        await register_table(lake, NAMESPACE, "t", location, request=request("1"))
    for overwrite in (False, True):
        with pytest.raises(AlreadyExists, match=r"^View with same name already exists: a\.v$"):
            await register_table(lake, NAMESPACE, "v", location, overwrite=overwrite, request=request("2"))


async def test_a_missing_or_invalid_metadata_file_is_refused(lake: Lake) -> None:
    root = f"{lake.area}/main"
    with pytest.raises(NotFound, match=r"^Failed to open input stream for file: .*/none\.json$") as refused:
        await register_table(lake, NAMESPACE, "t", f"{root}/none.json", request=request("1"))
    assert refused.value.subject == "file"
    for number, data in enumerate((b"", b"{}", b"not json", b"\x1f\x8bnot gzip", gzip.compress(b"[]"))):
        location = f"{root}/bad{number}.metadata.json"
        await lake.locations.create(location, data)
        with pytest.raises(BadRequest):
            await register_table(lake, NAMESPACE, "t", location, request=request(f"bad {number}"))

    assert not await table_exists(lake, T)


async def test_a_compressed_file_can_be_registered_and_is_returned_plain(lake: Lake) -> None:
    last = await dropped_table(lake)
    location = f"{content(last)['location']}/metadata/00009-packed.gz.metadata.json"
    await lake.locations.create(location, gzip.compress(last.metadata))

    registered = await register_table(lake, NAMESPACE, "t", location, request=request("register"))
    after = await commit_table(restarted(lake), T, commit(set_property("p", "1")), request("commit"))

    assert content(registered) == content(last)
    assert registered.metadata_location == location
    assert "/metadata/00010-" in (after.metadata_location or "")


async def test_a_registration_with_overwrite_replaces_the_state_and_keeps_the_chain(lake: Lake) -> None:
    other = await dropped_table(lake, "r")
    made = await create(lake, "t")

    registered = await register_table(
        lake, NAMESPACE, "t", other.metadata_location or "", overwrite=True, request=request("over")
    )
    await lake.background.drain()

    assert registered == other
    assert await load(restarted(lake), T) == other
    await commit_table(lake, T, append(2, 1), request("commit"))
    back = await register_table(
        lake, NAMESPACE, "t", made.metadata_location or "", overwrite=True, request=request("back")
    )
    await lake.background.drain()
    assert back == made
    whole = await check_invariants(restarted(lake))
    (chain,) = [chain for chain in whole.values() if chain.pointer.state == "live"]
    assert len(chain.locations) == 4
    assert chain.locations[0] == chain.locations[-1] == made.metadata_location


async def test_a_registration_with_overwrite_of_a_missing_table_creates_it(lake: Lake) -> None:
    last = await dropped_table(lake)
    location = last.metadata_location or ""

    for server in (lake, restarted(lake)):
        assert (
            await register_table(server, NAMESPACE, "t", location, overwrite=True, request=keyed_request("over"))
            == last
        )
        await server.background.drain()


async def test_a_keyed_registration_with_overwrite_is_applied_once_despite_later_commits(lake: Lake) -> None:
    other = await dropped_table(lake, "r")
    location = other.metadata_location or ""
    await create(lake, "t")
    await register_table(lake, NAMESPACE, "t", location, overwrite=True, request=keyed_request("over"))
    await lake.background.drain()
    await commit_table(lake, T, commit(set_property("foreign", "1")), request("foreign"))
    await lake.background.drain()

    replayed = await register_table(
        restarted(lake), NAMESPACE, "t", location, overwrite=True, request=keyed_request("over")
    )

    assert replayed == other
    assert content(await load(lake, T))["properties"]["foreign"] == "1"


async def test_a_dropped_view_can_be_registered_again(lake: Lake) -> None:
    made = await create_view(lake, NAMESPACE, view("v"), request("create"))
    await lake.background.drain()
    with pytest.raises(AlreadyExists, match=r"^View already exists: a\.v$"):
        await register_view(lake, NAMESPACE, "v", made.metadata_location, request=request("1"))
    await create(lake, "t")
    with pytest.raises(AlreadyExists, match=r"^Table with same name already exists: a\.t$"):
        await register_view(lake, NAMESPACE, "t", made.metadata_location, request=request("2"))
    await drop_name(lake, identifier_of("v"), kind="view", request=request("drop"))

    assert await register_view(lake, NAMESPACE, "v", made.metadata_location, request=keyed_request("3")) == made
    assert (
        await register_view(restarted(lake), NAMESPACE, "v", made.metadata_location, request=keyed_request("3")) == made
    )
    assert await load_view(restarted(lake), identifier_of("v")) == made


@pytest.mark.parametrize(
    "location",
    [
        "memory://store/tenant=default/workspace=default/_catalog/catalogs/main.json",
        "memory://store/tables/default/default/main/../../../../tenant=default/x.json",
        "memory://store/tables/default/default/main/*/x.metadata.json",
        "memory://store/tables/other/default/main/x.metadata.json",
        "memory://store/tables/default/default/mainly/x.metadata.json",
        "memory://elsewhere/x.metadata.json",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
    ],
)
async def test_a_file_outside_the_catalogs_storage_cannot_be_registered(lake: Lake, location: str) -> None:
    with pytest.raises(Invalid):
        await register_table(lake, NAMESPACE, "t", location, request=request("register"))


async def test_a_file_with_a_location_outside_the_catalogs_storage_cannot_be_registered(lake: Lake) -> None:
    last = await dropped_table(lake)
    data = last.metadata.replace(content(last)["location"].encode(), b"memory://elsewhere/t")
    location = f"{lake.area}/main/stray.metadata.json"
    await lake.locations.create(location, data)

    with pytest.raises(SandurError, match="elsewhere"):
        await register_table(lake, NAMESPACE, "t", location, request=request("register"))
