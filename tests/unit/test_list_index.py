"""The list index as values: merging, finding, packing and splitting."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import (
    PACKED,
    PART_BYTES_MAX,
    Entry,
    Manifest,
    Scope,
    Segment,
    SegmentRef,
    Split,
    after_split,
    entries_after,
    group_by_segment,
    is_full,
    is_sorted,
    merge_entries,
    names_scope,
    namespaces_scope,
    needs_segments,
    pack_segments,
    place_of,
    segment_at,
    split_entries,
    split_key,
)

NAMES = st.text(min_size=1, max_size=4)


def entry(name: str, uuid: str = "u") -> Entry:
    return Entry(name=name, kind="table", uuid=uuid, format="iceberg", info=msgspec.Raw(b"{}"))


def entries_of(names: set[str]) -> tuple[Entry, ...]:
    return tuple(entry(name) for name in sorted(names))


@given(before=st.sets(NAMES), gone=st.sets(NAMES), there=st.sets(NAMES))
def test_a_merge_applies_changes_and_keeps_the_other_entries(before: set[str], gone: set[str], there: set[str]) -> None:
    truth: dict[str, Entry | None] = dict.fromkeys(gone) | {name: entry(name, "new") for name in there}

    after = merge_entries(entries_of(before), truth)

    assert is_sorted(after)
    kept, new = dict.fromkeys(before - gone - there, "u"), dict.fromkeys(there, "new")
    assert {found.name: found.uuid for found in after} == kept | new
    assert merge_entries(after, truth) == after


@given(names=st.sets(NAMES), last=NAMES)
def test_the_entries_after_a_name_exclude_it(names: set[str], last: str) -> None:
    entries = entries_of(names)

    assert [found.name for found in entries_after(entries, last)] == sorted(name for name in names if name > last)
    assert entries_after(entries, None) == entries


@given(count=st.integers(min_value=0, max_value=3 * PACKED + 1))
def test_packing_keeps_every_entry_once_and_in_order(count: int) -> None:
    entries = entries_of({f"t{number:06d}" for number in range(count)})

    parts = pack_segments(entries)

    assert tuple(found for _, part in parts for found in part) == entries
    assert all(len(part) <= PACKED for _, part in parts)
    assert [first for first, _ in parts] == ["", *(part[0].name for _, part in parts[1:])][: len(parts)]


def test_an_index_is_also_split_by_the_size_of_its_entries() -> None:
    said = msgspec.Raw(b'"%s"' % (b"x" * (PART_BYTES_MAX // 3)))
    entries = tuple(msgspec.structs.replace(entry(f"t{number}"), info=said) for number in range(7))

    parts = pack_segments(entries)

    assert [len(part) for _, part in parts] == [2, 2, 2, 1]
    assert needs_segments(entries)
    assert is_full(entries[:3])
    assert not is_full(entries[:2])
    assert not is_full(entries[:1] + entries[:1])
    assert not is_full((msgspec.structs.replace(entry("t"), info=msgspec.Raw(bytes(said) * 9)),))


def test_entries_of_an_older_format_are_not_sound() -> None:
    body = (
        b'{"version":1,"updated_at_epoch_ms":0,"entries":[{"name":"t","kind":"table","uuid":"u","format":"iceberg"}]}'
    )

    assert not msgspec.json.decode(body, type=Manifest).is_sound


@given(names=st.sets(NAMES, min_size=2), other=NAMES)
def test_a_split_puts_every_name_into_the_half_that_lookups_read(names: set[str], other: str) -> None:
    entries = entries_of(names)
    split = Split(split_key(entries), "left", "right")
    segments = after_split((SegmentRef("", "full"),), "full", split)

    left, right = split_entries(
        Segment(scope=Scope("catalogs"), updated_at_epoch_ms=0, entries=entries, split=split), split
    )

    assert (*left, *right) == entries
    assert left
    assert right
    assert segments is not None
    assert all(segments[segment_at(segments, found.name)].id == "left" for found in left)
    assert all(segments[segment_at(segments, found.name)].id == "right" for found in right)
    assert segments[segment_at(segments, other)].id == ("left" if other < split.cut else "right")


def test_a_split_of_a_missing_segment_changes_nothing() -> None:
    assert after_split((SegmentRef("", "one"),), "two", Split("m", "left", "right")) is None


@given(names=st.sets(NAMES), cuts=st.sets(NAMES, max_size=5))
def test_every_name_belongs_to_one_segment(names: set[str], cuts: set[str]) -> None:
    segments = [SegmentRef("", "0"), *(SegmentRef(cut, cut) for cut in sorted(cuts))]

    found = group_by_segment(sorted(names), segments)

    assert sorted(name for some in found.values() for name in some) == sorted(names)
    for position, some in found.items():
        assert all(segments[position].first <= name for name in some)
        if position + 1 < len(segments):
            assert all(name < segments[position + 1].first for name in some)


@pytest.mark.parametrize(
    ("entries", "segments", "is_sound"),
    [
        (["a", "b"], [], True),
        ([], [], True),
        (["b", "a"], [], False),
        (["a", "a"], [], False),
        ([], ["", "m"], True),
        ([], ["m"], False),
        ([], ["", "m", "m"], False),
        (["a"], ["", "m"], False),
    ],
)
def test_only_sorted_manifests_without_duplicates_are_sound(
    entries: list[str], segments: list[str], *, is_sound: bool
) -> None:
    manifest = Manifest(
        version=1,
        updated_at_epoch_ms=0,
        entries=tuple(map(entry, entries)),
        segments=tuple(SegmentRef(first, str(number)) for number, first in enumerate(segments)),
    )

    assert manifest.is_sound == is_sound


def test_a_manifest_has_the_documented_fields() -> None:
    manifest = Manifest(version=1, updated_at_epoch_ms=7, entries=(entry("t"),), event_id="e")

    assert msgspec.json.decode(msgspec.json.encode(manifest)) == {
        "event_id": "e",
        "version": 1,
        "updated_at_epoch_ms": 7,
        "entries": [{"name": "t", "kind": "table", "uuid": "u", "format": "iceberg", "info": {}}],
    }


def test_a_manifest_of_another_format_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"version": 2, "updated_at_epoch_ms": 0, "entries": []}', type=Manifest)


def test_the_scope_of_an_object_is_its_parent() -> None:
    assert place_of(Identifier("main", ("a", "b"), "t")) == (names_scope(Namespace("main", ("a", "b"))), "t")
    assert place_of(Namespace("main", ("a",))) == (namespaces_scope("main", None), "a")
    assert place_of(Namespace("main", ("a", "b"))) == (namespaces_scope("main", Namespace("main", ("a",))), "b")


def test_different_scopes_have_different_hashes() -> None:
    scopes = [
        Scope("catalogs"),
        Scope("schemas", "main"),
        Scope("schemas", "main", ("a",)),
        Scope("tables", "main", ("a",)),
        Scope("tables", "main", ("a", "b")),
        Scope("tables", "main", ("a.b",)),
    ]

    assert len({scope.hash for scope in scopes}) == len(scopes)
