"""Versions of records (V1–V3): what is refused, what is kept, and what is written."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from sandur.catalog.record_versions import FIRST, MINORS, NEWEST, Record, StoreFormat, in_place_of
from sandur.errors import Damaged, NewerRecord, Unavailable, Unfit
from sandur.storage.cell import Cell
from sandur.storage.contract import ABSENT
from sandur.storage.layout import STORE_FORMAT
from sandur.storage.memory import MemoryStore
from sandur.storage.record_form import RecordForm, decode_record, encode_record
from tests.fakes.fixed_clock import FixedClock

KEY = "a/cell"


class Colour(Record, frozen=True, kw_only=True):
    """As this release knows it."""

    name: str
    shade: str = ""


class OldColour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As the first release knows it: no versions, and `event_id` is a text."""

    event_id: str = ""
    name: str
    shade: str = ""


def cell(store: MemoryStore, form: RecordForm | None = None) -> Cell[Colour]:
    return Cell(store, KEY, Colour, FixedClock(), None, form)


async def stored(store: MemoryStore) -> dict[str, object]:
    found = await store.get(KEY)
    assert found
    decoded: dict[str, object] = json.loads(found.data)
    return decoded


def test_a_record_without_a_version_is_of_the_first() -> None:
    found = decode_record(KEY, b'{"event_id":"e","name":"red"}', Colour)

    assert found == Colour(event_id="e", name="red")
    assert (found.v, found.m) == FIRST
    assert encode_record(found) == b'{"event_id":"e","name":"red"}'


@pytest.mark.parametrize(
    "data",
    [
        b'{"v":%d,"name":"red"}',
        b'{"v":%d,"m":7,"name":"red","more":1}',
        b'{"v":%d,"name":{"text":"red"},"event_id":["e"]}',
        b'{"v":%d}',
    ],
)
def test_a_record_of_a_later_major_is_refused_whatever_its_form(data: bytes) -> None:
    with pytest.raises(
        NewerRecord, match=rf"object a/cell: written by a newer Sandur, in version {NEWEST.major + 1}\."
    ):
        decode_record(KEY, data % (NEWEST.major + 1), Colour)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"v":1}',
        b'{"v":"3","name":"red"}',
        b'{"v":2,"m":1}',
        pytest.param(b'{"more":' + b"[" * 5_000, id="nested too deeply"),
    ],
)
def test_a_record_that_no_version_explains_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_record(KEY, data, Colour)


def test_a_refusal_names_the_needed_version_without_the_key() -> None:
    error = NewerRecord(KEY, needed="3.1", known="2.0")

    assert isinstance(error, Unavailable)
    assert error.public_text == (
        "A record of this request was written by a newer Sandur, in version 3.1; "
        "this server knows versions up to 2.0: upgrade it"
    )


def test_the_first_release_cannot_decode_the_second_major() -> None:
    """The first release is emulated by its struct; it decoded records with the same library."""
    first = encode_record(RecordForm(major=1).stamp(Colour(name="red"), "e"))
    second = encode_record(RecordForm(major=2).stamp(Colour(name="red"), "e"))

    assert msgspec.json.decode(first, type=OldColour) == OldColour(event_id="e", name="red")
    with pytest.raises(msgspec.ValidationError, match="event_id"):
        msgspec.json.decode(second, type=OldColour)


@pytest.mark.parametrize("major", sorted(MINORS))
def test_fields_of_a_later_minor_survive_every_change(major: int) -> None:
    data = b'{"v":%d,"m":%d,"event_id":"e","name":"red","later":{"a":[1,2]},"last":null}' % (major, MINORS[major] + 1)

    found = decode_record(KEY, data, Colour)
    changed = replace(found, shade="dark")
    rebuilt = in_place_of(found, Colour(name="blue"))

    for written, expected in ((changed, {"name": "red", "shade": "dark"}), (rebuilt, {"name": "blue"})):
        fields = json.loads(encode_record(written))
        assert (fields["later"], fields["last"], fields["m"]) == ({"a": [1, 2]}, None, MINORS[major] + 1)
        assert {name: fields[name] for name in expected} == expected
        assert "unknown_fields" not in fields
        assert decode_record(KEY, encode_record(written), Colour) == written


def test_a_known_minor_is_decoded_once_and_keeps_nothing() -> None:
    found = decode_record(KEY, b'{"v":2,"event_id":["e"],"name":"red","stray":1}', Colour)

    assert found.unknown_fields is None


async def test_records_are_written_in_the_form_of_the_store() -> None:
    for format_, expected in (
        (None, {"name": "red"}),
        (StoreFormat(major=2, minor=0, state="steady"), {"v": 2, "name": "red"}),
    ):
        store = MemoryStore()
        if format_:
            await Cell(store, STORE_FORMAT, StoreFormat, FixedClock()).create(format_)

        await cell(store, RecordForm(store)).create(Colour(name="red"))

        fields = await stored(store)
        assert isinstance(fields.pop("event_id"), list if format_ else str)
        assert fields == expected


async def test_an_old_record_gets_the_new_form_with_its_next_change() -> None:
    store = MemoryStore()
    await cell(store, RecordForm(major=1)).create(Colour(name="red"))

    await cell(store, RecordForm(major=2)).update(
        lambda found: found and replace(found, shade="dark"), is_idempotent=True
    )

    assert (await stored(store))["v"] == 2


async def test_no_record_goes_back_to_an_old_form_if_the_format_is_read_late() -> None:
    """A server that read the format before the upgrade learns of it from the first new record."""
    store = MemoryStore()
    await cell(store, RecordForm(major=2)).create(Colour(name="red"))
    late = RecordForm(major=1)

    found = await cell(store, late).read()
    assert found
    await cell(store, late).swap(Colour(name="another object"), expected=found.version)

    assert late.major == 2
    assert (await stored(store))["v"] == 2


async def test_a_cell_refuses_to_change_a_record_of_a_later_major() -> None:
    store = MemoryStore()
    await store.put(KEY, b'{"v":9,"name":"red"}', expected=ABSENT)

    with pytest.raises(NewerRecord):
        await cell(store).update(lambda _: Colour(name="blue"), is_idempotent=True)

    assert await stored(store) == {"v": 9, "name": "red"}


async def test_a_store_of_a_later_major_is_refused_with_both_versions() -> None:
    store = MemoryStore()
    await Cell(store, STORE_FORMAT, StoreFormat, FixedClock()).create(StoreFormat(major=9, minor=2, state="steady"))

    with pytest.raises(Unfit, match=rf"version 9\.2, and this Sandur knows versions up to {NEWEST}: upgrade it"):
        await RecordForm(store).read()
