"""Turn the folded runs into edges of tables and of columns, each with its confidence and its commit.

`verified`: the pipeline itself wrote it. `matched`: the version that the run wrote is a commit of the table, and the
sender made that commit or is trusted. `declared`: the word of the client. `partial`: columns that were completed from
the edge of their tables. `unresolved`: neither side is a table of this catalog.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.lineage.runs import COMMAND_RESULT
from sandur.pipeline.tables import COLUMN_LINEAGE, LINEAGE, LINEAGE_RUNS, LINEAGE_STATES, QUARANTINE

CONFIDENCES: Final = ("verified", "matched", "declared", "partial", "unresolved")
"""The best one first."""
SOURCES_SHOWN_MAX: Final = 5

_DIRECT: Final = "DIRECT"
_FAILED: Final = ("FAIL", "ABORT")
_SIDES: Final = ("source_uuid", "source_name", "target_uuid", "target_name", "job_namespace", "job_name")
_OF_RUN: Final = ("job_namespace", "job_name", "run_id", "started_ms", "last_ms")


def parts_of_runs(facts: DataFrame, states: DataFrame) -> DataFrame:
    """The states of the runs so far and what new events state, by run, as parts to merge."""
    columns = [F.col("run_key"), F.unix_millis("received_at").alias("received_ms"), F.col("facts_json")]
    every = facts.where(F.col("problem").isNull()).select(*columns).unionByName(states.select(*columns))
    return every.groupBy("run_key").agg(
        F.max("received_ms").alias("received_ms"), F.collect_list("facts_json").alias("parts")
    )


def kept_states(states: DataFrame, before_ms: int) -> DataFrame:
    """The states of runs that may still change: events arrived since then."""
    return states.where(F.unix_millis("received_at") >= before_ms).select(*LINEAGE_STATES.column_names)


def quarantine(facts: DataFrame, missing: str) -> DataFrame:
    bad = facts.where(F.col("problem").isNotNull() & (F.col("problem") != missing))
    return bad.dropDuplicates(["key"]).select(*QUARANTINE.column_names)


def tables_and_owners(tables: DataFrame, owners: DataFrame) -> DataFrame:
    """The tables of the catalog (`rank` 0), and the last names of tables that are gone (`rank` 1)."""
    columns = ["catalog", "namespace", "name", "table_uuid"]
    live = tables.where(F.col("table_uuid").isNotNull()).select(*columns, "location", F.lit(0).alias("rank"))
    gone = owners.join(live.select("table_uuid"), on="table_uuid", how="left_anti")
    return live.unionByName(gone.select(*columns, _null("string").alias("location"), F.lit(1).alias("rank")))


def candidates(derived: DataFrame, keys: DataFrame) -> DataFrame:
    """The tables that each reference may mean: `place` is the position of the key that matched, the best one first."""
    refs = derived.where("kind = 'ref'").dropDuplicates(["ref_id"])
    each = refs.select("ref_id", F.posexplode(F.from_json("ref_keys_json", "array<string>")).alias("place", "key"))
    return each.join(keys, on="key", how="inner").select("ref_id", "place", "rank", "table_uuid", "full_name")


def resolved(derived: DataFrame, found: DataFrame) -> DataFrame:
    """Every reference once: with its table, or with the name that the client gave it (`uuid` is null)."""
    order = [F.col("place"), F.col("rank"), F.col("table_uuid")]
    first = _first_by(found, ["ref_id"], order)
    refs = derived.where("kind = 'ref'").dropDuplicates(["ref_id"]).select("ref_id", "ref_name")
    return refs.join(first, on="ref_id", how="left").select(
        "ref_id",
        F.col("table_uuid").alias("uuid"),
        F.coalesce("full_name", "ref_name").alias("name"),
    )


def commits_by_version(commits: DataFrame, found: DataFrame) -> DataFrame:
    """The commit that made each version of the tables in question: the first one with the snapshot, or of the version.

    A later change of properties has the same snapshot.
    """
    wanted = found.select("table_uuid").distinct()
    version = F.when(F.col("format") == "delta", F.col("metadata_version")).otherwise(F.col("snapshot_id"))
    made = commits.where(version.isNotNull()).join(wanted, on="table_uuid", how="left_semi")
    first = F.min_by(F.struct("commit_key", "principal_id", "source"), F.struct("metadata_version", "commit_key"))
    by_version = made.groupBy("table_uuid", version.cast("string").alias("version")).agg(first.alias("first"))
    return by_version.select(
        "table_uuid",
        "version",
        F.col("first.commit_key").alias("found_key"),
        F.coalesce("first.principal_id", F.lit("")).alias("committer_id"),
    )


def stated_delta_tables(derived: DataFrame, found: DataFrame, tables: DataFrame) -> DataFrame:
    """The versions of Delta tables that runs say they wrote: `uuid`, `table_uuid` and `version`, each once."""
    delta = tables.where("format = 'delta'").select("uuid", "table_uuid")
    stated = _ports(derived, "output").where(F.col("version").isNotNull()).select("ref_id", "version")
    named = stated.join(found.select("ref_id", "table_uuid"), on="ref_id", how="inner")
    return named.join(delta, on="table_uuid", how="inner").select("uuid", "table_uuid", "version").distinct()


def commits_in_logs(stated: DataFrame, newest: DataFrame) -> DataFrame:
    """The versions of external Delta tables that their own logs have. `newest` is the newest version of each log.

    These commits do not pass through the catalog, so their committer is unknown, and they have no row in `commits`. The
    key is made of the table and the version.
    """
    number = F.col("version").try_cast("long")
    is_logged = number.between(0, F.col("newest")) & (number.cast("string") == F.col("version"))
    return (
        stated.join(newest, on="uuid", how="inner")
        .where(is_logged)
        .select(
            "table_uuid",
            "version",
            F.sha2(F.concat_ws("\n", "table_uuid", "version", F.lit("")), 256).alias("found_key"),
            F.lit("").alias("committer_id"),
        )
    )


def outputs(derived: DataFrame, references: DataFrame, found: DataFrame, made: DataFrame) -> DataFrame:
    """The outputs of runs that did not fail, with the commit of the version that each wrote.

    Spark reports one statement as several runs: of those with the same parent, table and version, the one that began
    first stands for all. If a version is that of a dropped table with the same name, that table was the output.
    """
    ports = _ports(derived, "output").withColumnRenamed("commit_key", "own_key")
    versions = found.join(made, on="table_uuid", how="inner")
    order = [F.col("place"), F.col("rank"), F.col("table_uuid")]
    committed = _first_by(versions, ["ref_id", "version"], order)
    matched = ports.join(committed, on=["ref_id", "version"], how="left").join(references, on="ref_id", how="left")
    may_match = F.col("is_trusted") | ((F.col("principal_id") != "") & (F.col("principal_id") == F.col("committer_id")))
    commit_key = F.coalesce("own_key", F.when(may_match, F.col("found_key")))
    output = matched.select(
        *("run_key", "run_id", "job_namespace", "job_name", "started_ms", "last_ms", "parent_run_id", "principal_id"),
        *("ref_id", "version", "rows", "is_own"),
        F.coalesce("own_uuid", "table_uuid", "uuid").alias("target_uuid"),
        F.coalesce("full_name", "name").alias("target_name"),
        commit_key.alias("commit_key"),
    )
    # Spark names a table that it is creating by a place that does not exist, until it knows the true one.
    of_target = Window.partitionBy("run_key", F.coalesce("target_uuid", "target_name")).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    same = {name: F.coalesce(name, F.max(name).over(of_target)) for name in ("version", "commit_key")}
    return _attributed(output.withColumns(same))


def _attributed(output: DataFrame) -> DataFrame:
    """The outputs, each attributed to the run that stands for its statement."""
    statement = F.when(
        F.col("parent_run_id").isNotNull() & F.col("version").isNotNull(),
        F.concat_ws("\n", "principal_id", "parent_run_id", F.coalesce("target_uuid", "target_name"), "version"),
    ).otherwise(F.concat_ws("\n", F.lit("run"), "run_key"))
    order = Window.partitionBy("statement").orderBy("started_ms", "run_key")
    whole = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    standing = {name: F.first(name).over(whole) for name in _OF_RUN}
    standing["last_ms"] = F.max("last_ms").over(whole)
    standing["statement_run"] = F.first("run_key").over(whole)
    return output.withColumn("statement", statement).withColumns(standing).drop("statement")


def _ports(derived: DataFrame, role: str) -> DataFrame:
    is_shown = F.col("job_name").endswith(COMMAND_RESULT)
    is_wanted = (F.col("kind") == "port") & (F.col("role") == role) & ~F.col("state").isin(*_FAILED) & ~is_shown
    return derived.where(is_wanted).withColumnRenamed("uuid", "own_uuid")


def run_edges(derived: DataFrame, references: DataFrame, output: DataFrame) -> DataFrame:
    """Every pair of an input and an output of a run; what a statement reads from its own target is no edge."""
    inputs = (
        _ports(derived, "input")
        .join(references, on="ref_id", how="left")
        .select(
            "run_key",
            F.col("version").alias("source_version"),
            F.coalesce("own_uuid", "uuid").alias("source_uuid"),
            F.col("name").alias("source_name"),
        )
    )
    pairs = inputs.join(output, on="run_key", how="inner").withColumnRenamed("version", "target_version")
    is_own_target = F.coalesce("source_uuid", "source_name") == F.coalesce("target_uuid", "target_name")
    return pairs.where(~is_own_target).withColumn("confidence", _confidence())


def _confidence() -> Column:
    is_ours = F.col("source_uuid").isNotNull() | F.col("target_uuid").isNotNull()
    return (
        F.when(F.col("is_own"), "verified")
        .when(F.col("commit_key").isNotNull(), "matched")
        .when(is_ours, "declared")
        .otherwise("unresolved")
    )


def column_edges(derived: DataFrame, references: DataFrame, output: DataFrame) -> DataFrame:
    """What runs state about columns, with the output that each is about."""
    stated = derived.where("kind = 'column'").select(
        "run_key", "ref_id", "target_ref_id", "source_column", "target_column", "type", "subtype", "masking"
    )
    sources = references.select("ref_id", F.col("uuid").alias("source_uuid"), F.col("name").alias("source_name"))
    targets = output.withColumnRenamed("ref_id", "target_ref_id")
    return (
        stated.join(sources, on="ref_id", how="left")
        .join(targets, on=["run_key", "target_ref_id"], how="inner")
        .withColumn("target_column", F.nullif("target_column", F.lit("")))
        .withColumn("confidence", _confidence())
    )


def completed(columns: DataFrame, edges: DataFrame, fields: DataFrame) -> DataFrame:
    """The columns without those of a target itself, and columns that the client left out.

    Of a MERGE, Spark states that the target's columns come from the target. The source's columns of the same name are
    added then, as `partial`.
    """
    target, source = F.coalesce("target_uuid", "target_name"), F.coalesce("source_uuid", "source_name")
    is_direct, is_self = F.col("type") == _DIRECT, source == target
    of_target = columns.where(is_direct).groupBy("run_key", "target_uuid")
    merges = of_target.agg(F.bool_and(is_self).alias("is_merge")).where("is_merge").select("run_key", "target_uuid")
    lacking = edges.join(merges, on=["run_key", "target_uuid"], how="inner").where(F.col("source_uuid").isNotNull())
    from_fields = fields.select(F.col("table_uuid").alias("source_uuid"), F.col("path").alias("source_column"))
    to_fields = fields.select(F.col("table_uuid").alias("target_uuid"), F.col("path").alias("target_column"))
    added = (
        lacking.join(from_fields, on="source_uuid", how="inner")
        .join(to_fields, on="target_uuid", how="inner")
        .where(F.col("source_column") == F.col("target_column"))
        .withColumns(
            {
                "type": F.lit(_DIRECT),
                "subtype": F.lit(""),
                "masking": F.lit(False),  # noqa: FBT003 - Spark's signature
                "confidence": F.lit("partial"),
            }
        )
    )
    wanted = [*_SIDES, "source_column", "target_column", "type", "subtype", "masking", "confidence"]
    wanted += ["run_id", "started_ms", "last_ms"]
    return columns.where(~is_self).select(*wanted).unionByName(added.select(*wanted))


def lineage(edges: DataFrame, before: DataFrame, names: DataFrame, before_ms: int) -> DataFrame:
    """One row per source, target and job, over all runs; and the published rows whose runs are no longer kept."""
    last = F.max_by(
        F.struct("source_version", "target_version", "commit_key"),
        F.struct(F.col("commit_key").isNotNull(), "last_ms", "run_id", "source_version", "target_version"),
    )
    grouped = edges.groupBy(*_SIDES).agg(
        F.countDistinct("statement_run").cast("long").alias("runs"), last.alias("last"), *_seen()
    )
    new = grouped.select("*", "last.source_version", "last.target_version", "last.commit_key").withColumn(
        "edge_id", _edge_id(_SIDES)
    )
    return _with_published(new, before, names, before_ms, LINEAGE.column_names)


def column_lineage(
    columns: DataFrame, fields: DataFrame, before: DataFrame, names: DataFrame, before_ms: int
) -> DataFrame:
    """As `lineage`, for columns, with their field ids."""
    key = [*_SIDES, "source_column", "target_column", "type", "subtype", "masking"]
    new = columns.groupBy(*key).agg(*_seen()).withColumn("edge_id", _edge_id(key))
    for side in ("source", "target"):
        ids = fields.select(
            F.col("table_uuid").alias(f"{side}_uuid"),
            F.col("path").alias(f"{side}_column"),
            F.col("field_id").alias(f"{side}_field_id"),
        )
        new = new.join(ids, on=[f"{side}_uuid", f"{side}_column"], how="left")
    return _with_published(new, before, names, before_ms, COLUMN_LINEAGE.column_names)


def _seen() -> list[Column]:
    best = F.min(_rank(F.col("confidence")))
    return [
        F.element_at(F.array(*map(F.lit, CONFIDENCES)), best + 1).alias("confidence"),
        F.timestamp_millis(F.min("started_ms")).alias("first_seen"),
        F.timestamp_millis(F.max("last_ms")).alias("last_seen"),
        F.max_by("run_id", F.struct("last_ms", "run_id")).alias("last_run_id"),
    ]


def _rank(confidence: Column) -> Column:
    return F.array_position(F.array(*map(F.lit, CONFIDENCES)), confidence).cast("int") - 1


def _edge_id(key: list[str] | tuple[str, ...]) -> Column:
    """An id that follows from the content, whatever the tables are called now."""
    parts = [
        F.coalesce("source_uuid", "source_name"),
        F.coalesce("target_uuid", "target_name"),
        *(F.coalesce(F.col(name).cast("string"), F.lit("")) for name in key[4:]),
    ]
    return F.substring(F.sha2(F.concat_ws("\n", *parts), 256), 1, 32)


def _with_published(
    new: DataFrame, before: DataFrame, names: DataFrame, before_ms: int, columns: list[str]
) -> DataFrame:
    """The new rows, and the published ones that no kept run states again because it is older than `before_ms`."""
    was = before.select("edge_id", F.col("first_seen").alias("was"))
    current = new.join(was, on="edge_id", how="left").withColumn("first_seen", F.least("first_seen", "was"))
    old = before.where(F.unix_millis("last_seen") < before_ms).join(
        new.select("edge_id"), on="edge_id", how="left_anti"
    )
    for side in ("source", "target"):
        known = names.select(F.col("table_uuid").alias(f"{side}_uuid"), F.col("full_name").alias("known"))
        old = old.join(known, on=f"{side}_uuid", how="left")
        old = old.withColumn(f"{side}_name", F.coalesce("known", f"{side}_name")).drop("known")
    return current.select(*columns).unionByName(old.select(*columns))


def runs(derived: DataFrame, references: DataFrame, output: DataFrame, before: DataFrame, before_ms: int) -> DataFrame:
    """Every run with its datasets, without those that only show a result; and published runs that are not too old."""
    keys = output.select("run_key", "ref_id", "commit_key", F.col("target_uuid"), F.col("target_name"))
    ports = derived.where("kind = 'port'").drop("commit_key").withColumnRenamed("uuid", "own_uuid")
    named = ports.join(references, on="ref_id", how="left").join(keys, on=["run_key", "ref_id"], how="left")
    entry = F.struct(
        F.coalesce("target_name", "name").alias("name"),
        F.coalesce("own_uuid", "target_uuid", "uuid").alias("uuid"),
        "version",
        F.when(F.col("role") == "output", F.col("commit_key")).alias("commit_key"),
        "rows",
    )
    lists = named.groupBy("run_key").agg(
        *(
            F.to_json(F.array_sort(F.collect_set(F.when(F.col("role") == role, entry)))).alias(f"{role}s_json")
            for role in ("input", "output")
        )
    )
    is_shown = F.col("job_name").endswith(COMMAND_RESULT)
    new = (
        derived.where((F.col("kind") == "run") & ~is_shown & (F.col("run_id") != ""))
        .join(lists, on="run_key", how="left")
        .withColumns(
            {
                "started_at": F.timestamp_millis("started_ms"),
                "last_event_at": F.timestamp_millis("last_ms"),
                "inputs_json": F.coalesce("inputs_json", F.lit("[]")),
                "outputs_json": F.coalesce("outputs_json", F.lit("[]")),
            }
        )
    )
    old = before.where(F.unix_millis("last_event_at") >= before_ms).join(
        new.select("run_key"), on="run_key", how="left_anti"
    )
    return new.select(*LINEAGE_RUNS.column_names).unionByName(old.select(*LINEAGE_RUNS.column_names))


def lineage_of_commits(edges: DataFrame) -> DataFrame:
    """The text of each commit with known sources: `main.raw.orders, main.raw.prices -> main.sales.daily`."""
    known = edges.where(F.col("commit_key").isNotNull()).groupBy("commit_key")
    grouped = known.agg(
        F.array_sort(F.collect_set("source_name")).alias("sources"), F.max("target_name").alias("target")
    )
    shown = F.concat_ws(", ", F.slice("sources", 1, SOURCES_SHOWN_MAX))
    hidden = F.size("sources") - SOURCES_SHOWN_MAX
    more = F.when(hidden > 0, F.concat(F.lit(" and "), hidden.cast("string"), F.lit(" more"))).otherwise(F.lit(""))
    return grouped.select("commit_key", F.concat(shown, more, F.lit(" -> "), F.col("target")).alias("stated_lineage"))


def with_lineage(rows: DataFrame, stated: DataFrame) -> DataFrame:
    """Commits, or versions of the timeline, with the lineage that is stated for them."""
    columns = rows.columns
    joined = rows.join(stated, on="commit_key", how="left")
    return joined.withColumn("lineage", F.coalesce("stated_lineage", "lineage")).select(*columns)


def _first_by(rows: DataFrame, key: list[str], order: list[Column]) -> DataFrame:
    """The first row of each key."""
    place = F.row_number().over(Window.partitionBy(*key).orderBy(*order))
    return rows.withColumn("_place", place).where("_place = 1").drop("_place", "place", "rank")


def _null(kind: str) -> Column:
    return F.lit(None).cast(kind)
