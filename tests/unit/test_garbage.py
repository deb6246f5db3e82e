"""Which metadata files are garbage, decided from values alone."""

from typing import Final

import pytest
from msgspec.structs import replace

from sandur.catalog.garbage import (
    Folder,
    MetadataFile,
    Owner,
    deletable_files,
    folders_in_use,
    needs_bump,
    written_version,
)
from sandur.catalog.records import Head, Pending, Pointer

FOLDER: Final = "s3://bucket/t/metadata"
HASH: Final = "0123456789abcdef" * 2
NONCE: Final = "0123456789ab"
UUID: Final = f"01234567-89ab-8cde-b012-{NONCE}"


def own(version: int, nonce: str = NONCE) -> str:
    return f"{FOLDER}/{version:05d}-{HASH}-{nonce}.metadata.json"


def file(version: int, *, modified_ms: int = 0, nonce: str = NONCE) -> MetadataFile:
    return MetadataFile(own(version, nonce), version, modified_ms, 1)


def head(location: str) -> Head:
    return Head(metadata_location=location, last_updated_ms=1)


def pointer(uuid: str, location: str, **fields: object) -> Pointer:
    return replace(Pointer(uuid=uuid, table_uuid=uuid, state="live", head=head(location)), **fields)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        (f"00007-{UUID}.metadata.json", 7),
        (f"123456-{UUID}.gz.metadata.json", 123456),
        (f"00007-{HASH}-{NONCE}.metadata.json", 7),
        (f"123456-{HASH}-{NONCE}.gz.metadata.json", 123456),
        (f"s3://bucket/t/metadata/00000-{HASH}-{NONCE}.metadata.json", 0),
    ],
)
def test_a_file_written_by_the_catalog_is_recognized_by_its_name(name: str, version: int) -> None:
    assert written_version(name) == version


@pytest.mark.parametrize(
    "name",
    [
        "00007-5b6b2b4e-0000-4000-8000-00000000000a.metadata.json",
        f"00007-{UUID}.metadata.json.bak",
        f"00007-{UUID.upper()}.metadata.json",
        f"00007-{UUID.replace('-8c', '-4c')}.metadata.json",
        f"7-{UUID}.metadata.json",
        "v7.metadata.json",
        f"00007-{HASH}-{NONCE}.metadata.json.bak",
        f"00007-{HASH[:-1]}-{NONCE}.metadata.json",
        f"00007-{HASH.upper()}-{NONCE}.metadata.json",
        f"7-{HASH}-{NONCE}.metadata.json",
        f"x00007-{HASH}-{NONCE}.metadata.json",
        "snap-1.avro",
        "",
    ],
)
def test_a_file_with_another_name_is_never_recognized(name: str) -> None:
    assert written_version(name) is None


def test_a_file_that_any_owner_needs_stays_also_under_another_scheme() -> None:
    one = Owner("one", 1, frozenset({own(0), own(1)}))
    other = Owner("other", 1, frozenset({own(1, "f" * 12)}))
    other_form = MetadataFile(own(1).replace("s3://", "s3a://"), 1, 0, 1)
    files = [file(0), other_form, file(1, nonce="f" * 12), file(1, nonce="e" * 12)]

    assert deletable_files(files, [one, other], before_ms=0) == (file(1, nonce="e" * 12),)


def test_young_files_stay() -> None:
    files = [file(1, modified_ms=10), file(1, modified_ms=11, nonce="f" * 12)]

    assert deletable_files(files, [], before_ms=10) == (files[0],)


def test_only_an_attempt_that_could_still_win_needs_a_bump() -> None:
    owner = Owner("one", 5, frozenset())

    assert not needs_bump(owner, [file(4), file(5)])
    assert needs_bump(owner, [file(5), file(6)])
    assert not needs_bump(owner, [])


def test_a_folder_belongs_to_every_table_that_has_a_file_in_it() -> None:
    elsewhere = f"s3://bucket/u/metadata/00000-{HASH}-{NONCE}.metadata.json"
    pointers = [
        pointer("one", own(3), pending=Pending(transaction="x", attempt="y", head=head(own(4)))),
        pointer("two", own(1).replace("s3://", "s3a://"), state="unbound"),
        pointer("gone", own(2), state="dropped"),
        pointer("never", own(0), state="killed"),
        pointer("three", elsewhere),
    ]

    found = folders_in_use(pointers, roots=("s3://bucket",))

    assert found == {
        FOLDER: Folder(FOLDER, ("one", "two")),
        "s3://bucket/u/metadata": Folder("s3://bucket/u/metadata", ("three",)),
    }


def test_folders_outside_the_roots_are_not_collected() -> None:
    assert folders_in_use([pointer("one", own(3))], roots=("s3://bucket/tables", "file:///t")) == {}
