"""The differences we intend, each by name, each as narrow as it can be told; whatever no rule names is a fault."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.differential.comparison import MISSING, Aspect, Comparison, Difference
from tests.differential.histories import UNKNOWN_FIELD
from tests.differential.outcomes import Verdict
from tests.differential.table_updates import RESERVED


@dataclass(frozen=True)
class Rule:
    """One intended difference: `explains` says whether it accounts for what was seen, `reason` why we want it."""

    name: str
    reason: str
    explains: Callable[[Comparison, Difference], bool]


def explained(comparisons: Iterable[Comparison], rules: tuple[Rule, ...]) -> tuple[Counter[str], list[str]]:
    """How often each rule was needed, and a report of every difference that no rule explains."""
    seen: Counter[str] = Counter()
    unexplained: list[str] = []
    for comparison in comparisons:
        for difference in comparison.differences:
            rule = next((rule for rule in rules if rule.explains(comparison, difference)), None)
            if rule is None:
                unexplained.append(report(comparison, difference))
            else:
                seen[rule.name] += 1
    return seen, unexplained


def report(comparison: Comparison, difference: Difference) -> str:
    """Everything needed to see the difference again."""
    return "\n".join(
        (
            f"{difference.aspect} {'/'.join(difference.path)}",
            f"  ours:   {difference.ours!r} {comparison.ours.message!r}",
            f"  theirs: {difference.theirs!r} {comparison.theirs.message!r}",
            f"  request: {comparison.commit.request}",
            f"  base:    {comparison.commit.base_text.decode()}",
        )
    )


_LAST_ADDED = {
    "Cannot set last added schema: no schema has been added": "add-schema",
    "Cannot set last added spec: no spec has been added": "add-spec",
    "Cannot set last added sort order: no sort order has been added": "add-sort-order",
    "Cannot set last version id: no current version id has been set": "add-view-version",
}


def _is_last_added_reused(comparison: Comparison, difference: Difference) -> bool:
    action = _LAST_ADDED.get(comparison.theirs.message)
    return (
        difference.aspect in {Aspect.VERDICT, Aspect.MESSAGE} and action is not None and comparison.commit.has(action)
    )


def _is_uuid_reassigned(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.REFUSED
        and comparison.commit.base is not None
        and comparison.commit.has("assign-uuid")
    )


def _is_reserved_key_dropped(comparison: Comparison, difference: Difference) -> bool:
    if difference.aspect is Aspect.METADATA:
        return (
            len(difference.path) == 2  # properties, then the key
            and difference.path[0] == "properties"
            and difference.path[1] in RESERVED
            and difference.ours == MISSING
        )
    sets = [
        u.get("updates", u.get("updated", {})) for u in comparison.commit.updates if u["action"] == "set-properties"
    ]
    return comparison.ours.verdict is Verdict.UNCHANGED and any(set(keys) <= {*RESERVED} for keys in sets if keys)


def _is_first_row_id_ahead(comparison: Comparison, difference: Difference) -> bool:
    added = [u["snapshot"] for u in comparison.commit.updates if u.get("action") == "add-snapshot"]
    next_row_id = (comparison.commit.base or {}).get("next-row-id", 0)
    return difference.path == ("next-row-id",) and any(s.get("first-row-id", 0) > next_row_id for s in added)


def _is_unknown_field(_comparison: Comparison, difference: Difference) -> bool:
    return difference.path == (UNKNOWN_FIELD,) and difference.theirs == MISSING


def _is_format_version_4(comparison: Comparison, difference: Difference) -> bool:
    upgrades = [u for u in comparison.commit.updates if u.get("action") == "upgrade-format-version"]
    return (
        difference.aspect in {Aspect.VERDICT, Aspect.MESSAGE}
        and comparison.ours.verdict is Verdict.REFUSED
        and any(u.get("format-version") in {4, 5} for u in upgrades)
    )


def _is_removal_of_too_many_snapshots(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.theirs.message.startswith(
        "arraySize cannot be negative"
    )


JAVA_TABLES: tuple[Rule, ...] = (
    Rule(
        "last-added-may-be-reused",
        "-1 means the entry this request added, also when it turned out to be there already",
        _is_last_added_reused,
    ),
    Rule("uuid-is-never-reassigned", "the uuid is a table's identity; only creation assigns it", _is_uuid_reassigned),
    Rule(
        "reserved-keys-are-not-stored",
        "reserved property names describe the metadata and would contradict it when stored",
        _is_reserved_key_dropped,
    ),
    Rule(
        "row-ids-are-never-given-twice",
        "a snapshot that starts above next-row-id moves it past its own rows",
        _is_first_row_id_ahead,
    ),
    Rule("unknown-fields-survive", "what another engine wrote is not ours to drop", _is_unknown_field),
    Rule("format-version-4-is-refused", "the REST specification ends at version 3", _is_format_version_4),
    Rule(
        "removing-more-snapshots-than-exist",
        "unknown ids are ignored, however many; the reference computes a negative size",
        _is_removal_of_too_many_snapshots,
    ),
)
