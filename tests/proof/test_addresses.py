"""Generated places need no claims, and one listing finds every claim below an address."""

import itertools

from proof.locations.addresses import (
    claim_key,
    compare,
    generated,
    generated_by_folders,
    generated_places,
    is_within,
)


def test_no_generated_place_overlaps_another_place() -> None:
    pairs = list(compare(generated))

    assert [(one, other) for one, other, is_overlap in pairs if is_overlap] == []
    assert len(pairs) > 100_000


def test_two_tables_never_get_the_same_generated_place() -> None:
    assert [place for place, uuids in generated_places(generated).items() if len(uuids) > 1] == []


def test_places_overlap_with_a_folder_for_every_level() -> None:
    assert any(is_overlap for _, _, is_overlap in compare(generated_by_folders, has_marker_rule=False))


def test_a_named_place_with_the_marker_overlaps_generated_ones() -> None:
    assert any(is_overlap for _, _, is_overlap in compare(generated, has_marker_rule=False))


def test_a_listing_gives_the_claim_of_an_address_and_then_all_below() -> None:
    words = ("a", "a!", "a-b", "a.b", "ab", "~", "%41", "a b")
    places = [("s3", "b", *rest) for depth in range(4) for rest in itertools.product(words, repeat=depth)]
    keys = {claim_key(place): place for place in places}
    assert len(keys) == len(places)

    for place in places:
        prefix = claim_key(place).removesuffix("!")
        listed = sorted(key for key in keys if key.startswith(prefix))

        assert {keys[key] for key in listed} == {one for one in places if is_within(one, place)}
        assert listed[0] == claim_key(place)
