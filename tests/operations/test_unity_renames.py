"""A rename through Unity Catalog's API is a change: its time and its principal are those of the rename."""

import pytest

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Kind
from sandur.catalog.index import names_scope
from sandur.catalog.infos import EntityInfo
from sandur.catalog.records import Request
from sandur.catalog.security.privileges import SecurableType
from sandur.errors import AlreadyExists
from sandur.operations.delta.tables import NewTable, rename_table
from sandur.operations.index.lists import read_page
from sandur.operations.index.truth import read_entries
from sandur.operations.lake import Lake
from sandur.operations.unity import tables
from sandur.operations.unity.governance import change_tags
from sandur.operations.unity.infos import info_of
from sandur.operations.unity.securables import create_model, create_volume, load_securable, update_securable
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.hooked_store import HookedStore
from tests.operations.lakes import make_lake, visit_marks
from tests.operations.requests import NAMESPACE, identifier_of, keyed_request, request, set_up_catalog

KINDS: tuple[Kind, ...] = ("volume", "model")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def lake(clock: FixedClock) -> Lake:
    lake = make_lake(clock=clock)
    await set_up_catalog(lake)
    return lake


def sent_by(principal: str, label: str = "", *, key: str | None = None) -> Request:
    return request(label or principal, key=key)._replace(source=Source(kind="rest", principal=principal))


async def made(lake: Lake, kind: Kind, name: str = "x") -> None:
    if kind == "model":
        await create_model(lake, identifier_of(name), comment="c", request=sent_by("ann", f"create {name}"))
    else:
        await create_volume(
            lake,
            identifier_of(name),
            volume_type="MANAGED",
            location=None,
            comment="c",
            request=sent_by("ann", f"create {name}"),
        )


async def listed(lake: Lake, name: str) -> EntityInfo:
    """The info as a list shows it."""
    found = await lake.name(identifier_of(name)).read()
    assert found
    record = await lake.bound_record(found.value.uuid, found.value.format).read()
    assert record
    info = await info_of(lake, identifier_of(name), found.value, record.value)
    assert isinstance(info, EntityInfo)
    return info


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rename_moves_the_time_and_the_principal_of_the_last_change(
    lake: Lake, clock: FixedClock, kind: Kind
) -> None:
    await made(lake, kind)
    created_ms = clock.now_ms()
    clock.advance(50)

    _, answer = await update_securable(
        lake, identifier_of("x"), kind, comment=None, new_name="y", request=sent_by("bob", "rename")
    )

    loaded = await load_securable(lake, identifier_of("y"), kind)
    assert (answer.changed_ms, answer.changed_by, answer.comment) == (created_ms + 50, "bob", "c")
    assert (answer.created_ms, answer.created_by, answer.owner) == (created_ms, "ann", "ann")
    assert (loaded.changed_ms, loaded.changed_by) == (created_ms + 50, "bob")
    assert ((await listed(lake, "y")).updated_at, (await listed(lake, "y")).updated_by) == (created_ms + 50, "bob")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_later_change_of_the_comment_is_the_last_change(lake: Lake, clock: FixedClock, kind: Kind) -> None:
    await made(lake, kind)
    clock.advance(50)
    await update_securable(lake, identifier_of("x"), kind, comment=None, new_name="y", request=sent_by("bob", "rename"))
    renamed_ms = clock.now_ms()
    clock.time_ms -= 20  # Another server, whose clock is behind.

    await update_securable(
        lake, identifier_of("y"), kind, comment="d", new_name=None, request=sent_by("cid", "comment")
    )

    loaded = await load_securable(lake, identifier_of("y"), kind)
    assert (loaded.comment, loaded.changed_ms, loaded.changed_by) == ("d", renamed_ms, "cid")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_rename_changes_nothing(lake: Lake, clock: FixedClock, kind: Kind) -> None:
    await made(lake, kind)
    await made(lake, kind, "y")
    before = await load_securable(lake, identifier_of("x"), kind)
    clock.advance(50)

    with pytest.raises(AlreadyExists):
        await update_securable(
            lake, identifier_of("x"), kind, comment=None, new_name="y", request=sent_by("bob", "rename")
        )

    assert await load_securable(lake, identifier_of("x"), kind) == before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rename_repeated_with_its_key_gets_the_same_answer(lake: Lake, clock: FixedClock, kind: Kind) -> None:
    await made(lake, kind)
    clock.advance(50)
    sent = keyed_request("rename")

    first = await update_securable(lake, identifier_of("x"), kind, comment=None, new_name="y", request=sent)
    await lake.background.drain()
    clock.advance(50)
    again = await update_securable(lake, identifier_of("x"), kind, comment=None, new_name="y", request=sent)

    assert again == first


async def test_a_renamed_table_shows_who_renamed_it_and_when(lake: Lake, clock: FixedClock) -> None:
    external = NewTable(
        identifier=identifier_of("x"),
        table_type="EXTERNAL",
        data_source_format="CSV",
        location=f"{lake.area}/main/files",
    )
    await tables.create_table(lake, external, sent_by("ann"))
    clock.advance(50)

    await rename_table(lake, identifier_of("x"), "y", request=sent_by("bob"))

    loaded = await tables.load_table(lake, identifier_of("y"))
    assert (loaded.updated_at, loaded.updated_by) == (clock.now_ms(), "bob")
    assert (loaded.created_at, loaded.created_by) == (clock.now_ms() - 50, "ann")


@pytest.mark.parametrize("what", ["comment", "tags"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_of_what_is_renamed_meanwhile_is_answered_and_listed_under_the_new_name(
    clock: FixedClock, kind: Kind, what: str
) -> None:
    """I5: the rename brings its entries up to date before the record is swapped. No 404 is answered for that change."""
    store = HookedStore(MemoryStore(clock=clock))
    lake, other = make_lake(store, clock), make_lake(store, clock)
    await set_up_catalog(lake)
    await made(lake, kind)
    await lake.background.drain()
    name = await lake.name(identifier_of("x")).read()
    assert name

    async def renamed() -> None:
        await update_securable(other, identifier_of("x"), kind, comment=None, new_name="y", request=request("rename"))
        await other.background.drain()

    store.before("put", lake.securable(name.value.uuid).key, renamed)
    if what == "comment":
        await update_securable(lake, identifier_of("x"), kind, comment="d", new_name=None, request=request("comment"))
    else:
        type_: SecurableType = "registered_model" if kind == "model" else "volume"
        shown = await change_tags(lake, type_, "main.a.x", request("tags"), set_={"k": "v"})
        assert shown.tags == {"k": "v"}
    await lake.background.drain()
    await visit_marks(lake)

    reader = make_lake(store, clock)
    page = await read_page(reader, names_scope(NAMESPACE), last=None, wanted=None)
    assert {entry.name: entry for entry in page.entries} == await read_entries(reader, names_scope(NAMESPACE), ["y"])
