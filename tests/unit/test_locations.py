"""Addresses: one form for all spellings of a place, and which places a client may name (P1)."""

import itertools

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.catalog.location_claims import Holder, HolderKind, Owner, may_contain, may_share
from sandur.catalog.locations import (
    MANAGED_FOLDER,
    Address,
    Realm,
    canonical_address,
    external_address,
    generated_location,
    named_address,
    outermost,
)
from sandur.errors import Invalid
from sandur.storage.layout import location_claim, location_claims_below, parse_location_claim

ONE, TWO = "00000000-0000-4000-8000-000000000000", "11111111-1111-4111-8111-111111111111"
STORE = canonical_address("s3://bucket/store")
HOME = canonical_address("s3://bucket/store/tables/t/w/c")
REALM = Realm(STORE, HOME, ("s3://bucket/store/tables/t/w/c", "s3://bucket", "s3a://lake/"))


@pytest.mark.parametrize(
    "spellings",
    [
        ("s3://b/x/y", "s3a://b/x/y/", "s3n://B/x/y", "S3://b/x/%79", "s3://b/x/%2579"),
        ("file:/x/y", "file:///x/y", "/x/y", "file://localhost/x/y", "file:/x/y//"),
        (
            "abfss://c@acc.dfs.core.windows.net/p",
            "wasbs://c@acc.blob.core.windows.net/p",
            "abfs://C@ACC.dfs.core.windows.net/p/",
        ),
        ("abfss://c@acc.z1.dfs.storage.azure.net/p", "abfss://c@acc.z1.blob.storage.azure.net/p"),
        ("az://c/p", "azure://C/p", "abfs://c/p"),
        ("gs://b/é", "gcs://b/e\u0301", "gs://b/%C3%A9"),
    ],
)
def test_spellings_of_one_place_have_one_address(spellings: tuple[str, ...]) -> None:
    assert len({canonical_address(text) for text in spellings}) == 1
    assert canonical_address(str(canonical_address(spellings[0]))) == canonical_address(spellings[0])


@pytest.mark.parametrize(
    "location",
    [
        *("s3://b/x/../y", "s3://b/x//y", "s3://b/x/%2e%2e/y", "s3://b/./y", "s3://b/x%2F%2Fy", "s3://b/x?y"),
        *("s3://k:s@b/x", "s3://b:9000/x", "s3:///x", "s3:b/x", "ftp://b/x", "http://b/x", "file://host/x"),
        *("s3://b/x%00", "s3://b/x\n", "s3://b/x#y", "s3://b/x*", "s3://b/%ff", "s3://b/%" + "25" * 9 + "2e"),
        *("abfs://c@a:1/p", "abfs://@a/p", "s3://b/" + "x/" * 65, "s3://b/" + "x" * 5000),
    ],
)
def test_a_location_that_engines_could_read_differently_has_no_address(location: str) -> None:
    with pytest.raises(Invalid):
        canonical_address(location)


@pytest.mark.parametrize(
    "location",
    [
        *("s3://lake/a;b", "s3://lake/a'b", "s3://lake/a$b", 's3://lake/a"b', "s3://lake/a%27b"),
        *(f"s3://lake/{MANAGED_FOLDER}/x", f"s3://lake/x/{MANAGED_FOLDER}", "s3://lake", "s3://other/x"),
        *("s3://bucket", "s3://bucket/store", "s3://bucket/store/x", "s3://bucket/store/tables/t/w/c"),
        *("s3://bucket/store/tables/t/w/d/x", "s3://bucket/store/tables/other/w/c/x"),
    ],
)
def test_a_place_that_a_client_may_not_name_is_refused(location: str) -> None:
    with pytest.raises(Invalid):
        named_address(location, REALM)


@pytest.mark.parametrize("location", ["s3://lake/x", "s3a://lake/x/y", "s3://bucket/x", f"{HOME}/x", "s3://lake/a b"])
def test_a_place_that_a_client_may_name_is_accepted(location: str) -> None:
    assert named_address(location, REALM) == canonical_address(location)


def test_a_root_may_be_an_allowed_location_itself() -> None:
    assert named_address("s3://lake/", REALM, may_be_root=True) == canonical_address("s3://lake")
    with pytest.raises(Invalid):
        named_address("s3://bucket", REALM, may_be_root=True)


def test_an_external_location_is_not_around_the_store_nor_in_another_workspace() -> None:
    area = canonical_address("s3://bucket/store/tables/t/w")
    for location in ("s3://bucket", "s3://bucket/store/tables", "s3://bucket/store/tables/t/x"):
        with pytest.raises(Invalid):
            external_address(location, STORE, area)
    assert external_address("s3://bucket/store/tables/t/w/x", STORE, area).is_within(area)


def test_a_claim_is_listed_before_all_below_it_and_nothing_else_is() -> None:
    words = ("a", "a!", "a-b", "a.b", "ab", "~", "%41", "a b", ".x", "é", "x" * 220)
    places = [Address("s3", "b", rest) for depth in range(3) for rest in itertools.product(words, repeat=depth)]
    keys = sorted(location_claim(place) for place in places)

    assert len(set(keys)) == len(places)
    for place in places:
        below = [key for key in keys if key.startswith(location_claims_below(place))]
        assert below[0] == location_claim(place)
        assert {parse_location_claim(key) for key in below} == {one for one in places if one.is_within(place)}


def test_a_place_whose_key_would_be_too_long_has_no_claim() -> None:
    with pytest.raises(Invalid, match="too long"):
        location_claim(Address("s3", "b", tuple("é" * 40 for _ in range(20))))


def test_generated_places_overlap_only_if_they_are_equal() -> None:
    """P1, P2: also with levels and names that look like folders of other tables."""
    words = ("a", MANAGED_FOLDER, f"a-{ONE}", "a.a", "..", "")
    levels = [found for depth in (1, 2, 3) for found in itertools.product(words, repeat=depth)]
    places: dict[Address, set[str]] = {}
    for root, level, name, uuid in itertools.product(
        ("s3://b/r", "s3://b/r/a"), levels, ("a", MANAGED_FOLDER), (ONE, TWO)
    ):
        place = canonical_address(generated_location(root, Identifier("c", level, name), uuid))
        assert (place.generated_for, place.root) == (uuid, canonical_address(root))
        places.setdefault(place, set()).add(uuid)

    assert {len(uuids) for uuids in places.values()} == {1}
    assert {len(place.segments) - len(place.root.segments) for place in places} == {3}
    assert list(outermost(places)) == sorted(places, key=lambda one: (len(one.segments), one))


def holder(kind: HolderKind, home: str = "c", tenant: str = "t") -> Holder:
    owner = Owner(tenant=tenant, workspace="w", record="iceberg", uuid=f"{kind} {home} {tenant}")
    return Holder(kind=kind, owner=owner, home=home, began_ms=0)


def test_containers_hold_what_is_theirs() -> None:
    """P5."""
    place, root, external = holder("place"), holder("root"), holder("external")

    assert [may_contain(external, one) for one in (place, root, external)] == [True, True, False]
    assert [may_contain(root, one) for one in (place, root, external)] == [True, True, False]
    assert not any(may_contain(place, one) for one in (place, root, external))
    assert not may_contain(root, holder("place", home="d"))
    assert not may_contain(external, holder("place", tenant="x"))
    assert may_share(external, root)
    assert not may_share(root, place)
    assert not may_share(external, external)
    assert not may_share(external, holder("root", tenant="x"))
