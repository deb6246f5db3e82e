"""The intended differences, each with a name and a reason; every other difference is a bug."""

from tests.differential import java_conditions as java
from tests.differential import pyiceberg_conditions as pyiceberg
from tests.differential.rules import Rewording, Rule

_LAST_ADDED = Rule(
    "last-added-may-be-reused",
    "-1 means the entry this request added, also when it turned out to be there already",
    java.is_last_added_reused,
)
_UPDATE_NAMES = Rule(
    "updates-are-named-as-in-the-protocol",
    "clients know `set-current-view-version`, not the name of a class",
    Rewording("Cannot (apply update|validate) [A-Z]", "Cannot (apply update|validate) [a-z-]+ (to|against) a"),
)
_REQUIREMENTS_FIRST = Rule(
    "requirements-are-checked-before-rules",
    "a stale client is told to load again even if what it sends would also be refused",
    java.is_requirement_checked_first,
)
_SEVERAL_FAULTS = Rule(
    "one-of-several-faults-is-named",
    "reading and checking come in another order; every fault named is real",
    java.is_another_fault,
)
_SLASH = Rule(
    "a-slash-at-the-end-is-no-other-location",
    "it is not stored, so nothing changes",
    java.is_only_a_slash,
)
_NEVER_IN_VIEWS = ("transforms-are-named-when-they-do-not-fit",)

# Both refuse for the same reason; these texts differ for every schema, spec or order.
_WORDS: tuple[Rule, ...] = (
    Rule(
        "malformed-parts-are-told-by-their-place",
        "the path of the part that is wrong says more than its name",
        Rewording(java.PARSING, "malformed|has neither manifest-list nor manifests"),
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
        Rewording(
            "Unsupported type|Cannot (bucket by|truncate) type",
            "Invalid source type .* for transform|Cannot (partition|sort) by non-primitive source field",
        ),
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
    _LAST_ADDED,
    Rule(
        "uuid-is-never-reassigned",
        "the uuid is a table's identity; only creation assigns it",
        java.is_uuid_reassigned,
    ),
    Rule(
        "a-create-brings-its-uuid",
        "the engine invents nothing: the operation assigns a uuid where a client left it out",
        java.is_uuid_left_out,
    ),
    Rule(
        "a-create-brings-its-location",
        "formats 1 to 3 demand a location; the builder writes a file that its own parser refuses",
        java.is_location_left_out,
    ),
    Rule(
        "reserved-keys-are-not-stored",
        "reserved property names describe the metadata and would contradict it when stored",
        java.is_reserved_key_dropped,
    ),
    Rule(
        "row-ids-are-never-given-twice",
        "a snapshot that starts above next-row-id moves it past its own rows",
        java.is_first_row_id_ahead,
    ),
    Rule(
        "a-row-id-behind-the-moved-next-row-id-conflicts",
        "the consequence of the rule before, for a later snapshot of the same request",
        java.is_row_id_given_twice,
    ),
    Rule("unknown-fields-survive", "what another engine wrote is not ours to drop", java.is_unknown_field),
    Rule(
        "removing-more-snapshots-than-exist-is-fine",
        "unknown ids are ignored, however many; the builder computes a negative size",
        java.is_removal_of_too_many_snapshots,
    ),
    Rule(
        "removing-what-is-not-there-changes-nothing",
        "unknown schema and spec ids are ignored; a new file with the old content helps nobody",
        java.is_removal_of_nothing,
    ),
    _SLASH,
    Rule(
        "partition-field-ids-are-never-reused",
        "for a spec without ids the builder counts from 1000 again, so two fields of a table share an id",
        java.is_partition_field_id_reused,
    ),
    Rule(
        "sequence-numbers-never-go-back",
        "a number that was used up is stale whatever the snapshot's parent: the client is to retry with a new one",
        java.is_sequence_number_behind,
    ),
    Rule(
        "a-sequence-number-in-version-1-is-refused-at-once",
        "the builder notices at the end, when another fault may come first",
        java.is_sequence_number_in_v1,
    ),
    Rule(
        "what-was-removed-cannot-become-the-default",
        "the builder finds a spec it has just removed and writes a default that does not exist",
        java.is_default_removed_before,
    ),
    Rule("main-is-a-branch", "newer builders refuse a tag called main as well", java.is_main_a_tag),
    _REQUIREMENTS_FIRST,
    Rule(
        "a-missing-operation-stays-missing",
        "readers take it for overwrite; we do not write what nobody said",
        java.is_operation_left_out,
    ),
    Rule("an-order-id-may-be-left-out", "the catalog assigns it anyway", java.is_order_id_left_out),
    *_WORDS,
    _UPDATE_NAMES,
    Rule(
        "problems-of-a-schema-are-listed-level-by-level-with-defaults-as-sent",
        "the builder lists them in the order of a hash table and shows how it keeps a default in memory",
        java.is_another_order_of_problems,
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
    Rule("clocks-differ-by-milliseconds", "the message shows the moment of the commit", java.is_only_the_clock),
    _SEVERAL_FAULTS,
)


JAVA_CREATIONS: tuple[Rule, ...] = (
    Rule(
        "only-versions-1-to-4-are-created",
        "there is no version 0",
        java.is_unsupported_version,
    ),
    Rule(
        "a-creation-assigns-partition-ids",
        "the ids in the request are the client's own; the builder stumbles over them, though it assigns others",
        java.are_partition_ids_ignored,
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
        Rewording(java.EARLY_IN_JAVA, java.LATE_IN_JAVA),
    ),
)


JAVA_VIEWS: tuple[Rule, ...] = (
    _LAST_ADDED,
    Rule(
        "views-lose-the-slash-at-the-end-of-their-location-like-tables",
        "one rule for both; the builder strips it from tables alone",
        java.is_slash_of_a_view,
    ),
    _SLASH,
    Rule(
        "a-smaller-history-limit-waits-for-the-next-version",
        "a commit that brings no version and sets none current leaves versions and their log alone",
        java.is_history_left_alone,
    ),
    Rule(
        "a-view-that-nobody-can-write-is-refused-at-once",
        "the builder finds out when it writes the file, when another fault may come first",
        java.is_unwritable_view,
    ),
    Rule(
        "dialects-are-listed-in-order",
        "the builder lists them in the order of a hash table",
        java.is_another_order_of_dialects,
    ),
    *(rule for rule in _WORDS if rule.name not in _NEVER_IN_VIEWS),
    _UPDATE_NAMES,
    Rule(
        "updates-of-tables-are-refused-before-anything-else",
        "such a request is no commit on a view, whatever the state of the view",
        java.is_update_of_a_table,
    ),
    _REQUIREMENTS_FIRST,
    _SEVERAL_FAULTS,
)


PYICEBERG: tuple[Rule, ...] = (
    Rule(
        "pyiceberg-dates-a-commit-by-its-snapshot",
        "last-updated-ms is when the catalog changed the table, not when a client began to write",
        pyiceberg.is_dated_by_its_snapshot,
    ),
    Rule(
        "pyiceberg-cuts-the-parent-of-an-expired-snapshot",
        "a snapshot is never rewritten; readers cope with a parent that is gone",
        pyiceberg.is_parent_cut,
    ),
    Rule(
        "pyiceberg-keeps-history-before-a-gap",
        "what lies before a removed snapshot would show the wrong snapshot for the time between",
        pyiceberg.is_history_kept_before_a_gap,
    ),
    Rule(
        "pyiceberg-keeps-partition-statistics-of-expired-snapshots",
        "statistics go with their snapshot, as Java does",
        pyiceberg.are_partition_statistics_kept,
    ),
    Rule(
        "pyiceberg-counts-an-equal-location-as-a-change",
        "nothing changed, so no new file is written",
        pyiceberg.is_equal_location_set,
    ),
    Rule(
        "pyiceberg-says-it-in-other-words",
        "the texts that clients look for are those of the Java reference",
        pyiceberg.is_in_other_words,
    ),
)
