"""The records that names refer to, as they are stored."""

import msgspec
import pytest

from sandur.catalog.records import BoundRecord, DeltaTable, Head, Pending, Pointer, Securable, head_of

COMMON = (
    b'"event_id":"e","uuid":"u","table_uuid":"u","state":"live","made_for":["main",["s"],"t"],"made_by":"r",'
    b'"by":"d","updated_ms":7'
)
POINTER = (
    b"{" + COMMON + b',"kind":"view","head":{"metadata_location":"file:///m","last_updated_ms":3},'
    b'"pending":{"transaction":"x","attempt":"a","head":{"metadata_location":"file:///n","last_updated_ms":4}}}'
)
DELTA = b"{" + COMMON + b',"location":"file:///d","etag":"1","columns":[{"name":"id"}],"last_version":2}'
SECURABLE = b"{" + COMMON + b',"kind":"volume","location":"file:///v","volume_type":"MANAGED","last_version":0}'


@pytest.mark.parametrize(("stored", "kind"), [(POINTER, Pointer), (DELTA, DeltaTable), (SECURABLE, Securable)])
def test_a_stored_record_keeps_its_fields_when_it_is_written_again(stored: bytes, kind: type[BoundRecord]) -> None:
    fields = msgspec.json.decode(stored)

    written = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(stored, type=kind)))

    assert written == {name: value for name, value in fields.items() if (name, value) != ("last_version", 0)}


def test_only_an_iceberg_pointer_has_a_head() -> None:
    pointer = msgspec.json.decode(POINTER, type=Pointer)

    assert head_of(pointer) == Head(metadata_location="file:///m", last_updated_ms=3)
    assert pointer.pending == Pending(
        transaction="x", attempt="a", head=Head(metadata_location="file:///n", last_updated_ms=4)
    )
    assert head_of(msgspec.json.decode(DELTA, type=DeltaTable)) is None
    assert head_of(msgspec.json.decode(SECURABLE, type=Securable)) is None
