"""The differences we intend, each by name, each as narrow as it can be told; whatever no rule names is a fault."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.differential.comparison import MISSING, Aspect, Comparison, Difference
from tests.differential.older_forms import UNKNOWN_FIELD
from tests.differential.outcomes import JsonObject, Verdict
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
    "Cannot set last added schema: no schema has been added": ("add-schema",),
    "Cannot set last added spec: no spec has been added": ("add-spec",),
    "Cannot set last added sort order: no sort order has been added": ("add-sort-order",),
    "Cannot set last version id: no current version id has been set": ("add-view-version",),
}


def _is_last_added_reused(comparison: Comparison, difference: Difference) -> bool:
    actions = _LAST_ADDED.get(comparison.theirs.message, ())
    return difference.aspect is not Aspect.METADATA and comparison.commit.has(*actions)


def _is_uuid_reassigned(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.ours.message.startswith("Cannot reassign uuid")


def _is_uuid_left_out(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.message.startswith("UUID is required")
        and comparison.commit.base is None
        and not comparison.commit.has("assign-uuid")
    )


def _is_location_left_out(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.message.startswith("Table location is required")
        and comparison.commit.base is None
        and not comparison.commit.has("set-location")
    )


def _is_reserved_key_dropped(comparison: Comparison, difference: Difference) -> bool:
    if difference.aspect is Aspect.METADATA:
        return difference.path[:1] == ("properties",) and difference.path[1] in RESERVED and difference.ours == MISSING
    return comparison.ours.verdict is Verdict.UNCHANGED and any(
        {*_properties_set(update)} & {*RESERVED} for update in comparison.commit.updates
    )


def _properties_set(update: JsonObject) -> JsonObject:
    properties = update.get("updates", update.get("updated"))
    return properties if update.get("action") == "set-properties" and isinstance(properties, dict) else {}


def _is_first_row_id_ahead(comparison: Comparison, difference: Difference) -> bool:
    added = comparison.commit.parts("add-snapshot", "snapshot")
    next_row_id = (comparison.commit.base or {}).get("next-row-id", 0)
    return difference.path == ("next-row-id",) and any(s.get("first-row-id", 0) > next_row_id for s in added)


def _is_row_id_given_twice(comparison: Comparison, difference: Difference) -> bool:
    """Java did not move next-row-id far enough, so it lets a second snapshot of the request in."""
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.CONFLICT
        and "first-row-id is behind table next-row-id" in comparison.ours.message
    )


def _is_unknown_field(_comparison: Comparison, difference: Difference) -> bool:
    return difference.path == (UNKNOWN_FIELD,) and difference.theirs == MISSING


def _is_format_version_4(comparison: Comparison, difference: Difference) -> bool:
    upgrades = [u for u in comparison.commit.updates if u.get("action") == "upgrade-format-version"]
    return (
        difference.aspect is not Aspect.METADATA
        and comparison.ours.verdict is Verdict.REFUSED
        and any(u.get("format-version") in {4, 5} for u in upgrades)
    )


def _is_removal_of_too_many_snapshots(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.theirs.message.startswith(
        "arraySize cannot be negative"
    )


def _is_removal_of_nothing(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.UNCHANGED
        and comparison.commit.has("remove-schemas", "remove-partition-specs")
    )


def _is_partition_field_id_reused(comparison: Comparison, difference: Difference) -> bool:
    specs = comparison.commit.parts("add-spec", "spec")
    has_gap = any("field-id" not in field for spec in specs for field in spec.get("fields", ()))
    is_id = difference.path == ("last-partition-id",) or difference.path[-1:] == ("field-id",)
    return has_gap and is_id and difference.ours > difference.theirs


def _is_operation_left_out(_comparison: Comparison, difference: Difference) -> bool:
    return difference.path[-2:] == ("summary", "operation") and (difference.ours, difference.theirs) == (
        MISSING,
        "overwrite",
    )


def _is_order_id_left_out(comparison: Comparison, difference: Difference) -> bool:
    orders = comparison.commit.parts("add-sort-order", "sort-order")
    return (
        difference.aspect is not Aspect.METADATA
        and comparison.theirs.message == "Cannot parse missing int: order-id"
        and any("order-id" not in order for order in orders)
    )


@dataclass(frozen=True)
class Rewording:
    """Both refuse, for the same reason, in other words: patterns of their text and of ours."""

    theirs: str
    ours: str

    def __call__(self, comparison: Comparison, difference: Difference) -> bool:
        return (
            difference.aspect is Aspect.MESSAGE
            and re.match(self.theirs, comparison.theirs.message) is not None
            and re.search(self.ours, comparison.ours.message) is not None
        )


_PARSING = (
    "Cannot parse|Cannot convert metadata update action|Unrecognized update requirement|"
    "Invalid set of snapshot ids|Invalid encryption key, must be"
)
# Java reads the whole request, and with it builds every schema, order and snapshot, before it applies anything.
_READING = (
    f"{_PARSING}|Multiple entries with same key|Invalid schema: multiple fields|Cannot add field|"
    "Cannot create required field|Sort order ID|Unsorted order|Invalid sort direction|Unexpected null order|"
    "Invalid first-row-id|Invalid added-rows|Invalid snapshot ref type|Invalid number of buckets|Decimals with|"
    "Type: variant is not supported|Invalid column name|Invalid partition statistics|Missing statistics"
)


def _is_another_fault(comparison: Comparison, difference: Difference) -> bool:
    """Several updates, each wrong: reading comes before applying in both engines, but not at the same point."""
    ours_is_reading = "malformed" in comparison.ours.message
    theirs_is_reading = re.match(_READING, comparison.theirs.message) is not None
    parts = len(comparison.commit.updates) + len(comparison.commit.requirements)
    return difference.aspect is Aspect.MESSAGE and parts > 1 and (ours_is_reading or theirs_is_reading)


def _is_another_order_of_problems(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.MESSAGE
        and comparison.theirs.message.startswith("Invalid schema for v")
        and sorted(comparison.theirs.message.splitlines()) == sorted(comparison.ours.message.splitlines())
    )


_NUMBER = re.compile("[0-9]+")


def _is_only_the_clock(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.MESSAGE
        and comparison.theirs.message.startswith("Invalid update timestamp")
        and _NUMBER.sub("", comparison.theirs.message) in _NUMBER.sub("", comparison.ours.message)
    )


# Both refuse for the same reason; these texts differ wherever a schema, a spec or an order comes in.
_WORDS: tuple[Rule, ...] = (
    Rule(
        "malformed-parts-are-told-by-their-place",
        "the path of the part that is wrong says more than its name",
        Rewording(_PARSING, "malformed"),
    ),
    Rule(
        "repeated-ids-are-called-so",
        "the builder fails in an index and shows its entries",
        Rewording("Multiple entries with same key", "multiple fields for (id|name)"),
    ),
    Rule(
        "the-outermost-repeated-name-is-named",
        "a column whose name is taken takes its children's names as well; the column is the cause",
        Rewording("Invalid schema: multiple fields for name", "Invalid schema: multiple fields for (name|id)"),
    ),
    Rule(
        "transforms-are-named-when-they-do-not-fit",
        "the builder names the type alone",
        Rewording("Unsupported type|Cannot (bucket by|truncate) type", "Invalid source type .* for transform"),
    ),
    Rule(
        "parents-are-named-by-path",
        "the builder prints the whole type of the parent",
        Rewording("Cannot add field .* as an identifier field: must not be", "as an identifier field: must not be"),
    ),
    Rule(
        "a-wrong-variant-default-is-called-so",
        "the builder says that variant is not supported, which is not the fault",
        Rewording("Type: variant is not supported", "default value for variant"),
    ),
)

JAVA_TABLES: tuple[Rule, ...] = (
    Rule(
        "last-added-may-be-reused",
        "-1 means the entry this request added, also when it turned out to be there already",
        _is_last_added_reused,
    ),
    Rule(
        "uuid-is-never-reassigned",
        "the uuid is a table's identity; only creation assigns it",
        _is_uuid_reassigned,
    ),
    Rule(
        "a-create-brings-its-uuid",
        "the engine invents nothing: the operation assigns a uuid where a client left it out",
        _is_uuid_left_out,
    ),
    Rule(
        "a-create-brings-its-location",
        "formats 1 to 3 demand a location; the builder writes a file that its own parser refuses",
        _is_location_left_out,
    ),
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
    Rule(
        "a-row-id-behind-the-moved-next-row-id-conflicts",
        "the consequence of the rule before, for a later snapshot of the same request",
        _is_row_id_given_twice,
    ),
    Rule("unknown-fields-survive", "what another engine wrote is not ours to drop", _is_unknown_field),
    Rule("format-version-4-is-refused", "the REST specification ends at version 3", _is_format_version_4),
    Rule(
        "removing-more-snapshots-than-exist-is-fine",
        "unknown ids are ignored, however many; the builder computes a negative size",
        _is_removal_of_too_many_snapshots,
    ),
    Rule(
        "removing-what-is-not-there-changes-nothing",
        "unknown schema and spec ids are ignored; a new file with the old content helps nobody",
        _is_removal_of_nothing,
    ),
    Rule(
        "partition-field-ids-are-never-reused",
        "for a spec without ids the builder counts from 1000 again, so two fields of a table share an id",
        _is_partition_field_id_reused,
    ),
    Rule(
        "a-missing-operation-stays-missing",
        "readers take it for overwrite, as the specification says; we do not write what nobody said",
        _is_operation_left_out,
    ),
    Rule("an-order-id-may-be-left-out", "the catalog assigns it anyway", _is_order_id_left_out),
    *_WORDS,
    Rule(
        "updates-are-named-as-in-the-protocol",
        "clients know `set-current-view-version`, not the name of a class",
        Rewording("Cannot (apply update|validate) [A-Z]", "Cannot (apply update|validate) [a-z-]+ (to|against) a"),
    ),
    Rule(
        "problems-of-a-schema-are-listed-level-by-level",
        "the builder lists them in the order of a hash table",
        _is_another_order_of_problems,
    ),
    Rule(
        "specs-are-shown-on-one-line",
        "messages travel in JSON and in logs",
        Rewording("Spec does not use sequential IDs", "Spec does not use sequential IDs"),
    ),
    Rule(
        "an-unsorted-history-is-not-called-a-bug",
        "the request caused it, and we name the entries",
        Rewording(r"\[BUG\] Expected sorted", "Expected sorted"),
    ),
    Rule("clocks-differ-by-milliseconds", "the message shows the moment of the commit", _is_only_the_clock),
    Rule(
        "one-of-several-faults-is-named",
        "reading and checking come in another order; every fault named is real",
        _is_another_fault,
    ),
)


def _is_unsupported_version(comparison: Comparison, difference: Difference) -> bool:
    version = comparison.commit.request["properties"].get("format-version")
    return (
        difference.aspect is not Aspect.METADATA
        and version in {"0", "4", "9"}
        and comparison.ours.message.startswith("Unsupported format version")
    )


def _are_partition_ids_ignored(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is Aspect.VERDICT and comparison.theirs.message.startswith(
        ("Spec does not use sequential IDs", "Cannot parse spec with missing field IDs")
    )


def _is_void_of_nothing(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.theirs.verdict is Verdict.CHANGED
        and re.match("Cannot find source column for partition field: .*void", comparison.ours.message) is not None
    )


# Java binds the spec and the order while it reads; we look at the properties and the version first.
_EARLY_IN_JAVA = f"{_READING}|Unsupported type|Cannot (bucket|truncate|sort|use|create identity|find source)"
_LATE_IN_JAVA = (
    "Unsupported format version|Table property|Invalid properties|Invalid metrics config|Cannot downgrade|"
    "create table request is malformed|Cannot find source column|Invalid sort|Invalid schema for|Cannot use partition"
)

JAVA_CREATIONS: tuple[Rule, ...] = (
    Rule(
        "only-versions-1-to-3-are-created",
        "the REST specification ends at version 3, and there is no version 0",
        _is_unsupported_version,
    ),
    Rule(
        "a-creation-assigns-partition-ids",
        "the ids in the request are the client's own; the builder stumbles over them, though it assigns others",
        _are_partition_ids_ignored,
    ),
    Rule(
        "a-new-void-field-needs-its-column",
        "a field that partitions by nothing must at least once have meant something",
        _is_void_of_nothing,
    ),
    Rule(
        "a-schema-is-not-printed-in-a-message",
        "a schema may have thousands of columns",
        Rewording("Invalid metrics config, could not find column", "Invalid metrics config, could not find column"),
    ),
    *_WORDS,
    Rule(
        "one-of-several-faults-of-a-creation-is-named",
        "reading and checking come in another order; every fault named is real",
        Rewording(_EARLY_IN_JAVA, _LATE_IN_JAVA),
    ),
)


def _is_dated_by_its_snapshot(comparison: Comparison, difference: Difference) -> bool:
    added = [snapshot["timestamp-ms"] for snapshot in comparison.commit.parts("add-snapshot", "snapshot")]
    return difference.path == ("last-updated-ms",) and difference.theirs in added


def _is_parent_cut(comparison: Comparison, difference: Difference) -> bool:
    removed = [i for u in comparison.commit.updates if u["action"] == "remove-snapshots" for i in u["snapshot-ids"]]
    return (
        difference.path[:1] == ("snapshots",)
        and difference.path[-1] == "parent-snapshot-id"
        and difference.theirs == MISSING
        and difference.ours in removed
    )


def _is_history_kept_before_a_gap(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.path == ("snapshot-log",)
        and comparison.commit.has("remove-snapshots")
        and difference.ours == difference.theirs[len(difference.theirs) - len(difference.ours) :]
    )


def _are_partition_statistics_kept(comparison: Comparison, difference: Difference) -> bool:
    removed = [i for u in comparison.commit.updates if u["action"] == "remove-snapshots" for i in u["snapshot-ids"]]
    return difference.path == ("partition-statistics",) and all(
        file in difference.ours or file["snapshot-id"] in removed for file in difference.theirs
    )


def _is_equal_location_set(comparison: Comparison, difference: Difference) -> bool:
    base = comparison.commit.base or {}
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.UNCHANGED
        and all(u == {"action": "set-location", "location": base["location"]} for u in comparison.commit.updates)
    )


def _is_in_other_words(_comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is Aspect.MESSAGE


PYICEBERG: tuple[Rule, ...] = (
    Rule(
        "pyiceberg-dates-a-commit-by-its-snapshot",
        "last-updated-ms is when the catalog changed the table, not when a client began to write",
        _is_dated_by_its_snapshot,
    ),
    Rule(
        "pyiceberg-cuts-the-parent-of-an-expired-snapshot",
        "a snapshot is never rewritten; readers cope with a parent that is gone",
        _is_parent_cut,
    ),
    Rule(
        "pyiceberg-keeps-history-before-a-gap",
        "what lies before a removed snapshot would show the wrong snapshot for the time between",
        _is_history_kept_before_a_gap,
    ),
    Rule(
        "pyiceberg-keeps-partition-statistics-of-expired-snapshots",
        "statistics go with their snapshot, as Java does",
        _are_partition_statistics_kept,
    ),
    Rule(
        "pyiceberg-counts-an-equal-location-as-a-change",
        "nothing changed, so no new file is written",
        _is_equal_location_set,
    ),
    Rule(
        "pyiceberg-says-it-in-other-words",
        "the texts that clients look for are those of the Java reference",
        _is_in_other_words,
    ),
)
