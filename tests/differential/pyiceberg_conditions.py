"""The condition of each intended difference from PyIceberg."""

from tests.differential.comparison import MISSING, Aspect, Comparison, Difference
from tests.differential.outcomes import Verdict


def is_dated_by_its_snapshot(comparison: Comparison, difference: Difference) -> bool:
    added = [snapshot["timestamp-ms"] for snapshot in comparison.commit.parts("add-snapshot", "snapshot")]
    return difference.path == ("last-updated-ms",) and difference.theirs in added


def is_parent_cut(comparison: Comparison, difference: Difference) -> bool:
    removed = [i for u in comparison.commit.updates if u["action"] == "remove-snapshots" for i in u["snapshot-ids"]]
    return (
        difference.path[:1] == ("snapshots",)
        and difference.path[-1] == "parent-snapshot-id"
        and difference.theirs == MISSING
        and difference.ours in removed
    )


def is_history_kept_before_a_gap(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.path == ("snapshot-log",)
        and comparison.commit.has("remove-snapshots")
        and difference.ours == difference.theirs[len(difference.theirs) - len(difference.ours) :]
    )


def are_partition_statistics_kept(comparison: Comparison, difference: Difference) -> bool:
    removed = [i for u in comparison.commit.updates if u["action"] == "remove-snapshots" for i in u["snapshot-ids"]]
    return difference.path == ("partition-statistics",) and all(
        file in difference.ours or file["snapshot-id"] in removed for file in difference.theirs
    )


def is_equal_location_set(comparison: Comparison, difference: Difference) -> bool:
    base = comparison.commit.base or {}
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.UNCHANGED
        and all(u == {"action": "set-location", "location": base["location"]} for u in comparison.commit.updates)
    )


def is_in_other_words(_comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is Aspect.MESSAGE
