"""Which files are orphans, and which of them may be deleted, decided from values alone."""

from typing import Final

import pytest

from sandur.catalog.maintenance import orphans
from sandur.catalog.maintenance.orphans import (
    CONDEMNED_MAX,
    SWEPT_KEPT_MS,
    CondemnedFile,
    Found,
    FoundFile,
    Suspects,
    SweptFile,
    condemned,
    due_files,
    identity_of,
    merged_condemned,
    name_of,
    refusal_of,
    swept_among,
    swept_room,
    swept_with,
)
from sandur.catalog.maintenance.policies import Orphans

DAY_MS: Final = 86_400_000
NOW_MS: Final = 1_000 * DAY_MS
PLACE: Final = "s3://bucket/t1"
POLICY: Final = Orphans()


def file(path: str, *, days: float = 10, place: str = PLACE, version: str = "v1") -> FoundFile:
    return FoundFile(f"{place}/{path}", version, 10, int(NOW_MS - days * DAY_MS))


def suspects(*files: FoundFile, place: str = PLACE) -> Suspects:
    return Suspects(files, place, age_ms=3 * DAY_MS, now_ms=NOW_MS)


def live(count: int) -> list[FoundFile]:
    return [file(f"data/live-{number}.parquet") for number in range(count)]


def test_an_old_file_that_nothing_refers_to_is_condemned() -> None:
    found = suspects(*live(3), file("data/x.parquet"))
    found.clear(one.location for one in live(3))

    decision = condemned(found, POLICY.share_max)

    assert [one.location for one in decision.files] == [f"{PLACE}/data/x.parquet"]
    assert decision.kept == {"referred to": 3}
    assert decision.refusal == ""


TWINS: Final = [("data/p=a b/x", "data/p=a%20b/x"), ("data/p=caf\u00e9/x", "data/p=cafe\u0301/x")]
"""Names that some engine reads as one file, and that stores keep apart."""


@pytest.mark.parametrize("twins", TWINS)
def test_of_two_files_that_may_be_one_both_stay_if_one_is_referred_to(twins: tuple[str, str]) -> None:
    for referred in twins:
        found = suspects(*map(file, twins))

        found.clear([f"{PLACE}/{referred}"])

        assert (len(found), found.kept.total()) == (0, 2)


@pytest.mark.parametrize("twins", TWINS)
def test_two_files_that_may_be_one_are_two_orphans(twins: tuple[str, str]) -> None:
    found = suspects(*map(file, twins))

    assert [one.location for one in found.files] == sorted(f"{PLACE}/{path}" for path in twins)


def test_of_two_files_that_may_be_one_the_younger_one_stays_and_a_reference_keeps_the_other() -> None:
    old, young = file("data/p=a b/x", days=9), file("data/p=a%20b/x", days=4)
    found = suspects(old, young)

    found.keep_younger(NOW_MS - 5 * DAY_MS)
    left = found.files
    found.clear([young.location])

    assert (left, found.files) == ((old,), ())
    assert found.kept["younger than the minimum age"] == 1


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (file("data/x.parquet", days=2.9), "younger than the minimum age"),
        (file("data/x.parquet")._replace(modified_ms=None), "of unknown age"),
        (file("data/x.parquet")._replace(modified_ms=0), "of unknown age"),
        (file("x.parquet", place="s3://bucket/t10"), "outside of the table's location"),
        (file("x.parquet", place="s3://bucket"), "outside of the table's location"),
        (file("metadata/00001-a.metadata.json"), "a metadata file, which garbage collection removes"),
        (file("metadata/00001-a.gz.metadata.json"), "a metadata file, which garbage collection removes"),
        (file("metadata/version-hint.text"), "a metadata file, which garbage collection removes"),
        (file("_SUCCESS"), "hidden"),
        (file("data/.part-0.crc"), "hidden"),
        (file("data/../../t2/x.parquet"), "its location is not clear"),
    ],
)
def test_a_file_that_may_be_needed_stays_with_a_reason(found: FoundFile, reason: str) -> None:
    decision = condemned(suspects(found, *live(9)), 1.0)

    assert found not in decision.files
    assert decision.kept[reason] == 1


def test_a_partition_whose_name_begins_with_an_underscore_is_not_hidden() -> None:
    found = suspects(file("data/_day=1/x.parquet"))

    assert len(found) == 1


@pytest.mark.parametrize("folder", ["__unitystorage/s/u-1", "_delta_log", "nested/_delta_log"])
def test_nothing_is_condemned_if_another_table_has_files_there(folder: str) -> None:
    found = suspects(*live(9), file("data/x.parquet"), file(f"{folder}/a.json"))
    found.clear(one.location for one in live(9))

    decision = condemned(found, POLICY.share_max)

    assert decision.files == ()
    assert folder in decision.refusal


@pytest.mark.parametrize(
    ("place", "reference"),
    [
        ("s3://bucket/t1", "s3a://bucket/t1/data/x.parquet"),
        ("s3a://bucket/t1", "s3n://bucket/t1/data/x.parquet"),
        ("file:/lake/t1", "file:///lake/t1/data/x.parquet"),
        ("/lake/t1", "file:/lake/t1/data/x.parquet"),
        ("gs://bucket/t1", "gcs://bucket/t1/data/x.parquet"),
        ("abfss://c@a.dfs.core.windows.net/t1", "wasbs://c@a.blob.core.windows.net/t1/data/x.parquet"),
        ("s3://bucket/t 1", "s3://bucket/t%201/data/x.parquet"),
        ("s3://bucket/t\u00e9", "s3://bucket/te\u0301/data/x.parquet"),
    ],
)
def test_a_reference_in_another_spelling_keeps_the_file(place: str, reference: str) -> None:
    found = suspects(file("data/x.parquet", place=place), place=place)

    found.clear([reference])

    assert found.files == ()
    assert found.kept == {"referred to": 1}


@pytest.mark.parametrize("reference", ["hdfs://namenode/t1/data/x.parquet", "minio://bucket/t1/data/x.parquet"])
def test_a_reference_under_an_unknown_scheme_or_another_host_keeps_the_file(reference: str) -> None:
    found = suspects(file("data/x.parquet"))

    found.clear([reference])

    assert found.files == ()
    assert found.kept == {"referred to under another scheme or host": 1}


def test_nothing_is_condemned_if_a_large_share_looks_orphaned() -> None:
    found = suspects(*live(10))
    found.clear(one.location for one in live(6))

    decision = condemned(found, POLICY.share_max)

    assert decision.files == ()
    assert "40% of its 10 files look like orphans, more than 30%" in decision.refusal
    assert len(condemned(found, 0.4).files) == 4
    assert len(condemned(found, POLICY.share_max, Found(found.files, listed=100)).files) == 4


def test_the_share_counts_also_the_orphans_that_were_too_many_to_look_at() -> None:
    found = suspects(*live(10))

    decision = condemned(found, POLICY.share_max, Found(found.files, listed=100, more=21))

    assert decision.files == ()
    assert "31% of its 100 files look like orphans, more than 30%" in decision.refusal
    assert len(condemned(found, POLICY.share_max, Found(found.files, listed=100, more=20)).files) == 10


def test_a_run_condemns_a_bounded_number_of_files() -> None:
    found = suspects(*(file(f"data/{number:06d}.parquet") for number in range(CONDEMNED_MAX + 5)))

    decision = condemned(found, 1.0)

    assert len(decision.files) == CONDEMNED_MAX
    assert (decision.left, decision.kept["left for the next run"]) == (5, 5)


def test_files_that_an_engine_found_beside_its_candidates_are_left_for_the_next_run() -> None:
    found = suspects(*(file(f"data/{number}.parquet") for number in range(10)))

    decision = condemned(found, 1.0, Found(found.files, listed=100, more=20))

    assert (len(decision.files), decision.left, decision.kept["left for the next run"]) == (10, 20, 20)


@pytest.mark.parametrize(
    ("properties", "kind", "levels", "refusal"),
    [
        ({}, "table", ("sales",), ""),
        ({"gc.enabled": "true"}, "table", ("sales",), ""),
        ({"gc.enabled": "false"}, "table", ("sales",), "it has gc.enabled=false"),
        ({"gc.enabled": "no"}, "table", ("sales",), "it has gc.enabled=false"),
        ({"encryption.key-id": "k"}, "table", ("sales",), "it is encrypted"),
        ({}, "view", ("sales",), "it is a view"),
        ({}, "table", ("system",), "it is a system table"),
    ],
)
def test_some_tables_are_never_touched(
    properties: dict[str, str], kind: str, levels: tuple[str, ...], refusal: str
) -> None:
    found = refusal_of(properties, kind=kind, levels=levels)

    assert found.startswith(refusal)
    assert bool(found) == bool(refusal)


def condemned_file(path: str, *, found_days: float = 2, run: str = "first", version: str = "v1") -> CondemnedFile:
    found_ms = int(NOW_MS - found_days * DAY_MS)
    return CondemnedFile(
        location=f"{PLACE}/{path}", version=version, size_bytes=10, modified_ms=1, found_ms=found_ms, run=run
    )


def test_a_file_is_due_in_a_later_run_after_the_wait() -> None:
    files = [
        condemned_file("due"),
        condemned_file("too-early", found_days=0.9),
        condemned_file("same-run", run="second"),
    ]

    due = due_files(files, POLICY, run="second", now_ms=NOW_MS)

    assert [one.location for one in due] == [f"{PLACE}/due"]


def test_a_file_that_is_found_again_keeps_its_time_unless_it_was_written_again() -> None:
    before = [condemned_file("same"), condemned_file("again"), condemned_file("gone")]

    after = merged_condemned(before, [file("same"), file("again", version="v2")], run="second", now_ms=NOW_MS)

    assert after[0] == before[0]
    assert (after[1].version, after[1].found_ms, after[1].run) == ("v2", NOW_MS, "second")
    assert len(after) == 2


def test_swept_files_stay_on_the_list_for_a_long_time() -> None:
    before = [SweptFile("old", "v", NOW_MS - SWEPT_KEPT_MS), SweptFile("young", "v", NOW_MS - SWEPT_KEPT_MS + 1)]

    after = swept_with(before, [condemned_file("x")], now_ms=NOW_MS)

    assert [one.name for one in after] == ["young", name_of(f"{PLACE}/x")]


def test_the_list_of_swept_files_has_room_for_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "SWEPT_MAX", 3)
    before = [SweptFile("old", "v", 0), SweptFile("young", "v", NOW_MS)]

    assert swept_room(before, now_ms=NOW_MS) == 2


def test_a_commit_is_compared_with_swept_files_in_any_spelling() -> None:
    listed = swept_with((), [condemned_file("x"), condemned_file("x", version="v2")], now_ms=NOW_MS)

    found = swept_among(listed, ["s3a://bucket/t1/x", "s3://bucket/t1/y"])

    assert found == {"s3a://bucket/t1/x": frozenset({"v1", "v2"})}


def test_a_location_that_no_address_has_is_compared_as_text() -> None:
    assert identity_of("hdfs://host/a//b") == "hdfs://host/a//b"
