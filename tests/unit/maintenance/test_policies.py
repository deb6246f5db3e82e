"""Policies are merged field by field, with the origin of each value."""

from typing import Any

import pytest

from sandur.catalog.maintenance.health import is_enabled
from sandur.catalog.maintenance.measures import Reference, SnapshotAge, kept_snapshots
from sandur.catalog.maintenance.policies import (
    DEFAULT,
    ScopePolicy,
    checked_policy,
    from_polaris,
    is_open,
    merged_policy,
    with_properties,
)
from sandur.errors import Invalid
from sandur.settings import seconds_of

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_NOW_MS = 100_000 * _DAY_MS


def _origin(scopes: list[ScopePolicy], field: str, properties: dict[str, str] | None = None) -> tuple[object, str, str]:
    found = next(one for one in merged_policy(scopes, properties).origins if one.field == field)
    return found.value, found.origin, found.locked_by


def test_without_policies_every_value_is_the_default_and_nothing_is_changed() -> None:
    merged = merged_policy([])

    assert merged.policy == DEFAULT
    assert merged.policy.mode == "report"
    assert {one.origin for one in merged.origins} == {"default"}


def test_the_nearest_scope_that_names_a_field_decides_it() -> None:
    scopes = [
        ScopePolicy("workspace", {"mode": "run", "compaction": {"target_file_bytes": 1 << 27}}),
        ScopePolicy("catalog main", {"compaction": {"target_file_bytes": 1 << 28}}),
        ScopePolicy("table main.sales.orders", {"snapshots": {"min_to_keep": 5}}),
    ]

    merged = merged_policy(scopes)

    assert merged.policy.mode == "run"
    assert merged.policy.compaction.target_file_bytes == 1 << 28
    assert merged.policy.snapshots.min_to_keep == 5
    assert _origin(scopes, "compaction.target_file_bytes") == (1 << 28, "catalog main", "")
    assert _origin(scopes, "mode") == ("run", "workspace", "")


def test_a_property_decides_before_all_scopes() -> None:
    scopes = [ScopePolicy("table main.sales.orders", {"compaction": {"target_file_bytes": 1 << 27}})]

    assert _origin(scopes, "compaction.target_file_bytes", {"write.target-file-size-bytes": "1048576"}) == (
        1 << 20,
        "property write.target-file-size-bytes",
        "",
    )
    assert _origin([], "snapshots.max_age", {"history.expire.max-snapshot-age-ms": "172800000"})[0] == "PT172800S"
    assert _origin([], "compaction.enabled", {"maintenance.compaction.enabled": "false"})[0] is False
    both = {"write.target-file-size-bytes": "1048576", "maintenance.compaction.target_file_bytes": "2097152"}
    assert _origin([], "compaction.target_file_bytes", both)[0] == 1 << 21


def test_a_locked_field_is_changed_by_nothing_below() -> None:
    scopes = [
        ScopePolicy("workspace", {"orphans": {"enabled": False}}, locked=("orphans.enabled",)),
        ScopePolicy("catalog main", {"orphans": {"enabled": True}}),
    ]

    assert _origin(scopes, "orphans.enabled", {"maintenance.orphans.enabled": "true"}) == (
        False,
        "workspace",
        "workspace",
    )


@pytest.mark.parametrize("text", ["false", "FALSE", "no", "0", "off", "", "true "])
def test_gc_enabled_turns_every_deletion_off_unless_it_is_true(text: str) -> None:
    policy = merged_policy([], {"gc.enabled": text}).policy

    assert not policy.snapshots.enabled
    assert not policy.orphans.enabled
    assert not is_enabled("vacuum", policy)
    assert policy.compaction.enabled
    assert is_enabled("checkpoint", policy)


@pytest.mark.parametrize("properties", [{}, {"gc.enabled": "true"}, {"gc.enabled": "TRUE"}])
def test_gc_enabled_true_turns_nothing_off(properties: dict[str, str]) -> None:
    assert merged_policy([], properties).policy == DEFAULT


@pytest.mark.parametrize("days", [2, 11, 12, 14, 30, 365, 36_500])
def test_a_table_keeps_its_snapshots_as_long_as_its_property_says(days: int) -> None:
    policy = merged_policy([], {"history.expire.max-snapshot-age-ms": str(days * _DAY_MS)}).policy
    younger, older = _NOW_MS - days * _DAY_MS + _HOUR_MS, _NOW_MS - days * _DAY_MS - _HOUR_MS
    snapshots = [
        SnapshotAge(snapshot_id=number, committed_ms=at_ms, parent_id=number - 1 or None)
        for number, at_ms in enumerate([older - 2 * _DAY_MS, older - _DAY_MS, younger, younger + 1], start=1)
    ]
    main = Reference(name="main", is_branch=True, snapshot_id=4)

    kept = kept_snapshots(snapshots, [main], policy.snapshots, now_ms=_NOW_MS)

    assert kept == {3, 4}
    assert seconds_of(policy.snapshots.max_age) == days * 86_400


@pytest.mark.parametrize("text", ["9" * 30, "9" * 5_000])
def test_an_age_of_too_many_digits_never_shortens_the_age_of_a_table(text: str) -> None:
    policy = merged_policy([], {"history.expire.max-snapshot-age-ms": text}).policy

    assert seconds_of(policy.snapshots.max_age) >= seconds_of(DEFAULT.snapshots.max_age)


@pytest.mark.parametrize(
    "properties",
    [
        {"write.target-file-size-bytes": "many"},
        {"write.target-file-size-bytes": "-5"},
        {"history.expire.max-snapshot-age-ms": "1"},
        {"maintenance.orphans.age": "PT1H"},
        {"maintenance.orphans.age": "soon"},
        {"maintenance.no.such": "1"},
        {"maintenance.": "1"},
    ],
)
def test_a_property_with_a_bad_value_is_ignored(properties: dict[str, str]) -> None:
    assert merged_policy([], properties).policy == DEFAULT


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([], "JSON object"),
        ({"compact": {}}, "compact"),
        ({"compaction": {"size": 1}}, "size"),
        ({"compaction": {"target_file_bytes": 5}}, "compaction.target_file_bytes"),
        ({"compaction": {"target_file_bytes": "big"}}, "compaction.target_file_bytes"),
        ({"compaction": {"strategy": "sort"}}, "sort_order"),
        ({"orphans": {"age": "PT1H"}}, "orphans.age"),
        ({"orphans": {"age": "yesterday"}}, "orphans.age"),
        ({"orphans": {"wait": "PT1H"}}, "orphans.wait"),
        ({"snapshots": {"max_age": "PT1H"}}, "snapshots.max_age"),
        ({"delta": {"deleted_file_retention": "P1D"}}, "delta.deleted_file_retention"),
        ({"window": "noon"}, "window"),
        ({"priority": 0}, "priority"),
        ({"mode": "x" * (64 << 10)}, "64 KiB"),
    ],
)
def test_a_bad_policy_is_refused_with_the_name_of_the_field(values: Any, names: str) -> None:
    with pytest.raises(Invalid, match=names):
        checked_policy(values)


def test_a_policy_locks_only_what_it_sets() -> None:
    with pytest.raises(Invalid, match=r"orphans\.enabled"):
        checked_policy({"mode": "run"}, locked=("orphans.enabled",))


@pytest.mark.parametrize(
    ("window", "hour", "expected"),
    [
        ("", 12, True),
        ("09:00-17:00", 9, True),
        ("09:00-17:00", 17, False),
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 5, True),
        ("22:00-06:00", 6, False),
        ("00:00-00:00", 12, True),
    ],
)
def test_a_window_is_a_time_of_day(window: str, hour: int, *, expected: bool) -> None:
    assert is_open(window, 100 * 24 * _HOUR_MS + hour * _HOUR_MS) is expected


def test_policies_of_polaris_are_understood() -> None:
    values, ignored = from_polaris(
        "system.snapshot-expiry",
        {"version": "2025-02-03", "enable": True, "config": {"max_snapshot_age_days": 2, "max_ref_age_days": 3}},
    )

    assert values == {"snapshots": {"enabled": True, "max_age": "P2D"}}
    assert ignored == ["max_ref_age_days"]
    with pytest.raises(Invalid, match=r"system\.data-compaction"):
        from_polaris("system.nothing", {})


def test_the_age_of_orphans_is_beside_the_configuration_of_a_policy_of_polaris() -> None:
    content = {
        "version": "2025-02-03",
        "max_orphan_file_age_in_days": 30,
        "locations": ["s3://bucket/warehouse"],
        "config": {"prefix_mismatch_mode": "ignore", "max_orphan_file_age_in_days": 5},
    }

    values, ignored = from_polaris("system.orphan-file-removal", content)

    assert values == {"orphans": {"enabled": True, "age": "P30D"}}
    assert ignored == ["prefix_mismatch_mode", "locations"]
    with pytest.raises(Invalid, match=r"orphans\.age"):
        from_polaris("system.orphan-file-removal", {"max_orphan_file_age_in_days": 1})


def test_numbers_of_a_policy_of_polaris_may_be_texts() -> None:
    snapshots, _ = from_polaris(
        "system.snapshot-expiry", {"config": {"min_snapshot_to_keep": "5", "max_snapshot_age_days": "2"}}
    )
    compaction, _ = from_polaris("system.data-compaction", {"config": {"target_file_size_bytes": "134217728"}})

    assert snapshots == {"snapshots": {"enabled": True, "min_to_keep": 5, "max_age": "P2D"}}
    assert compaction == {"compaction": {"enabled": True, "target_file_bytes": 134217728}}
    for text in ("large", "9" * 5_000):
        with pytest.raises(Invalid, match=r"compaction\.target_file_bytes"):
            from_polaris("system.data-compaction", {"config": {"target_file_size_bytes": text}})


@pytest.mark.parametrize("content", [{"enable": "yes"}, {"config": []}, {"version": 1}])
def test_a_policy_of_polaris_with_a_wrong_type_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="Invalid policy of Polaris: Expected"):
        from_polaris("system.data-compaction", content)


def test_properties_that_a_table_got_since_it_was_measured_decide_unless_a_scope_locks_the_field() -> None:
    scope = ScopePolicy("catalog main", {"priority": 7, "snapshots": {"min_to_keep": 3}}, ("priority",))
    merged = merged_policy([scope], {"maintenance.quiet": "PT1H"})

    now = with_properties(merged, {"gc.enabled": "false", "maintenance.priority": "9", "maintenance.quiet": "PT2H"})

    assert (now.policy.priority, now.policy.quiet, now.policy.snapshots.min_to_keep) == (7, "PT2H", 3)
    assert (now.policy.snapshots.enabled, now.policy.compaction.enabled) == (False, True)
