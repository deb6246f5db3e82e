"""The condition of each intended difference from the Java builder, as narrow as possible."""

import re

from tests.differential.comparison import MISSING, Aspect, Comparison, Difference, canonical
from tests.differential.older_forms import UNKNOWN_FIELD
from tests.differential.outcomes import JsonObject, Verdict
from tests.differential.table_updates import RESERVED

_LAST_ADDED = {
    "Cannot set last added schema: no schema has been added": ("add-schema",),
    "Cannot set last added spec: no spec has been added": ("add-spec",),
    "Cannot set last added sort order: no sort order has been added": ("add-sort-order",),
    "Cannot set last version id: no current version id has been set": ("add-view-version",),
}


def is_last_added_reused(comparison: Comparison, difference: Difference) -> bool:
    actions = _LAST_ADDED.get(comparison.theirs.message, ())
    return difference.aspect is not Aspect.METADATA and comparison.commit.has(*actions)


def is_uuid_reassigned(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.ours.message.startswith("Cannot reassign uuid")


def is_uuid_left_out(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.message.startswith("UUID is required")
        and comparison.commit.base is None
        and not comparison.commit.has("assign-uuid")
    )


def is_location_left_out(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.message.startswith("Table location is required")
        and comparison.commit.base is None
        and not comparison.commit.has("set-location")
    )


def is_reserved_key_dropped(comparison: Comparison, difference: Difference) -> bool:
    if difference.aspect is Aspect.METADATA:
        return difference.path[:1] == ("properties",) and difference.path[1] in RESERVED and difference.ours == MISSING
    return comparison.ours.verdict is Verdict.UNCHANGED and any(
        {*_properties_set(update)} & {*RESERVED} for update in comparison.commit.updates
    )


def _properties_set(update: JsonObject) -> JsonObject:
    properties = update.get("updates", update.get("updated"))
    return properties if update.get("action") == "set-properties" and isinstance(properties, dict) else {}


def is_first_row_id_ahead(comparison: Comparison, difference: Difference) -> bool:
    added = comparison.commit.parts("add-snapshot", "snapshot")
    next_row_id = (comparison.commit.base or {}).get("next-row-id", 0)
    return difference.path == ("next-row-id",) and any(s.get("first-row-id", 0) > next_row_id for s in added)


def is_row_id_given_twice(comparison: Comparison, difference: Difference) -> bool:
    """Java did not advance next-row-id far enough, so it accepts a second snapshot or reports a smaller id."""
    return (
        difference.aspect is not Aspect.METADATA
        and comparison.ours.verdict is Verdict.CONFLICT
        and "first-row-id is behind table next-row-id" in comparison.ours.message
    )


def is_unknown_field(_comparison: Comparison, difference: Difference) -> bool:
    return difference.path == (UNKNOWN_FIELD,) and difference.theirs == MISSING


def is_removal_of_too_many_snapshots(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.theirs.message.startswith(
        "arraySize cannot be negative"
    )


def is_removal_of_nothing(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.UNCHANGED
        and comparison.commit.has("remove-schemas", "remove-partition-specs")
    )


def is_only_a_slash(comparison: Comparison, difference: Difference) -> bool:
    moved = [str(u.get("location")) for u in comparison.commit.updates if u.get("action") == "set-location"]
    location = str((comparison.commit.base or {}).get("location"))
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.verdict is Verdict.UNCHANGED
        and any(place != location and place.rstrip("/") == location.rstrip("/") for place in moved)
    )


def is_partition_field_id_reused(comparison: Comparison, difference: Difference) -> bool:
    specs = comparison.commit.parts("add-spec", "spec")
    has_gap = any("field-id" not in field for spec in specs for field in spec.get("fields", ()))
    is_id = difference.path == ("last-partition-id",) or difference.path[-1:] == ("field-id",)
    return has_gap and is_id


def is_sequence_number_behind(comparison: Comparison, difference: Difference) -> bool:
    """The builder accepts a used sequence number only for a snapshot without a parent."""
    orphans = [s for s in comparison.commit.parts("add-snapshot", "snapshot") if "parent-snapshot-id" not in s]
    if difference.path == ("last-sequence-number",):
        return bool(orphans) and difference.ours > difference.theirs
    return (
        difference.aspect is Aspect.VERDICT
        and bool(orphans)
        and comparison.ours.verdict is Verdict.CONFLICT
        and "Cannot add snapshot with sequence number" in comparison.ours.message
    )


def is_sequence_number_in_v1(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is Aspect.MESSAGE and comparison.ours.message.startswith("Sequence number must be 0 in v1")


def is_main_a_tag(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.ours.message.startswith("Cannot set main to a tag")


def is_default_removed_before(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.message.startswith(
            ("Invalid table metadata: Cannot find", "Cannot set current schema to unknown schema")
        )
        and comparison.commit.has("remove-partition-specs", "remove-schemas")
    )


def is_requirement_checked_first(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.VERDICT
        and comparison.ours.message.startswith("Requirement failed: ")
        and comparison.theirs.verdict is Verdict.REFUSED
        and (comparison.theirs.has_crashed or re.match(_READING, comparison.theirs.message) is not None)
    )


def is_operation_left_out(_comparison: Comparison, difference: Difference) -> bool:
    return difference.path[-2:] == ("summary", "operation") and (difference.ours, difference.theirs) == (
        MISSING,
        "overwrite",
    )


def is_order_id_left_out(comparison: Comparison, difference: Difference) -> bool:
    orders = comparison.commit.parts("add-sort-order", "sort-order")
    return (
        difference.aspect is not Aspect.METADATA
        and comparison.theirs.message == "Cannot parse missing int: order-id"
        and any("order-id" not in order for order in orders)
    )


PARSING = (
    "Cannot parse|Cannot convert metadata update action|Unrecognized update requirement|"
    "Invalid set of snapshot ids|Invalid encryption key, must be"
)


# Java parses the whole request, and builds every schema, order and snapshot, before it applies anything.
_READING = (
    f"{PARSING}|Multiple entries with same key|Invalid schema: multiple fields|Cannot add field|"
    "Cannot create required field|Sort order ID|Unsorted order|Invalid sort direction|Unexpected null order|"
    "Invalid first-row-id|Invalid added-rows|Invalid snapshot ref type|Invalid number of buckets|Decimals with|"
    "Type: variant is not supported|Invalid column name|Unsupported type|Cannot (bucket by|truncate) type|"
    "Cannot create identity partition"
)


def is_another_fault(comparison: Comparison, difference: Difference) -> bool:
    """Several invalid updates: both engines parse before they apply, but check different things at each step."""
    ours_is_reading = "malformed" in comparison.ours.message
    theirs_is_reading = re.match(_READING, comparison.theirs.message) is not None
    return difference.aspect is Aspect.MESSAGE and _size(comparison) > 1 and (ours_is_reading or theirs_is_reading)


def _size(comparison: Comparison) -> int:
    """The number of parts of a request, each of which may be invalid."""
    commit = comparison.commit
    structures = [*commit.parts("add-spec", "spec"), *commit.parts("add-sort-order", "sort-order")]
    fields = [field for structure in structures for field in structure.get("fields", ())]
    return len(commit.updates) + len(commit.requirements) + len(fields)


def is_another_order_of_problems(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.MESSAGE
        and comparison.theirs.message.startswith("Invalid schema for v")
        and _problems(comparison.theirs.message) == _problems(comparison.ours.message)
    )


def _problems(message: str) -> list[str]:
    """The columns with problems: of two problems in one column each engine reports one."""
    return sorted(re.findall("^- Invalid (?:type|initial default) for (.*?): ", message, flags=re.MULTILINE))


_NUMBER = re.compile("[0-9]+")


def is_only_the_clock(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.MESSAGE
        and comparison.theirs.message.startswith("Invalid update timestamp")
        and _NUMBER.sub("", comparison.theirs.message) in _NUMBER.sub("", comparison.ours.message)
    )


def is_unsupported_version(comparison: Comparison, difference: Difference) -> bool:
    version = comparison.commit.request["properties"].get("format-version")
    return (
        difference.aspect is not Aspect.METADATA
        and version in {"0", "5", "9"}
        and comparison.ours.message.startswith("Unsupported format version")
    )


def are_partition_ids_ignored(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is Aspect.VERDICT and comparison.theirs.message.startswith(
        ("Spec does not use sequential IDs", "Cannot parse spec with missing field IDs")
    )


# Java binds the spec and the order while it parses; we check the properties and the version first.
EARLY_IN_JAVA = f"{_READING}|Cannot (sort|use|find source)"


LATE_IN_JAVA = (
    "Unsupported format version|Table property|Invalid properties|Invalid metrics config|Cannot downgrade|"
    "create table request is malformed|Cannot find source column|Invalid sort|Invalid schema for|Cannot use partition"
)


def is_slash_of_a_view(_comparison: Comparison, difference: Difference) -> bool:
    return difference.path == ("location",) and difference.theirs == difference.ours + "/"


def is_history_left_alone(comparison: Comparison, difference: Difference) -> bool:
    base = canonical(comparison.commit.base)
    return difference.path in {("versions",), ("version-log",)} and difference.ours == base.get(difference.path[0])


def is_update_of_a_table(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is not Aspect.METADATA and comparison.ours.message.startswith("Cannot apply update")


def is_unwritable_view(comparison: Comparison, difference: Difference) -> bool:
    return difference.aspect is Aspect.MESSAGE and comparison.ours.message.startswith(
        ("Unsupported format version", "Invalid view version: Cannot serialize unsupported")
    )


def is_another_order_of_dialects(comparison: Comparison, difference: Difference) -> bool:
    return (
        difference.aspect is Aspect.MESSAGE
        and comparison.theirs.message.startswith("Cannot replace view due to loss of view dialects")
        and _dialects(comparison.theirs.message) == _dialects(comparison.ours.message)
    )


def _dialects(message: str) -> list[list[str]]:
    return [sorted(re.findall("[a-z]+", found)) for found in re.findall(r"\[(.*?)\]", message)]
