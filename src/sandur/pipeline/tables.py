"""The shapes of all datasets that the pipeline reads and publishes: one declaration for Spark, Parquet and Iceberg.

Shapes only grow: a column keeps its id for ever, and a new one gets the next id.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

Kind = Literal["boolean", "int", "long", "double", "string", "timestamptz"]

_SPARK: Final[dict[Kind, str]] = {"int": "integer", "timestamptz": "timestamp"}  # The other kinds have the same name.
_ARROW: Final[dict[Kind, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last time that Spark supports."""


def clamped_ms(value: int) -> int:
    """A time that fits into a timestamp; foreign metadata may contain any number."""
    return min(max(value, 0), LAST_MS)


class Column(NamedTuple):
    """A column; `id` is its field id in Parquet and in Iceberg."""

    id: int
    name: str
    kind: Kind
    is_required: bool = False


class Shape(NamedTuple):
    """A dataset: its columns, and the key columns that identify and order its rows."""

    name: str
    columns: Sequence[Column]
    key: Sequence[str]

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def spark_schema(self) -> StructType:
        schema = StructType()
        for column in self.columns:
            schema.add(column.name, _SPARK.get(column.kind, column.kind))
        return schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of Parquet files, with the field ids that Iceberg readers use."""
        fields = [
            pa.field(
                column.name,
                _ARROW[column.kind],
                nullable=not column.is_required,
                metadata={"PARQUET:field_id": str(column.id)},
            )
            for column in self.columns
        ]
        return pa.schema(fields)

    @property
    def plain_arrow_schema(self) -> pa.Schema:
        """The schema of batches in Spark: without field ids, every column nullable."""
        return pa.schema([pa.field(column.name, _ARROW[column.kind]) for column in self.columns])


def shape(name: str, columns: str, *, key: str) -> Shape:
    """A shape from columns `name kind, name kind`; a `!` marks a required column. Ids follow the order."""
    return Shape(name, [_column(number, text) for number, text in enumerate(columns.split(","), start=1)], key.split())


def with_problem(shape: Shape) -> Shape:
    return shape._replace(columns=[*shape.columns, Column(len(shape.columns) + 1, "problem", "string")])


def _column(number: int, text: str) -> Column:
    name, kind = text.split()
    plain = kind.removesuffix("!")
    if plain not in _ARROW:
        raise ValueError(f"column {name}: expected a kind of {', '.join(_ARROW)}, found {plain}")
    return Column(number, name, plain, kind.endswith("!"))


_COMMIT: Final = """
    format string!, commit_key string!, event_id string!, table_uuid string!, metadata_location string!,
    previous_metadata_location string, previous_commit_key string, snapshot_id long, operation string!,
    metadata_version long!, last_sequence_number long!, committed_at timestamptz!, committed_at_ms long!,
    source string!, principal string!, client string!, run_id string!, task_id string!
    """

_LATER: Final = "principal_id string, refs_json string, spec_id int"
"""Columns that older releases did not publish: the id of the principal, the references, the spec of new files."""

_CHANGED: Final = """
    object_type string, object_id string, change string, catalog string, namespace string, name string,
    previous_catalog string, previous_namespace string, previous_name string, details_json string
    """

EVENTS: Final = shape(
    "events",
    f"key string!, position long, date string, state string, {_COMMIT.replace('!', '')}, "
    f"problem string, detail string, body string, size_bytes long, {_LATER}, event_type string, {_CHANGED}",
    key="key",
)
"""The rows of `sandur_events`: one per object in the events folder, with its `problem` if it has one.

The last columns are those of a change of the catalog, which has no table and no version. Commits have none of them.
"""

NAMES: Final = shape(
    "names",
    """
    catalog string!, namespace string!, name string!, kind string!, format string!, uuid string!, state string!,
    is_shown boolean!, table_uuid string, metadata_location string, commit_key string, snapshot_id long,
    committed_at timestamptz, metadata_version long, problem string, etag string, tags_json string
    """,
    key="catalog namespace name",
)
"""The rows of `sandur_names`: every name, and the table that a reader finds under it.

`etag` changes with every change of a Delta table's record, with or without a commit. `tags_json` has the tags of the
object under `tags`, those of its columns under `columns`; null without any.
"""

POINTERS: Final = shape(
    "pointers",
    """
    uuid string!, table_uuid string, kind string, format string, state string, catalog string, namespace string,
    name string, metadata_location string, previous_metadata_location string, commit_key string,
    previous_commit_key string, snapshot_id long, committed_at timestamptz, metadata_version long, is_pending boolean,
    updated_at timestamptz, version string!, problem string
    """,
    key="uuid",
)
"""The rows of `sandur_pointers`: every pointer, its effective head, and the name of its creation or drop."""

COMMITS: Final = shape(
    "commits",
    f"catalog string, namespace string, name string, kind string, {_COMMIT}, lineage string!, quality string!, "
    f"{_LATER}",
    key="table_uuid metadata_version commit_key",
)
"""One row per commit, under the name that its table has now."""

OWNERS: Final = shape(
    "owners",
    "table_uuid string!, catalog string!, namespace string!, name string!, kind string!",
    key="table_uuid",
)
"""The name of each table in `commits`."""

QUARANTINE: Final = shape(
    "quarantine", "key string!, problem string!, detail string!, size_bytes long!, body string", key="key"
)
"""One row per receipt, audit batch or lineage batch that could not be understood, with the reason."""

ACTIVITY: Final = shape(
    "activity",
    """
    table_uuid string!, day string!, commits long!, snapshots long!, changes_of_metadata long!, commits_by_rest long!,
    commits_by_pipeline long!, commits_by_others long!, first_committed_at timestamptz!, last_committed_at timestamptz!
    """,
    key="table_uuid day",
)
"""One row per table and day: the number of commits by kind and source."""

TIMELINE: Final = shape(
    "timeline",
    """
    catalog string, namespace string, name string, table_uuid string!, version long!, is_current boolean!,
    is_linked boolean!, committed_at timestamptz!, operation string!, snapshot_id long, source string!,
    principal string!, client string!, lineage string!, quality string!, metadata_location string!, commit_key string!
    """,
    key="table_uuid version commit_key",
)
"""One row per version of a table: whether it is current, and whether its predecessor is known."""

_DESCRIBED: Final = """
    comment string, owner string, properties_json string!, created_at timestamptz!, updated_at timestamptz!,
    created_by string, updated_by string
    """

CATALOGS: Final = shape(
    "catalogs",
    f"name string!, id string!, root string!, {_DESCRIBED}",
    key="name",
)
"""One row per catalog."""

NAMESPACES: Final = shape(
    "namespaces",
    f"catalog string!, namespace string!, id string!, depth int!, {_DESCRIBED}",
    key="catalog namespace",
)
"""One row per namespace."""

_NAMED: Final = "catalog string!, namespace string!, name string!, uuid string!"

TABLES: Final = shape(
    "tables",
    f"""{_NAMED},
    table_uuid string, kind string!, format string!, location string, metadata_location string, metadata_version long,
    commit_key string, snapshot_id long, format_version int, current_schema_id int, default_spec_id int,
    last_sequence_number long, last_updated_at timestamptz, column_count int, snapshot_count int, record_count long,
    file_count long, size_bytes long, properties_json string, problem string, etag string, tags_json string
    """,
    key="catalog namespace name",
)
"""One row per table and view, Delta tables included."""

COLUMNS: Final = shape(
    "columns",
    f"""{_NAMED},
    id string!, schema_id int, field_id int!, parent_field_id int, ordinal int!, path string!, column_name string!,
    type string!, is_required boolean!, is_identifier boolean!, doc string
    """,
    key="catalog namespace name ordinal",
)
"""One row per column at any depth, with its field id."""

SCHEMAS: Final = shape(
    "schema_history",
    f"{_NAMED}, schema_id int!, is_current boolean!, column_count int!, schema_json string!",
    key="catalog namespace name schema_id",
)
"""One row per schema that a table has had."""

PARTITION_SPECS: Final = shape(
    "partition_spec_history",
    f"{_NAMED}, spec_id int!, is_default boolean!, field_count int!, spec string!, fields_json string!",
    key="catalog namespace name spec_id",
)
"""One row per partition spec that a table has had."""

SNAPSHOTS: Final = shape(
    "snapshots",
    f"""{_NAMED},
    snapshot_id long!, parent_snapshot_id long, sequence_number long!, committed_at timestamptz!, operation string,
    is_current boolean!, schema_id int, added_records long, deleted_records long, total_records long,
    manifest_list string, summary_json string!
    """,
    key="catalog namespace name sequence_number snapshot_id",
)
"""One row per snapshot."""

REFS: Final = shape(
    "refs",
    f"""{_NAMED},
    ref string!, type string!, snapshot_id long!, min_snapshots_to_keep int, max_snapshot_age_ms long,
    max_ref_age_ms long
    """,
    key="catalog namespace name ref",
)
"""One row per branch or tag."""

CHANGES: Final = shape(
    "changes",
    """
    object string!, id string!, change string!, catalog string, namespace string, name string, previous_catalog string,
    previous_namespace string, previous_name string, format string, changed_at timestamptz, seen_at timestamptz,
    feed_entry long, principal string, commit_key string, previous_commit_key string, event_id string, source string,
    principal_id string, client string, run_id string, task_id string, details_json string
    """,
    key="changed_at object id commit_key",
)
"""The changes of everything in the catalog. Rows without a `commit_key` were found by older releases, which compared
two runs: they have `seen_at` and `feed_entry` instead."""

TABLE_METRICS: Final = shape(
    "table_metrics",
    """
    table_uuid string!, day string!, catalog string!, namespace string!, name string!, scans long!,
    scan_planning_ms long!, scan_planning_max_ms long!, scanned_files long!, skipped_files long!, scanned_bytes long!,
    scanned_manifests long!, skipped_manifests long!, commits long!, commit_ms long!, commit_attempts long!,
    added_files long!, added_records long!, removed_files long!, removed_records long!, other_reports long!,
    last_reported_at timestamptz!
    """,
    key="table_uuid day",
)
"""Statistics of the scans and commits that engines reported, by table and day."""

TABLE_HEALTH: Final = shape(
    "table_health",
    f"""{_NAMED},
    format string!, mode string!, blocked string!, needs_json string!, benefit double!, measured_at timestamptz!,
    last_commit_at timestamptz, last_commit_ms long, data_files long, data_bytes long, small_files long,
    small_bytes long, excess_files long, files_with_deletes long, bytes_with_deletes long, delete_files long,
    delete_bytes long, manifests long, manifest_bytes long, snapshots long, expirable_snapshots long,
    expirable_bytes long, unpublished_commits long, commits_since_checkpoint long, scans_per_day double,
    policy_json string!
    """,
    key="catalog namespace name",
)
"""The health of each table, what it needs, and the fields of its policy that are not the defaults."""

MAINTENANCE: Final = shape(
    "maintenance",
    f"""run string!, number long!, {_NAMED},
    format string!, operation string!, state string!, why string!, reason string!, policy_hash string!,
    started_at timestamptz, ended_at timestamptz, attempts int!, version_before long, version_after long,
    files_before long, files_after long, bytes_before long, bytes_after long, rows_before long, rows_after long,
    delete_files_before long, delete_files_after long, snapshots_before long, snapshots_after long,
    files_rewritten long!, bytes_rewritten long!, files_deleted long!, bytes_deleted long!, files_found long!,
    bytes_found long!, task_seconds double!, estimated_bytes long!, estimated_task_seconds long!, settled_by string!
    """,
    key="run number",
)
"""One row per operation of a maintenance run, and one for everything that a run skipped."""

AUDIT: Final = shape(
    "audit",
    """
    id string!, time timestamptz!, date string!, kind string!, request_id string, tenant string!, workspace string!,
    principal string, principal_id string, actor string, issuer string, token_id string, peer string, protocol string,
    operation string!, securable_type string, securable_name string, securable_id string, privilege string,
    decision string!, reason string, detail string, manifest_number long, status int!, outcome string!,
    is_replay boolean!, idempotency_key_hash string, declared_agent string, declared_trace_id string,
    declared_run_id string, declared_task_id string, further_decisions_json string, changes_json string,
    credentials_json string, sampled double, lost_json string, trace_id string
    """,
    key="time id",
)
"""The records of the audit trail. `date` is the folder of a record; what is `declared` was chosen by the client."""

AUDIT_OBJECTS: Final = shape(
    "audit_objects",
    ", ".join(f"{column.name} {column.kind}" for column in AUDIT.columns)
    + ", key string, problem string, problem_detail string, body string, size_bytes long",
    key="id",
)
"""The rows of `sandur_audit`: one per record, or one per object with its `problem`."""

LINEAGE_OBJECTS: Final = shape(
    "lineage_objects",
    """
    key string, position long, id string, received_at timestamptz, principal string, principal_id string, host string,
    is_own boolean, run_id string, event_type string, event_time string, job_namespace string, job_name string,
    event string, problem string, problem_detail string, body string, size_bytes long
    """,
    key="id",
)
"""The rows of `sandur_lineage`: one per event, as it was sent, or one per object with its `problem`."""

LINEAGE_FACTS: Final = shape(
    "lineage_facts",
    """
    key string, run_key string, received_at timestamptz, facts_json string, events long, is_news boolean,
    problem string, detail string, body string, size_bytes long
    """,
    key="key run_key",
)
"""What new events state about runs, merged as far as one task read them; or an object with its `problem`."""

LINEAGE_STATES: Final = shape(
    "lineage_states", "run_key string!, received_at timestamptz!, facts_json string!", key="run_key"
)
"""The fold of the events of each run, as long as events are kept."""

_EDGE: Final = """
    source_uuid string, source_name string!, target_uuid string, target_name string!, job_namespace string!,
    job_name string!, last_run_id string, confidence string!, first_seen timestamptz!, last_seen timestamptz!
    """

LINEAGE: Final = shape(
    "lineage",
    f"edge_id string!, {_EDGE}, runs long!, source_version string, target_version string, commit_key string",
    key="target_name source_name edge_id",
)
"""One row per source, target and job. Versions and `commit_key` are those of the last run that has them."""

COLUMN_LINEAGE: Final = shape(
    "column_lineage",
    f"""edge_id string!, {_EDGE}, source_column string!, source_field_id int, target_column string,
    target_field_id int, type string!, subtype string!, masking boolean!""",
    key="target_name target_column source_name source_column edge_id",
)
"""One row per column of a source that a column of a target depends on; a null target column stands for all rows."""

LINEAGE_RUNS: Final = shape(
    "lineage_runs",
    """
    run_key string!, run_id string!, job_namespace string!, job_name string!, state string!, started_at timestamptz!,
    last_event_at timestamptz!, parent_run_id string, parent_job string, error string, engine string,
    principal string!, principal_id string!, inputs_json string!, outputs_json string!
    """,
    key="last_event_at run_key",
)
"""One row per run of a job, with the datasets that it read and wrote."""

OF_METADATA: Final = (TABLES, COLUMNS, SCHEMAS, PARTITION_SPECS, SNAPSHOTS, REFS)
"""The datasets that come from metadata files of tables and views."""

SHAPES: Final = {
    one.name: one
    for one in (
        *(COMMITS, OWNERS, QUARANTINE, ACTIVITY, TIMELINE),
        *(CATALOGS, NAMESPACES, *OF_METADATA, CHANGES),
        *(TABLE_METRICS, TABLE_HEALTH, MAINTENANCE, AUDIT),
        *(LINEAGE, COLUMN_LINEAGE, LINEAGE_RUNS, LINEAGE_STATES),
    )
}
"""Every published dataset by name."""

WITHOUT_TABLE: Final = frozenset({OWNERS.name, LINEAGE_STATES.name})
"""Datasets that only the jobs themselves use."""
