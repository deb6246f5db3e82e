"""The intended differences, each with a name and a reason; every other difference is a bug."""

from tests.differential import java_conditions as java
from tests.differential import pyiceberg_conditions as pyiceberg
from tests.differential.rules import Rewording, Rule

_LAST_ADDED = Rule(
    "minus-one-may-mean-an-existing-entry",
    "-1 means the entry that this request sent, even if the table had it already",
    java.is_last_added_reused,
)
_UPDATE_NAMES = Rule(
    "errors-use-update-names-of-the-protocol",
    "clients know `set-current-view-version`, not the name of a class",
    Rewording("Cannot (apply update|validate) [A-Z]", "Cannot (apply update|validate) [a-z-]+ (to|against) a"),
)
_REQUIREMENTS_FIRST = Rule(
    "requirements-are-checked-first",
    "a stale client must load again, even if its request would also be refused",
    java.is_requirement_checked_first,
)
_SEVERAL_FAULTS = Rule(
    "commit-reports-another-of-several-errors",
    "parsing and checking happen in another order; every reported error is real",
    java.is_another_fault,
)
_SLASH = Rule(
    "trailing-slash-is-not-a-new-location",
    "it is not stored, so nothing changes",
    java.is_only_a_slash,
)
_NEVER_IN_VIEWS = ("transform-type-error-names-the-transform",)

# Both refuse for the same reason; these texts differ for every schema, spec or order.
_WORDS: tuple[Rule, ...] = (
    Rule(
        "malformed-field-error-has-json-path",
        "the JSON path of the wrong field is more precise than its name",
        Rewording(java.PARSING, "malformed|has neither manifest-list nor manifests"),
    ),
    Rule(
        "duplicate-field-error-names-the-field",
        "the builder fails in an index and prints its entries",
        Rewording("Multiple entries with same key", "multiple fields for (id|name)"),
    ),
    Rule(
        "duplicate-name-error-names-outermost-column",
        "the names of its children repeat too, but the column is the cause",
        Rewording("Invalid schema: multiple fields for name", "Invalid schema: multiple fields for (name|id)"),
    ),
    Rule(
        "transform-type-error-names-the-transform",
        "the builder names the type alone",
        Rewording(
            "Unsupported type|Cannot (bucket by|truncate) type",
            "Invalid source type .* for transform|Cannot (partition|sort) by non-primitive source field",
        ),
    ),
    Rule(
        "identifier-field-error-names-parent-by-path",
        "the builder prints the whole type of the parent",
        Rewording("Cannot add field .* as an identifier field: must not be", "as an identifier field: must not be"),
    ),
    Rule(
        "variant-default-error-names-the-default",
        "the builder says that variant is not supported, which is not the reason",
        Rewording("Type: variant is not supported", "default value for variant"),
    ),
)


JAVA_TABLES: tuple[Rule, ...] = (
    _LAST_ADDED,
    Rule(
        "table-uuid-cannot-change",
        "the uuid is a table's identity; only creation assigns it",
        java.is_uuid_reassigned,
    ),
    Rule(
        "create-requires-uuid",
        "the engine is pure; the operation adds the uuid before it calls the engine",
        java.is_uuid_left_out,
    ),
    Rule(
        "create-requires-location",
        "formats 1 to 3 require a location; the builder writes a file that its own parser refuses",
        java.is_location_left_out,
    ),
    Rule(
        "reserved-properties-are-not-stored",
        "reserved property names describe the metadata and would contradict it when stored",
        java.is_reserved_key_dropped,
    ),
    Rule(
        "row-ids-are-never-reused",
        "a snapshot that starts above next-row-id moves it past its own rows",
        java.is_first_row_id_ahead,
    ),
    Rule(
        "first-row-id-below-next-row-id-conflicts",
        "follows from the rule above, for a later snapshot of the same request",
        java.is_row_id_given_twice,
    ),
    Rule("unknown-fields-are-kept", "another engine wrote them", java.is_unknown_field),
    Rule(
        "remove-snapshots-ignores-unknown-ids",
        "unknown ids are ignored, however many; the builder computes a negative size",
        java.is_removal_of_too_many_snapshots,
    ),
    Rule(
        "removing-unknown-ids-writes-no-file",
        "unknown schema and spec ids are ignored; the new file would have the old content",
        java.is_removal_of_nothing,
    ),
    _SLASH,
    Rule(
        "partition-field-ids-are-never-reused",
        "for a spec without ids the builder counts from 1000 again: two fields of a table share an id",
        java.is_partition_field_id_reused,
    ),
    Rule(
        "sequence-number-never-decreases",
        "a used number means that the client is stale, whatever the parent of the snapshot: it must load again",
        java.is_sequence_number_behind,
    ),
    Rule(
        "v1-sequence-number-is-refused-first",
        "the builder notices at the end, when another error may come first",
        java.is_sequence_number_in_v1,
    ),
    Rule(
        "removed-spec-or-schema-cannot-become-default",
        "the builder finds a spec it has just removed and writes a default that does not exist",
        java.is_default_removed_before,
    ),
    Rule("main-must-be-a-branch", "newer builders refuse a tag called main as well", java.is_main_a_tag),
    _REQUIREMENTS_FIRST,
    Rule(
        "missing-snapshot-operation-is-not-added",
        "readers treat it as overwrite; the catalog does not add it",
        java.is_operation_left_out,
    ),
    Rule("sort-order-id-is-optional", "the catalog assigns it anyway", java.is_order_id_left_out),
    *_WORDS,
    _UPDATE_NAMES,
    Rule(
        "schema-problems-have-a-fixed-order",
        "the builder lists them in the order of a hash table and shows how it keeps a default in memory",
        java.is_another_order_of_problems,
    ),
    Rule(
        "spec-is-printed-on-one-line",
        "messages are sent in JSON and in logs",
        Rewording("Spec does not use sequential IDs", "Spec does not use sequential IDs"),
    ),
    Rule(
        "unsorted-log-is-not-reported-as-a-bug",
        "the request caused it, and we name the entries",
        Rewording(r"\[BUG\] Expected sorted", "Expected sorted"),
    ),
    Rule("error-contains-the-commit-time", "the message contains the time of the commit", java.is_only_the_clock),
    _SEVERAL_FAULTS,
)


JAVA_CREATIONS: tuple[Rule, ...] = (
    Rule(
        "format-version-must-be-1-to-4",
        "there is no version 0",
        java.is_unsupported_version,
    ),
    Rule(
        "create-assigns-partition-field-ids",
        "the ids in the request are the client's own; the builder fails on them, although it assigns others",
        java.are_partition_ids_ignored,
    ),
    Rule(
        "error-does-not-print-the-schema",
        "a schema may have thousands of columns",
        Rewording("Invalid metrics config, could not find column", "Invalid metrics config, could not find column"),
    ),
    *_WORDS,
    Rule(
        "create-reports-another-of-several-errors",
        "parsing and checking happen in another order; every reported error is real",
        Rewording(java.EARLY_IN_JAVA, java.LATE_IN_JAVA),
    ),
)


JAVA_VIEWS: tuple[Rule, ...] = (
    _LAST_ADDED,
    Rule(
        "view-location-loses-trailing-slash",
        "one rule for both; the builder strips it from tables alone",
        java.is_slash_of_a_view,
    ),
    _SLASH,
    Rule(
        "property-change-keeps-view-history",
        "only a commit that adds a version or sets the current one changes the versions and their log",
        java.is_history_left_alone,
    ),
    Rule(
        "invalid-view-is-refused-before-writing",
        "the builder notices when it writes the file, when another error may come first",
        java.is_unwritable_view,
    ),
    Rule(
        "dialects-have-a-fixed-order",
        "the builder lists them in the order of a hash table",
        java.is_another_order_of_dialects,
    ),
    *(rule for rule in _WORDS if rule.name not in _NEVER_IN_VIEWS),
    _UPDATE_NAMES,
    Rule(
        "table-update-on-view-is-refused-first",
        "such a request is not a commit to a view, whatever the state of the view",
        java.is_update_of_a_table,
    ),
    _REQUIREMENTS_FIRST,
    _SEVERAL_FAULTS,
)


PYICEBERG: tuple[Rule, ...] = (
    Rule(
        "pyiceberg-takes-last-updated-from-the-snapshot",
        "last-updated-ms is when the catalog changed the table, not when a client began to write",
        pyiceberg.is_dated_by_its_snapshot,
    ),
    Rule(
        "pyiceberg-clears-an-expired-parent-id",
        "a snapshot is never rewritten; readers accept a parent that does not exist",
        pyiceberg.is_parent_cut,
    ),
    Rule(
        "pyiceberg-keeps-the-log-before-a-removed-snapshot",
        "time travel to the gap would show a wrong snapshot",
        pyiceberg.is_history_kept_before_a_gap,
    ),
    Rule(
        "pyiceberg-keeps-partition-statistics-of-expired-snapshots",
        "statistics are removed with their snapshot, as in Java",
        pyiceberg.are_partition_statistics_kept,
    ),
    Rule(
        "pyiceberg-treats-an-equal-location-as-a-change",
        "nothing changed, so no new file is written",
        pyiceberg.is_equal_location_set,
    ),
    Rule(
        "pyiceberg-words-errors-differently",
        "the texts that clients look for are those of the Java reference",
        pyiceberg.is_in_other_words,
    ),
)
