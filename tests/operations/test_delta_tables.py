"""Delta tables are created from a stage and a first commit; their names follow the rules of all names."""

import pytest

from sandur.catalog.events import Source
from sandur.catalog.records import DeltaTable, Request
from sandur.errors import AlreadyExists, Busy, Invalid, NotFound, WrongFormat
from sandur.operations.delta.tables import (
    NewTable,
    create_external,
    create_from_staging,
    drop_table,
    find_by_id,
    load_delta_table,
    load_stage,
    load_stage_at,
    rename_table,
    stage_table,
)
from sandur.operations.lake import Lake
from sandur.operations.tables.documents import load_table
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.rename import rename
from tests.operations.delta_requests import D, create_managed, names_in, new_delta_table
from tests.operations.lakes import make_lake
from tests.operations.requests import create, identifier_of, keyed_request, request, set_up_catalog

ANN = Source(kind="rest", principal="ann")
ELSEWHERE = "memory://store/tables/default/default/main/ext/t"


@pytest.fixture
async def lake() -> Lake:
    made = make_lake()
    await set_up_catalog(made)
    return made


async def test_a_stage_is_not_visible_as_a_table(lake: Lake) -> None:
    stage = await stage_table(lake, D, source=ANN)

    assert await resolve_name(lake, D) is None
    assert stage.location.endswith(f"/__unitystorage/a/d-{stage.uuid}")
    assert (await load_stage(lake, stage.uuid, ANN)).created_by == "ann"
    assert (await load_stage_at(lake, f"{stage.location}/", ANN)).uuid == stage.uuid
    for other in (Source(principal="bob"), Source(principal="ann", principal_id="another ann")):
        with pytest.raises(NotFound):
            await load_stage(lake, stage.uuid, other)
        with pytest.raises(NotFound):
            await load_stage_at(lake, stage.location, other)


async def test_a_stage_becomes_the_table_with_its_id(lake: Lake) -> None:
    stage = await stage_table(lake, D)

    table = await create_from_staging(lake, new_delta_table(stage.location, stage.uuid), request=request("r"))

    found = await load_delta_table(lake, D)
    assert table.uuid == stage.uuid == found.uuid
    assert (found.location, found.last_version, found.commits) == (stage.location, 0, ())
    assert names_in(found.columns) == ["id"]
    assert (await find_by_id(lake, stage.uuid)).value.uuid == stage.uuid


async def test_a_repeated_finalization_gets_the_same_answer(lake: Lake) -> None:
    stage = await stage_table(lake, D)
    new_table = new_delta_table(stage.location, stage.uuid)
    first = await create_from_staging(lake, new_table, request=request("r"))

    again = await create_from_staging(make_lake(lake.store), new_table, request=request("r"))

    assert again.uuid == first.uuid
    assert again.etag == first.etag


async def test_a_stage_becomes_at_most_one_table(lake: Lake) -> None:
    stage = await stage_table(lake, D)
    await create_from_staging(lake, new_delta_table(stage.location, stage.uuid), request=request("r"))
    await lake.background.drain()

    with pytest.raises(Invalid, match="is already a table"):
        await create_from_staging(
            lake, new_delta_table(stage.location, stage.uuid, identifier_of("e")), request=request("another")
        )
    assert await resolve_name(lake, identifier_of("e")) is None


async def test_a_second_finalization_is_busy_while_the_first_is_in_progress(lake: Lake) -> None:
    stage = await stage_table(lake, D)
    await lake.delta_table(stage.uuid).create(
        DeltaTable(uuid=stage.uuid, table_uuid=stage.uuid, state="unbound", made_for=D, made_by="somebody")
    )

    with pytest.raises(Busy):
        await create_from_staging(lake, new_delta_table(stage.location, stage.uuid), request=request("r"))


async def test_a_finalization_without_a_stage_is_not_found(lake: Lake) -> None:
    stage = await stage_table(lake, D)

    with pytest.raises(NotFound, match="Staging table"):
        await create_from_staging(lake, new_delta_table("memory://store/x/y", stage.uuid), request=request("r"))
    with pytest.raises(NotFound, match="Staging table"):
        await create_from_staging(lake, new_delta_table(f"memory://x/{stage.uuid}", stage.uuid), request=request("r"))


async def test_only_the_creator_of_a_stage_can_finalize_it(lake: Lake) -> None:
    stage = await stage_table(lake, D, source=ANN)
    by_ann = Request(hash="a", source=ANN)

    with pytest.raises(NotFound):
        await create_from_staging(lake, new_delta_table(stage.location, stage.uuid), request=request("r"))
    assert (await create_from_staging(lake, new_delta_table(stage.location, stage.uuid), request=by_ann)).owner == "ann"


async def test_a_table_id_of_another_table_in_the_properties_is_refused(lake: Lake) -> None:
    stage = await stage_table(lake, D)

    with pytest.raises(Invalid, match=r"io\.unitycatalog\.tableId"):
        await create_from_staging(lake, new_delta_table(stage.location, "another"), request=request("r"))


async def test_names_are_unique_across_formats(lake: Lake) -> None:
    await create(lake, "t")
    stage = await stage_table(lake, D)
    with pytest.raises(AlreadyExists):
        await stage_table(lake, identifier_of("t"))
    with pytest.raises(AlreadyExists):
        await create_from_staging(
            lake, new_delta_table(stage.location, stage.uuid, identifier_of("t")), request=request("r")
        )

    await create_managed(lake)
    with pytest.raises(AlreadyExists):
        await create(lake, "d")


async def test_a_delta_table_is_invisible_to_iceberg_clients(lake: Lake) -> None:
    await create_managed(lake)

    with pytest.raises(NotFound):
        await load_table(lake, D)
    with pytest.raises(NotFound):
        await drop_name(lake, D, kind="table", request=request("drop"))
    with pytest.raises(NotFound):
        await rename(lake, D, identifier_of("e"), kind="table", request=request("rename"))
    assert (await load_delta_table(lake, D)).state in {"live", "unbound"}


async def test_a_delta_load_of_an_iceberg_table_raises_wrong_format(lake: Lake) -> None:
    await create(lake, "t")

    with pytest.raises(WrongFormat):
        await load_delta_table(lake, identifier_of("t"))


async def test_an_external_table_must_be_in_an_allowed_location(lake: Lake) -> None:
    table = await create_external(
        lake,
        NewTable(identifier=D, table_type="EXTERNAL", location=f"{ELSEWHERE}/"),
        request=request("r"),
    )

    assert (table.location, table.table_type) == (ELSEWHERE, "EXTERNAL")
    for location in ("", "memory://elsewhere/t", f"{ELSEWHERE}/../x", f"{ELSEWHERE}/__unitystorage/x"):
        with pytest.raises(Invalid):
            await create_external(
                lake,
                NewTable(identifier=identifier_of("e"), table_type="EXTERNAL", location=location),
                request=request("r"),
            )
    with pytest.raises(AlreadyExists):
        await create_external(
            lake, NewTable(identifier=D, table_type="EXTERNAL", location=ELSEWHERE), request=request("r")
        )


async def test_a_dropped_table_is_gone_and_its_name_is_free(lake: Lake) -> None:
    table = await create_managed(lake)

    await drop_table(lake, D, request=request("drop"))

    with pytest.raises(NotFound):
        await load_delta_table(lake, D)
    with pytest.raises(NotFound):
        await find_by_id(lake, table.uuid)
    with pytest.raises(NotFound):
        await drop_table(lake, D, request=request("drop"))
    assert (await create_managed(lake)).uuid != table.uuid


async def test_a_drop_orders_the_purge_of_a_managed_table_and_not_of_an_external_one(
    lake: Lake,
) -> None:
    table = await create_managed(lake)
    new_table = NewTable(identifier=identifier_of("e"), table_type="EXTERNAL", location=ELSEWHERE)
    await create_external(lake, new_table, request=request("r"))

    await drop_table(lake, D, request=request("drop"))
    await drop_table(lake, identifier_of("e"), request=request("drop"))

    orders = await lake.store.list(lake.layout.purge_orders_folder())
    assert [lake.layout.parse_purge_order(listed.key)[0] for listed in orders] == [table.uuid]


async def test_a_renamed_table_is_found_only_under_its_new_name(lake: Lake) -> None:
    table = await create_managed(lake)

    await rename_table(lake, D, "e", request=request("rename"))

    assert (await load_delta_table(lake, identifier_of("e"))).uuid == table.uuid
    with pytest.raises(NotFound):
        await load_delta_table(lake, D)


async def test_a_keyed_stage_is_made_once_and_gets_the_same_answer(lake: Lake) -> None:
    sent = keyed_request("stage")

    first = await stage_table(lake, D, request=sent)
    again = await stage_table(make_lake(lake.store, lake.clock), D, request=sent)
    other = await stage_table(lake, D, request=request("stage"))

    assert again == first
    assert other.uuid != first.uuid
    assert len(await lake.store.list(lake.layout.delta_stages_folder())) == 2


async def test_a_keyed_stage_that_became_a_table_gets_its_first_answer(lake: Lake) -> None:
    sent = keyed_request("stage")
    first = await stage_table(lake, D, request=sent)
    for one in await lake.store.list(lake.layout.delta_stages_folder()):
        await lake.store.delete(one.key, expected=one.version)

    again = await stage_table(make_lake(lake.store, lake.clock), D, request=sent)

    assert (again.uuid, again.location) == (first.uuid, first.location)
    assert not await lake.store.list(lake.layout.delta_stages_folder())


async def test_a_keyed_refusal_of_a_stage_is_final(lake: Lake) -> None:
    sent = keyed_request("stage")
    await create(lake, "d")
    with pytest.raises(AlreadyExists):
        await stage_table(lake, D, request=sent)
    await drop_name(lake, D, kind="table", purge=False, request=request("drop"))

    with pytest.raises(AlreadyExists):
        await stage_table(make_lake(lake.store, lake.clock), D, request=sent)
